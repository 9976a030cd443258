"""Pools that change their size while a run goes on, in one process: no bit of the run changes."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from actors.pool_stats import PoolState, read_pools, write_pools
from actors.results import IterationResult
from actors.scaling import Resized, ask
from tests.integration.small_run import Recorder, contents, run, samples, small_config
from tests.unit.actors.in_process import InProcess

POOLS = {"red": {"batch_size": 2}, "dark": {"batch_size": 2}}


class Scales(Recorder):
    """Has somebody else ask for another size: while images are drawn, then while the learner works."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__()
        self._run_dir = run_dir
        self._wishes = {("rollout", "1/4 tasks"): 3, ("learner", "iteration 2"): 1, ("learner", "iteration 3"): 2}
        self._threads: list[threading.Thread] = []
        self.answers: list[list[Resized]] = []
        self.figures_at_start: list[dict[str, PoolState]] = []

    def on_stage(self, stage: str, detail: str) -> None:
        super().on_stage(stage, detail)
        if stage == "start":
            self.figures_at_start.append(read_pools(self._run_dir))
        size = self._wishes.pop((stage, detail), None)
        if size is not None:
            self._threads.append(threading.Thread(target=self._ask, args=(size,)))
            self._threads[-1].start()
            while not list(self._run_dir.glob("scale/*.request.json")):
                self._threads[-1].join(0.01)

    def _ask(self, size: int) -> None:
        self.answers.append(ask(self._run_dir, {"red": size}, 300))

    def on_iteration(self, result: IterationResult) -> None:
        super().on_iteration(result)
        for thread in self._threads:
            thread.join()


@pytest.fixture(scope="module")
def fixed(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three iterations with one scorer each."""
    folder = tmp_path_factory.mktemp("fixed")
    run(small_config(model, folder, run={"iterations": 3}, actors={"pools": POOLS}), folder / "run")
    return folder / "run"


def test_scaling_while_training_goes_on_changes_no_bit(fixed: Path, model: Path, tmp_path: Path) -> None:
    config = small_config(model, tmp_path, run={"iterations": 3}, actors={"pools": POOLS})
    recorder, remote = Scales(tmp_path / "run"), InProcess(order=2, call_s=0.1)
    (tmp_path / "run").mkdir()
    write_pools(tmp_path / "run", {"red": PoolState(9, 9, 9, 9, 9, 9.0, 9, 9, 9.0, 9.0)})
    run(config, tmp_path / "run", remote, recorder)
    assert recorder.figures_at_start[0] == {}, "those of an earlier life are not this one's"
    assert recorder.answers == [[Resized("red", 1, 3)], [Resized("red", 3, 1)], [Resized("red", 1, 2)]]
    scored = {name for name, method in remote.log if method == "score"}
    assert {"reward.red-0", "reward.red-1", "reward.red-2", "reward.red-3"} <= scored
    assert samples(tmp_path / "run") == samples(fixed)
    assert contents(tmp_path / "run/checkpoints/000003") == contents(fixed / "checkpoints/000003")
    events = [json.loads(line) for line in (tmp_path / "run/metrics.jsonl").read_text().splitlines()]
    resized = [(e["done"], e["before"], e["after"], e["why"]) for e in events if e["event"] == "resized"]
    assert resized == [(0, 1, 3, "request"), (1, 3, 1, "request"), (2, 1, 2, "request")]


def test_a_run_says_how_its_pools_did(fixed: Path) -> None:
    pools = read_pools(fixed)
    assert {name: pool.images for name, pool in pools.items()} == {"red": 58, "dark": 58, "contrast": 28}
    assert all((pool.replicas, pool.queue, pool.failed, pool.lost) == (1, 0, 0, 0) for pool in pools.values())


def test_autoscaling_and_a_small_store_change_no_bit(fixed: Path, model: Path, tmp_path: Path) -> None:
    autoscale = {"max_replicas": 4, "autoscale": {"target_queue": 1, "grow_after_s": 0.5, "shrink_after_s": 3}}
    actors: dict[str, Any] = {"pools": {"red": {**POOLS["red"], **autoscale}, "dark": POOLS["dark"]}, "max_unscored": 4}
    remote = InProcess(order=4, call_s=0.1)
    run(small_config(model, tmp_path, run={"iterations": 3}, actors=actors), tmp_path / "run", remote)
    assert sum(method == "start" and name.startswith("reward.red") for name, method in remote.log) > 1
    assert samples(tmp_path / "run") == samples(fixed)
    assert contents(tmp_path / "run/checkpoints/000003") == contents(fixed / "checkpoints/000003")
