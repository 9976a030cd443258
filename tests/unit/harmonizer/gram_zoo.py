"""Gradients of every awkward kind for the harmonizer's tests, and what must hold of any answer.

Letters: K rewards, P parameters.
"""

import numpy as np

from harmonizer.arrays import Floats
from harmonizer.formulas import kkt_gap

MIN_SIZE, MAX_SIZE = 1e-8, 1e8


def random_sizes(rng: np.random.Generator, num_rewards: int) -> Floats:
    """[K] gradient sizes spread evenly over the sixteen decades."""
    return 10.0 ** rng.uniform(np.log10(MIN_SIZE), np.log10(MAX_SIZE), num_rewards)


def random_directions(rng: np.random.Generator, num_rewards: int, rank: int, spoil: int = 0) -> Floats:
    """[K, P] directions of the given rank; `spoil` times a row becomes a duplicate, an opposite, or zero."""
    directions_KP = rng.standard_normal((num_rewards, rank)) @ rng.standard_normal((rank, rank + 3))
    for _ in range(spoil):
        one, other = rng.integers(0, num_rewards, 2)
        kind = rng.integers(0, 3)
        directions_KP[one] = (directions_KP[other], -directions_KP[other], 0 * directions_KP[other])[kind]
    return directions_KP


def gramian(gradients_KP: Floats) -> Floats:
    """[K, K]"""
    return np.asarray(gradients_KP @ gradients_KP.T)


def unit_rows(gradients_KP: Floats) -> Floats:
    """[K, P] each row brought to length 1."""
    return np.asarray(gradients_KP / np.linalg.norm(gradients_KP, axis=1, keepdims=True))


def assert_on_simplex(alpha_K: Floats) -> None:
    assert (alpha_K >= 0).all(), alpha_K
    assert abs(alpha_K.sum() - 1) <= 1e-12, alpha_K


def assert_min_norm(gramian_KK: Floats, alpha_K: Floats, gap: float = 1e-7) -> None:
    """On the simplex and, by the KKT conditions, the shortest point of the convex hull."""
    assert_on_simplex(alpha_K)
    assert kkt_gap(gramian_KK, alpha_K) <= gap
