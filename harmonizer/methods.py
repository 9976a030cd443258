"""Ways to weigh rewards, behind one call: Gram matrix of the members in, weights on the simplex out."""

from collections.abc import Sequence
from typing import Protocol

import numpy as np

from harmonizer.arrays import Floats, Indices
from harmonizer.config import HarmonizerConfig
from harmonizer.formulas import renormalized
from harmonizer.report import Weighting


class WeighingMethod(Protocol):
    """Weighs the rewards that are in a solve."""

    def __call__(self, gramian_MM: Floats, members_M: Indices) -> Weighting:
        """Weights of the rewards `members_M` (indices into K) with Gram matrix `gramian_MM` (diagonal at most 1)."""
        ...


class ConstantWeights:
    """The same weights on every solve, renormalised over the rewards that are there (`uniform`, `fixed`)."""

    def __init__(self, weights_K: Floats, label: str) -> None:
        self.weights_K = weights_K
        self.label = label

    def __call__(self, gramian_MM: Floats, members_M: Indices) -> Weighting:
        alpha_M = self.weights_K[members_M]
        return Weighting(renormalized(alpha_M, alpha_M > 0), self.label, "none")


def build_method(config: HarmonizerConfig, reward_names: Sequence[str]) -> WeighingMethod:
    """The method a recipe names.

    Raises:
        ValueError: fixed weights for other rewards than the run's.
    """
    if config.method == "uniform":
        return ConstantWeights(np.full(len(reward_names), 1.0 / len(reward_names)), "uniform")
    if config.fixed is not None:
        if set(config.fixed) != set(reward_names):
            raise ValueError(
                f"fixed must give a weight to each of {', '.join(reward_names)}, got {', '.join(config.fixed)}"
            )
        return ConstantWeights(np.array([config.fixed[name] for name in reward_names]), "fixed")
    # The learner imports this room for its types alone; only whoever solves should pay for importing cvxpy.
    from harmonizer.min_norm import MinNorm

    return MinNorm()
