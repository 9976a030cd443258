"""The embedded default: procedural images with known truth, a small pipeline, and reward models that disagree."""
