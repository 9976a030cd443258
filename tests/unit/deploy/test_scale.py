"""`marble scale`: what is refused before the run is asked, and what the run answers."""

import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from deploy_helpers import Marble, edited, problem, tree

from actors.config import PoolConfig
from actors.lock import RunLock
from actors.scaling import Requests, Resized, check_size
from deploy import scaling
from deploy.paths import ROOT
from deploy.recipe import load_recipe, to_yaml
from deploy.rundir import RunDir

POOLS = "actors: {pools: {align: {replicas: 2, max_replicas: 4}}}\nrun:\n"


@pytest.fixture
def run(recipe_file: Path, workdir: Path) -> RunDir:
    """A run directory that nobody holds."""
    run_dir = RunDir(workdir / "runs" / "small")
    run_dir.path.mkdir(parents=True)
    run_dir.config.write_text(to_yaml(load_recipe(edited(recipe_file, ("run:\n", POOLS)))))
    return run_dir


@pytest.fixture
def controller(run: RunDir) -> Iterator[dict[str, int]]:
    """Holds the run and resizes what it is asked to; gives the sizes."""
    lock, requests, sizes = RunLock(run.path), Requests(run.path), {"align": 2, "geneval": 1}
    roles = {"align": PoolConfig(replicas=2, max_replicas=3), "geneval": PoolConfig()}
    over = threading.Event()

    def apply(asked: Mapping[str, int]) -> list[Resized]:
        for name, size in asked.items():
            check_size(name, size, roles)
        changes = [Resized(name, sizes[name], size) for name, size in asked.items()]
        sizes.update(asked)
        return changes

    def serve() -> None:
        while not over.wait(0.01):
            requests.serve(apply)

    lock.acquire()
    thread = threading.Thread(target=serve)
    thread.start()
    yield sizes
    over.set()
    thread.join()
    lock.release()


def test_a_running_run_is_resized_by_name_or_path(run: RunDir, controller: dict[str, int], marble: Marble) -> None:
    ran = marble("scale", "small", "reward.align=3", "reward.geneval=2")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == ["reward.align: 2 -> 3 replicas", "reward.geneval: 1 -> 2 replicas"]
    assert controller == {"align": 3, "geneval": 2}
    ran = marble("scale", run.path, "reward.align=1", "--json")
    assert json.loads(ran.out) == [{"reward": "align", "before": 3, "after": 1}]


def test_what_the_run_itself_refuses_is_one_line(run: RunDir, controller: dict[str, int], marble: Marble) -> None:
    """Its recipe may allow less than the file says by now."""
    problem(marble("scale", run.path, "reward.align=4"), "reward.align=4: actors.pools.align allows 1 to 3 replicas")
    assert controller["align"] == 2


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("align=3", ("align=3: wants reward.NAME=N, e.g. reward.align=4",)),
        ("reward.align=three", ("reward.align=three: wants reward.NAME=N",)),
        ("reward.geneval=" + "9" * 5000, ("wants reward.NAME=N",)),
        ("reward.geneval=5000", ("reward.geneval=5000: actors.pools.geneval allows 1 to 4096 replicas",)),
        ("reward.align=-1", ("reward.align=-1: wants reward.NAME=N",)),
        ("reward.align=", ("wants reward.NAME=N",)),
        ("rollout=2", ("rollout=2: wants reward.NAME=N",)),
        ("reward.aling=3", ("reward.aling: the run's rewards are align, geneval; did you mean align?",)),
        ("reward.align=0", ("reward.align=0: actors.pools.align allows 1 to 4 replicas",)),
        ("reward.align=5", ("allows 1 to 4 replicas",)),
    ],
)
def test_bad_sizes_are_one_line_and_leave_nothing(
    run: RunDir, controller: dict[str, int], marble: Marble, text: str, parts: tuple[str, ...]
) -> None:
    before = tree(run.path)
    problem(marble("scale", run.path, text), *parts)
    assert tree(run.path) == before


def test_every_bad_size_is_said_at_once(run: RunDir, controller: dict[str, int], marble: Marble) -> None:
    ran = marble("scale", run.path, "reward.align=9", "reward.x=1", "reward.geneval=2", "reward.geneval=3")
    problem(ran, "reward.align=9", "reward.x", "reward.geneval is named twice", count=3)
    assert controller == {"align": 2, "geneval": 1}


def test_a_run_that_is_not_running_is_told_at_once(run: RunDir, marble: Marble) -> None:
    before = tree(run.path)
    problem(marble("scale", run.path, "reward.align=3"), "small is not running")
    code = f"from pathlib import Path; from actors.lock import RunLock; RunLock(Path({str(run.path)!r})).acquire()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    problem(marble("scale", run.path, "reward.align=3"), "small is not running")
    assert set(tree(run.path)) - set(before) == {"run.lock"}


def test_a_run_on_another_machine_is_asked_and_named_when_it_does_not_answer(
    run: RunDir, marble: Marble, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = {"pid": os.getpid(), "host": socket.gethostname() + "-other", "started": "1"}
    (run.path / "run.lock").write_text(json.dumps(lock))
    monkeypatch.setattr(scaling, "PATIENCE_S", 0.2)
    problem(
        marble("scale", run.path, "reward.align=3"), "did not take up the request within 0.2 s; nothing was changed"
    )
    assert list((run.path / "scale").iterdir()) == []


def test_what_is_no_run_is_told(workdir: Path, marble: Marble) -> None:
    problem(marble("scale", "nope", "reward.align=3"), "nope is not a run directory")
    assert marble("scale", "nope").code == 2


def test_scale_needs_neither_torch_nor_ray(run: RunDir) -> None:
    code = (
        "import sys\nfrom deploy.cli import run\n"
        f"run(['scale', {str(run.path)!r}, 'reward.align=3'])\n"
        "print([m for m in ('torch', 'ray', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
