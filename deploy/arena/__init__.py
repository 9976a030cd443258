"""`marble arena`: people choose between pictures of two runs without knowing whose they are."""
