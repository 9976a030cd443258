"""Reward pools on real processes that raise, exit, hang, come and go. Rows 8, 11, 14 and 31 of the faults table."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.crew import Outcome
from actors.local_ray import new_identity
from actors.pump import pump
from actors.slices import Cells
from actors.team import Team
from benchmarks import reward_pool
from benchmarks.pool_stage import recipe, staged
from tests.integration.on_ray import names_in, wait_until
from tests.integration.small_run import SCORERS
from tests.unit.actors.stand_ins import prompts
from tests.unit.deploy.tiny_package import environment

pytestmark = pytest.mark.usefixtures("local_ray")


def test_rows_8_and_14_failures_are_exactly_those_injected_and_every_sample_is_settled_once() -> None:
    """The benchmark's ten thousand samples, in small: per pool 27 raise, one exits, one hangs."""
    found = reward_pool.faults(num_samples=560)
    assert found["failures_as_injected"]
    assert found["states"] == {name: {"scored": 531, "failed": 29} for name in ("one", "two", "three")}
    assert (found["lost"], found["doubled"]) == (0, 0)
    # One process each in its batch and alone; on a starved machine a healthy call may be too late as well.
    assert all(lost >= 4 for lost in found["processes_lost"].values())


def test_growing_and_shrinking_under_load_loses_no_sample() -> None:
    found = reward_pool.resize()
    assert (found["lost"], found["doubled"], found["replicas_at_the_end"]) == (0, 0, 2)


def test_a_pool_that_shrinks_leaves_no_process_behind() -> None:
    identity = new_identity("shrinks")
    config = recipe({"red": {"scorer": f"{SCORERS}:Channel"}}, {"replicas": 3}, 16)
    with staged(config, identity) as team:
        (pool,) = team.pools.values()
        assert sum("reward.red" in name for name in names_in(identity)) == 3
        pool.crew.resize(1)
        wait_until(lambda: sum("reward.red" in name for name in names_in(identity)) == 1)
        assert score(team, "red", 4) == pytest.approx([0.0] * 4)


def test_two_pools_run_two_versions_of_one_package(tmp_path: Path) -> None:
    """Each in the Python that its recipe names; the rest of the packages is ours."""
    pythons = {name: environment(tmp_path, version) for name, version in (("old", "1.0"), ("new", "2.0"))}
    rewards = {name: {"scorer": f"{SCORERS}:PackageVersion", "args": {"package": "tinypack"}} for name in pythons}
    own = {name: {"runtime_env": {"py_executable": str(python)}} for name, python in pythons.items()}
    with staged(recipe(rewards, {}, 16, own)) as team:
        assert {name: set(score(team, name, 3)) for name in pythons} == {"old": {1.0}, "new": {2.0}}


def score(team: Team, name: str, num_images: int) -> list[float]:
    """What a pool says of black images."""
    pool, parts = team.pools[name], list[Cells]()
    images = team.remote.put(np.zeros((num_images, 32, 32, 3), np.uint8))
    assert not list(pool.submit(0, images, prompts(*["a"] * num_images), False))

    def take(party: object, outcome: Outcome) -> None:
        cells = pool.accept(outcome)
        parts.extend([] if cells is None else [cells])

    pump(team.remote, team.parties, lambda: bool(parts), take, lambda: None)
    scores: list[Any] = parts[0].result.scores.tolist()
    return scores
