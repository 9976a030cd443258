"""The whole recipe: every room's configuration, and the checks that need more than one room. Imports no torch."""

from typing import Self

from pydantic import BaseModel, ConfigDict, model_validator

from actors.config import (
    ActorsConfig,
    CheckpointConfig,
    ControllerConfig,
    EvalConfig,
    PoolConfig,
    PromptsConfig,
    RunSettings,
)
from harmonizer.config import HarmonizerConfig
from learner.config import LearnerConfig, PolicyConfig, SamplingConfig
from rewards.config import RewardConfig

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
    rewards: dict[str, RewardConfig]
    """By name, in the order of K."""
    harmonizer: HarmonizerConfig = HarmonizerConfig()
    learner: LearnerConfig = LearnerConfig()
    controller: ControllerConfig = ControllerConfig()
    actors: ActorsConfig = ActorsConfig()
    eval: EvalConfig = EvalConfig()
    checkpoint: CheckpointConfig = CheckpointConfig()

    @model_validator(mode="after")
    def _rewards_have_prompts(self) -> Self:
        if not self.rewards:
            raise ValueError("rewards is empty: name at least one")
        for name, reward in self.rewards.items():
            unknown = [s for s in reward.applies or () if s not in self.prompts.sources]
            if unknown or reward.applies == ():
                raise ValueError(
                    f"rewards.{name}.applies names {unknown or 'no source'}; "
                    f"prompt sources are {', '.join(self.prompts.sources)}"
                )
        strangers = [name for name in self.actors.pools if name not in self.rewards]
        if strangers:
            raise ValueError(f"actors.pools names {', '.join(strangers)}; rewards are {', '.join(self.rewards)}")
        return self

    @model_validator(mode="after")
    def _group_arithmetic(self) -> Self:
        samples, ranks = self.num_samples, self.actors.learner.replicas
        if samples % ranks:
            raise ValueError(
                f"{self.prompts.groups_per_iteration} groups x {self.prompts.group_size} images = {samples} samples "
                f"do not divide over {ranks} learner ranks"
            )
        trainable = int(self.sampling.steps * self.learner.timestep_fraction)
        wanted = self.learner.timesteps * self.learner.updates_per_iteration
        if self.learner.timesteps > trainable:
            raise ValueError(
                f"learner.timesteps is {self.learner.timesteps}, but {self.sampling.steps} sampling steps with "
                f"timestep_fraction {self.learner.timestep_fraction} give {trainable}"
            )
        if wanted > trainable and self.learner.updates_per_iteration > 1:
            raise ValueError(
                f"updates_per_iteration x timesteps = {wanted} is more than the {trainable} trainable timesteps: "
                "each update trains on timesteps of its own"
            )
        if self.checkpoint.keep_best and not self.eval.every:
            raise ValueError("checkpoint.keep_best needs eval.every > 0; set keep_best: 0 or evaluate")
        return self

    @model_validator(mode="after")
    def _harmonizer_knows_the_rewards(self) -> Self:
        try:
            self.harmonizer.check_names(tuple(self.rewards))
        except ValueError as error:
            raise ValueError(f"harmonizer.{error}") from error
        if self.harmonizer.kl == "constraint" and self.learner.kl_beta == 0:
            raise ValueError("harmonizer.kl: constraint needs learner.kl_beta > 0, got 0.0: no KL is computed")
        return self

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
