"""What the operator wants (intent) and what was measured (ledger): reading and checking the catalog's files."""
