"""One batch's gradients as a solve sees them: checked, with those that cannot take part gone."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from harmonizer.arrays import Bools, Floats, Indices
from harmonizer.gramian import checked_gramian, departures, gradient_norms, unit_gramian


@dataclass(frozen=True, eq=False)
class GradientBatch:
    """The M gradients of K that take part in a solve."""

    norms_K: Floats
    """[K] ‖g_k‖; NaN where inactive or not finite."""
    left: dict[str, str]
    """Reward name → why it does not take part."""
    members_M: Indices
    """[M] which rewards take part, as indices into K."""
    unit_MM: Floats
    """[M, M] Gram matrix of the unit gradients."""
    balanced_MM: Floats
    """[M, M] the Gram matrix that is balanced; diagonal at most 1."""

    @property
    def members_K(self) -> Bools:
        """[K] whether a reward takes part."""
        return np.isin(np.arange(len(self.norms_K)), self.members_M)

    def scattered(self, values_M: Floats, fill: float) -> Floats:
        """[K] the members' values in their places, `fill` elsewhere."""
        values_K = np.full(len(self.norms_K), fill)
        values_K[self.members_M] = values_M
        return values_K


def read_batch(gramian: ArrayLike, active_K: Bools, reward_names: Sequence[str], normalize: bool) -> GradientBatch:
    """Check a Gram matrix of raw gradients and let inactive, non-finite and zero ones leave.

    Entries of those who left are not read: whatever stands there, the others' weights are the same.

    Args:
        gramian: [K, K].
        active_K: rewards with signal in this batch.
        reward_names: for the reasons in `left`.
        normalize: balance unit gradients, or else raw ones over the longest (weights do not depend on a common factor).

    Raises:
        ValueError: another shape, or no Gram matrix of any gradients.
    """
    raw_KK = checked_gramian(gramian, len(reward_names))
    left = departures(raw_KK, active_K, reward_names)
    norms_K = np.where(active_K, gradient_norms(raw_KK), np.nan)
    members_M = np.array([k for k, name in enumerate(reward_names) if name not in left], dtype=np.intp)
    norms_M = norms_K[members_M]
    unit_MM = unit_gramian(raw_KK[np.ix_(members_M, members_M)], norms_M)
    lengths_M = np.ones_like(norms_M) if normalize else norms_M / norms_M.max(initial=0.0)
    return GradientBatch(norms_K, left, members_M, unit_MM, unit_MM * lengths_M[:, None] * lengths_M[None, :])
