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

    def __init__(
        self, size: int = 2, retries: int = 1, order: int | None = None, ahead: bool = False, call_s: float = 0.0
    ) -> None:
        self.remote = InProcess(order, call_s)
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
            ahead=ahead,
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


@pytest.mark.parametrize("passed_s", [9.0, 11.0])
def test_an_answer_that_came_in_time_counts_however_late_it_is_looked_at(passed_s: float) -> None:
    """The caller was busy meanwhile: starting processes, writing a checkpoint. Nobody is killed for that."""
    stage = Stage(size=1).up()
    stage.crew.submit(Work(0, "work", (0,), 2))
    (ref,) = stage.crew.refs()
    assert stage.remote.wait([ref], 0.0) == [ref]
    stage.remote.idle(passed_s)
    assert stage.crew.expire() == []
    assert sorted(stage.work()) == [0]
    assert (stage.crew.losses, stage.remote.alive()) == (0, ["worker-0"])


# -- the next call lies ready -----------------------------------------------------------------------------------------


def ready_calls(stage: Stage) -> list[int]:
    """Calls that each living process holds."""
    return [len(handle.calls) for handle in stage.remote.handles if handle.alive]


@pytest.mark.parametrize(("works", "held"), [(4, [1, 1]), (5, [2, 1]), (6, [2, 2]), (9, [2, 2])])
def test_a_process_holds_its_next_call_as_long_as_more_wait_than_there_are_replicas(
    works: int, held: list[int]
) -> None:
    stage = Stage(ahead=True).up()
    for number in range(works):
        stage.crew.submit(Work(number, "work", (number,), 2))
    assert ready_calls(stage) == held
    assert stage.crew.num_outstanding == works
    assert sorted(stage.work()) == list(range(works))
    assert stage.crew.num_outstanding == 0


def test_order_is_kept_and_nothing_lies_ready_where_it_was_not_asked_for() -> None:
    for ahead in (False, True):
        stage = Stage(size=1, ahead=ahead).up()
        for number in range(5):
            stage.crew.submit(Work(number, "work", (number,), 2))
        assert ready_calls(stage) == [1 + ahead]
        assert list(stage.work()) == list(range(5))


@pytest.mark.parametrize("fault", ["die", "hang"])
def test_row_14_a_call_that_lay_ready_with_a_lost_process_has_not_used_a_try(fault: Any) -> None:
    """Without a second try the call that was under way is given up, and that one only."""
    stage = Stage(size=1, retries=0, ahead=True).up()
    stage.remote.faults["worker-0", "work"] = [fault]
    outcomes = stage.work(0, 1, 2, 3)
    assert {number: bool(outcome.error) for number, outcome in outcomes.items()} == {
        0: True,
        1: False,
        2: False,
        3: False,
    }
    assert stage.crew.losses == 1
    ran = [name for name, method in stage.remote.log if method == "work"]
    assert ran.count("worker-0.1") == 3, "each once, by the successor"


def test_the_time_limit_of_a_call_that_lay_ready_begins_when_it_does() -> None:
    stage = Stage(size=1, retries=0, ahead=True, call_s=6.0).up()
    outcomes = stage.work(0, 1, 2, 3)
    assert not any(outcome.error for outcome in outcomes.values())
    assert [outcome.seconds for outcome in outcomes.values()] == [6.0] * 4
    assert stage.crew.losses == 0


def test_nothing_lies_ready_behind_work_that_may_end_its_process() -> None:
    stage = Stage(size=1, ahead=True).up()
    stage.crew.submit(*(Work(number, "work", (number,), 2, suspect=True) for number in range(5)))
    assert ready_calls(stage) == [1]
    assert sorted(stage.work()) == list(range(5))


def test_a_replica_that_leaves_finishes_both_of_its_calls() -> None:
    stage = Stage(size=2, ahead=True).up()
    for number in range(8):
        stage.crew.submit(Work(number, "work", (number,), 2))
    assert ready_calls(stage) == [2, 2]
    stage.crew.resize(1)
    assert sorted(stage.work()) == list(range(8))
    ran = [name for name, method in stage.remote.log if method == "work"]
    assert ran.count("worker-1") == 2
    assert stage.remote.alive() == ["worker-0"]


# -- resizing ---------------------------------------------------------------------------------------------------------


