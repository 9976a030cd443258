"""The adaptive refresh policy: when it solves, that it never solves much more than every_n, and that it pays."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from gram_zoo import gramian, random_directions
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.adaptive_refresh import compared
from harmonizer.adaptive import FIRST_CREDIT, Adaptive, correlations_moved
from harmonizer.arrays import Bools, Floats
from harmonizer.config import HarmonizerConfig, RefreshConfig
from harmonizer.harmonizer import Harmonizer, Signals
from learner.signals import advantage_correlation

NAN = float("nan")
BOTH = np.array([True, True])


def signals(correlation: float = 0.3, norm: float = 1.0, number: int = 96) -> Signals:
    """Of two rewards."""
    return Signals(np.array([[1.0, correlation], [correlation, 1.0]]), np.full((2, 2), number), norm)


def solved_steps(
    steps: int,
    seen: Callable[[int], tuple[Bools, Signals | None]],
    cosine: Callable[[int], float] = lambda gap: 1.0,
    **config: Any,
) -> dict[int, str]:
    """Step → reason, of a policy that is told of its solves and how near the cached direction was after such a gap."""
    policy = Adaptive(RefreshConfig(policy="adaptive", **config))
    reasons: dict[int, str] = {}
    for step in range(steps):
        active_K, given_ = seen(step)
        if reason := policy.due(step, active_K, given_):
            policy.solved(step, active_K, cosine(step - max(reasons)) if reasons else NAN)
            reasons[step] = reason
    return reasons


def still(step: int) -> tuple[Bools, Signals]:
    return BOTH, signals()


def degrees(near: float, far: float) -> Callable[[int], float]:
    """Cosine one step after a solve, and later."""
    return lambda gap: float(np.cos(np.radians(near if gap == 1 else far)))


def test_where_nothing_moves_the_gap_grows_to_four_n() -> None:
    """One step to measure the noise; then 10, 15, 22.5, 33.75, then 40."""
    reasons = solved_steps(210, still)
    assert list(reasons) == [0, 1, 11, 26, 48, 82, 122, 162, 202]
    assert list(reasons.values()) == ["warm-up"] + ["time"] * 8


@pytest.mark.parametrize(
    ("noise", "far", "grows"), [(0, 14, True), (0, 16, False), (20, 24.5, True), (20, 25.5, False)]
)
def test_noise_is_no_movement_and_what_is_beyond_it_is(noise: float, far: float, grows: bool) -> None:
    """Squares of angles add up: 20° of noise and 15° of movement are 25°."""
    steps = list(solved_steps(62, still, cosine=degrees(noise, far)))
    assert steps == ([0, 1, 11, 26, 48] if grows else [0, 1, 11, 21, 31, 41, 51, 61])


def test_one_gap_that_is_far_is_weighed_with_those_before() -> None:
    """At 26 the mean of nothing and 18°, at 48 of that and 18° once more: 15.6°."""
    steps = list(solved_steps(62, still, cosine=lambda gap: degrees(0, 18 if gap > 10 else 0)(gap)))
    assert steps == [0, 1, 11, 26, 48, 58]


def test_without_a_cosine_it_is_every_n() -> None:
    assert list(solved_steps(60, still, cosine=lambda gap: NAN)) == [0, 1, 11, 21, 31, 41, 51]


def test_a_new_active_set_is_solved_for_at_once_and_again_soon() -> None:
    """At 13, and 1, 2, 4, 8 steps after each; then the gap is n again, and grows."""
    first_only = np.array([True, False])
    reasons = solved_steps(60, lambda step: (first_only if step >= 13 else BOTH, signals()))
    assert list(reasons) == [0, 1, 11, 13, 14, 16, 20, 28, 38, 53]
    assert reasons[13] == "active set"


def test_a_set_solved_for_lately_is_no_news() -> None:
    """The other set is active at 13 and at 30 only."""
    first_only = np.array([True, False])
    reasons = solved_steps(40, lambda step: (first_only if step in (13, 30) else BOTH, signals()))
    assert reasons[13] == "active set"
    assert [step for step, reason in reasons.items() if reason == "active set"] == [13]


def test_moved_correlations_are_solved_for_at_once() -> None:
    reasons = solved_steps(20, lambda step: (BOTH, signals(-0.3 if step >= 4 else 0.3)))
    assert reasons[4] == "advantages"
    assert list(reasons)[:5] == [0, 1, 4, 5, 7]


def test_a_norm_off_by_more_than_two_is_solved_for_after_three_steps() -> None:
    """Seen at steps 2, 3, 4 before and 5, 6, 7 after."""
    for factor, at in ((2.1, 7), (1 / 2.1, 7), (1.9, None)):
        norms = [NAN, 1.0, 1.0, 1.0, 1.0, factor, factor, factor, factor]
        reasons = solved_steps(9, lambda step, norms=norms: (BOTH, signals(norm=norms[step])))
        assert [step for step, reason in reasons.items() if reason == "norm"] == ([] if at is None else [at])


def test_correlations_moved_by_hand() -> None:
    """Noise is 2/96, six deviations of one pair are 6 √2 · 2/96 = 0.177; 0.445² is the sum of the two."""
    assert not correlations_moved(signals(0.0), signals(0.44))
    assert correlations_moved(signals(0.0), signals(0.45))
    assert not correlations_moved(signals(0.0, number=10_000), signals(0.2, number=10_000))
    assert correlations_moved(signals(0.0, number=10_000), signals(0.202, number=10_000))
    assert not correlations_moved(signals(0.0, number=7), signals(1.0, number=7))
    assert not correlations_moved(signals(NAN), signals(1.0))


@pytest.mark.parametrize("num_rewards", [2, 5, 16])
def test_sampling_noise_is_no_movement(num_rewards: int) -> None:
    """Without any tuning for K: at most one false alarm in a hundred pairs of unrelated batches."""
    rng = np.random.default_rng(num_rewards)
    mix_KK = rng.standard_normal((num_rewards, num_rewards)) + np.eye(num_rewards)

    def batch() -> Signals:
        advantages_KN = mix_KK @ rng.standard_normal((num_rewards, 96))
        return Signals(*advantage_correlation(advantages_KN, np.ones_like(advantages_KN, dtype=bool)), NAN)

    alarms = sum(correlations_moved(batch(), batch()) for _ in range(300))
    assert alarms <= 3


def wild(seed: int, num_rewards: int) -> Iterator[tuple[Bools, Signals, Floats]]:
    """Everything changes all the time: active set, correlations, norm, gradients."""
    rng = np.random.default_rng(seed)
    while True:
        active_K = rng.random(num_rewards) < 0.7
        active_K[0] = True
        correlation_KK = np.tanh(rng.standard_normal((num_rewards, num_rewards)))
        counts_KK = rng.integers(0, 200, (num_rewards, num_rewards))
        correlation_KK[rng.random(correlation_KK.shape) < 0.1] = NAN
        yield (
            active_K,
            Signals(correlation_KK, counts_KK, float(np.exp(3 * rng.standard_normal()))),
            gramian(random_directions(rng, num_rewards, num_rewards)),
        )


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**32 - 1), num_rewards=st.integers(2, 16), n=st.sampled_from([1, 3, 10]))
def test_it_never_solves_much_more_than_every_n(seed: int, num_rewards: int, n: int) -> None:
    """At most steps/n + 8, and the warm-up, at every moment of a run in which alarms never stop."""
    policy = Adaptive(RefreshConfig(policy="adaptive", n=n))
    solves = 0
    for step, (active_K, given_, _) in zip(range(300), wild(seed, num_rewards), strict=False):
        if policy.due(step, active_K, given_):
            policy.solved(step, active_K, NAN)
            solves += 1
        assert solves <= 1 + step / n + FIRST_CREDIT


@pytest.mark.parametrize("cut", [1, 7, 30])
def test_a_restored_policy_goes_on_bit_for_bit(cut: int) -> None:
    """FAULTS 5: the same plans and solves after a way through JSON."""
    config = HarmonizerConfig(refresh=RefreshConfig(policy="adaptive", n=5))
    names = ["a", "b", "c"]
    straight, saved = Harmonizer(names, config), Harmonizer(names, config)
    reasons = set()
    for step, (active_K, given_, gramian_KK) in zip(range(60), wild(4, 3), strict=False):
        if step == cut:
            state = json.loads(json.dumps(saved.state_dict(), allow_nan=False))
            saved = Harmonizer(names, config)
            saved.load_state_dict(state)
        plans = [harmonizer.plan(step, active_K, given_) for harmonizer in (straight, saved)]
        reasons.add(plans[0].reason)
        assert plans[0].reason == plans[1].reason
        if plans[0].solve:
            for harmonizer in (straight, saved):
                harmonizer.solve(step, gramian_KK, active_K)
        assert straight.state_dict() == saved.state_dict()
    assert {"", "time", "active set", "advantages"} <= reasons


def test_a_state_of_another_policy_is_refused_and_nothing_loaded() -> None:
    adaptive = Harmonizer(["a", "b"], HarmonizerConfig(refresh=RefreshConfig(policy="adaptive")))
    every_n = Harmonizer(["a", "b"], HarmonizerConfig())
    before = adaptive.state_dict()
    with pytest.raises(
        ValueError, match="adaptive refresh lacks gap, credit, last, sets, reference, early, late, noise, apart"
    ):
        adaptive.load_state_dict(every_n.state_dict())
    with pytest.raises(ValueError, match="every_n remembers nothing, got a state of"):
        every_n.load_state_dict(before)
    assert adaptive.state_dict() == before


def test_what_was_loaded_from_stays_as_it_was() -> None:
    """A checkpoint may be read twice."""
    first, second = (Adaptive(RefreshConfig(policy="adaptive")) for _ in range(2))
    first.due(0, BOTH, signals())
    first.solved(0, BOTH, NAN)
    state = first.state_dict()
    before = json.dumps(state)
    second.load_state_dict(state)
    for step in range(1, 7):
        second.due(step, BOTH, signals())
    second.solved(7, np.array([True, False]), 1.0)
    assert json.dumps(state) == before
    assert second.state_dict() != state


def test_signals_of_other_rewards_are_refused() -> None:
    harmonizer = Harmonizer(["a", "b", "c"], HarmonizerConfig())
    with pytest.raises(ValueError, match=r"correlation_KK must be \[3, 3\], got shape \[2, 2\]"):
        harmonizer.plan(0, np.ones(3, dtype=bool), signals())


@pytest.mark.parametrize("scenario", ["bursts", "coming_and_going"])
def test_with_as_many_solves_as_every_n_its_direction_is_nearer(scenario: str) -> None:
    """Where movement comes in bursts, over two runs of 300 steps and five rewards: at least a tenth less error."""
    runs = [compared(scenario, num_rewards=5, num_samples=1152, num_steps=300, seed=seed) for seed in (0, 1)]
    for adaptive, as_many, _ in runs:
        assert as_many.solves >= adaptive.solves
    errors = np.array([[outcome.error_deg for outcome in row] for row in runs]).mean(axis=0)
    assert errors[0] < 0.9 * errors[1]


@pytest.mark.parametrize(("num_samples", "share"), [(1152, 0.5), (96, 0.7)])
def test_where_nothing_moves_it_is_as_near_with_fewer_solves(num_samples: int, share: float) -> None:
    """Also where a batch's noise turns each solve by as much as movement would (96 samples)."""
    runs = [compared("still", num_rewards=5, num_samples=num_samples, num_steps=300, seed=seed) for seed in (0, 1)]
    adaptive, _, every_tenth = np.array([[(o.solves, o.error_deg) for o in row] for row in runs]).mean(axis=0)
    assert adaptive[0] <= share * every_tenth[0]
    assert adaptive[1] < 1.1 * every_tenth[1]
