"""The rules of DESIGN 2.5 on hashes and versions. Row 1 of the faults table."""

from typing import Any

import numpy as np
import pytest

from actors.rollout import Loaded, RolloutMeta
from actors.weight_sync import Published, SyncError, WeightSync, next_published, verifier
from tests.unit.actors.stand_ins import report

BEFORE = Published(4, "o0", "d0")


def after(**changes: Any) -> Published:
    values = {"default_hash": "d1", "old_hash": "o1", "policy_version": 5, "eta": 0.5, "applied": True}
    return next_published(BEFORE, report(**{**values, **changes}), changes.pop("lr", 1e-3))


def test_an_applied_step_publishes_the_next_version() -> None:
    assert after() == Published(5, "o1", "d1")


def test_without_a_step_nothing_is_published() -> None:
    assert after(default_hash="d0", old_hash="o0", policy_version=4, applied=False) == BEFORE


def test_row_1_a_trained_adapter_that_did_not_move_is_an_error() -> None:
    with pytest.raises(SyncError, match=r"was applied at lr 0\.001, but the hash of `default` did not change"):
        after(default_hash="d0")


def test_an_adapter_that_moved_without_a_step_is_an_error() -> None:
    with pytest.raises(SyncError, match=r"was not applied at lr 0\.001, but the hash of `default` changed"):
        after(applied=False)


def test_at_lr_zero_the_trained_adapter_must_stand_still() -> None:
    same = Published(4, "s", "s")
    still = report(default_hash="s", old_hash="s", policy_version=4, eta=0.5)
    assert next_published(same, still, 0.0) == same
    with pytest.raises(SyncError, match="at lr 0, but the hash of `default` changed"):
        next_published(BEFORE, report(default_hash="d1", old_hash="o1", policy_version=5), 0.0)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"applied": False, "default_hash": "d0"}, "no step was applied, but `old` or its version changed"),
        ({"policy_version": 6}, "its version from 4 to 6"),
        ({"policy_version": 4}, "its version from 4 to 4"),
        ({"old_hash": "o0"}, "its version from 4 to 5"),
        ({"old_hash": "o0", "policy_version": 4}, "did not change"),
        ({"eta": 0.0}, "is not that of default"),
        ({"eta": 1.0}, "but its hash changed"),
    ],
)
def test_hashes_and_versions_off_the_schedule_are_errors(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(SyncError, match="iteration 0") as caught:
        after(**changes)
    assert message in str(caught.value)


def test_the_schedules_ends() -> None:
    assert after(eta=0.0, old_hash="d1") == Published(5, "d1", "d1")
    assert after(eta=1.0, old_hash="o0", policy_version=4) == Published(4, "o0", "d1")


def test_row_1_a_push_of_nothing_or_of_something_else_is_refused() -> None:
    verify = verifier(12, BEFORE)
    verify(Loaded("old", 4, "o0", 12))
    with pytest.raises(SyncError, match="a push bound 0 LoRA tensors of 12"):
        verify(Loaded("old", 4, "o0", 0))
    with pytest.raises(SyncError, match=r"holds policy 3 \(o0\), published is 4"):
        verify(Loaded("old", 3, "o0", 12))
    with pytest.raises(SyncError, match=r"holds policy 4 \(other\)"):
        verify(Loaded("old", 4, "other", 12))
    with pytest.raises(SyncError, match="0 LoRA tensors"):
        verifier(0, None)(Loaded("eval", 0, "e", 0))


def test_a_batch_of_a_policy_that_was_never_published_is_refused() -> None:
    sync = WeightSync.__new__(WeightSync)
    sync.published = BEFORE
    seeds = np.zeros(1, np.int64)
    sync.check_drawn(RolloutMeta(4, "o0", seeds, 0.0), "task 0")
    with pytest.raises(SyncError, match=r"task 0 was drawn by policy 4 \(o9\), published is 4 \(o0\)"):
        sync.check_drawn(RolloutMeta(4, "o9", seeds, 0.0), "task 0")
