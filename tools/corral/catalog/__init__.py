"""What the operator wants (intent) and what was measured (lock): reading, checking, writing."""
