"""ᾱ: the smoothed weights, and what happens to them when rewards are missing or new."""

import numpy as np

from harmonizer.arrays import Bools, Floats

NOTHING_FREE = 1e-12
"""A sum of shares within this of 1 leaves nothing to give: it is 1 but for rounding."""


def updated_shares(shares_K: Floats, solved_K: Bools, alpha_K: Floats, active_K: Bools, rho: float) -> Floats:
    """[K] ᾱ after a solve (MARBLE, arXiv 2605.06507, coefficient smoothing; held shares as in DESIGN 4). Sums to 1.

    The first solve gives ᾱ = α*. Later, with H the rewards absent from this solve and h = Σ_H ᾱ:
    k ∈ H keeps ᾱ_k, k ∉ H gets ρ ᾱ_k + (1−ρ)(1−h) α*_k.

    A newcomer (never solved before) enters this formula with ᾱ_k = 0: the present rewards' old shares add up to 1−h
    without it, so the sum stays 1, its first share is (1−ρ)(1−h) α*_k, and held shares are not touched. One case is
    left: everybody who has a share is absent (h = 1), and the formula would lock the newcomers out. Then all held
    shares shrink by the same factor to make room for J newcomers beside S solved rewards: J/(J+S), dealt out by α*.

    Args:
        shares_K: ᾱ before; 0 where never solved.
        solved_K: rewards that have been in a solve before.
        alpha_K: this solve's α*, on the simplex over `active_K`.
        active_K: rewards in this solve.
        rho: share of the past.
    """
    if not solved_K.any():
        return alpha_K.copy()
    free = max(0.0, 1.0 - float(shares_K[~active_K].sum()))
    newcomers = int((active_K & ~solved_K).sum())
    if free <= NOTHING_FREE and newcomers:
        room = newcomers / (newcomers + int(solved_K.sum()))
        return (1.0 - room) * shares_K + room * alpha_K
    return np.where(active_K, rho * shares_K + (1.0 - rho) * free * alpha_K, shares_K)


def within_region(before_K: Floats, after_K: Floats, radius: float) -> Floats:
    """[K] `after`, or the point on the way to it at which Σ_k |Δᾱ_k| is `radius`.

    The length is L1 because the step is what must not jump: ‖Σ Δᾱ_k ĝ_k‖ ≤ Σ |Δᾱ_k| for unit gradients, whatever K is.
    Under an L∞ bound the step could move K times the bound. Part of the way to another point of the simplex is on it,
    and held shares, which do not move, stay where they are.
    """
    moved = float(np.abs(after_K - before_K).sum())
    return after_K if moved <= radius else before_K + (radius / moved) * (after_K - before_K)
