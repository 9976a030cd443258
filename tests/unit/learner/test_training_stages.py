"""Which iterations belong to which stage, and which measure."""

import pytest

from learner import stages
from learner.config import LearnerConfig, StageConfig


def staged(*iterations: int) -> tuple[StageConfig, ...]:
    return tuple(StageConfig(rewards=(f"r{i}",), iterations=n) for i, n in enumerate(iterations))


def test_stages_follow_each_other() -> None:
    three = staged(2, 1, 3)
    assert stages.ends(three) == (2, 3, 6)
    found = [stages.stage_of(three, iteration) for iteration in range(7)]
    assert [stage.rewards[0] for stage in found if stage] == ["r0", "r0", "r1", "r2", "r2", "r2", "r2"]
    assert [iteration for iteration in range(7) if stages.begins(three, iteration)] == [2, 3]
    assert stages.stage_of((), 4) is None
    assert not stages.begins((), 0)
    assert not stages.begins(staged(5), 5), "after the last stage there is none to begin"


def test_what_has_been_trained_so_far() -> None:
    config = LearnerConfig(
        objective="weighted_sum",
        stages=(StageConfig(rewards=("b", "c"), iterations=2), StageConfig(rewards=("a",), iterations=1)),
        weights={"a": 1.0, "b": 0.5, "c": 0.0, "d": 1.0},
    )
    found = [stages.trained_until(config, ("a", "b", "c", "d"), done) for done in range(5)]
    assert found == [(), ("b",), ("b",), ("a", "b"), ("a", "b")], "weight 0 trains nothing"
    assert stages.trained_until(LearnerConfig(), ("a", "b"), 1) == ("a", "b")


@pytest.mark.parametrize(
    ("every", "updates", "probed", "measuring"),
    [
        # Steps 0, 5, 10: the solving step of a window of ten and the one in its middle.
        (5, 2, {0: {0}, 2: {1}, 5: {0}}, {0, 1, 2, 3, 5}),
        (1, 2, {i: {0, 1} for i in range(6)}, set(range(6))),
        (3, 1, {0: {0}, 3: {0}}, {0, 1, 3, 4}),
        (0, 2, {}, set()),
    ],
)
def test_probes_are_known_beforehand(
    every: int, updates: int, probed: dict[int, set[int]], measuring: set[int]
) -> None:
    config = LearnerConfig(probe_every=every, updates_per_iteration=updates)
    assert {i: set(found) for i in range(6) if (found := stages.probed_updates(config, i))} == probed
    assert {i for i in range(6) if stages.measures(config, i)} == measuring
