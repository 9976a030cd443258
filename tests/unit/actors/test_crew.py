"""Crews: least loaded first, time limits, retries elsewhere, replacement. Rows 14, 22 and 30 of the faults table."""

from typing import Any

import pytest

from actors.crew import Crew, Outcome, Standing, Work
from actors.pump import no_outcome, pump
from learner.errors import UserError
from tests.unit.actors.in_process import InProcess


class Worker:
    """Answers with its own name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.told: list[str] = []

    def start(self) -> str:
        return f"{self.name} is up"

    def tell(self, what: str) -> str:
        self.told.append(what)
        return what

    def work(self, number: int) -> tuple[str, list[str]]:
        return f"{number} by {self.name}", self.told


class Stage:
    """A crew with what it reported."""

    def __init__(self, size: int = 2, retries: int = 1, order: int | None = None) -> None:
        self.remote = InProcess(order)
        self.outcomes: dict[Any, Outcome] = {}
        self.warnings: list[str] = []
        self.crew = Crew(
            "worker",
            self.remote,
            lambda name, index: self.remote.add(name, Worker(name)),
            size=size,
            call_timeout_s=10.0,
            start_timeout_s=60.0,
            retries=retries,
            warn=self.warnings.append,
        )

    def up(self) -> "Stage":
        self.crew.start()
        self.settle()
        return self

    def settle(self) -> None:
        pump(self.remote, [self.crew], lambda: self.crew.settled, no_outcome, lambda: None)

    def work(self, *numbers: int) -> dict[Any, Outcome]:
        for number in numbers:
            self.crew.submit(Work(number, "work", (number,), 2))
        pump(self.remote, [self.crew], lambda: self.crew.num_outstanding == 0, self._take, lambda: None)
        return self.outcomes

    def _take(self, party: object, outcome: Outcome) -> None:
        assert outcome.key not in self.outcomes, "counted twice"
        self.outcomes[outcome.key] = outcome

    def starts(self) -> list[str]:
        return [name for name, method in self.remote.log if method == "start"]


def test_work_is_spread_and_every_call_ends_once() -> None:
    stage = Stage(size=3).up()
    outcomes = stage.work(*range(9))
    assert sorted(outcomes) == list(range(9))
    ran = [name for name, method in stage.remote.log if method == "work"]
    assert sorted(ran.count(f"worker-{i}") for i in range(3)) == [3, 3, 3]
    assert stage.starts() == ["worker-0", "worker-1", "worker-2"]
    assert stage.crew.vitals["worker-1"] == "worker-1 is up"


def test_all_returns_but_the_last_stay_references() -> None:
    stage = Stage(size=1).up()
    outcome = stage.work(4)[4]
    assert len(outcome.refs) == 1
    assert stage.remote.get(outcome.refs[0], 1.0) == "4 by worker-0"
    assert outcome.value == []


@pytest.mark.parametrize("fault", ["die", "hang"])
def test_row_14_a_replica_that_dies_or_hangs_is_replaced_and_its_work_done_elsewhere(fault: Any) -> None:
    stage = Stage(size=2).up()
    stage.remote.faults["worker-0", "work"] = [fault]
    outcomes = stage.work(0, 1, 2)
    assert sorted(outcomes) == [0, 1, 2]
    assert not any(outcome.error for outcome in outcomes.values())
    assert "worker-0" not in stage.remote.alive()
    assert "worker-0.1" in stage.remote.alive()
    assert len(stage.warnings) == 1
    assert "worker-0" in stage.warnings[0]


def test_work_that_raises_is_tried_on_another_replica_and_the_process_lives_on() -> None:
    stage = Stage(size=2, retries=1).up()
    stage.remote.faults["worker-0", "work"] = [OSError("disk full")]
    outcome = stage.work(0)[0]
    assert not outcome.error
    assert [name for name, method in stage.remote.log if method == "work"] == ["worker-0", "worker-1"]
    assert stage.remote.alive() == ["worker-0", "worker-1"]


def test_work_that_always_fails_ends_with_the_last_reason_and_its_replica() -> None:
    stage = Stage(size=1, retries=2).up()
    stage.remote.faults["worker-0", "work"] = [OSError(f"try {i}") for i in range(3)]
    outcome = stage.work(0)[0]
    assert outcome.error == "worker-0: OSError: try 2"
    assert outcome.value is None
    assert stage.work(1)[1].error == ""


def test_a_replacement_does_all_standing_calls_before_it_works() -> None:
    """Row 1: a rollout actor that came later draws with the current adapter, not with a fresh one."""
    stage = Stage(size=1).up()
    seen: list[str] = []
    for text in ("first", "second"):
        stage.crew.broadcast("adapter", Standing("tell", (text,), seen.append))
    stage.crew.broadcast("other", Standing("tell", ("third",), seen.append))
    stage.settle()
    stage.remote.faults["worker-0", "work"] = ["die"]
    assert stage.work(0)[0].value == ["second", "third"]
    assert seen == ["first", "second", "third", "second", "third"]


def test_a_replacement_that_still_loads_holds_nobody_up_and_skips_what_is_outdated() -> None:
    stage = Stage(size=2).up()
    seen: list[str] = []
    stage.crew.broadcast("adapter", Standing("tell", ("first",), seen.append))
    stage.settle()
    stage.remote.faults["worker-0", "work"] = ["die"]
    stage.remote.faults["worker-0.1", "start"] = ["hang"]
    assert sorted(stage.work(0, 1)) == [0, 1]
    stage.crew.broadcast("adapter", Standing("tell", ("second",), seen.append))
    pump(stage.remote, [stage.crew], lambda: stage.crew.synced, no_outcome, lambda: None)
    assert seen == ["first", "first", "second"]
    assert not stage.crew.settled
    stage.settle()  # its start is too late; the next one is not
    assert seen == ["first", "first", "second", "second"]


def test_a_standing_call_that_fails_its_check_stops_everything() -> None:
    def refuse(value: str) -> None:
        raise UserError(f"wrong hash {value}")

    stage = Stage().up()
    stage.crew.broadcast("adapter", Standing("tell", ("x",), refuse))
    with pytest.raises(UserError, match="wrong hash x"):
        stage.settle()


def test_a_standing_call_refused_by_the_actor_is_not_tried_on_another_process() -> None:
    stage = Stage(size=1).up()
    stage.remote.faults["worker-0", "tell"] = [UserError("0 LoRA tensors")]
    stage.crew.broadcast("adapter", Standing("tell", ("x",), lambda value: None))
    with pytest.raises(UserError, match="0 LoRA tensors"):
        stage.settle()
    assert stage.starts() == ["worker-0"]


def test_a_first_start_that_raises_is_a_problem_and_loads_nothing_twice() -> None:
    stage = Stage(size=2)
    stage.remote.faults["worker-0", "start"] = [FileNotFoundError("weights.bin")]
    stage.crew.start()
    stage.settle()
    assert stage.crew.problems == ["worker: FileNotFoundError: weights.bin"]
    assert sorted(stage.starts()) == ["worker-0", "worker-1"]


def test_row_23_a_replica_that_never_comes_up_is_a_problem_within_its_limit() -> None:
    stage = Stage(size=1)
    stage.remote.faults["worker-0", "start"] = ["hang"]
    stage.crew.start()
    stage.settle()
    assert stage.crew.problems == ["worker: worker-0 did not start within 60 s"]
    assert stage.remote.now_s() < 61


def test_a_place_that_keeps_losing_its_processes_stops_the_run() -> None:
    stage = Stage(size=1, retries=9).up()
    for generation in ("", ".1", ".2", ".3"):
        stage.remote.faults[f"worker-0{generation}", "work"] = ["die"]
    with pytest.raises(UserError, match=r"worker-0\.3 was lost 4 times in a row"):
        stage.work(0)


def test_close_kills_everybody_and_drops_the_queue() -> None:
    stage = Stage(size=2).up()
    for number in range(5):
        stage.crew.submit(Work(number, "work", (number,), 2))
    stage.crew.close()
    assert stage.remote.alive() == []
    assert stage.crew.num_outstanding == 0


def test_answers_come_back_by_key_whatever_the_order_of_arrival() -> None:
    values = []
    for order in range(4):
        stage = Stage(size=3, order=order).up()
        outcomes = stage.work(*range(12))
        texts = [stage.remote.get(outcomes[i].refs[0], 1.0).split()[0] for i in range(12)]
        values.append(texts)
    assert values == [[str(i) for i in range(12)]] * 4
