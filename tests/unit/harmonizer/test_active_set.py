import itertools

import numpy as np
import pytest
from gram_zoo import assert_min_norm, gramian, random_directions, unit_rows

from harmonizer.active_set import affine_minimum, polished, refined, simplex_plane
from harmonizer.arrays import Floats
from harmonizer.formulas import squared_norm
from harmonizer.gramian import gramian_factor


def exhaustive_minimum(gramian_KK: Floats) -> float:
    """Smallest αᵀGα over the simplex, from every support's closed form α ∝ G_S⁻¹ 1."""
    lengths = []
    for size in range(1, len(gramian_KK) + 1):
        for support in itertools.combinations(range(len(gramian_KK)), size):
            block = gramian_KK[np.ix_(support, support)]
            if np.linalg.cond(block) > 1e10:
                continue  # a smaller support gives the same point
            alpha = np.linalg.solve(block, np.ones(size))
            alpha /= alpha.sum()
            if (alpha >= 0).all():
                lengths.append(float(alpha @ block @ alpha))
    return min(lengths)


@pytest.mark.parametrize("size", [1, 2, 5, 16])
def test_plane_is_an_orthonormal_basis_of_sum_zero(size: int) -> None:
    plane = simplex_plane(size)
    assert plane.shape == (size, size - 1)
    np.testing.assert_allclose(plane.T @ plane, np.eye(size - 1), atol=1e-14)
    np.testing.assert_allclose(plane.sum(axis=0), 0, atol=1e-14)


def test_affine_minimum_by_hand() -> None:
    """Points (1, 0) and (3, 0): the line through them meets 0 at α = (3/2, −1/2)."""
    np.testing.assert_allclose(affine_minimum(np.array([[1.0, 0.0], [3.0, 0.0]])), [1.5, -0.5], rtol=1e-13)


@pytest.mark.parametrize("seed", range(40))
def test_refined_is_the_shortest_point_from_any_start(seed: int) -> None:
    rng = np.random.default_rng(seed)
    num_rewards = int(rng.integers(2, 6))
    gramian_KK = gramian(unit_rows(random_directions(rng, num_rewards, num_rewards)))
    factor_KK = gramian_factor(gramian_KK)
    start_K = rng.dirichlet(np.ones(num_rewards)) if seed % 2 else np.eye(num_rewards)[seed % num_rewards]
    alpha_K = refined(factor_KK, start_K)
    assert_min_norm(gramian_KK, alpha_K, gap=1e-12)
    assert squared_norm(gramian_KK, alpha_K) == pytest.approx(exhaustive_minimum(gramian_KK), abs=1e-12)


def test_refined_repairs_a_wrong_support() -> None:
    """Started on the one gradient that has no weight at the optimum (the diagonal between two axes)."""
    factor_KR = np.array([[1.0, 0.0], [0.0, 1.0], [np.sqrt(0.5), np.sqrt(0.5)]])
    np.testing.assert_allclose(refined(factor_KR, np.array([0.0, 0.0, 1.0])), [0.5, 0.5, 0.0], atol=1e-14)


@pytest.mark.parametrize("start", [(1.0, 0.0, 0.0), (0.0, 0.2, 0.8), (1 / 3, 1 / 3, 1 / 3)])
def test_duplicates_share_evenly_from_any_start(start: tuple[float, ...]) -> None:
    """FAULTS 17: x, y, y is one half for x and one quarter for each y, not a matter of rounding."""
    factor_KR = np.array([[1.0, 0.0], [0.0, 1.0], [0.0, 1.0]])
    np.testing.assert_allclose(polished(factor_KR, np.array(start)), [0.5, 0.25, 0.25], atol=1e-13)


def test_cancelling_gradients_share_evenly() -> None:
    """FAULTS 17: ±x and ±y cancel for many α; the most even is a quarter each."""
    factor_KR = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    np.testing.assert_allclose(polished(factor_KR, np.array([0.5, 0.5, 0.0, 0.0])), 0.25, atol=1e-13)


def test_where_only_one_alpha_is_best_the_tie_break_moves_nothing() -> None:
    rng = np.random.default_rng(3)
    factor_KK = gramian_factor(gramian(unit_rows(random_directions(rng, 5, 5))))
    start_K = np.full(5, 0.2)
    np.testing.assert_allclose(polished(factor_KK, start_K), refined(factor_KK, start_K), rtol=0, atol=1e-14)
