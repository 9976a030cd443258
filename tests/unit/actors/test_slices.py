"""Slices whose calls fail, die or hang: who is found guilty, what it costs, and that the others lose no bit.

Rows 8, 11 and 14 of the faults table. A toy scorer's numbers depend on the size of the batch, as a real one's last bits
do, so a score from a batch of another shape is seen.
"""

from collections import Counter
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from actors.slices import Ask, Slice
from rewards.contract import RewardResult, State
from rewards.results import Cell, collect
from tests.unit.actors.stand_ins import prompts

Fate = Literal["healthy", "raises", "raises once", "dies", "dies once"]
"""`dies` stands for hanging too: to a slice both are a call that never came back."""


class World:
    """A slice whose samples have fates; counts what they cost."""

    def __init__(self, fates: list[Fate], retries: int = 1, applies: list[bool] | None = None) -> None:
        self.fates, self.retries = fates, retries
        self.slice = Slice(3, 40, "images", prompts(*map(str, range(len(fates)))), applies or [True] * len(fates))
        self.calls, self.deaths = 0, 0
        self.met: Counter[int] = Counter()
        """Sample -> calls that showed it."""

    def run(self) -> RewardResult:
        asks = self.slice.begin()
        while asks:
            assert not self.slice.done
            asks += self._answer(asks.pop(0))
        assert self.slice.done
        return self.slice.cells.result

    def _answer(self, ask: Ask) -> list[Ask]:
        shown = [int(text) for text in self.slice.request(ask, False).prompts]
        self.calls += 1
        self.met.update(set(shown))
        if any(self._is(i, "dies") for i in shown):
            self.deaths += 1
            return self.slice.lost(ask, "the process died", self.retries)
        cells = [Cell.failed("no ink") if self._is(i, "raises") else Cell.scored(i + len(shown) / 64) for i in shown]
        return self.slice.answered(ask, collect(cells), self.retries)

    def _is(self, i: int, what: str) -> bool:
        return self.fates[i] == what or (self.fates[i] == f"{what} once" and self.met[i] == 1)


def test_a_healthy_slice_is_one_call() -> None:
    world = World(["healthy"] * 16)
    assert world.run().scores.tolist() == [i + 0.25 for i in range(16)]
    assert world.calls == 1


def test_one_culprit_costs_two_processes_whatever_the_batch_and_nobody_else_a_bit() -> None:
    """The first call, and the culprit alone: that is its second try."""
    for size in (2, 16, 64):
        fates: list[Fate] = ["healthy"] * size
        fates[size // 2] = "dies"
        world = World(fates, retries=1)
        result = world.run()
        assert [i for i in range(size) if result.states[i] == State.FAILED] == [size // 2]
        assert result.reasons[size // 2] == "the process died"
        assert world.deaths == 2
        assert world.calls == 1 + size + 1
        whole = [i + size / 64 for i in range(size)]
        assert [s for i, s in enumerate(result.scores) if i != size // 2] == whole[: size // 2] + whole[size // 2 + 1 :]


@pytest.mark.parametrize(("retries", "deaths"), [(0, 2), (1, 2), (2, 3), (4, 5)])
def test_a_culprit_is_tried_as_often_as_configured_and_once_alone_at_least(retries: int, deaths: int) -> None:
    world = World(["healthy", "dies", "healthy"], retries)
    assert world.run().states.tolist() == [State.SCORED, State.FAILED, State.SCORED]
    assert world.deaths == deaths


@pytest.mark.parametrize("retries", [0, 1, 2])
def test_a_sample_that_fails_with_a_reason_is_tried_as_often_as_configured(retries: int) -> None:
    world = World(["healthy", "raises", "healthy"], retries)
    assert world.run().states.tolist() == [State.SCORED, State.FAILED, State.SCORED]
    assert world.met[1] == 1 + retries
    assert (world.met[0], world.met[2]) == (1, 1), "the others are not asked again"


def test_a_process_killed_by_somebody_else_changes_nothing() -> None:
    """kill -9, a lost node: whoever was in the batch is innocent."""
    world = World(["healthy", "dies once", "healthy"], retries=0)
    assert world.run().scores.tolist() == [i + 3 / 64 for i in range(3)]
    assert world.deaths == 1


def test_samples_it_does_not_apply_to_are_never_shown() -> None:
    world = World(["healthy", "dies", "dies", "healthy"], applies=[True, False, True, True])
    assert world.run().states.tolist() == [State.SCORED, State.NOT_APPLICABLE, State.FAILED, State.SCORED]
    assert world.met[1] == 0


def test_a_slice_without_any_applicable_sample_is_done_at_once() -> None:
    world = World(["dies"] * 2, applies=[False] * 2)
    assert world.slice.begin() == []
    assert world.slice.done
    assert world.slice.cells.result.states.tolist() == [State.NOT_APPLICABLE] * 2


def test_a_batch_that_is_too_large_for_a_process_keeps_the_scores_of_its_samples_alone() -> None:
    """Out of memory on the whole, every time: the last call, which would make the shape right, dies as well."""
    whole = Slice(0, 0, "images", prompts(*"abc"), [True] * 3)
    (ask,) = whole.begin()
    alone = whole.lost(ask, "out of memory", 1)
    assert [ask.members for ask in alone] == [(0,), (1,), (2,)]
    last = [more for i, ask in enumerate(alone) for more in whole.answered(ask, collect([Cell.scored(i)]), 1)]
    assert [ask.confirms for ask in last] == [True]
    assert whole.lost(last[0], "out of memory", 1) == []
    assert whole.done
    assert whole.cells.result.scores.tolist() == [0, 1, 2]


def test_a_call_that_cannot_be_made_is_no_samples_fault_and_is_tried_whole() -> None:
    whole = Slice(0, 0, "images", prompts(*"ab"), [True] * 2)
    (first,) = whole.begin()
    (second,) = whole.raised(first, "object lost", 1)
    assert second.members == (0, 1)
    assert whole.raised(second, "object lost", 1) == []
    assert whole.cells.result.reasons == ("object lost", "object lost")


def test_a_request_names_rows_of_the_whole_task() -> None:
    whole = Slice(0, 40, "images", prompts(*"abc"), [True] * 3)
    request = whole.request(Ask((0, 1, 2), 1, {1: 2}, confirms=True), True)
    assert request.rows_N.tolist() == [40, 42, 42]
    assert request.prompts == ("a", "c", "c")
    assert request.evaluation


FATES: list[Fate] = ["healthy", "raises", "raises once", "dies", "dies once"]


@given(st.lists(st.sampled_from(FATES), min_size=1, max_size=16), st.integers(1, 3))
def test_exactly_the_culprits_fail_and_every_other_score_is_that_of_the_whole_batch(
    fates: list[Fate], retries: int
) -> None:
    world = World(fates, retries)
    result = world.run()
    size = len(fates)
    culprits = {i for i, fate in enumerate(fates) if fate in ("raises", "dies")}
    assert {i for i in range(size) if result.states[i] == State.FAILED} == culprits
    assert all(world.met[i] <= 2 + retries for i in culprits), "once in each try, and none for ever"
    healthy = [i for i, fate in enumerate(fates) if fate in ("healthy", "dies once")]
    assert [float(result.scores[i]) for i in healthy] == [i + size / 64 for i in healthy]
    assert world.deaths <= 1 + sum(fate.startswith("dies") for fate in fates) * max(1, retries)
