"""All actors of one run: created together, waited for together, gone together."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from actors.config import RoleConfig
from actors.crew import Crew, Standing
from actors.harmonizer_actor import HarmonizerActor, HarmonizerSpec, RemoteHarmonizer
from actors.learner_group import LearnerGroup
from actors.learner_worker import LearnerSpec, LearnerWorker
from actors.pool import RewardPool, ScorerActor, ScorerSpec
from actors.process import actor_options
from actors.pump import Party, no_outcome, pump
from actors.remote import Actor, Remote
from actors.results import ActorVitals
from actors.rollout import RolloutActor, RolloutSpec
from actors.run_config import RunConfig
from learner.errors import UserError

ROLLOUT_RETRIES = 2
"""Tries after the first, as for rewards by default: a rollout that fails three times on several actors is at fault."""
HARMONIZER_TIMEOUT_S = 60.0
"""For one question; a solve takes milliseconds, the first one compiles the QP in a second or two."""


@dataclass(frozen=True)
class Identity:
    """Where a run's actors live in the cluster."""

    run_id: str

    @property
    def namespace(self) -> str:
        """Ray namespace of the run."""
        return f"marble-{self.run_id}"

    def actor_name(self, name: str) -> str:
        """Name of an actor: carries the run id, for lists over all namespaces."""
        return f"{self.run_id}/{name}"


Spawn = Callable[[type[Any], RoleConfig, str, tuple[Any, ...]], Actor]
"""(actor class, role, name, constructor arguments) -> actor handle, at once."""


def ray_spawn(identity: Identity) -> Spawn:
    """Creates actors on the connected Ray."""

    def spawn(kind: type[Any], role: RoleConfig, name: str, args: tuple[Any, ...]) -> Actor:
        options = actor_options(role, identity.actor_name(name), identity.namespace)
        options["max_concurrency"] = getattr(kind, "MAX_CONCURRENCY", 1)
        remote_class: Any = ray.remote(kind)
        return remote_class.options(**options).remote(*args)

    return spawn


class StartError(UserError):
    """Some actors could not start; `lines` has every distinct reason."""

    def __init__(self, lines: tuple[str, ...]) -> None:
        super().__init__("; ".join(lines))
        self.lines = lines


