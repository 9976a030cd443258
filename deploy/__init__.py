"""The outer edge: recipes, the command line, reports, serving."""
