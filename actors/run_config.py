"""The whole recipe: every room's configuration, and the checks that need more than one room. Imports no torch."""

from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, ValidationInfo, model_validator

from actors.config import (
    ActorsConfig,
    CheckpointConfig,
    ControllerConfig,
    EvalConfig,
    Name,
    PoolConfig,
    PromptsConfig,
    RunSettings,
)
from harmonizer.config import HarmonizerConfig
from learner.config import LearnerConfig, PolicyConfig, SamplingConfig
from rewards.config import RewardConfig

PARTS_ONLY = "parts_only"
"""Key of pydantic's validation context: when true, only the sections are checked, each by itself."""
TASKS_AHEAD, MIN_UNSCORED = 4, 512
"""How far rollouts run ahead of scorers where the recipe is silent: tasks for each actor, and images at least."""


class RunConfig(BaseModel):
    """One training run, fully resolved."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    run: RunSettings
    policy: PolicyConfig
    sampling: SamplingConfig = SamplingConfig()
    """Rollouts."""
    eval_sampling: SamplingConfig = SamplingConfig(steps=40)
    """Evaluation, generation and the samples shown."""
    prompts: PromptsConfig
    rewards: dict[Name, RewardConfig]
    """By name, in the order of K."""
    harmonizer: HarmonizerConfig = HarmonizerConfig()
    learner: LearnerConfig = LearnerConfig()
    controller: ControllerConfig = ControllerConfig()
    actors: ActorsConfig = ActorsConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _parts_fit_together(self, info: ValidationInfo) -> Self:
        if not (info.context or {}).get(PARTS_ONLY) and (wrong := self.combination_problems()):
            # All of them at once, a line each.
            raise ValueError("\n".join(wrong))
        return self

    def combination_problems(self) -> list[str]:
        """What several sections, each right by itself, break together; a line each."""
        return [
            *self._rewards_without_source(),
            *self._scorers_away_from_their_pools(),
            *self._wrong_arithmetic(),
            *self._wrong_sde(),
            *self._wrong_harmonizer(),
        ]

    def _rewards_without_source(self) -> Iterator[str]:
        if not self.rewards:
            yield "rewards is empty: name at least one"
        for name, reward in self.rewards.items():
            unknown = [s for s in reward.applies or () if s not in self.prompts.sources]
            if unknown or reward.applies == ():
                yield (
                    f"rewards.{name}.applies names {unknown or 'no source'}; "
                    f"prompt sources are {', '.join(self.prompts.sources)}"
                )
        strangers = [name for name in self.actors.pools if name not in self.rewards]
        if strangers:
            yield f"actors.pools names {', '.join(strangers)}; rewards are {', '.join(self.rewards)}"

    def _wrong_arithmetic(self) -> Iterator[str]:
        samples, ranks = self.num_samples, self.actors.learner.replicas
        if samples % ranks:
            yield (
                f"{self.prompts.groups_per_iteration} groups x {self.prompts.group_size} images = {samples} samples "
                f"do not divide over {ranks} learner ranks"
            )
        trainable = self.learner.num_trainable(self.sampling)
        wanted = self.learner.timesteps * self.learner.updates_per_iteration
        if self.learner.timesteps > trainable:
            yield (
                f"learner.timesteps is {self.learner.timesteps}, but {self.sampling.steps} sampling steps with "
                f"timestep_fraction {self.learner.timestep_fraction} give {trainable}"
            )
        elif wanted > trainable and self.learner.updates_per_iteration > 1:
            yield (
                f"updates_per_iteration x timesteps = {wanted} is more than the {trainable} trainable timesteps: "
                "each update trains on timesteps of its own"
            )
        if self.checkpoint.keep_best and not self.eval.every:
            yield "checkpoint.keep_best needs eval.every > 0; set keep_best: 0 or evaluate"

    def _wrong_sde(self) -> Iterator[str]:
        problem = self.learner.sde_problem(self.sampling)
        if problem:
            yield problem
        if self.eval_sampling.sde is not None:
            yield "eval_sampling.sde is for rollouts only: evaluation draws without noise between steps; remove it"
        high, (first, stop) = int(self.sampling.steps * self.learner.timestep_fraction), self.sampling.sde_range
        if self.sampling.sde is not None and self.sampling.sde.window and stop > high:
            yield (
                f"learner.timestep_fraction {self.learner.timestep_fraction:g} trains the first {high} of "
                f"{self.sampling.steps} steps, but sampling.sde.window may hold steps up to {stop}; "
                f"set sampling.sde.window_range: [{first}, {high}]"
            )

    def _wrong_harmonizer(self) -> Iterator[str]:
        try:
            self.harmonizer.check_names(tuple(self.rewards))
        except ValueError as error:
            yield f"harmonizer.{error}"
        if self.harmonizer.kl == "constraint" and self.learner.kl_beta == 0:
            yield "harmonizer.kl: constraint needs learner.kl_beta > 0, got 0.0: no KL is computed"

    def _scorers_away_from_their_pools(self) -> Iterator[str]:
        for name, reward in self.rewards.items():
            num_gpus = self.pool(name).num_gpus
            for at, model, args in reward.parts():
                device = args.get("device") if "device" in model.model_fields else None
                key = f"rewards.{name}.args.{at}.device" if at else f"rewards.{name}.args.device"
                if num_gpus > 0 and device == "cpu":
                    yield (
                        f"{key} is cpu, but actors.pools.{name}.num_gpus reserves {num_gpus:g} of a GPU; "
                        "leave device out, or set num_gpus: 0"
                    )
                if num_gpus == 0 and str(device).startswith("cuda"):
                    yield (
                        f"{key} is {device}, but its pool has no GPU; "
                        f"set actors.pools.{name}.num_gpus, e.g. to 0.25, and leave device out"
                    )

    @property
    def num_samples(self) -> int:
        """N: images per iteration."""
        return self.prompts.groups_per_iteration * self.prompts.group_size

    @property
    def reward_names(self) -> tuple[str, ...]:
        """[K] in the order of every K axis."""
        return tuple(self.rewards)

    @property
    def max_unscored(self) -> int:
        """Bound on images that are not yet scored; see ActorsConfig."""
        task = max(self.prompts.chunk_size or self.prompts.group_size, self.eval.batch_size)
        ahead = TASKS_AHEAD * self.actors.rollout.replicas * task
        return self.actors.max_unscored or max(MIN_UNSCORED, ahead)

    def pool(self, reward: str) -> PoolConfig:
        """The pool of one reward, defaults where the recipe is silent."""
        return self.actors.pools.get(reward, PoolConfig())

    def scorer(self, reward: str) -> RewardConfig:
        """One reward as its pool runs it: on a GPU if and only if the pool asks for a share of one."""
        return self.rewards[reward].on("cuda" if self.pool(reward).num_gpus > 0 else "cpu")
