"""What a loaded model takes, measured where it runs, beside what the lock predicted."""
