"""Reward scorers, one a file, and the contract they keep."""
