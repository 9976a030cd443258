"""Drawing and scoring overlap: rewards work on the first images while later ones are still to be drawn."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.harvest import Draw, draw_and_score
from actors.process import Started
from actors.results import ActorVitals
from actors.rollout import RolloutActor, RolloutMeta, RolloutSpec, Slot
from actors.tasks import make_tasks
from actors.team import Team
from learner.config import SamplingConfig
from learner.types import RolloutTask
from tests.unit.actors.in_process import Handle, InProcess
from tests.unit.actors.stand_ins import prompts, recipe

NUM_TASKS, NUM_PER_TASK = 5, 2
SCORER = {"scorer": "tests.unit.actors.stand_in_scorer:Scripted"}


class Painter:
    """Stands in for the rollout actor: every image is filled with its sample's number."""

    def __init__(self, spec: RolloutSpec) -> None:
        self._started = Started("rollout", spec.name, 1)

    def start(self) -> ActorVitals:
        return self._started.vitals

    def sample(
        self, task: RolloutTask, sampling: SamplingConfig, slot: Slot | None, keep: tuple[int, ...]
    ) -> tuple[NDArray[np.uint8], None, RolloutMeta]:
        ids = task.sample_ids
        images = np.broadcast_to(ids.astype(np.uint8)[:, None, None, None], (len(ids), 32, 32, 3))
        return np.ascontiguousarray(images), None, RolloutMeta(1, "hash", ids, 0.1)


def test_rewards_score_while_later_images_are_drawn() -> None:
    remote = InProcess()

    def spawn(kind: type[Any], role: Any, name: str, args: tuple[Any, ...]) -> Handle:
        return remote.spawn(Painter if kind is RolloutActor else kind, role, name, args)

    config = recipe(policy={"base": "./nowhere", "resolution": 32}, rewards={"a": SCORER, "b": SCORER})
    drawn = prompts(*("abcdefghij"[: NUM_TASKS * NUM_PER_TASK]))
    tasks = make_tasks("train", 0, 1, drawn, NUM_PER_TASK)
    team = Team(config, remote, spawn, warn=lambda text: None)
    team.start(lambda: None, lambda detail: None, with_learner=False)
    seen: list[tuple[int, int]] = []
    draw = Draw(tasks, drawn, None, SamplingConfig(steps=1), evaluation=False)
    harvest = draw_and_score(team, draw, 0.0, lambda: None, lambda *counts: seen.append(counts))
    np.testing.assert_array_equal(harvest.scores_KN, [np.arange(10)] * 2)
    calls = [call for call in remote.log if call[1] in ("sample", "score")]
    assert [name for name, method in calls if method == "sample"] == ["rollout-0"] * NUM_TASKS
    last_drawn = max(index for index, (_, method) in enumerate(calls) if method == "sample")
    for reward in ("a", "b"):
        early = [call for call in calls[:last_drawn] if call == (f"reward.{reward}-0", "score")]
        assert len(early) >= NUM_TASKS - 2, f"reward {reward} waited for the last image before it began"
    assert any(tasks_drawn < NUM_TASKS and cells_left < 20 for tasks_drawn, cells_left in seen)
