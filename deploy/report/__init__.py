"""`marble report`: a run's ledger as numbers (numbers/), as plots (drawing/) and as one HTML file (page.py)."""
