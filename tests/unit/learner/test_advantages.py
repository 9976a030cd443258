"""Advantages: the formula, masks, ties, scales (FAULTS 8, 9, 18)."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from learner.advantages import Advantages, advantages, running_sigma
from learner.config import AdvantageConfig

GROUPS = np.array([3, 3, 3, 8, 8, 8, 8])
UNKNOWN = np.array([np.nan, np.nan])


def call(scores: NDArray[np.float64], states: NDArray[np.uint8] | None = None, **config: object) -> Advantages:
    states = np.zeros(scores.shape, np.uint8) if states is None else states
    return advantages(
        scores.astype(np.float32), states, GROUPS, np.full(len(scores), np.nan), AdvantageConfig(**config)
    )


def drawn(seed: int = 0, rewards: int = 2) -> NDArray[np.float64]:
    return np.random.default_rng(seed).normal(size=(rewards, len(GROUPS)))


@pytest.mark.parametrize("std", ["group", "batch"])
@pytest.mark.parametrize("eps_scale", ["relative", "absolute"])
def test_the_formula(std: str, eps_scale: str) -> None:
    scores = drawn().astype(np.float32).astype(np.float64)
    found = call(scores, std=std, eps=0.01, eps_scale=eps_scale)
    for k in range(2):
        batch = scores[k].std()
        for members in (slice(0, 3), slice(3, 7)):
            values = scores[k][members]
            sigma = values.std() if std == "group" else batch
            expected = (values - values.mean()) / (sigma + 0.01 * (batch if eps_scale == "relative" else 1.0))
            np.testing.assert_allclose(found.advantages_KN[k][members], expected, rtol=1e-12)
    assert found.signal_KN.all()
    np.testing.assert_allclose(found.running_sigma_K, scores.std(1), rtol=1e-12)


def test_masked_cells_leave_group_statistics() -> None:
    scores, states = drawn(), np.zeros((2, len(GROUPS)), np.uint8)
    states[0, 1], scores[0, 1] = 2, np.nan
    found = call(scores, states)
    kept = scores[0][[0, 2]].astype(np.float32).astype(np.float64)
    expected = (kept - kept.mean()) / (kept.std() + 1e-4 * found.running_sigma_K[0])
    np.testing.assert_allclose(found.advantages_KN[0][[0, 2]], expected, rtol=1e-12)
    assert np.isnan(found.advantages_KN[0, 1])
    assert not found.signal_KN[0, 1]
    assert found.counts_K.tolist() == [6, 7]


@pytest.mark.parametrize("state", [1, 2])
def test_one_failed_cell_changes_no_bit_of_other_rewards(state: int) -> None:
    """FAULTS 8, 9."""
    scores, states = drawn(rewards=3), np.zeros((3, len(GROUPS)), np.uint8)
    whole = call(scores, states)
    states[1, 4], scores[1, 4] = state, np.nan
    holed = call(scores, states)
    for k in (0, 2):
        assert whole.advantages_KN[k].tobytes() == holed.advantages_KN[k].tobytes()
        assert whole.running_sigma_K[k] == holed.running_sigma_K[k]
    assert whole.advantages_KN[1][:3].tolist() != holed.advantages_KN[1][:3].tolist()  # the batch's σ has changed
    assert np.isfinite(holed.advantages_KN[1]).sum() == len(GROUPS) - 1


def test_groups_without_signal() -> None:
    scores = np.array([[1.0, 1.0, 1.0, 0.0, 1.0, 2.0, 3.0], [5.0, 7.0, 9.0, 4.0, 4.0, 4.0, 4.0]])
    states = np.array([[0, 0, 0, 0, 0, 0, 0], [0, 1, 2, 0, 0, 0, 0]], np.uint8)
    found = call(scores, states)
    assert found.signal_KN.tolist() == [[False] * 3 + [True] * 4, [False] * 7]  # one scored; all equal
    assert found.counts_K.tolist() == [4, 0]


def test_scores_equal_but_for_the_last_bit_carry_no_signal() -> None:
    """The same image scored in another batch shape differs there."""
    scores = np.full((1, len(GROUPS)), 22.0, np.float32)
    scores[0, 1] = np.nextafter(np.float32(22.0), np.float32(23.0))
    assert not call(scores.astype(np.float64)).signal_KN.any()
    scores[0, 1] = 22.01
    assert call(scores.astype(np.float64)).signal_KN[0].tolist() == [True] * 3 + [False] * 4


@settings(deadline=None)  # a busy machine is no failure
@given(st.integers(0, 50), st.floats(-3, 3), st.floats(-50, 50))
def test_rescaling_a_reward_changes_nothing(seed: int, log_scale: float, shift: float) -> None:
    """FAULTS 18: ε follows the reward's own scale."""
    scores = drawn(seed, 1)
    scale = 10**log_scale
    states = np.zeros(scores.shape, np.uint8)
    config = AdvantageConfig(eps=0.1)
    plain, moved = (
        advantages(values, states, GROUPS, np.array([sigma]), config)
        for values, sigma in ((scores, 0.5), (scores * scale + shift * scale, 0.5 * scale))
    )
    np.testing.assert_allclose(moved.advantages_KN, plain.advantages_KN, rtol=1e-9, atol=1e-9)


