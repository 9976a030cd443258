"""What the ledger says, as plain numbers: pure functions on numpy arrays, no drawing and no HTML."""
