"""Drawing and scoring at once: rollouts wait for the scorers, and cells stand where they belong. Rows 11 and 31."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from actors.config import PoolConfig
from actors.crew import Crew
from actors.harvest import Draw, Harvest, draw_and_score
from actors.pool import RewardPool, ScorerActor, ScorerSpec
from actors.process import Started
from actors.pump import no_outcome, pump
from actors.results import ActorVitals
from actors.rollout import RolloutActor, RolloutMeta
from actors.tasks import make_tasks
from actors.team import Team
from learner.config import SamplingConfig
from learner.types import RolloutTask
from rewards.config import RewardConfig
from tests.unit.actors.in_process import Handle, InProcess
from tests.unit.actors.stand_in_scorer import Scripted
from tests.unit.actors.stand_ins import prompts, recipe

NAMES = ("ink", "wash")
SCORER = RewardConfig(scorer="tests.unit.actors.stand_in_scorer:Scripted")


class Painter:
    """Stands in for the rollout actor: draws a sample's number into its image."""

    def __init__(self, name: str) -> None:
        self._started = Started("rollout", name, 1)

    def start(self) -> ActorVitals:
        return self._started.vitals

    def sample(self, task: RolloutTask, *rest: Any) -> tuple[NDArray[np.uint8], None, RolloutMeta]:
        values = task.sample_ids.astype(np.uint8)[:, None, None, None]
        images = np.ascontiguousarray(np.broadcast_to(values, (len(values), 32, 32, 3)))
        return images, None, RolloutMeta(0, "base", task.sample_ids, 0.0)


def crew(remote: InProcess, role: str, make: Any, size: int = 1) -> Crew:
    limits = {"call_timeout_s": 5.0, "start_timeout_s": 60.0, "retries": 0, "warn": lambda text: None}
    return Crew(role, remote, lambda name, index: remote.add(name, make(name)), size=size, **limits)


def harvest(num_samples: int, chunk: int, max_unscored: int, order: int | None = None) -> tuple[Harvest, InProcess]:
    Scripted.calls, Scripted.failures_left = [], 0
    remote, role = InProcess(order), PoolConfig(batch_size=4)
    pools = {
        name: RewardPool(
            name,
            SCORER,
            role,
            crew(
                remote,
                f"reward.{name}",
                lambda actor, name=name: ScorerActor(ScorerSpec(actor, name, role, SCORER, 32)),
            ),
        )
        for name in NAMES
    }
    rollouts = crew(remote, "rollout", Painter, size=2)
    parties = (rollouts, *(pool.crew for pool in pools.values()))
    for party in parties:
        party.start()
    pump(remote, parties, lambda: all(party.settled for party in parties), no_outcome, lambda: None)
    remote.log.clear()
    team: Any = SimpleNamespace(
        remote=remote,
        rollouts=rollouts,
        pools_of=lambda evaluation: pools,
        parties=parties,
        max_unscored=max_unscored,
    )
    texts = prompts(*map(str, range(num_samples)))
    draw = Draw(make_tasks("train", 0, 3, texts, chunk), texts, None, SamplingConfig(steps=4), evaluation=False)
    found = draw_and_score(team, draw, 0.2, lambda: None, lambda drawn, left: None)
    return found, remote


def most_unscored(remote: InProcess, chunk: int) -> int:
    """Images drawn and not yet scored by every reward, at the worst moment; a chunk is one call for each reward."""
    drawn, scored, worst = 0, dict.fromkeys(NAMES, 0), 0
    for actor, method in remote.log:
        if method == "sample":
            drawn += chunk
        else:
            scored[actor.removeprefix("reward.").split("-")[0]] += chunk
        worst = max(worst, drawn - min(scored.values()))
    return worst


def test_rewards_score_while_later_images_are_drawn() -> None:
    remote, num_tasks, num_per_task = InProcess(), 5, 2

    def spawn(kind: type[Any], role: Any, name: str, args: tuple[Any, ...]) -> Handle:
        return remote.add(name, Painter(name)) if kind is RolloutActor else remote.spawn(kind, role, name, args)

    scorer = {"scorer": SCORER.scorer}
    config = recipe(policy={"base": "./nowhere", "resolution": 32}, rewards={"a": scorer, "b": scorer})
    drawn = prompts(*("abcdefghij"[: num_tasks * num_per_task]))
    tasks = make_tasks("train", 0, 1, drawn, num_per_task)
    team = Team(config, remote, spawn, warn=lambda text: None)
    team.start(lambda: None, lambda detail: None, without=["learner"])
    seen: list[tuple[int, int]] = []
    draw = Draw(tasks, drawn, None, SamplingConfig(steps=1), evaluation=False)
    found = draw_and_score(team, draw, 0.0, lambda: None, lambda *counts: seen.append(counts))
    np.testing.assert_array_equal(found.scores_KN, [np.arange(10)] * 2)
    calls = [call for call in remote.log if call[1] in ("sample", "score")]
    assert [name for name, method in calls if method == "sample"] == ["rollout-0"] * num_tasks
    last_drawn = max(index for index, (_, method) in enumerate(calls) if method == "sample")
    for reward in ("a", "b"):
        early = [call for call in calls[:last_drawn] if call == (f"reward.{reward}-0", "score")]
        assert len(early) >= num_tasks - 2, f"reward {reward} waited for the last image before it began"
    assert any(tasks_drawn < num_tasks and cells_left < 20 for tasks_drawn, cells_left in seen)


def test_row_11_cells_stand_at_their_samples_whatever_the_order_of_arrival() -> None:
    for order in range(3):
        found, _ = harvest(24, 4, 512, order)
        assert found.scores_KN.tolist() == [list(range(24))] * 2


@pytest.mark.parametrize("bound", [4, 8, 12])
def test_row_31_rollouts_wait_while_too_many_images_are_unscored(bound: int) -> None:
    found, remote = harvest(40, 4, bound)
    assert most_unscored(remote, 4) <= bound
    assert found.scores_KN.tolist() == [list(range(40))] * 2
    assert most_unscored(harvest(40, 4, 512)[1], 4) > 12, "rollouts run ahead where they may"


def test_a_task_larger_than_the_bound_is_drawn_alone() -> None:
    found, remote = harvest(24, 8, 5)
    assert found.scores_KN.tolist() == [list(range(24))] * 2
    kinds = [method for _, method in remote.log]
    assert kinds == (["sample"] + ["score"] * 4) * 3


def test_the_bound_lets_every_rollout_actor_work() -> None:
    prompts_of = {"group_size": 24, "groups_per_iteration": 96}
    assert recipe(prompts=prompts_of).max_unscored == 512
    assert recipe(prompts=prompts_of, actors={"rollout": {"replicas": 64}}).max_unscored == 4 * 64 * 32
    assert recipe(prompts=prompts_of, actors={"max_unscored": 100}).max_unscored == 100
