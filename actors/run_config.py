"""The whole recipe: every room's configuration, and the checks that need more than one room. Imports no torch."""

from collections.abc import Iterator
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, model_validator

from actors.config import (
    HELDOUT_MEAN,
    TRAINING_MEAN,
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
from learner.stages import measures, stage_of, trained_until
from rewards.config import RewardConfig
from rewards.dotted import nearest

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
    heldout_rewards: dict[Name, RewardConfig] = Field(default_factory=dict)
    """By name: they score evaluations and nothing else. No rollout is scored by them, and no gradient sees them."""
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
            *self._wrong_stages(),
            *self._wrong_followers(),
        ]

    def _rewards_without_source(self) -> Iterator[str]:
        if not self.rewards:
            yield "rewards is empty: name at least one"
        for key, _, reward in self.judges():
            unknown = [s for s in reward.applies or () if s not in self.prompts.sources]
            if unknown or reward.applies == ():
                yield (
                    f"{key}.applies names {unknown or 'no source'}; "
                    f"prompt sources are {', '.join(self.prompts.sources)}"
                )
        strangers = [name for name in self.actors.pools if name not in self.judge_names]
        if strangers:
            yield f"actors.pools names {', '.join(strangers)}; rewards are {', '.join(self.judge_names)}"
        for name in self.heldout_rewards:
            if name in self.rewards:
                yield f"heldout_rewards.{name} is a training reward too; a held-out one wants a name of its own"

    def _wrong_followers(self) -> Iterator[str]:
        """What is followed must be there."""
        stop, choices = self.eval.early_stop, [TRAINING_MEAN, HELDOUT_MEAN, *self.judge_names]
        followed = {"eval.best_by": self.eval.best_by} | ({"eval.early_stop.by": stop.by} if stop else {})
        for key, by in followed.items():
            if by == HELDOUT_MEAN and not self.heldout_rewards:
                yield f"{key} is {HELDOUT_MEAN}, but the recipe has none"
            elif by not in choices:
                yield f"{key} must be one of {', '.join(choices)}, got {by}{nearest(by, choices)}"
        for name in (TRAINING_MEAN, HELDOUT_MEAN):
            if name in self.judge_names:
                yield f"no reward can be called {name}: in eval.best_by that means the mean over a section"
        if stop and not self.eval.every:
            yield "eval.early_stop needs eval.every > 0"

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
            self.harmonizer.check_names(self.gradient_names)
        except ValueError as error:
            yield f"harmonizer.{error}"
        if self.harmonizer.kl == "constraint" and self.learner.kl_beta == 0:
            yield "harmonizer.kl: constraint needs learner.kl_beta > 0, got 0.0: no KL is computed"

    def _wrong_stages(self) -> Iterator[str]:
        yield from self.learner.check_names(self.reward_names)
        stages = self.learner.stages
        total = sum(stage.iterations for stage in stages)
        if stages and total != self.run.iterations:
            listed = " + ".join(str(stage.iterations) for stage in stages)
            yield f"learner.stages take {listed} = {total} iterations, but run.iterations is {self.run.iterations}"
        if len(stages) > 1 and self.eval.early_stop:
            yield "eval.early_stop would end a run of several learner.stages within one of them; remove one of the two"

    def _scorers_away_from_their_pools(self) -> Iterator[str]:
        for section, name, reward in self.judges():
            num_gpus = self.pool(name).num_gpus
            for at, model, args in reward.parts():
                device = args.get("device") if "device" in model.model_fields else None
                key = f"{section}.args.{at}.device" if at else f"{section}.args.device"
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
        """[K] in the order of every K axis of training: those that are trained on."""
        return tuple(self.rewards)

    @property
    def gradient_names(self) -> tuple[str, ...]:
        """What has a gradient of its own: the rewards, or the one weighted sum of them."""
        return self.learner.gradient_names(self.reward_names)

    def scored_in(self, iteration: int) -> frozenset[str]:
        """Rewards that score the batch of an iteration: those of its stage, and all where conflicts are measured."""
        stage = stage_of(self.learner.stages, iteration)
        if stage is None or measures(self.learner, iteration):
            return frozenset(self.reward_names)
        return frozenset(stage.rewards)

    @property
    def judge_names(self) -> tuple[str, ...]:
        """Every reward that scores evaluations: those that are trained on, then the held-out ones."""
        return (*self.rewards, *self.heldout_rewards)

    def followed(self, by: str) -> tuple[str, ...]:
        """The rewards over which `eval.best_by` and `eval.early_stop.by` take the mean."""
        trained = trained_until(self.learner, self.reward_names, self.run.iterations)
        return {TRAINING_MEAN: trained, HELDOUT_MEAN: tuple(self.heldout_rewards)}.get(by, (by,))

    def judges(self) -> Iterator[tuple[str, str, RewardConfig]]:
        """(key path in the recipe, name, configuration) of each of :attr:`judge_names`."""
        for section, rewards in (("rewards", self.rewards), ("heldout_rewards", self.heldout_rewards)):
            for name, reward in rewards.items():
                yield f"{section}.{name}", name, reward

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
        config = self.rewards.get(reward) or self.heldout_rewards[reward]
        return config.on("cuda" if self.pool(reward).num_gpus > 0 else "cpu")
