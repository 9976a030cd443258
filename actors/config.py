"""What a recipe says about the run, its prompts and its processes. Imports pydantic only."""

import re
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


def _is_name(name: str) -> str:
    if not NAME.fullmatch(name):
        raise ValueError(
            "a name has letters, digits, _ and - only, begins with a letter or _ and is at most 64 long, "
            f"got {name[:80]!r}"
        )
    return name


Name = Annotated[str, AfterValidator(_is_name)]
"""Of a reward or a prompt source: it becomes part of columns, files, actors and key paths."""
Seconds = Annotated[float, Field(gt=0, le=1e7)]
"""At most four months: clocks and timers overflow somewhere above."""
SMALLEST_AMOUNT = 1e-4
"""Ray counts resources in ten-thousandths and takes 0 or at least one of them."""
OWN_KEYS = {"CPU": "num_cpus", "GPU": "num_gpus"}
"""Resources that Ray wants under keys of their own."""
NOT_CUSTOM = ("memory", "object_store_memory")
MAX_REPLICAS = 4096
"""Of one role: a slip of the finger must not ask a cluster for millions of processes."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class PromptSourceConfig(_Strict):
    """One source of prompts; rewards name sources in `applies`."""

    train: str
    """Prompt file to train on."""
    heldout: str
    """Prompt file that is only ever evaluated."""
    format: Literal["lines", "geneval", "parquet"] = "lines"
    """lines: one prompt a line; geneval: GenEval's JSON lines."""
    tags: tuple[str, ...] | None = Field(None, min_length=1)
    """Only the prompts whose metadata carry one of these `tag`s; None: all."""

    @model_validator(mode="after")
    def _lines_have_no_tags(self) -> Self:
        if self.tags and self.format == "lines":
            raise ValueError("tags are read from metadata, which format lines has none of; set format geneval")
        return self


class PromptsConfig(_Strict):
    """Which prompts, and how many images of each."""

    sources: dict[Name, PromptSourceConfig]
    groups_per_iteration: int = Field(48, ge=1)
    """Prompt groups per iteration, drawn equally from the sources."""
    group_size: int = Field(24, ge=2)
    """G: images per prompt."""
    chunk_size: int | None = Field(None, ge=1)
    """Images per rollout task, drawn as one batch; None: a whole group. Divides group_size, or whole groups: a multiple
    of it that divides the iteration's samples, so that every task has the same shape."""

    @model_validator(mode="after")
    def _arithmetic(self) -> Self:
        if not self.sources:
            raise ValueError("prompts.sources is empty: there is nothing to draw")
        if self.groups_per_iteration % len(self.sources):
            raise ValueError(
                f"groups_per_iteration {self.groups_per_iteration} is not divisible by the {len(self.sources)} "
                f"prompt sources ({', '.join(self.sources)})"
            )
        chunk, samples = self.chunk_size or self.group_size, self.groups_per_iteration * self.group_size
        if self.group_size % chunk and (chunk % self.group_size or samples % chunk):
            raise ValueError(
                f"chunk_size {chunk} neither divides group_size {self.group_size} nor is a multiple of it that divides "
                f"the {samples} samples of an iteration"
            )
        return self


class RoleConfig(_Strict):
    """What one actor of a role asks of the cluster."""

    replicas: int = Field(1, ge=1, le=MAX_REPLICAS)
    num_cpus: float = Field(0.1, ge=0)
    num_gpus: float = Field(0.0, ge=0)
    resources: dict[str, float] = Field(default_factory=dict)
    """Custom resources, e.g. {"rollout": 1}."""
    threads: int = Field(1, ge=1, le=4096)
    """Threads torch and onnxruntime use; Ray alone would give an actor below one CPU a single one."""

    @field_validator("num_cpus", "num_gpus")
    @classmethod
    def _amount(cls, amount: float) -> float:
        if 0 < amount < SMALLEST_AMOUNT:
            raise ValueError(f"must be 0 or at least {SMALLEST_AMOUNT:g}, which Ray counts in, got {amount:g}")
        return amount

    @field_validator("num_gpus")
    @classmethod
    def _whole_gpus(cls, amount: float) -> float:
        if amount > 1 and not amount.is_integer():
            raise ValueError(f"must be a share of one GPU or a whole number of them, got {amount:g}")
        return amount

    @field_validator("resources")
    @classmethod
    def _custom(cls, resources: dict[str, float]) -> dict[str, float]:
        for name, amount in resources.items():
            if name in OWN_KEYS:
                raise ValueError(f"{name} is no custom resource; say {OWN_KEYS[name]}: {amount:g} beside it")
            if name in NOT_CUSTOM or not name.strip():
                raise ValueError(f"{name!r} is no custom resource")
            if not amount >= SMALLEST_AMOUNT and amount != 0:
                raise ValueError(f"{name} must be 0 or at least {SMALLEST_AMOUNT:g}, got {amount:g}")
        return resources


class HarmonizerRoleConfig(RoleConfig):
    """There is one harmonizer: it alone holds the moving average of the weights."""

    replicas: Literal[1] = 1


class RuntimeEnvConfig(_Strict):
    """Where a pool's scorers find their packages; see docs/pools.md for what each way costs."""

    py_executable: str | None = Field(None, min_length=1)
    """Python of an environment built beforehand (`make reward-env-NAME`), at the same path on every machine."""
    pip: tuple[str, ...] = ()
    """Requirements that Ray installs on each node, into a copy of the whole environment."""
    env_vars: dict[str, str] = Field(default_factory=dict)
    """Environment variables of the scorers' processes."""

    @model_validator(mode="after")
    def _one_python(self) -> Self:
        if self.py_executable and self.pip:
            raise ValueError("py_executable and pip exclude each other: each brings a Python of its own")
        return self


