"""Hugging Face: which revision, which files, which sha256."""
