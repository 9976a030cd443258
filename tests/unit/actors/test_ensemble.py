"""Ensembles live and die together. Row 22 of the faults table: one is lost, all go, and the error names it."""

from typing import Any

import pytest

from actors.ensemble import Ensemble, MemberFailedError, MemberLostError
from actors.pump import no_outcome, pump
from learner.errors import UserError
from tests.unit.actors.in_process import InProcess


class Member:
    def train(self, number: int) -> int:
        return number * 10


class Stage:
    def __init__(self) -> None:
        self.remote = InProcess()
        self.ensemble = Ensemble("learner", self.remote)
        for rank in range(3):
            self.ensemble.add(f"rank {rank}", self.remote.add(f"rank {rank}", Member()))

    def train(self) -> dict[str, Any]:
        calls = {f"rank {rank}": ("train", rank) for rank in range(3)}
        self.ensemble.begin("iteration 4", calls, timeout_s=60.0)
        pump(self.remote, [self.ensemble], lambda: self.ensemble.idle, no_outcome, lambda: None)
        return dict(self.ensemble.results)


def test_all_answers_come_together() -> None:
    assert Stage().train() == {"rank 0": 0, "rank 1": 10, "rank 2": 20}


def test_row_22_a_member_that_dies_is_named_and_all_are_gone() -> None:
    stage = Stage()
    stage.remote.faults["rank 1", "train"] = ["die"]
    with pytest.raises(MemberLostError, match="rank 1 was lost during iteration 4"):
        stage.train()
    assert stage.remote.alive() == []
    assert stage.ensemble.idle


def test_row_22_members_that_hang_are_named_within_the_time_limit() -> None:
    stage = Stage()
    for rank in (0, 2):
        stage.remote.faults[f"rank {rank}", "train"] = ["hang"]
    with pytest.raises(MemberLostError, match="rank 0, rank 2 gave no answer to iteration 4 within 60 s"):
        stage.train()
    assert stage.remote.now_s() < 61
    assert stage.remote.alive() == []


def test_a_users_error_stays_one_and_a_bug_keeps_its_cause() -> None:
    stage = Stage()
    stage.remote.faults["rank 2", "train"] = [UserError("another recipe")]
    with pytest.raises(UserError, match=r"^rank 2: another recipe$"):
        stage.train()
    stage = Stage()
    stage.remote.faults["rank 2", "train"] = [IndexError("row 7")]
    with pytest.raises(MemberFailedError, match="rank 2 failed during iteration 4: IndexError: row 7") as caught:
        stage.train()
    assert isinstance(caught.value.__cause__, Exception)
