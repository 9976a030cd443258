import numpy as np
import pytest
from gram_zoo import gramian, random_directions, random_sizes, unit_rows

from harmonizer.gramian import checked_gramian, departures, gradient_norms, gramian_factor, unit_gramian


def test_norms_are_roots_of_the_diagonal_and_nan_where_it_is_not_finite() -> None:
    norms_K = gradient_norms(np.diag([4.0, 0.0, np.inf, np.nan]))
    np.testing.assert_array_equal(norms_K, [2.0, 0.0, np.nan, np.nan])


def test_each_departure_has_its_reason() -> None:
    """FAULTS 17: the report says what happened."""
    gramian_KK = np.diag([1.0, 1.0, 0.0, np.nan, np.inf, 1e-16])
    left = departures(gramian_KK, np.array([True, False, True, True, True, True]), list("abcdef"))
    assert left == {
        "b": "no signal",
        "c": "zero gradient",
        "d": "non-finite gradient",
        "e": "non-finite gradient",
    }


def test_a_reward_without_signal_is_no_signal_whatever_its_gradient() -> None:
    assert departures(np.array([[np.nan]]), np.array([False]), ["a"]) == {"a": "no signal"}


def test_unit_gramian_does_not_see_sizes() -> None:
    """FAULTS 16."""
    rng = np.random.default_rng(0)
    directions_KP = random_directions(rng, 6, 4)
    gradients_KP = unit_rows(directions_KP) * random_sizes(rng, 6)[:, None]
    unit_KK = unit_gramian(gramian(gradients_KP), np.linalg.norm(gradients_KP, axis=1))
    np.testing.assert_allclose(unit_KK, gramian(unit_rows(directions_KP)), rtol=0, atol=2e-15)
    np.testing.assert_array_equal(np.diag(unit_KK), 1.0)
    np.testing.assert_array_equal(unit_KK, unit_KK.T)


@pytest.mark.parametrize(
    ("gramian_KK", "said"),
    [
        (np.ones(3), r"\[2, 2\], got shape \[3\]"),
        (np.eye(3), r"\[2, 2\], got shape \[3, 3\]"),
        (np.diag([1.0, -4.0]), "negative squared norm on its diagonal, got -4"),
    ],
)
def test_what_is_no_gramian_at_sight_is_refused(gramian_KK: np.ndarray, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked_gramian(gramian_KK, 2)


@pytest.mark.parametrize(
    ("cosines", "said"),
    [
        ([[1.0, 0.5], [0.4, 1.0]], "symmetric, got cosines that differ from their mirror by 0.1"),
        ([[1.0, 2.0], [2.0, 1.0]], "cosine of size 2"),
        ([[1.0, np.nan], [np.nan, 1.0]], "non-finite entry between finite gradients"),
    ],
)
def test_what_is_no_gramian_of_any_gradients_is_refused(cosines: list[list[float]], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        unit_gramian(np.array(cosines), np.ones(2))


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_the_factor_gives_the_gramian_back(rank: int) -> None:
    unit_KK = gramian(unit_rows(random_directions(np.random.default_rng(rank), 5, rank)))
    factor_KK = gramian_factor(unit_KK)
    np.testing.assert_allclose(factor_KK @ factor_KK.T, unit_KK, rtol=0, atol=1e-13)
    assert np.count_nonzero(factor_KK.any(axis=0)) == rank


@pytest.mark.parametrize("gramian_KK", [np.array([[1.0, np.nan], [np.nan, 1.0]]), np.ones((2, 3)), np.zeros((0, 0))])
def test_what_has_no_factor_is_refused(gramian_KK: np.ndarray) -> None:
    with pytest.raises(ValueError, match=r"gramian must be square, at least \[1, 1\], and finite, got \["):
        gramian_factor(gramian_KK)


def test_negative_eigenvalues_are_cut() -> None:
    """A Gram matrix with a little too much correlation, as rounding leaves it."""
    factor_KK = gramian_factor(np.array([[1.0, 1.00001], [1.00001, 1.0]]))
    assert np.isfinite(factor_KK).all()
    np.testing.assert_allclose(factor_KK @ factor_KK.T, 1.0, atol=1e-5)