class Team:
    """Rollout actors, one pool per reward, the learner group with its harmonizer."""

    def __init__(self, config: RunConfig, remote: Remote, spawn: Spawn, warn: Callable[[str], None]) -> None:
        self.remote = remote
        self.max_unscored = config.max_unscored
        self._config, self._spawn, self._warn = config, spawn, warn
        self._attendants: list[Party] = []
        self.rollouts = self._crew(
            "rollout",
            config.actors.rollout,
            self._spawn_rollout,
            call_timeout_s=config.actors.rollout_timeout_s,
            retries=ROLLOUT_RETRIES,
        )
        self.pools = {name: self._pool(name) for name in config.judge_names}
        self.learner = LearnerGroup(config.actors.learner, remote, config.actors.start_timeout_s)

    # -- creating ------------------------------------------------------------------------------------------------------

    def _crew(
        self,
        role: str,
        asked: RoleConfig,
        spawn: Callable[[str, int], Actor],
        *,
        call_timeout_s: float,
        retries: int,
        ahead: bool = False,
    ) -> Crew:
        return Crew(
            role,
            self.remote,
            spawn,
            size=asked.replicas,
            call_timeout_s=call_timeout_s,
            start_timeout_s=self._config.actors.start_timeout_s,
            retries=retries,
            warn=self._warn,
            ahead=ahead,
        )

    def _spawn_rollout(self, name: str, index: int) -> Actor:
        role = self._config.actors.rollout
        spec = RolloutSpec(name, role, self._config.policy, self._config.run.seed)
        return self._spawn(RolloutActor, role, name, (spec,))

    def _pool(self, reward: str) -> RewardPool:
        role, config = self._config.pool(reward), self._config.scorer(reward)

        def spawn(name: str, index: int) -> Actor:
            spec = ScorerSpec(name, reward, role, config, self._config.policy.resolution)
            return self._spawn(ScorerActor, role, name, (spec,))

        crew = self._crew(f"reward.{reward}", role, spawn, call_timeout_s=role.timeout_s, retries=0, ahead=True)
        return RewardPool(reward, config, role, crew)

    def _spawn_learner(self) -> None:
        config = self._config
        harmonizer_spec = HarmonizerSpec(
            "harmonizer", config.actors.harmonizer, config.harmonizer, config.gradient_names
        )
        harmonizer = self._spawn(HarmonizerActor, config.actors.harmonizer, "harmonizer", (harmonizer_spec,))
        client = RemoteHarmonizer(harmonizer, HARMONIZER_TIMEOUT_S, self.remote)

        def spawn_rank(rank: int) -> Actor:
            spec = LearnerSpec(
                name=f"learner-{rank}",
                role=config.actors.learner,
                policy=config.policy,
                sampling=config.sampling,
                learner=config.learner,
                reward_names=config.reward_names,
                num_samples=config.num_samples,
                seed=config.run.seed,
                max_staleness=config.controller.max_staleness,
                rank=rank,
            )
            return self._spawn(LearnerWorker, config.actors.learner, spec.name, (spec, client))

        self.learner.begin_start(harmonizer, spawn_rank)

    # -- living --------------------------------------------------------------------------------------------------------

    def pools_of(self, evaluation: bool) -> dict[str, RewardPool]:
        """Who scores: training samples those rewards that are trained on, in the order of K; evaluations everybody."""
        names = self._config.judge_names if evaluation else self._config.reward_names
        return {name: self.pools[name] for name in names}

    @property
    def crews(self) -> tuple[Crew, ...]:
        """Rollouts, then the pools: those of training in the order of K, then the held-out ones."""
        return (self.rollouts, *(pool.crew for pool in self.pools.values()))

    @property
    def parties(self) -> tuple[Party, ...]:
        """Everybody whom a wait moves on."""
        return (*self.crews, self.learner.ensemble, *self._attendants)

    def attend(self, party: Party) -> None:
        """Has one more moved on by every wait from now on."""
        self._attendants.append(party)

    def start(self, check: Callable[[], None], progress: Callable[[str], None], without: Collection[str] = ()) -> None:
        """Creates every actor and waits until all are up.

        Args:
            without: roles that are left out: `rollout`, `reward.NAME`, `learner`.

        Raises:
            UserError: some could not start; every distinct reason, a line each.
        """
        for crew in self.crews:
            if crew.role not in without:
                crew.start()
        if "learner" not in without:
            self._spawn_learner()
        problems: list[str] = []
        seen = -1

        def up() -> bool:
            nonlocal seen
            done = sum(crew.settled for crew in self.crews) + self.learner.ensemble.idle
            if done != seen:
                seen = done
                progress(f"{done}/{len(self.crews) + 1} roles up")
            return done == len(self.crews) + 1

        while not up():
            try:
                pump(self.remote, self.parties, up, no_outcome, check)
            except UserError as error:
                # One role's trouble: hear the others out, so that all of it is said at once.
                problems.append(str(error))
        problems += [problem for crew in self.crews for problem in crew.problems]
        if problems:
            self.close()
            raise StartError(tuple(dict.fromkeys(problems)))

    def load(self, checkpoint: Path | None, harmonizer_state: Any, check: Callable[[], None]) -> None:
        """The learner takes up a checkpoint, or starts afresh."""
        self.learner.begin_load(checkpoint, harmonizer_state)
        self.wait_learner(check)
        self.learner.finish_load()

    def harmonizer_state(self, check: Callable[[], None]) -> Mapping[str, Any]:
        """What a checkpoint holds of the harmonizer, as of now."""
        self.learner.begin_harmonizer_state()
        self.wait_learner(check)
        return self.learner.finish_harmonizer_state()

    def wait_learner(self, check: Callable[[], None]) -> None:
        """Until the learner group's call is done; everybody else moves on meanwhile."""
        pump(self.remote, self.parties, lambda: self.learner.ensemble.idle, no_outcome, check)

    def settle(self, check: Callable[[], None]) -> None:
        """Until every replica that is up has done its set-up."""
        pump(self.remote, self.parties, lambda: all(crew.synced for crew in self.crews), no_outcome, check)

    def start_vitals(self) -> tuple[ActorVitals, ...]:
        """What every actor said when it was up."""
        crews = [vitals for crew in self.crews for vitals in crew.vitals.values()]
        return (*crews, *(ready.vitals for ready in self.learner.ready))

    def vitals(self, check: Callable[[], None]) -> tuple[ActorVitals, ...]:
        """What every actor says now; nobody may have work under way."""
        said: dict[str, ActorVitals] = {}
        for crew in self.crews:
            crew.broadcast("vitals", Standing("vitals", (), lambda vitals: said.update({vitals.name: vitals})))
        self.learner.begin_vitals()
        self.wait_learner(check)
        self.settle(check)
        for crew in self.crews:
            crew.forget("vitals")
        return (*said.values(), *self.learner.finish_vitals())

    def close(self) -> None:
        """Kills every actor; nobody is left behind."""
        for crew in self.crews:
            crew.close()
        self.learner.ensemble.close()
