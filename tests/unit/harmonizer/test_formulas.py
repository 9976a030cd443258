import numpy as np
import pytest

from harmonizer import formulas

ALL = np.ones(3, dtype=bool)


def test_kkt_gap_by_hand() -> None:
    """At (1, 0) of two orthogonal units: αᵀGα = 1, min_k (Gα)_k = 0; the min-norm point is the middle."""
    assert formulas.kkt_gap(np.eye(2), np.array([1.0, 0.0])) == 1.0
    assert formulas.kkt_gap(np.eye(2), np.array([0.5, 0.5])) == 0.0


def test_cosines_by_hand() -> None:
    """Of x, y and −x with the direction 2x + 2y: 1/√2, 1/√2, −1/√2."""
    unit_KK = np.array([[1.0, 0.0, -1.0], [0.0, 1.0, 0.0], [-1.0, 0.0, 1.0]])
    cosines_K = formulas.direction_cosines(unit_KK, np.array([2.0, 2.0, 0.0]))
    np.testing.assert_allclose(cosines_K, np.array([1, 1, -1]) / np.sqrt(2), rtol=1e-15)


@pytest.mark.parametrize("scale", [1e-150, 1.0, 1e150])
def test_cosines_do_not_see_the_scale_of_the_weights(scale: float) -> None:
    cosines_K = formulas.direction_cosines(np.eye(2), scale * np.array([3.0, 4.0]))
    np.testing.assert_allclose(cosines_K, [0.6, 0.8], rtol=1e-14)


@pytest.mark.parametrize("weights", [(0.0, 0.0), (0.5, 0.5), (0.5, 0.5 + 1e-9)])
def test_a_direction_of_rounding_has_no_cosines(weights: tuple[float, float]) -> None:
    opposite_KK = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert np.isnan(formulas.direction_cosines(opposite_KK, np.array(weights))).all()


def test_cancelling_is_relative_to_the_lengths_that_went_in() -> None:
    long_against_short_KK = np.array([[1.0, -1e-8], [-1e-8, 1e-16]])  # x and -1e-8 x
    assert not formulas.cancels(long_against_short_KK, np.array([0.0, 1.0]))
    assert formulas.cancels(long_against_short_KK, np.array([1e-8, 1.0]) / (1 + 1e-8))


def test_cosines_of_weights_of_both_signs() -> None:
    """2x − y beside x and y: 2/√5 and −1/√5; x − y of x and x is nothing."""
    cosines_K = formulas.direction_cosines(np.eye(2), np.array([2.0, -1.0]))
    np.testing.assert_allclose(cosines_K, np.array([2, -1]) / np.sqrt(5), rtol=1e-15)
    assert np.isnan(formulas.direction_cosines(np.ones((2, 2)), np.array([1.0, -1.0]))).all()


@pytest.mark.parametrize("seed", range(5))
def test_cosine_between_is_that_of_the_vectors(seed: int) -> None:
    rng = np.random.default_rng(seed)
    units_KP = rng.standard_normal((4, 6))
    units_KP /= np.linalg.norm(units_KP, axis=1, keepdims=True)
    one_K, other_K = rng.standard_normal((2, 4))
    one_P, other_P = one_K @ units_KP, other_K @ units_KP
    expected = one_P @ other_P / np.linalg.norm(one_P) / np.linalg.norm(other_P)
    found = formulas.cosine_between(units_KP @ units_KP.T, 1e-6 * one_K, 1e6 * other_K)
    assert found == pytest.approx(expected, abs=1e-12)


def test_nothing_has_no_cosine() -> None:
    opposite_KK = np.array([[1.0, -1.0], [-1.0, 1.0]])
    assert np.isnan(formulas.cosine_between(opposite_KK, np.array([1.0, 0.0]), np.array([0.5, 0.5])))
    assert np.isnan(formulas.cosine_between(opposite_KK, np.array([0.5, 0.5]), np.array([1.0, 0.0])))
    assert np.isnan(formulas.cosine_between(np.eye(2), np.array([1.0, 0.0]), np.zeros(2)))


def test_renormalized_keeps_proportions_among_members() -> None:
    weights_K = formulas.renormalized(np.array([0.5, 0.3, 0.2]), np.array([True, False, True]))
    np.testing.assert_allclose(weights_K, [5 / 7, 0.0, 2 / 7], rtol=1e-15)
    nobody_K = formulas.renormalized(np.array([0.5, 0.0, 0.5]), np.array([False, True, False]))
    np.testing.assert_array_equal(nobody_K, 0.0)
    against_K = formulas.renormalized(np.array([2.0, -1.0]), np.array([False, True]))
    np.testing.assert_array_equal(against_K, 0.0)


def test_mean_norm_is_over_members_only() -> None:
    assert formulas.mean_norm(np.array([1.0, np.nan, 3.0]), np.array([True, False, True])) == 2.0
    assert formulas.mean_norm(np.full(2, np.nan), np.zeros(2, dtype=bool)) == 0.0


def test_raw_coefficients_by_hand() -> None:
    """w = (1/2, 1/4, 1/4), norms (1, 2, 6), n̄ = 3: a = (3/2, 3/8, 1/8)."""
    coefficients_K = formulas.raw_coefficients(np.array([0.5, 0.25, 0.25]), np.array([1.0, 2.0, 6.0]), ALL)
    np.testing.assert_allclose(coefficients_K, [1.5, 0.375, 0.125], rtol=1e-15)


def test_raw_coefficients_are_zero_where_norms_are_unknown() -> None:
    members_K = np.array([True, False, True])
    coefficients_K = formulas.raw_coefficients(np.array([0.5, 0.0, 0.5]), np.array([1.0, np.nan, 3.0]), members_K)
    np.testing.assert_allclose(coefficients_K, [1.0, 0.0, 1 / 3], rtol=1e-15)
