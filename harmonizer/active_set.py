"""The min-norm point to the last digit: an active-set method started from a solver's answer.

Interior-point answers carry small weights where zeros belong and err by their tolerance. From their support a few
least-squares problems give the exact point, and where many weights give that point, the most even of them.
"""

import numpy as np

from harmonizer.arrays import Floats

SUPPORT_FLOOR = 1e-7
"""Weights below this are an interior-point method's way of saying zero; a wrong guess is repaired below."""
RANK_CUTOFF = 1e-7
"""Singular values below this are rounding, for rows no longer than 1: the square root of EIGENVALUE_CUT."""
EXACT_GAP = 1e-15
"""A KKT gap of a unit Gram matrix that is rounding."""
EVENNESS = 1e-5
"""Length of the tie-breaking columns: its square (1e-10) must stand clear of rounding and below every tolerance."""


def simplex_plane(size: int) -> Floats:
    """[M, M-1] orthonormal basis of the directions in which Σα does not change."""
    spanning_MM = np.column_stack([np.ones(size), np.eye(size)[:, : size - 1]])
    basis_MM, _ = np.linalg.qr(spanning_MM)
    return np.asarray(basis_MM[:, 1:])


def affine_minimum(factor_MR: Floats) -> Floats:
    """[M] α with Σα = 1 and any signs that minimises ‖Fᵀα‖; the one nearest to equal weights where there are many."""
    size = len(factor_MR)
    center_M = np.full(size, 1.0 / size)
    plane = simplex_plane(size)
    left, lengths, right = np.linalg.svd(factor_MR.T @ plane, full_matrices=False)
    # Not relative to the largest of these: between duplicates all of them are rounding.
    inverse = np.divide(1.0, lengths, out=np.zeros_like(lengths), where=lengths > RANK_CUTOFF)
    return np.asarray(center_M - plane @ (right.T @ (inverse * (left.T @ (factor_MR.T @ center_M)))))


def refined(factor_MR: Floats, alpha_M: Floats) -> Floats:
    """[M] min-norm point of the simplex, from a feasible start; ‖Fᵀα‖ never grows on the way.

    Steps to the minimum over the support's affine hull, stopping at the first weight that would turn negative and
    dropping it; at a minimum, takes in the reward that the direction serves worst.
    """
    support_M = alpha_M > min(SUPPORT_FLOOR, float(alpha_M.max()) / 2)
    point_M = np.where(support_M, alpha_M, 0.0) / alpha_M[support_M].sum()
    for _ in range(8 * len(alpha_M)):  # in exact arithmetic it ends by itself; rounding on ties may make it circle
        target_M = np.zeros_like(point_M)
        target_M[support_M] = affine_minimum(factor_MR[support_M])
        blocking_M = support_M & (target_M < 0)
        if blocking_M.any():
            ratios_M = np.full_like(point_M, np.inf)
            ratios_M[blocking_M] = point_M[blocking_M] / (point_M - target_M)[blocking_M]
            first = int(ratios_M.argmin())
            point_M = np.maximum(point_M + ratios_M[first] * (target_M - point_M), 0.0)
            point_M[first], support_M[first] = 0.0, False
            continue
        point_M = target_M
        slopes_M = factor_MR @ (factor_MR.T @ point_M)
        worst = int(slopes_M.argmin())
        if support_M[worst] or point_M @ slopes_M - slopes_M[worst] <= EXACT_GAP:
            break
        support_M[worst] = True
    return np.asarray(point_M / point_M.sum())


def polished(factor_MR: Floats, alpha_M: Floats) -> Floats:
    """[M] the exact min-norm point; with duplicate, collinear or cancelling gradients the most even α that gives it.

    Without the tie-break such an α would be a matter of rounding, and would jump from solve to solve. Since Σα = 1,
    Fᵀα − d* = Σ α_k (F_k − d*): minimising ‖Fᵀα − d*‖² + ε²‖α‖² is a min-norm problem too, with rows [F_k − d*, ε e_k].
    """
    exact_M = refined(factor_MR, alpha_M)
    offsets_MR = factor_MR - factor_MR.T @ exact_M
    even_M = refined(np.hstack([offsets_MR, EVENNESS * np.eye(len(exact_M))]), exact_M)
    return refined(factor_MR, even_M)
