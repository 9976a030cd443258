"""Props of `reward_pool.py`: numbered images in place of drawn ones, scorers that sleep or go wrong, and real pools."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from actors.controller import SilentListener
from actors.local_ray import new_identity
from actors.process import Started
from actors.remote import RayRemote
from actors.results import ActorVitals
from actors.rollout import BASE_HASH, RolloutActor, RolloutMeta, RolloutSpec
from actors.run_config import RunConfig
from actors.team import Identity, Spawn, Team, ray_spawn
from learner.types import RolloutTask
from rewards.contract import Metadata, RewardResult
from rewards.results import from_scores

SCORERS = "benchmarks.pool_stage"
"""Where workers find them, from the repository root."""
SLEEP_S, BATCH, SIDE = 0.05, 16, 32
SHARES = {"raise": 0.048, "exit": 0.002, "hang": 0.001}

Images = NDArray[np.uint8]


class Painter:
    """Stands in for a rollout actor: an image's number is its colour."""

    def __init__(self, spec: RolloutSpec) -> None:
        self._started = Started("rollout", spec.name, 1)

    def start(self) -> ActorVitals:
        """Nothing to load."""
        with self._started:
            return self._started.vitals

    def sample(self, task: RolloutTask, *rest: object) -> tuple[Images, None, RolloutMeta]:
        """Images, no latents, the small part."""
        return painted(task.sample_ids), None, RolloutMeta(0, BASE_HASH, task.sample_ids, 0.0)


def painted(numbers_N: NDArray[np.int64]) -> Images:
    """[N, SIDE, SIDE, 3] in which :func:`numbers` reads the numbers again."""
    colours = (numbers_N[:, None] >> np.array([0, 8, 16])) & 255
    return np.ascontiguousarray(
        np.broadcast_to(colours[:, None, None, :].astype(np.uint8), (len(numbers_N), SIDE, SIDE, 3))
    )


def numbers(images_NHWC: Images) -> list[int]:
    """What :func:`painted` put there."""
    return [int(n) for n in images_NHWC[:, 0, 0, :].astype(np.int64) @ np.array([1, 256, 65536])]


class Sleeps:
    """50 ms a batch, whatever is in it."""

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        time.sleep(SLEEP_S)
        return from_scores(score(n) for n in numbers(images_NHWC))


class Faulty:
    """Scores by number; some numbers raise, end the process, or hang."""

    def __init__(self, seed: int, num_samples: int) -> None:
        self._fates = fates(seed, num_samples)

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        found = numbers(images_NHWC)
        for number in found:
            fate = self._fates.get(number)
            if fate == "exit":
                os._exit(1)
            if fate == "hang":
                time.sleep(3600)
            if fate == "raise":
                raise RuntimeError(f"cannot score {number}")
        return from_scores(score(n) for n in found)


def score(number: int) -> float:
    """What a healthy image gets: shows if cells are mixed up."""
    return number / 1024


def fates(seed: int, num_samples: int) -> dict[int, str]:
    """Number -> what happens to whoever scores it."""
    order = np.random.default_rng(seed).permutation(num_samples).tolist()
    found: dict[int, str] = {}
    for fate, share in SHARES.items():
        for _ in range(round(share * num_samples)):
            found[order[len(found)]] = fate
    return found


def recipe(
    rewards: Mapping[str, Any], pool: Mapping[str, Any], num_samples: int, own: Mapping[str, Any] | None = None
) -> RunConfig:
    """A recipe of these rewards; nothing of it is trained.

    Args:
        pool: of every reward.
        own: by reward, what only its pool has.
    """
    source = {"train": "none", "heldout": "none"}
    pools = {name: {"num_cpus": 0, **pool, **(own or {}).get(name, {})} for name in rewards}
    return RunConfig.model_validate(
        {
            "run": {"name": "reward-pool", "iterations": 1},
            "policy": {"base": "none", "resolution": SIDE},
            "prompts": {"sources": {"all": source}, "groups_per_iteration": num_samples // BATCH, "group_size": BATCH},
            "rewards": rewards,
            "actors": {"rollout": {"num_cpus": 0}, "pools": pools},
        }
    )


@contextmanager
def staged(config: RunConfig, identity: Identity | None = None) -> Iterator[Team]:
    """Painters and pools that are up, on the connected Ray."""
    spawn_actor = ray_spawn(identity or new_identity(config.run.name))
    spawn: Spawn = lambda kind, *rest: spawn_actor(Painter if kind is RolloutActor else kind, *rest)  # noqa: E731
    team = Team(config, RayRemote(), spawn, SilentListener().on_warning)
    try:
        team.start(go_on, lambda detail: None, without=["learner"])
        yield team
    finally:
        team.close()


def go_on() -> None:
    """Nobody asks a benchmark to stop but Ctrl-C."""