def test_absolute_eps_depends_on_scale() -> None:
    """For parity with the public code only."""
    small, large = (call(drawn(0, 1) * s, eps=0.1, eps_scale="absolute") for s in (1e-3, 1e3))
    assert np.abs(small.advantages_KN).max() < 0.1 * np.abs(large.advantages_KN).max()


@pytest.mark.parametrize(
    ("previous", "batch", "expected"),
    [
        (np.nan, 2.0, 2.0),
        (2.0, np.nan, 2.0),
        (2.0, 4.0, 2.2),
        (2.0, 0.0, 2.0),
        (0.0, 3.0, 3.0),
        (2.0, 1e30, 3.8),  # an absurd batch counts as ten times the usual
        (1e30, 2.0, 20.0),  # and an absurd start is gone after one batch
    ],
)
def test_the_running_sigma(previous: float, batch: float, expected: float) -> None:
    """FAULTS 21."""
    assert running_sigma(previous, batch) == pytest.approx(expected)
    assert running_sigma(previous * 1e-3, batch * 1e-3) == pytest.approx(expected * 1e-3)  # FAULTS 18
    assert np.isnan(running_sigma(np.nan, np.nan))


def test_one_absurd_score_does_not_silence_its_reward() -> None:
    """FAULTS 21: the next batches' advantages are as large as ever."""
    scores, states = drawn(0, 1), np.zeros((1, len(GROUPS)), np.uint8)
    absurd = scores.copy()
    absurd[0, 0] = 1e30
    first = advantages(absurd, states, GROUPS, np.array([np.nan]), AdvantageConfig())
    second = advantages(scores, states, GROUPS, first.running_sigma_K, AdvantageConfig())
    usual = advantages(scores, states, GROUPS, np.array([1.0]), AdvantageConfig())
    np.testing.assert_allclose(second.advantages_KN, usual.advantages_KN, rtol=0.01)


def test_an_unscored_reward_keeps_its_running_sigma() -> None:
    scores, states = drawn(), np.zeros((2, len(GROUPS)), np.uint8)
    states[1] = 1
    found = advantages(scores.astype(np.float32), states, GROUPS, np.array([1.0, 3.0]), AdvantageConfig())
    assert found.running_sigma_K[1] == 3.0
    assert found.running_sigma_K[0] != 1.0


def test_bad_input_is_named() -> None:
    scores, states = drawn().astype(np.float32), np.zeros((2, len(GROUPS)), np.uint8)
    scores[1, 5] = np.inf
    with pytest.raises(ValueError, match="1 cells are scored but not finite, first reward 1, sample 5: inf"):
        advantages(scores, states, GROUPS, UNKNOWN, AdvantageConfig())
    with pytest.raises(ValueError, match=r"got \[2, 7\], \[2, 7\] and \[3\]"):
        advantages(scores, states, GROUPS[:3], UNKNOWN, AdvantageConfig())