class AutoscaleConfig(_Strict):
    """Replicas by the length of the queue, between min_replicas and max_replicas."""

    target_queue: float = Field(gt=0)
    """Calls queued or under way for each replica: more replicas where it is exceeded, fewer where it is not reached."""
    grow_after_s: float = Field(2.0, ge=0)
    """The queue must ask for more for so long; the least of what it asked is given."""
    shrink_after_s: float = Field(300.0, ge=0)
    """The queue must ask for fewer for so long; the most of what it asked is kept. Longer than an iteration: between
    two rollouts every queue is empty, and a scorer loads anew each time it comes back."""


class PoolConfig(RoleConfig):
    """One reward's pool of scorers. `replicas` is the number at the start."""

    min_replicas: int = Field(1, ge=1)
    max_replicas: int | None = Field(None, ge=1, le=MAX_REPLICAS)
    """Neither `marble scale` nor autoscale goes beyond; None: `marble scale` may ask for MAX_REPLICAS."""
    batch_size: int = Field(32, ge=1)
    timeout_s: Seconds = 120.0
    """For one call on one batch; a replica past it is killed and replaced."""
    retries: int = Field(2, ge=0)
    """Further tries of a sample that failed."""
    runtime_env: RuntimeEnvConfig = RuntimeEnvConfig()
    autoscale: AutoscaleConfig | None = None

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        if self.replicas < self.min_replicas:
            raise ValueError(f"replicas {self.replicas} is below min_replicas {self.min_replicas}")
        if self.max_replicas is not None and self.replicas > self.max_replicas:
            raise ValueError(f"replicas {self.replicas} is above max_replicas {self.max_replicas}")
        if self.autoscale is not None and self.max_replicas is None:
            raise ValueError("autoscale needs max_replicas")
        return self

    def allows(self, replicas: int) -> bool:
        """Whether the pool may have so many."""
        return self.min_replicas <= replicas <= (self.max_replicas or MAX_REPLICAS)

    @property
    def range_text(self) -> str:
        """The allowed sizes in words."""
        return f"{self.min_replicas} to {self.max_replicas or MAX_REPLICAS}"


class LearnerGroupConfig(RoleConfig):
    """replicas are DDP ranks."""

    backend: Literal["auto", "gloo", "nccl"] = "auto"
    timeout_s: Seconds = 600.0
    """For one iteration."""

    @model_validator(mode="after")
    def _nccl_has_gpus(self) -> Self:
        if self.backend == "nccl" and not self.num_gpus:
            raise ValueError("backend nccl is for ranks with a GPU, got num_gpus 0; leave it auto, or say gloo")
        return self


class ActorsConfig(_Strict):
    """Processes of a run."""

    rollout: RoleConfig = RoleConfig()
    learner: LearnerGroupConfig = LearnerGroupConfig()
    harmonizer: HarmonizerRoleConfig = HarmonizerRoleConfig()
    pools: dict[str, PoolConfig] = Field(default_factory=dict)
    """By reward name; a reward not named here gets the defaults."""
    start_timeout_s: Seconds = 300.0
    """For all actors of a role to come up: imports and models, on a busy machine. Impossible placements fail sooner."""
    rollout_timeout_s: Seconds = 300.0
    """For one rollout task."""
    max_unscored: int | None = Field(None, ge=1)
    """Images being drawn, or drawn and not yet scored by every reward: at the bound rollouts wait for the scorers
    rather than fill the object store. One task is always let through. None: 512, or four tasks for each rollout actor
    where that is more."""
    max_failed_share: float = Field(0.2, ge=0, le=1)
    """Above this share of failed cells of one reward in one iteration the run stops with the scorer's own error."""


class ControllerConfig(_Strict):
    """The corridor's own numbers."""

    max_staleness: Literal[0] = 0
    """Fixed lag of the rollout policy in iterations; 0 is strict."""


TRAINING_MEAN, HELDOUT_MEAN = "rewards", "heldout_rewards"
"""In place of a reward's name: the mean over all rewards of that section, in units of each one's spread on the base."""


class EarlyStopConfig(_Strict):
    """The run ends when evaluations have ceased to get better; docs/heldout_rewards.md has the rule."""

    by: str = HELDOUT_MEAN
    """A reward, or one of the two means."""
    patience: int = Field(3, ge=1)
    """Evaluations in a row that are no better than the best before them."""
    min_delta: float = Field(0.0, ge=0)
    """By how much one must be better, in standard deviations of the base's scores over prompts."""


class EvalConfig(_Strict):
    """Evaluation on held-out prompts."""

    every: int = Field(10, ge=0)
    """Iterations between evaluations; 0: only before and after."""
    prompts_per_source: int | None = Field(None, ge=1)
    """None: every held-out prompt."""
    seed: int = Field(1000, ge=0)
    batch_size: int = Field(32, ge=1)
    """Images per rollout task; fixed, so that images do not depend on who draws them."""
    best_by: str = TRAINING_MEAN
    """What makes a checkpoint the best: a training or held-out reward, `rewards` or `heldout_rewards`."""
    early_stop: EarlyStopConfig | None = None


class CheckpointConfig(_Strict):
    """What is kept."""

    every: int = Field(30, ge=1)
    """Iterations between checkpoints; the last iteration always writes one."""
    keep_last: int = Field(2, ge=1)
    keep_best: int = Field(1, ge=0)
    """By eval.best_by; needs eval.every > 0."""


class RunSettings(_Strict):
    """The run itself."""

    name: str = Field(min_length=1, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    seed: int = Field(42, ge=0)
    iterations: int = Field(ge=1)
    tensorboard: bool = True
