"""Gram matrices of K gradients: who may enter the QP, unit diagonal, factor."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from harmonizer.arrays import Bools, Floats

GRAM_TOLERANCE = 1e-4
"""How far |cosines| may pass 1, or a matrix its transpose, before it is no Gram matrix; float32 sums err by 1e-6."""
EIGENVALUE_CUT = 1e-14
"""Eigenvalues below this times the largest are rounding: entries of a unit Gram matrix carry about 1e-16 each."""


def checked_gramian(gramian: ArrayLike, num_rewards: int) -> Floats:
    """The Gram matrix as float64 [K, K].

    Raises:
        ValueError: another shape, or a negative squared norm.
    """
    gramian_KK = np.array(gramian, dtype=np.float64)
    if gramian_KK.shape != (num_rewards, num_rewards):
        raise ValueError(f"gramian must be [{num_rewards}, {num_rewards}], got shape {list(gramian_KK.shape)}")
    smallest = np.min(np.diag(gramian_KK), where=np.isfinite(np.diag(gramian_KK)), initial=0.0)
    if smallest < 0:
        raise ValueError(f"gramian has a negative squared norm on its diagonal, got {smallest}")
    return gramian_KK


def departures(gramian_KK: Floats, active_K: Bools, reward_names: Sequence[str]) -> dict[str, str]:
    """Which rewards cannot enter the QP, and why: name → `no signal`, `non-finite gradient` or `zero gradient`.

    A non-finite gradient makes its own row and column non-finite and no other, so its diagonal entry tells.
    """
    left = {}
    for k, name in enumerate(reward_names):
        squared_norm = gramian_KK[k, k]
        if not active_K[k]:
            left[name] = "no signal"
        elif not np.isfinite(squared_norm):
            left[name] = "non-finite gradient"
        elif squared_norm < np.finfo(np.float64).tiny:  # below it a squared norm has lost its digits
            left[name] = "zero gradient"
    return left


def gradient_norms(gramian_KK: Floats) -> Floats:
    """[K] ‖g_k‖ = √G_kk; NaN where not finite."""
    squares_K = np.diag(gramian_KK)
    return np.sqrt(np.where(np.isfinite(squares_K), squares_K, np.nan))


def unit_gramian(gramian_MM: Floats, norms_M: Floats) -> Floats:
    """[M, M] Gram matrix of ĝ_k = g_k/‖g_k‖ (MARBLE, arXiv 2605.06507, gradient normalization): cosines.

    Raises:
        ValueError: an entry is not finite, the matrix is not symmetric, or a cosine is beyond ±1.
    """
    if not np.isfinite(gramian_MM).all():
        raise ValueError(f"gramian has a non-finite entry between finite gradients, got {gramian_MM.tolist()}")
    cosines_MM = gramian_MM / norms_M[:, None] / norms_M[None, :]
    asymmetry = float(np.abs(cosines_MM - cosines_MM.T).max(initial=0.0))
    if asymmetry > GRAM_TOLERANCE:
        raise ValueError(f"gramian must be symmetric, got cosines that differ from their mirror by {asymmetry:.3g}")
    excess = float(np.abs(cosines_MM).max(initial=0.0))
    if excess > 1 + GRAM_TOLERANCE:
        raise ValueError(f"gramian is not one of any gradients: it has a cosine of size {excess:.6g}")
    unit_MM = np.clip((cosines_MM + cosines_MM.T) / 2, -1.0, 1.0)
    np.fill_diagonal(unit_MM, 1.0)
    return unit_MM


def gramian_factor(gramian_MM: Floats) -> Floats:
    """[M, M] F with F Fᵀ = Gram, from an eigendecomposition with negative and rounding-level eigenvalues cut.

    In factor form ‖Fᵀα‖² is convex by construction; αᵀGα is not, once rounding makes an eigenvalue negative.

    Raises:
        ValueError: not square, empty, or not finite.
    """
    if gramian_MM.shape != (len(gramian_MM),) * 2 or not len(gramian_MM) or not np.isfinite(gramian_MM).all():
        raise ValueError(f"gramian must be square, at least [1, 1], and finite, got {gramian_MM.tolist()}")
    eigenvalues_M, vectors_MM = np.linalg.eigh(gramian_MM)
    kept_M = np.where(eigenvalues_M > EIGENVALUE_CUT * eigenvalues_M[-1], eigenvalues_M, 0.0)
    return np.asarray(vectors_MM * np.sqrt(kept_M))
