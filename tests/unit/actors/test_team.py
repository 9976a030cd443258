"""What the team gives its actors to be made from."""

from typing import Any

from actors.config import RoleConfig
from actors.pool import ScorerSpec
from actors.team import Team
from tests.unit.actors.in_process import Handle, InProcess
from tests.unit.actors.stand_ins import recipe


def test_a_scorer_in_a_pool_with_gpus_is_told_to_compute_there() -> None:
    """A reserved share of a GPU that nobody uses would be the user's money."""
    clip = {"scorer": "hpsv2", "args": {"checkpoint": "x"}}
    config = recipe(rewards={"fast": clip, "slow": clip}, actors={"pools": {"fast": {"num_gpus": 0.25}}})
    remote, specs = InProcess(), {}

    def spawn(kind: type[Any], role: RoleConfig, name: str, args: tuple[Any, ...]) -> Handle:
        (spec,) = args
        assert isinstance(spec, ScorerSpec)
        specs[spec.reward] = (role.num_gpus, spec.config.args.get("device"))
        return remote.add(name, object())

    team = Team(config, remote, spawn, lambda text: None)
    for pool in team.pools.values():
        pool.crew.start()
    assert specs == {"fast": (0.25, "cuda"), "slow": (0.0, "cpu")}


def test_roles_can_be_left_out() -> None:
    remote = InProcess()

    class Up:
        def start(self) -> str:
            return "up"

    def spawn(kind: type[Any], role: RoleConfig, name: str, args: tuple[Any, ...]) -> Handle:
        return remote.add(name, Up())

    team = Team(recipe(), remote, spawn, lambda text: None)
    team.start(lambda: None, lambda detail: None, without={"rollout", "learner", "reward.b"})
    assert remote.alive() == ["reward.a-0", "reward.text-0"]
