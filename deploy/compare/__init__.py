"""Methods against each other on one recipe: `marble compare`. Imports no torch."""
