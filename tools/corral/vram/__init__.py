"""What a model needs: asking the engine, reading the header, the ledger of measurements."""
