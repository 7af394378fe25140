"""A LiteLLM that is there already: what it has of corral's models, and bringing that to the catalog by its API."""
