"""Crews and ensembles on real processes: killed, hung, raised, timed out. Toy actors, so that nothing heavy loads.

Rows 14, 22, 23 and 28 of the faults table.
"""

import time
from pathlib import Path
from typing import Any

import pytest

from actors import preflight
from actors.config import RoleConfig
from actors.controller import Controller
from actors.crew import Crew, Outcome, Standing, Work
from actors.ensemble import Ensemble, MemberLostError
from actors.local_ray import new_identity
from actors.pump import no_outcome, pump
from actors.remote import RayRemote
from actors.team import Spawn, ray_spawn
from tests.integration.on_ray import Rank, Toy, names_in, wait_until
from tests.integration.small_run import Recorder, small_config

pytestmark = pytest.mark.usefixtures("local_ray")


def forever() -> None:
    """Nobody asks to stop."""


def make_crew(spawn: Spawn, remote: RayRemote, warnings: list[str], size: int = 2) -> Crew:
    role = RoleConfig(num_cpus=0.1, threads=2)
    return Crew(
        "toy",
        remote,
        lambda name, index: spawn(Toy, role, name, (name,)),
        size=size,
        call_timeout_s=8.0,
        start_timeout_s=300.0,
        retries=1,
        warn=warnings.append,
    )


@pytest.mark.parametrize("what", ["die", "hang"])
def test_row_14_a_process_that_dies_or_hangs_is_replaced_and_its_work_done_once(what: str, tmp_path: Path) -> None:
    identity, remote, warnings = new_identity("toy"), RayRemote(), list[str]()
    crew = make_crew(ray_spawn(identity), remote, warnings)
    outcomes: dict[Any, Outcome] = {}

    def take(party: object, outcome: Outcome) -> None:
        assert outcome.key not in outcomes
        outcomes[outcome.key] = outcome

    crew.start()
    crew.broadcast("old", Standing("load", ("adapter 7",), lambda value: None))
    pump(remote, [crew], lambda: crew.settled, no_outcome, forever)
    assert sorted(names_in(identity)) == [f"{identity.run_id}/toy-0", f"{identity.run_id}/toy-1"]
    for key in range(6):
        crew.submit(Work(key, "work", (what if key == 2 else "work", str(tmp_path / "marker")), 2))
    pump(remote, [crew], lambda: len(outcomes) == 6 and crew.settled, take, forever)
    assert not any(outcome.error for outcome in outcomes.values())
    assert {outcome.value[1:] for outcome in outcomes.values()} == {("adapter 7", "2")}, "adapter and threads of all"
    assert warnings, "it was replaced; on a starved machine slow ones may have been too"
    assert remote.bytes_moved < 20_000, "six arrays of 50 kB stayed where they are"
    crew.close()
    wait_until(lambda: names_in(identity) == [])


def test_row_22_one_lost_member_is_named_at_once_and_all_are_gone() -> None:
    """The other one waits in its collective for ever; nobody waits for it."""
    identity, remote = new_identity("ranks"), RayRemote()
    spawn = ray_spawn(identity)
    ensemble = Ensemble("learner", remote)
    for rank in range(2):
        ensemble.add(f"learner rank {rank}", spawn(Rank, RoleConfig(num_cpus=0.1), f"learner-{rank}", ()))
    calls = {"learner rank 0": ("train", False), "learner rank 1": ("train", True)}
    ensemble.begin("training iteration 0", calls, timeout_s=300.0)
    with pytest.raises(MemberLostError, match="learner rank 1 was lost during training iteration 0"):
        pump(remote, [ensemble], lambda: ensemble.idle, no_outcome, forever)
    wait_until(lambda: names_in(identity) == [])


def test_row_22_a_hung_member_is_named_when_its_time_is_over() -> None:
    identity, remote = new_identity("ranks"), RayRemote()
    ensemble = Ensemble("learner", remote)
    ensemble.add("learner rank 0", ray_spawn(identity)(Rank, RoleConfig(num_cpus=0.1), "learner-0", ()))
    ensemble.begin("training iteration 0", {"learner rank 0": ("train", False)}, timeout_s=1.0)
    with pytest.raises(MemberLostError, match="learner rank 0 gave no answer to training iteration 0 within 1 s"):
        pump(remote, [ensemble], lambda: ensemble.idle, no_outcome, forever)
    wait_until(lambda: names_in(identity) == [])


def test_row_23_an_impossible_placement_is_refused_before_any_actor_starts(model: Path, tmp_path: Path) -> None:
    config = small_config(
        model,
        tmp_path,
        actors={"rollout": {"replicas": 2, "num_cpus": 3}, "learner": {"resources": {"h200": 1}}},
    )
    (tmp_path / "run").mkdir()
    began_s = time.monotonic()
    with Controller(config, tmp_path / "run", Recorder()) as controller:
        with pytest.raises(preflight.PreflightError) as caught:
            controller.run()
        assert names_in(controller.identity) == []
    assert time.monotonic() - began_s < 30
    assert caught.value.lines == (
        "not enough CPU: rollout 2 x 3, reward.red 1 x 0.1, reward.dark 1 x 0.1, reward.contrast 1 x 0.1, "
        "harmonizer 1 x 0.1, learner 1 x 0.1 ask for 6.5, available is 4",
        "not enough h200: learner 1 x 1 ask for 1, available is 0",
    )
    assert [path.name for path in (tmp_path / "run").iterdir()] == []