def test_a_crew_grows_while_it_works_and_the_new_replicas_take_their_share() -> None:
    stage = Stage(size=1).up()
    for number in range(8):
        stage.crew.submit(Work(number, "work", (number,), 2))
    stage.crew.resize(3)
    assert (stage.crew.size, stage.crew.num_up) == (3, 1), "the new ones still load"
    assert sorted(stage.work(8)) == list(range(9))
    assert stage.starts() == ["worker-0", "worker-1", "worker-2"], "nobody is loaded anew"
    ran = [name for name, method in stage.remote.log if method == "work"]
    assert set(ran) == {"worker-0", "worker-1", "worker-2"}


def test_new_replicas_do_all_standing_calls_before_they_work() -> None:
    stage = Stage(size=1).up()
    seen: list[str] = []
    stage.crew.broadcast("adapter", Standing("tell", ("adapter 7",), seen.append))
    stage.settle()
    stage.crew.resize(2)
    stage.settle()
    outcomes = stage.work(0, 1)
    assert [outcome.value for outcome in outcomes.values()] == [["adapter 7"]] * 2
    assert seen == ["adapter 7"] * 2


def test_a_busy_replica_finishes_its_call_before_it_leaves() -> None:
    stage = Stage(size=3).up()
    for number in range(6):
        stage.crew.submit(Work(number, "work", (number,), 2))
    stage.crew.resize(1)
    assert len(stage.remote.alive()) == 3
    assert stage.crew.size == 1
    outcomes = stage.work()
    assert sorted(outcomes) == list(range(6))
    ran = [name for name, method in stage.remote.log if method == "work"]
    assert (ran.count("worker-1"), ran.count("worker-2")) == (1, 1), "only what they had"
    assert stage.remote.alive() == ["worker-0"]
    assert list(stage.crew.vitals) == ["worker-0"]
    assert stage.warnings == []


def test_who_loads_leaves_first_then_who_is_idle_and_leaving_ones_are_called_back() -> None:
    stage = Stage(size=2).up()
    stage.crew.submit(Work(0, "work", (0,), 2))
    stage.crew.resize(3)
    stage.crew.resize(2)
    assert stage.remote.alive() == ["worker-0", "worker-1"], "the one that was still loading"
    stage.crew.resize(1)
    assert stage.remote.alive() == ["worker-0"], "the idle one"
    stage.crew.submit(Work(1, "work", (1,), 2))
    stage.crew.resize(2)
    stage.crew.resize(1)
    assert stage.crew.size == 1
    stage.crew.resize(2)
    assert sorted(stage.work()) == [0, 1]
    assert stage.crew.size == 2


def test_a_replica_that_is_lost_while_it_leaves_is_not_replaced_and_its_work_is_done_elsewhere() -> None:
    stage = Stage(size=2).up()
    stage.remote.faults["worker-1", "work"] = ["die"]
    for number in range(2):
        stage.crew.submit(Work(number, "work", (number,), 2))
    stage.crew.resize(1)
    outcomes = stage.work()
    assert not any(outcome.error for outcome in outcomes.values())
    assert stage.remote.alive() == ["worker-0"]


@pytest.mark.parametrize("fault", ["die", "hang", MemoryError("no room")])
def test_an_added_replica_that_does_not_start_leaves_the_others_at_work(fault: Any) -> None:
    """The run goes on, whatever it is: growing was a wish."""
    stage = Stage(size=1).up()
    for generation in ("", ".1", ".2", ".3"):
        stage.remote.faults[f"worker-1{generation}", "start"] = [fault]
    stage.crew.resize(2)
    stage.settle()
    assert (stage.crew.size, stage.crew.failed_starts) == (1, 1)
    assert stage.warnings[-1].endswith("worker goes on with 1 replicas")
    assert stage.remote.alive() == ["worker-0"]
    assert sorted(stage.work(0, 1)) == [0, 1]


def test_urgent_work_goes_first_in_its_own_order() -> None:
    stage = Stage(size=1).up()
    stage.crew.submit(*(Work(number, "work", (number,), 2) for number in range(3)))
    stage.crew.submit(*(Work(number, "work", (number,), 2) for number in (7, 8)), first=True)
    assert list(stage.work()) == [0, 7, 8, 1, 2], "the first one was under way"


def test_losses_to_suspect_work_do_not_count_against_the_place() -> None:
    stage = Stage(size=1, retries=0).up()
    for generation in range(6):
        stage.remote.faults["worker-0" + (f".{generation}" if generation else ""), "work"] = ["die"]
    stage.crew.submit(*(Work(number, "work", (number,), 2, suspect=True) for number in range(7)))
    outcomes = stage.work()
    assert [bool(outcome.error) for outcome in outcomes.values()] == [True] * 6 + [False]
    assert stage.crew.losses == 6
