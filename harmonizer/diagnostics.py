"""The report of a solve, and how often directions have gone against a reward."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from harmonizer import formulas
from harmonizer.arrays import Floats
from harmonizer.batch import GradientBatch
from harmonizer.report import SolveReport, Weighting

AGAINST = -1e-9
"""A cosine below this is negative and not the rounding of 0."""


@dataclass(frozen=True)
class Conflicts:
    """Of how many solves is a direction's worst cosine known, and in how many of these is it negative."""

    known: int = 0
    negative: int = 0

    def counted(self, worst_cosine: float) -> "Conflicts":
        """With one more solve; NaN is not known."""
        if math.isnan(worst_cosine):
            return self
        return Conflicts(self.known + 1, self.negative + (worst_cosine < AGAINST))

    @property
    def fraction(self) -> float:
        """Negative ones among the known; NaN before the first."""
        return self.negative / self.known if self.known else math.nan

    @classmethod
    def from_json(cls, state: Mapping[str, Any]) -> "Conflicts":
        """
        Raises:
            ValueError: no such counts.
        """
        known, negative = state.get("known"), state.get("negative")
        if type(known) is not int or type(negative) is not int or not 0 <= negative <= known:
            raise ValueError(f"harmonizer state's conflicts must be counts, negative at most known, got {dict(state)}")
        return cls(known, negative)


def solve_report(batch: GradientBatch, weighting: Weighting, coefficients_K: Floats) -> SolveReport:
    """What a solve did for each reward.

    Args:
        batch: the gradients weighed.
        weighting: their weights α*.
        coefficients_K: a_k of the applied direction Σ a_k g_k.
    """
    members_M = batch.members_M
    lengths_M = np.sqrt(np.diag(batch.balanced_MM))
    cosines_M = formulas.direction_cosines(batch.unit_MM, (coefficients_K * batch.norms_K)[members_M])
    sum_cosines_M = formulas.direction_cosines(batch.unit_MM, batch.norms_K[members_M])
    gap = weighting.kkt_gap
    cosine_KK = np.full((len(batch.norms_K), len(batch.norms_K)), np.nan)
    cosine_KK[np.ix_(members_M, members_M)] = batch.unit_MM
    return SolveReport(
        status=weighting.status,
        solver=weighting.solver,
        kkt_gap=formulas.kkt_gap(batch.balanced_MM, weighting.alpha_M) if math.isnan(gap) else gap,
        inner_products_K=batch.scattered(batch.unit_MM @ (weighting.alpha_M * lengths_M), np.nan),
        cosines_K=batch.scattered(cosines_M, np.nan),
        cosine_KK=cosine_KK,
        worst_cosine=float(cosines_M.min()),
        left=batch.left,
        complaints=weighting.complaints,
        scale=weighting.scale,
        sum_cosines_K=batch.scattered(sum_cosines_M, np.nan),
        sum_worst_cosine=float(sum_cosines_M.min()),
        kl_growth=weighting.kl_growth,
        kl_status=weighting.kl_status,
    )


def idle_report(num_rewards: int, left: dict[str, str]) -> SolveReport:
    """Report of a batch that nobody could take part in: every number unknown."""
    return SolveReport(
        status="no_active",
        solver="none",
        kkt_gap=np.nan,
        inner_products_K=np.full(num_rewards, np.nan),
        cosines_K=np.full(num_rewards, np.nan),
        cosine_KK=np.full((num_rewards, num_rewards), np.nan),
        worst_cosine=np.nan,
        left=left,
        sum_cosines_K=np.full(num_rewards, np.nan),
    )
