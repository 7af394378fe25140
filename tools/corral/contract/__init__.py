"""What a client of the served API can rely on: one check for each promise, by the clients' own SDKs.

``reach`` has a way to a model, ``check`` what a check and its finding are, a file for each family the checks
themselves, ``load`` what is answered during a load, ``survey`` runs all of them, ``document`` is ``docs/api.md``.
"""
