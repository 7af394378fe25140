"""Moving what corral pins, as one commit that is tried before it is taken over."""
