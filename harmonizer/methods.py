"""Ways to weigh rewards, behind one call: Gram matrix of the members in, weights out."""

from collections.abc import Sequence

import numpy as np

from harmonizer.arrays import Bools, Floats, Indices
from harmonizer.config import NEEDS, HarmonizerConfig
from harmonizer.formulas import renormalized
from harmonizer.report import Weighting
from harmonizer.steering import Steered, Steering
from harmonizer.weighing import WeighingMethod


class ConstantWeights(WeighingMethod):
    """The same weights in every solve, brought to sum 1 over the rewards that are there (`uniform`, `fixed`)."""

    def __init__(self, weights_K: Floats, label: str) -> None:
        self.weights_K = weights_K
        self.label = label

    def __call__(self, gramian_MM: Floats, members_M: Indices, kl_cosines_M: Floats | None = None) -> Weighting:
        alpha_M = self.weights_K[members_M]
        return Weighting(renormalized(alpha_M, alpha_M > 0), self.label, "none", scale=self.scale(members_M))

    def scale(self, members: Bools | Indices) -> float:
        """What stands before the weights with sum 1."""
        return 1.0


class WeightedGradients(ConstantWeights):
    """d = Σ w_k g_k of raw gradients: a reward that is missing leaves a smaller sum, and no norm is looked at."""

    raw = True

    def __init__(self, weights_K: Floats) -> None:
        super().__init__(weights_K, "weighted_gradients")

    def scale(self, members: Bools | Indices) -> float:
        """Σ w_k over the members."""
        return float(self.weights_K[members].sum())


def build_method(config: HarmonizerConfig, reward_names: Sequence[str]) -> WeighingMethod:
    """The method a recipe names.

    Raises:
        ValueError: names of other rewards than the run's, or a package that is not installed.
    """
    config.check_names(reward_names)
    config.check_installed()
    equal_K = np.full(len(reward_names), 1.0 / len(reward_names))
    if config.method == "uniform":
        return ConstantWeights(equal_K, "uniform")
    if config.fixed is not None:
        return ConstantWeights(_by_name(config.fixed, reward_names), "fixed")
    if config.method == "weighted_gradients":
        return WeightedGradients(equal_K if config.weights is None else _by_name(config.weights, reward_names))
    # The learner imports this room for its types alone; only whoever solves should pay for importing torch or cvxpy.
    if config.method in NEEDS:
        from harmonizer.torchjd_methods import TorchJd

        return TorchJd(config.method, len(reward_names), config.seed, config.cagrad_c)
    from harmonizer.min_norm import MinNorm

    if not config.steered:
        return MinNorm()
    kl_bound = config.kl_bound if config.kl == "constraint" else None
    return Steered(MinNorm(), Steering.of(config, reward_names), kl_bound)


def _by_name(weights: dict[str, float], reward_names: Sequence[str]) -> Floats:
    return np.array([weights[name] for name in reward_names])
