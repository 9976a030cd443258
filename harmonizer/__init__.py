"""From K reward gradients to one step: min-norm QP, smoothing, cached weights. Pure maths, no torch."""
