"""Cheap numbers about a step: of its advantages, and of its gradients from their inner products alone.

Letters: K rewards, N samples of the batch, R rows of gradients: K, and with KL one more for ∇KL.
"""

import math

import numpy as np
from numpy.typing import NDArray


def advantage_correlation(
    advantages_KN: NDArray[np.float64], signal_KN: NDArray[np.bool_]
) -> tuple[NDArray[np.float64], NDArray[np.intp]]:
    """[K, K] correlation of each pair's advantages over the samples in which both have signal, and their number [K, K].

    NaN where one of the two does not vary over those samples; what stands in cells without signal is not read.
    """
    counts_KK = signal_KN.astype(np.intp) @ signal_KN.T.astype(np.intp)
    values_KN, present_KN = np.where(signal_KN, advantages_KN, 0.0), signal_KN.astype(np.float64)
    sums_KK = values_KN @ present_KN.T
    safe_KK = np.maximum(counts_KK, 1)
    spreads_KK = (values_KN**2) @ present_KN.T - sums_KK**2 / safe_KK
    products_KK = values_KN @ values_KN.T - sums_KK * sums_KK.T / safe_KK
    # Rounding leaves about 1e-16 of the squares that were subtracted.
    varies_KK = spreads_KK > 1e-12 * np.maximum((values_KN**2) @ present_KN.T, np.finfo(np.float64).tiny)
    both_KK = varies_KK & varies_KK.T
    lengths_KK = np.sqrt(np.where(both_KK, spreads_KK * spreads_KK.T, 1.0))
    return np.where(both_KK, np.clip(products_KK / lengths_KK, -1.0, 1.0), np.nan), counts_KK


def kl_cosines(gramian_RR: NDArray[np.float64]) -> NDArray[np.float64]:
    """[K] cosine of each reward's gradient with ∇KL, the last row; NaN where either is zero or not finite."""
    norms_R = np.sqrt(np.diag(gramian_RR))
    with np.errstate(invalid="ignore", divide="ignore"):
        return np.clip(gramian_RR[:-1, -1] / norms_R[:-1] / norms_R[-1], -1.0, 1.0)


def kl_geometry(
    gramian_RR: NDArray[np.float64], coefficients_K: NDArray[np.float64], kl_beta: float
) -> tuple[float, float]:
    """Cosine of β ∇KL with d = Σ a_k g_k, and ‖β ∇KL‖ / ‖d + β ∇KL‖; NaN where undefined.

    Args:
        gramian_RR: inner products of the K gradients and of ∇KL, the last row.
        coefficients_K: a_k; rows of those that are 0 are not read.
        kl_beta: β.
    """
    rewards_R, kl_R = np.append(coefficients_K, 0.0), np.append(np.zeros_like(coefficients_K), kl_beta)
    product, rewards_square, kl_square = products(gramian_RR, rewards_R, kl_R)
    lengths = math.sqrt(rewards_square * kl_square)
    whole = math.sqrt(max(0.0, rewards_square + 2 * product + kl_square))
    return product / lengths if lengths > 0 else math.nan, math.sqrt(kl_square) / whole if whole > 0 else math.nan


def products(
    gramian_RR: NDArray[np.float64], one_R: NDArray[np.float64], other_R: NDArray[np.float64]
) -> tuple[float, float, float]:
    """⟨v, w⟩, ‖v‖² and ‖w‖² of v = Σ v_r g_r and w = Σ w_r g_r; rows that are in neither are not read."""
    used_R = (one_R != 0) | (other_R != 0)
    gramian, one, other = gramian_RR[np.ix_(used_R, used_R)], one_R[used_R], other_R[used_R]
    return float(one @ gramian @ other), max(0.0, float(one @ gramian @ one)), max(0.0, float(other @ gramian @ other))
