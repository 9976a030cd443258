"""How far a run of a comparison is, and what may be taken away of it."""

import json
import os
import socket
import time
from pathlib import Path

import pytest
from deploy_helpers import Marble, problem, tree
from test_compare_order import asked

from actors.lock import NAME, RunLock
from deploy.compare import order, runs
from deploy.compare.runs import RunSpec, holder, make_spec, opening, standing
from deploy.files import write_json
from deploy.recipe import to_yaml


@pytest.fixture
def spec(recipe_file: Path, tmp_path: Path) -> RunSpec:
    """A run whose folder lies there since two minutes, without a checkpoint."""
    [row, *_] = order.checked_rows(asked(recipe_file))
    spec = make_spec(tmp_path / "runs", "it", order.main_data(row, asked(recipe_file), 42, 4, 1e-3))
    assert standing(spec) == "new"
    spec.run_dir.path.mkdir()
    spec.run_dir.config.write_text(to_yaml(spec.recipe))
    grow_old(spec)
    return spec


def grow_old(spec: RunSpec) -> None:
    then = time.time() - 2 * runs.YOUNG_S
    os.utime(spec.run_dir.path, (then, then))


def locked(spec: RunSpec, host: str, started: str) -> None:
    lock = {"pid": os.getpid(), "host": host, "started": started}
    (spec.run_dir.path / NAME).write_text(json.dumps(lock))
    grow_old(spec)


def test_standings_of_a_run(spec: RunSpec) -> None:
    before = tree(spec.run_dir.path)
    assert standing(spec) == "new", "ended in its first iteration"
    assert tree(spec.run_dir.path) == before, "a look takes nothing away"
    checkpoint = spec.run_dir.checkpoints / "000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")
    assert standing(spec) == "stopped"
    assert opening(spec)[-1] == "--resume"
    write_json(spec.run_dir.summary, {"iterations": 4})
    assert standing(spec) == "done"


def test_what_ended_before_its_first_checkpoint_goes_when_it_is_started_anew(spec: RunSpec) -> None:
    locked(spec, socket.gethostname(), "1")  # its process has ended
    assert standing(spec) == "new"
    assert opening(spec) == spec.arguments
    assert not spec.run_dir.path.exists()


def test_a_run_that_may_live_on_another_machine_is_left_alone(spec: RunSpec) -> None:
    locked(spec, "elsewhere", "1")
    before = tree(spec.run_dir.path)
    assert standing(spec) == "alive"
    assert holder(spec) == (f"process {os.getpid()} on elsewhere (if that is over, remove {spec.run_dir.path / NAME})")
    opening(spec)
    assert tree(spec.run_dir.path) == before


def test_a_run_that_lives_here_is_left_alone(spec: RunSpec) -> None:
    lock = RunLock(spec.run_dir.path)
    lock.acquire()
    assert standing(spec) == "alive"
    assert holder(spec) == f"process {os.getpid()}"
    opening(spec)
    assert spec.run_dir.config.is_file()
    lock.release()


def test_a_folder_that_was_made_a_moment_ago_is_a_run_that_has_yet_to_take_its_lock(spec: RunSpec) -> None:
    os.utime(spec.run_dir.path)
    assert standing(spec) == "alive"
    opening(spec)
    assert spec.run_dir.config.is_file()
    grow_old(spec)
    assert standing(spec) == "new"


def test_asking_for_tables_takes_nothing_away(marble: Marble, recipe_file: Path, workdir: Path) -> None:
    """A run of another machine before its first checkpoint, and one that ended there."""
    folder = workdir / "runs" / "compare-small"
    wanted = asked(recipe_file, methods="marble", seeds="1,2", iterations=4, tuning_iterations=0)
    [row] = order.checked_rows(wanted)
    specs = [
        make_spec(folder / "runs", f"marble-seed{seed}", order.main_data(row, wanted, seed, 4, 1e-3)) for seed in (1, 2)
    ]
    for spec, host in zip(specs, ("elsewhere", socket.gethostname()), strict=True):
        spec.run_dir.path.mkdir()
        spec.run_dir.config.write_text(to_yaml(spec.recipe))
        locked(spec, host, "1")
    write_json(folder / "compare.json", wanted.model_dump(mode="json"))
    write_json(folder / "budget.json", {"rows": {"marble": {"iterations": 4, "lr": 1e-3}}})
    before = tree(folder)
    options = ("--methods", "marble", "--seeds", "1,2", "--iterations", 4, "--tuning-iterations", 0)
    ran = marble("compare", recipe_file, *options, "--probe-every", 5, "--tables-only")
    problem(ran, "has no finished run yet")
    assert tree(folder) == before
