"""Cheap numbers for the harmonizer, beside the Gram matrix.

Letters: K rewards, N samples of the batch, P trainable parameters.
"""

import numpy as np
from numpy.typing import NDArray
from torch import Tensor


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


def kl_cosines(gradients_KP: Tensor, kl_P: Tensor) -> NDArray[np.float64]:
    """[K] cosine of each reward's gradient with ∇KL, in float64; NaN where either is zero or not finite."""
    kl = kl_P.double()
    kl_norm = kl.norm()
    # One row in float64 at a time: all K would be twice the memory of the gradients themselves.
    cosines = [float(row @ kl / (row.norm() * kl_norm)) for row in (gradient.double() for gradient in gradients_KP)]
    return np.clip(np.array(cosines, dtype=np.float64), -1.0, 1.0)
