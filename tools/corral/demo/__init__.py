"""Tiny models with known answers, a hub on loopback, and the tour that `make demo` takes."""
