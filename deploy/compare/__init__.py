"""Methods against each other on one recipe: `marble compare`. Imports no torch and, but for jobs, no ray."""
