"""Pools while a run goes on: requests taken up between two looks at the calls, autoscaling, figures on disk."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.config import PoolConfig
from actors.crew import Crew, Outcome
from actors.pool import RewardPool, ScorerActor, ScorerSpec
from actors.pool_control import PoolControl
from actors.pool_stats import read_pools
from actors.pump import no_outcome, pump
from actors.scaling import Requests, Resized, ask
from actors.slices import Cells
from learner.errors import UserError
from rewards.config import RewardConfig
from rewards.contract import State
from tests.unit.actors.in_process import Handle, InProcess
from tests.unit.actors.stand_in_scorer import Scripted
from tests.unit.actors.stand_ins import prompts

SCORER = RewardConfig(scorer="tests.unit.actors.stand_in_scorer:Scripted")


class Stage:
    """Two pools and their control."""

    def __init__(self, run_dir: Path, **role: Any) -> None:
        Scripted.calls, Scripted.failures_left = [], 0
        self.remote, self.run_dir = InProcess(), run_dir
        self.warnings: list[str] = []
        self.changes: list[tuple[Resized, str]] = []
        self.pools = {name: self._pool(name, PoolConfig(**{"batch_size": 2, **role})) for name in ("ink", "wash")}
        args = (self.remote, self.pools, lambda change, why: self.changes.append((change, why)))
        self.control = PoolControl(run_dir, Requests(run_dir), *args)
        self.crews = [pool.crew for pool in self.pools.values()]
        for crew in self.crews:
            crew.start()
        pump(self.remote, self.crews, lambda: all(crew.settled for crew in self.crews), no_outcome, lambda: None)

    def _pool(self, name: str, role: PoolConfig) -> RewardPool:
        def spawn(actor: str, index: int) -> Handle:
            return self.remote.add(actor, ScorerActor(ScorerSpec(actor, name, role, SCORER, 32)))

        crew = Crew(
            f"reward.{name}",
            self.remote,
            spawn,
            size=role.replicas,
            call_timeout_s=5.0,
            start_timeout_s=60.0,
            retries=0,
            warn=self.warnings.append,
        )
        return RewardPool(name, SCORER, role, crew)

    def score(self, num_images: int) -> list[Cells]:
        """Has `ink` score so many images, under the eyes of the control."""
        images = self.remote.put(np.zeros((num_images, 32, 32, 3), np.uint8))
        parts = list(self.pools["ink"].submit(0, images, prompts(*["a"] * num_images), False))

        def take(party: object, outcome: Outcome) -> None:
            cells = self.pools["ink"].accept(outcome)
            if cells is not None:
                parts.append(cells)

        def over() -> bool:
            return sum(len(cells.result.states) for cells in parts) == num_images

        pump(self.remote, [*self.crews, self.control], over, take, lambda: None)
        return parts

    def idle(self, seconds: float) -> None:
        """Nothing to do for a while, by the remote's clock."""
        until_s = self.remote.now_s() + seconds
        parties = [*self.crews, self.control]
        pump(self.remote, parties, lambda: self.remote.now_s() >= until_s, no_outcome, lambda: None)


def test_a_request_is_taken_up_while_calls_are_under_way(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(ask(tmp_path, {"ink": 3}, 60)))
    thread.start()
    while not list(tmp_path.glob("scale/*.request.json")):
        thread.join(0.01)
    parts = stage.score(20)
    assert sum(int((cells.result.states == State.SCORED).sum()) for cells in parts) == 20
    thread.join()
    assert answers == [[Resized("ink", 1, 3)]]
    assert stage.changes == [(Resized("ink", 1, 3), "request")]
    assert (stage.pools["ink"].crew.size, stage.pools["wash"].crew.size) == (3, 1)


def test_a_size_that_is_already_there_changes_nothing(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    assert stage.control.resize({"ink": 1}) == [Resized("ink", 1, 1)]
    assert stage.changes == []


def test_one_size_that_is_not_allowed_changes_none(tmp_path: Path) -> None:
    stage = Stage(tmp_path, max_replicas=2)
    with pytest.raises(UserError, match="allows 1 to 2 replicas"):
        stage.control.resize({"ink": 2, "wash": 3})
    assert stage.pools["ink"].crew.size == 1


def test_the_figures_are_on_disk_while_the_run_goes_on(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    stage.score(6)
    stage.idle(5)
    pools = read_pools(tmp_path)
    assert list(pools) == ["ink", "wash"]
    assert (pools["ink"].images, pools["ink"].replicas, pools["wash"].images) == (6, 1, 0)


def test_autoscaling_follows_the_queue_with_patience_and_within_bounds(tmp_path: Path) -> None:
    autoscale = {"target_queue": 2, "grow_after_s": 1, "shrink_after_s": 30}
    stage = Stage(tmp_path, max_replicas=3, autoscale=autoscale, timeout_s=900)
    crew = stage.pools["ink"].crew
    stage.remote.faults["reward.ink-0", "score"] = ["hang"]  # so that the queue does not move
    images = stage.remote.put(np.zeros((40, 32, 32, 3), np.uint8))
    list(stage.pools["ink"].submit(0, images, prompts(*["a"] * 40), False))
    pump(stage.remote, [*stage.crews, stage.control], lambda: crew.size > 1, no_outcome, lambda: None)
    assert stage.changes == [(Resized("ink", 1, 3), "autoscale")]
    assert 1.0 <= stage.remote.now_s() <= 2.0
    crew.close()
    crew.start()
    stage.idle(3)
    crew.resize(3)
    stage.idle(29)
    assert crew.size == 3
    stage.idle(3)
    assert crew.size == 1
    assert stage.changes[-1] == (Resized("ink", 3, 1), "autoscale")
    assert stage.pools["wash"].crew.size == 1


def test_figures_that_cannot_be_written_do_not_end_the_run(tmp_path: Path) -> None:
    """A full disk, a folder that is gone: whoever looks sees nothing, and that is all."""
    stage = Stage(tmp_path / "gone")
    stage.idle(5)
    assert sum(len(cells.result.states) for cells in stage.score(6)) == 6
    assert read_pools(tmp_path / "gone") == {}
