"""The benchmark of reward pools: what it reads off the ledger, and the fates it deals out."""

from typing import Any

import numpy as np

from benchmarks.pool_stage import SHARES, fates, numbers, painted, score
from benchmarks.reward_pool import duplicates, verdict
from rewards.contract import State


def row(sample: int, state: State, value: float | None) -> dict[str, Any]:
    return {"sample": sample, "state_ink": int(state), "score_ink": value}


GOOD = [row(0, State.SCORED, score(0)), row(1, State.FAILED, None), row(2, State.SCORED, score(2))]


def test_a_ledger_without_a_mistake() -> None:
    said = verdict("ink", GOOD, {1: "exit"}, 3)
    assert said == {"states": {"scored": 2, "failed": 1}, "as_injected": True, "lost": 0}
    assert duplicates(GOOD) == 0


def test_what_is_not_there_at_all_is_lost_as_is_another_samples_score() -> None:
    assert verdict("ink", GOOD[:2], {1: "exit"}, 3)["lost"] == 1
    assert verdict("ink", [*GOOD[:2], row(2, State.SCORED, score(0))], {1: "exit"}, 3)["lost"] == 1
    assert verdict("ink", [*GOOD[:2], row(2, State.NOT_APPLICABLE, None)], {1: "exit"}, 3)["lost"] == 1


def test_a_healthy_sample_that_failed_and_a_row_too_many() -> None:
    assert not verdict("ink", GOOD, {}, 3)["as_injected"]
    assert not verdict("ink", GOOD, {1: "exit", 2: "raise"}, 3)["as_injected"]
    assert duplicates([*GOOD, GOOD[0]]) == 1


def test_fates_are_dealt_in_the_shares_that_are_asked_for_and_to_others_in_every_pool() -> None:
    dealt = [fates(seed, 10_000) for seed in range(3)]
    for fate, share in SHARES.items():
        assert [sum(it == fate for it in found.values()) for found in dealt] == [round(share * 10_000)] * 3
    assert dealt[0] != dealt[1]
    assert numbers(painted(np.array([0, 255, 256, 9_999]))) == [0, 255, 256, 9_999]
