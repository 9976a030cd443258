import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harmonizer.ema import updated_shares

BOTH = np.array([True, True])


def bools(*values: int) -> np.ndarray:
    return np.array(values, dtype=bool)


def test_starts_as_the_first_solve() -> None:
    alpha_K = np.array([0.25, 0.0, 0.75])
    shares_K = updated_shares(np.zeros(3), bools(0, 0, 0), alpha_K, bools(1, 0, 1), 0.7)
    np.testing.assert_array_equal(shares_K, alpha_K)


def test_smooths_by_hand() -> None:
    shares_K = updated_shares(np.array([0.5, 0.3, 0.2]), bools(1, 1, 1), np.array([1.0, 0, 0]), bools(1, 1, 1), 0.7)
    np.testing.assert_allclose(shares_K, [0.65, 0.21, 0.14], rtol=1e-14)


def test_an_absent_reward_keeps_its_share_by_hand() -> None:
    """h = 0.2: 0.7·0.5 + 0.3·0.8·0.25 = 0.41, 0.7·0.3 + 0.3·0.8·0.75 = 0.39."""
    alpha_K = np.array([0.25, 0.75, 0.0])
    shares_K = updated_shares(np.array([0.5, 0.3, 0.2]), bools(1, 1, 1), alpha_K, bools(1, 1, 0), 0.7)
    np.testing.assert_allclose(shares_K, [0.41, 0.39, 0.2], rtol=1e-14)
    assert shares_K[2] == 0.2


def test_a_newcomer_enters_the_formula_with_nothing() -> None:
    """0.7·0.6 + 0.3·0.5 = 0.57, 0.7·0.4 + 0.3·0.25 = 0.355, and 0.3·0.25 = 0.075 for the new one."""
    alpha_K = np.array([0.5, 0.25, 0.25])
    shares_K = updated_shares(np.array([0.6, 0.4, 0.0]), bools(1, 1, 0), alpha_K, bools(1, 1, 1), 0.7)
    np.testing.assert_allclose(shares_K, [0.57, 0.355, 0.075], rtol=1e-14)


def test_a_newcomer_takes_nothing_from_a_held_share() -> None:
    """h = 0.6: 0.7·0.4 + 0.3·0.4·0.5 = 0.34, 0.3·0.4·0.5 = 0.06."""
    alpha_K = np.array([0.0, 0.5, 0.5])
    shares_K = updated_shares(np.array([0.6, 0.4, 0.0]), bools(1, 1, 0), alpha_K, bools(0, 1, 1), 0.7)
    np.testing.assert_allclose(shares_K, [0.6, 0.34, 0.06], rtol=1e-14)


def test_a_newcomer_among_absent_rewards_gets_room() -> None:
    """Every share is held, so the formula has nothing to give: one newcomer beside two gets a third."""
    alpha_K = np.array([0.0, 0.0, 1.0])
    shares_K = updated_shares(np.array([0.6, 0.4, 0.0]), bools(1, 1, 0), alpha_K, bools(0, 0, 1), 0.7)
    np.testing.assert_allclose(shares_K, [0.4, 0.8 / 3, 1 / 3], rtol=1e-14)


def test_two_newcomers_deal_their_room_by_alpha() -> None:
    alpha_K = np.array([0.0, 0.25, 0.75])
    shares_K = updated_shares(np.array([1.0, 0.0, 0.0]), bools(1, 0, 0), alpha_K, bools(0, 1, 1), 0.7)
    np.testing.assert_allclose(shares_K, [1 / 3, 1 / 6, 1 / 2], rtol=1e-14)


def test_rho_zero_is_the_last_solve() -> None:
    shares_K = updated_shares(np.array([0.9, 0.1]), BOTH, np.array([0.2, 0.8]), BOTH, 0.0)
    np.testing.assert_allclose(shares_K, [0.2, 0.8], rtol=1e-15)


def test_a_sum_that_rounding_has_moved_comes_back_to_one() -> None:
    shares_K = np.array([0.6, 0.4 + 1e-9])
    for _ in range(60):
        shares_K = updated_shares(shares_K, BOTH, np.array([0.5, 0.5]), BOTH, 0.7)
    assert abs(shares_K.sum() - 1) < 1e-15


@settings(max_examples=60, deadline=None)
@given(
    num_rewards=st.integers(1, 6),
    seed=st.integers(0, 2**32 - 1),
    rho=st.floats(0, 0.99),
    presence=st.floats(0.2, 1.0),
)
def test_shares_stay_on_the_simplex_and_absent_ones_where_they_are(
    num_rewards: int, seed: int, rho: float, presence: float
) -> None:
    rng = np.random.default_rng(seed)
    shares_K, solved_K = np.zeros(num_rewards), np.zeros(num_rewards, dtype=bool)
    for _ in range(12):
        active_K = rng.random(num_rewards) < presence
        if not active_K.any():
            continue
        alpha_K = np.where(active_K, rng.random(num_rewards) + 1e-3, 0.0)
        alpha_K /= alpha_K.sum()
        before_K, held_K = shares_K, solved_K & ~active_K
        crowded = held_K.any() and (active_K & ~solved_K).any() and before_K[held_K].sum() > 1 - 1e-12
        shares_K = updated_shares(before_K, solved_K, alpha_K, active_K, rho)
        if not crowded:
            np.testing.assert_array_equal(shares_K[held_K], before_K[held_K])
        solved_K = solved_K | active_K
        assert (shares_K >= 0).all()
        assert shares_K[~solved_K].sum() == 0
        assert shares_K.sum() == pytest.approx(1, abs=1e-12)
