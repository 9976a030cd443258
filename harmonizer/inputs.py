"""What callers hand in, held against the number of rewards."""

import numpy as np
from numpy.typing import ArrayLike

from harmonizer.arrays import Bools, Floats
from harmonizer.report import Signals, Weighting
from harmonizer.state import SUM_TOLERANCE

MAX_COSINE = 1 + 1e-4
"""Cosines beyond are none; float32 sums err by 1e-6."""


def checked_active(active: ArrayLike, step: int, num_rewards: int) -> Bools:
    """[K] bool.

    Raises:
        ValueError: another shape or type, or a negative step.
    """
    active_K = np.asarray(active)
    if active_K.shape != (num_rewards,) or active_K.dtype != np.bool_:
        raise ValueError(
            f"active_K must be [{num_rewards}] booleans, got shape {list(active_K.shape)} of {active_K.dtype}"
        )
    if step < 0:
        raise ValueError(f"step counts from 0, got {step}")
    return active_K


def checked_weighting(weighting: Weighting, num_members: int, signed: bool) -> Weighting:
    """The same.

    Raises:
        ValueError: α of another number of rewards or off the simplex (with `signed`, of another sum than 1); all 0 is
            allowed, it means that no member may have weight.
    """
    alpha_M = weighting.alpha_M
    good = alpha_M.shape == (num_members,) and bool(np.isfinite(alpha_M).all())
    good = good and (signed or bool((alpha_M >= 0).all()))
    if not (good and (not alpha_M.any() or abs(float(alpha_M.sum()) - 1) <= SUM_TOLERANCE)):
        raise ValueError(
            f"{weighting.status}: weights of {num_members} rewards must be on the simplex, got {alpha_M.tolist()}"
        )
    return weighting


def checked_signals(signals: Signals | None, num_rewards: int) -> Signals | None:
    """The same.

    Raises:
        ValueError: not [K, K].
    """
    if signals is not None:
        for name, matrix in (("correlation_KK", signals.correlation_KK), ("counts_KK", signals.counts_KK)):
            if np.shape(matrix) != (num_rewards, num_rewards):
                raise ValueError(f"{name} must be [{num_rewards}, {num_rewards}], got shape {list(np.shape(matrix))}")
    return signals


def checked_cosines(kl_cosines: ArrayLike | None, num_rewards: int) -> Floats | None:
    """[K] float64; NaN is allowed, it means not known.

    Raises:
        ValueError: another shape, or beyond ±1.
    """
    if kl_cosines is None:
        return None
    kl_cosines_K = np.asarray(kl_cosines, dtype=np.float64)
    if kl_cosines_K.shape != (num_rewards,):
        raise ValueError(f"kl_cosines_K must be [{num_rewards}], got shape {list(kl_cosines_K.shape)}")
    if (np.abs(kl_cosines_K) > MAX_COSINE).any():
        raise ValueError(f"kl_cosines_K must be cosines, got {kl_cosines_K.tolist()}")
    return np.clip(kl_cosines_K, -1.0, 1.0)
