"""Why a request failed: evidence from several sources, and one verdict for each model."""
