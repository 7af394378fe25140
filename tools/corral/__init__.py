"""corral: the truth about a GPU that llama.cpp shares with other tenants."""

__version__ = "0.1.0"
