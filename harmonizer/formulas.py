"""The step's algebra, each formula once (MARBLE, arXiv 2605.06507; DESIGN 4)."""

import math

import numpy as np

from harmonizer.arrays import Bools, Floats

STATIONARY = 1e-12
"""Squared norm of a mean of unit gradients below which only rounding is left of it."""
ROUNDING = 1e-12
"""A weight this far below its floor is on it."""


def squared_norm(gramian_MM: Floats, weights_M: Floats) -> float:
    """‖Σ_k w_k g_k‖² = wᵀGw, never negative."""
    return max(0.0, float(weights_M @ gramian_MM @ weights_M))


def kkt_gap(gramian_MM: Floats, alpha_M: Floats) -> float:
    """αᵀGα − min_k (Gα)_k, zero exactly at the min-norm point of the convex hull.

    By convexity αᵀGα is above its minimum by at most twice this.
    """
    slopes_M = gramian_MM @ alpha_M
    return max(0.0, float(alpha_M @ slopes_M - slopes_M.min()))


def cancels(gramian_MM: Floats, weights_M: Floats) -> bool:
    """Whether nothing but rounding is left of Σ_k w_k g_k beside the lengths |w_k| ‖g_k‖ that went into it."""
    lengths = float(np.abs(weights_M) @ np.sqrt(np.diag(gramian_MM)))
    return squared_norm(gramian_MM, weights_M) <= STATIONARY * lengths**2


def direction_cosines(unit_MM: Floats, weights_M: Floats) -> Floats:
    """[M] cosine of each ĝ_k with Σ_j w_j ĝ_j; NaN when that direction is zero.

    Args:
        unit_MM: Gram matrix of the unit gradients.
        weights_M: weights on the unit gradients, any scale.
    """
    total = np.abs(weights_M).sum()
    if total <= 0 or cancels(unit_MM, weights_M / total):
        return np.full(len(weights_M), np.nan)
    shares_M = weights_M / total
    length = math.sqrt(squared_norm(unit_MM, shares_M))
    return np.asarray(np.clip(unit_MM @ shares_M / length, -1.0, 1.0))


def cosine_between(unit_MM: Floats, one_M: Floats, other_M: Floats) -> float:
    """Cosine of Σ_j v_j ĝ_j with Σ_j w_j ĝ_j; NaN when either is zero.

    Args:
        unit_MM: Gram matrix of the unit gradients.
        one_M: v, weights on the unit gradients, any scale.
        other_M: w.
    """
    cosines_M = direction_cosines(unit_MM, one_M)
    total = np.abs(other_M).sum()
    if np.isnan(cosines_M).any() or total <= 0 or cancels(unit_MM, other_M / total):
        return math.nan
    shares_M = other_M / total
    return float(np.clip(shares_M @ cosines_M / math.sqrt(squared_norm(unit_MM, shares_M)), -1.0, 1.0))


def renormalized(weights_K: Floats, members_K: Bools) -> Floats:
    """[K] weights over the members, brought to sum 1; 0 elsewhere, all 0 when the members have none in sum."""
    kept_K = np.where(members_K, weights_K, 0.0)
    total = kept_K.sum()
    return np.asarray(kept_K / total) if total > 0 else np.zeros_like(kept_K)


def mean_norm(norms_K: Floats, members_K: Bools) -> float:
    """n̄ = mean of ‖g_k‖ over the members (MARBLE, rescaling); 0 without members."""
    return float(norms_K[members_K].mean()) if members_K.any() else 0.0


def lifted(weights_K: Floats, floors_K: Floats) -> Floats:
    """[K] weights on the simplex brought above floors: f + (1 − Σf) e/Σe with e = (w − f)₊.

    Unchanged where none is below; otherwise what the low ones get the others give, in proportion to what they have
    above their own floor.
    """
    if (weights_K >= floors_K - ROUNDING).all():
        return weights_K
    excess_K = np.maximum(weights_K - floors_K, 0.0)
    room, total = max(0.0, 1.0 - float(floors_K.sum())), float(excess_K.sum())
    return np.asarray(floors_K + (room / total) * excess_K if total > 0 else floors_K / floors_K.sum())


def raw_coefficients(weights_K: Floats, norms_K: Floats, members_K: Bools) -> Floats:
    """[K] a_k = w_k n̄/‖g_k‖, so that Σ a_k g_k = n̄ Σ w_k ĝ_k; 0 outside the members, whose norms may be NaN."""
    safe_K = np.where(members_K, norms_K, 1.0)
    return np.where(members_K, weights_K * (mean_norm(norms_K, members_K) / safe_K), 0.0)
