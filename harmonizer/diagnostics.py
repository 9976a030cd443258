"""The report of a solve."""

import numpy as np

from harmonizer import formulas
from harmonizer.arrays import Floats
from harmonizer.batch import GradientBatch
from harmonizer.report import SolveReport, Weighting


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
    cosine_KK = np.full((len(batch.norms_K), len(batch.norms_K)), np.nan)
    cosine_KK[np.ix_(members_M, members_M)] = batch.unit_MM
    return SolveReport(
        status=weighting.status,
        solver=weighting.solver,
        kkt_gap=formulas.kkt_gap(batch.balanced_MM, weighting.alpha_M),
        inner_products_K=batch.scattered(batch.unit_MM @ (weighting.alpha_M * lengths_M), np.nan),
        cosines_K=batch.scattered(cosines_M, np.nan),
        cosine_KK=cosine_KK,
        worst_cosine=float(cosines_M.min()),
        left=batch.left,
        complaints=weighting.complaints,
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
    )
