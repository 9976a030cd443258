"""Two learners never share a run directory; what a dead one left behind is taken over."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from actors.lock import NAME, RunLock, owner_of
from learner.errors import UserError


def test_a_second_run_is_refused_until_the_first_is_over(tmp_path: Path) -> None:
    first, second = RunLock(tmp_path), RunLock(tmp_path)
    assert first.acquire() == ""
    with pytest.raises(UserError, match=f"in use by process {os.getpid()}"):
        second.acquire()
    second.release()
    assert (tmp_path / NAME).exists(), "who does not hold the lock cannot give it back"
    first.release()
    assert second.acquire() == ""


def test_a_lock_of_a_dead_process_is_taken_over_with_a_warning(tmp_path: Path) -> None:
    code = "import sys; from pathlib import Path; from actors.lock import RunLock; RunLock(Path(sys.argv[1])).acquire()"
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True, cwd=Path(__file__).parents[3])
    dead = owner_of(tmp_path)
    assert dead is not None
    assert not dead.alive
    assert f"process {dead.pid}" in RunLock(tmp_path).acquire()
    owner = owner_of(tmp_path)
    assert owner is not None
    assert owner.pid == os.getpid()


def test_a_process_that_got_a_dead_ones_number_does_not_hold_its_lock(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "started": "1"}))
    assert "has been taken over" in RunLock(tmp_path).acquire()


def test_a_lock_of_another_machine_is_respected(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text(json.dumps({"pid": 1, "host": "elsewhere", "started": "1"}))
    with pytest.raises(UserError, match=f"held by process 1 on elsewhere; if that run is over, remove {NAME}"):
        RunLock(tmp_path).acquire()


def test_an_unreadable_lock_is_taken_over(tmp_path: Path) -> None:
    (tmp_path / NAME).write_text("{")
    assert owner_of(tmp_path) is None
    assert "unreadable" in RunLock(tmp_path).acquire()


def test_nobody_holds_a_fresh_directory(tmp_path: Path) -> None:
    assert owner_of(tmp_path) is None
