"""How long a model takes for an answer: predicted from its last benchmark, and compared with its latency budgets."""
