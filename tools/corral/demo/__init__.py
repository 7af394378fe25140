"""Tiny models with known answers, a real one, a hub on loopback, and the tour that `make demo` takes."""
