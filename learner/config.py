"""What a recipe says about the policy, the sampler and the learner. Imports pydantic only."""

from collections.abc import Sequence
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Every attention projection of SD3's joint blocks, as in the public MARBLE and DiffusionNFT recipes.
SD3_ATTENTION_TARGETS = (
    "attn.to_q",
    "attn.to_k",
    "attn.to_v",
    "attn.to_out.0",
    "attn.add_q_proj",
    "attn.add_k_proj",
    "attn.add_v_proj",
    "attn.to_add_out",
)


Beta = Annotated[float, Field(ge=0, lt=1)]
"""Decay of a moment of Adam."""
Weight = Annotated[float, Field(ge=0, allow_inf_nan=False)]

FLOW_GRPO = "flow_grpo"
"""An algorithm; the other one is nft."""
WEIGHTED_SUM = "weighted_sum"
"""Name of the one gradient, and of the ledger's columns, where rewards are added up."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LoraConfig(_Strict):
    """Low-rank adapter on the transformer's linear layers."""

    rank: int = Field(32, ge=1)
    alpha: float = Field(64.0, gt=0)
    targets: tuple[str, ...] = SD3_ATTENTION_TARGETS
    """Ends of module names; each must match at least one linear layer."""
    init: Literal["gaussian", "kaiming"] = "gaussian"

    @model_validator(mode="after")
    def _some_target(self) -> Self:
        if not self.targets:
            raise ValueError("lora.targets is empty: nothing would be trained")
        return self


class PolicyConfig(_Strict):
    """The base model and its adapter."""

    base: str
    """Local folder in diffusers' format, or a hub id."""
    revision: str | None = None
    dtype: Literal["float32", "bfloat16"] = "float32"
    """Type of the frozen base; LoRA and optimizer are always float32."""
    resolution: int = Field(512, ge=16, multiple_of=16)
    """Pixels per side of the generated images."""
    max_sequence_length: int = Field(128, ge=0, le=512)
    """T5 tokens; without T5 diffusers appends that many zero tokens, and they change the image."""
    lora: LoraConfig = LoraConfig()
    init_lora: str | None = None
    """Folder or file of a LoRA in diffusers' format to start from: of any alpha, a rank up to lora.rank, on some or all
    of the layers that lora.targets names. The rest starts fresh, so that it first draws as it did."""


class SdeConfig(_Strict):
    """Noise between sampling steps, for Flow-GRPO's rollouts."""

    noise_level: float = Field(0.7, gt=0)
    """a of σ_t = a √(t / (1 − t))."""
    window: int | None = Field(None, ge=1)
    """Steps with noise, all others go without; where they begin is drawn for each iteration (Flow-GRPO-Fast). None: all
    but the last."""
    window_range: tuple[int, int] | None = None
    """First step a window may hold, and the step before which it ends; None: from 0 to the last. Needs `window`."""

    @model_validator(mode="after")
    def _range_holds_the_window(self) -> Self:
        if self.window_range is None:
            return self
        if self.window is None:
            raise ValueError(f"window_range is {list(self.window_range)}, but there is no window; set window too")
        low, high = self.window_range
        if low < 0 or high - low < self.window:
            raise ValueError(f"window_range {[low, high]} does not hold a window of {self.window} steps")
        return self


class SamplingConfig(_Strict):
    """How images are drawn, in rollouts or in evaluation."""

    steps: int = Field(25, ge=1)
    solver: Literal["euler"] = "euler"
    guidance_scale: float = Field(1.0, ge=1.0)
    """1.0 is off. NFT learns nothing under guidance, so rollouts with another value need `allow_guidance`; Flow-GRPO
    trains the guided velocity itself."""
    allow_guidance: bool = False
    sde: SdeConfig | None = None
    """Rollouts of `learner.algorithm: flow_grpo` only."""

    @model_validator(mode="after")
    def _window_within_the_steps(self) -> Self:
        if self.sde is None:
            return self
        low, high = self.sde_range
        if high > self.steps - 1 or high - low < (self.sde.window or 1):
            raise ValueError(
                f"sde: a window of {self.sde.window or 1} steps within {[low, high]} does not fit {self.steps} steps, "
                "the last of which has no noise"
            )
        return self

    @property
    def sde_range(self) -> tuple[int, int]:
        """(first, behind the last) step that may have noise."""
        return (self.sde and self.sde.window_range) or (0, self.steps - 1)

    @model_validator(mode="after")
    def _guidance_off(self) -> Self:
        if self.guidance_scale != 1.0 and not self.allow_guidance and self.sde is None:
            raise ValueError(
                f"guidance_scale is {self.guidance_scale}: NFT assumes rollouts without guidance (1.0); "
                "set allow_guidance: true to override"
            )
        return self


class AdvantageConfig(_Strict):
    """A = (R - mean of the group) / (sigma + eps * s)."""

    std: Literal["group", "batch"] = "group"
    """Which sigma divides: the prompt group's (paper) or the batch's (public recipe)."""
    eps: float = Field(1e-4, ge=0)
    eps_scale: Literal["relative", "absolute"] = "relative"
    """relative: s is the reward's running batch sigma, so rescaling a reward changes nothing; absolute: s = 1."""
    max: float = Field(5.0, gt=0)
    """A_max of r = clamp(1/2 + A / (2 A_max), 0, 1)."""


class OldPolicyConfig(_Strict):
    """eta_s = min(slope * max(0, s - flat_steps), max); old <- eta old + (1 - eta) default, once per iteration."""

    slope: float = Field(0.001, ge=0)
    flat_steps: int = Field(0, ge=0)
    max: float = Field(0.95, ge=0, le=1)


class StageConfig(_Strict):
    """A stretch of a run that trains some of its rewards; all of them are scored in evaluations.

    From stage to stage go the trained adapter, `old` and the EMA of the weights, as they are. What describes the last
    stage's gradients starts anew: moments and step count of AdamW, everything the harmonizer remembers, the running
    spread of a weighted sum, and the s of `old_policy`, which counts the stage's own steps.
    """

    rewards: tuple[str, ...] = Field(min_length=1)
    """Names of the rewards trained."""
    iterations: int = Field(ge=1)


class LearnerConfig(_Strict):
    """Loss and optimizer (numbers of the public NFT recipe by default)."""

    algorithm: Literal["nft", "flow_grpo"] = "nft"
    """flow_grpo needs `sampling.sde`."""
    objective: Literal["gradients", "weighted_sum"] = "gradients"
    """gradients: one per reward, for the harmonizer to balance; weighted_sum: the baseline, one gradient of NFT on the
    advantage of the weighted mean of all rewards scored."""
    weights: dict[str, Weight] | None = None
    """w_k per reward name for `objective: weighted_sum`, any scale; equal where this is left out."""
    stages: tuple[StageConfig, ...] = ()
    """One after the other; none: all rewards are trained all the time."""
    probe_every: int = Field(0, ge=0)
    """Optimizer steps from one measurement to the next of how the step taken lies to every reward's gradient (ledger
    table `conflicts`); changes no bit of the training. 0: never."""

    lr: float = Field(3e-4, ge=0)
    betas: tuple[Beta, Beta] = (0.9, 0.999)
    eps: float = Field(1e-8, gt=0)
    weight_decay: float = Field(1e-4, ge=0)
    max_grad_norm: float = Field(1.0, gt=0)
    nft_beta: float = Field(0.1, gt=0)
    """beta of v+- = beta v_theta + (1 - beta) v_old and its mirror (nft)."""
    clip_range: float = Field(1e-4, gt=0, lt=1)
    """c of clip(ratio, 1 - c, 1 + c) (flow_grpo); ratios are of densities per latent element, so they stay near 1."""
    kl_beta: float = Field(1e-4, ge=0)
    kl_fraction: float = Field(1.0, gt=0, le=1)
    """Share of a step's cells, drawn at random, on which KL is taken and the reference runs; weighed up by its inverse,
    so that the expectation is that of all cells."""
    updates_per_iteration: int = Field(1, ge=1)
    """Optimizer steps on each batch of rollouts; each trains the whole batch on timesteps of its own."""
    timesteps: int = Field(24, ge=1)
    """T: trained timesteps per sample and optimizer step."""
    timestep_fraction: float = Field(0.99, gt=0, le=1)
    """Only the first int(steps * fraction) sampling sigmas are trained."""
    micro_batch_size: int = Field(8, ge=1)
    """Cells (one sample at one timestep) per forward on one rank."""
    ema_decay: float = Field(0.9, ge=0, lt=1)
    """EMA of the trained adapter, for evaluation and export; updated after every optimizer step."""
    gradient_checkpointing: bool = False
    autocast: Literal["none", "bfloat16"] = "none"
    advantage: AdvantageConfig = AdvantageConfig()
    old_policy: OldPolicyConfig = OldPolicyConfig()

    @model_validator(mode="after")
    def _weights_go_with_objective(self) -> Self:
        if self.weights is not None and self.objective != WEIGHTED_SUM:
            raise ValueError(f"weights are for objective weighted_sum, got objective {self.objective}")
        return self

    def gradient_names(self, reward_names: Sequence[str]) -> tuple[str, ...]:
        """What has a gradient of its own: the axis that the harmonizer balances."""
        return (WEIGHTED_SUM,) if self.objective == WEIGHTED_SUM else tuple(reward_names)

    def check_names(self, reward_names: Sequence[str]) -> list[str]:
        """What of the objective does not fit the run's rewards, a line each."""
        listed, problems = ", ".join(reward_names), []
        if self.objective == WEIGHTED_SUM and WEIGHTED_SUM in reward_names:
            problems.append(f"rewards.{WEIGHTED_SUM} is called as objective weighted_sum calls its sum; rename it")
        if self.weights is not None and set(self.weights) != set(reward_names):
            problems.append(f"learner.weights must give a weight to each of {listed}, got {', '.join(self.weights)}")
        for index, stage in enumerate(self.stages):
            unknown = [name for name in stage.rewards if name not in reward_names]
            if unknown:
                problems.append(f"learner.stages.{index}.rewards names {', '.join(unknown)}; rewards are {listed}")
        for at, names in self._sets(reward_names):
            if self.weights is not None and not sum(self.weights.get(name, 0.0) for name in names) > 0:
                problems.append(f"learner.weights leaves no weight to the rewards {at}")
        return problems

    def _sets(self, reward_names: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
        stages = [(f"of learner.stages.{index}", stage.rewards) for index, stage in enumerate(self.stages)]
        return [*stages] or [("of the recipe", reward_names)]

    def sde_problem(self, sampling: SamplingConfig) -> str:
        """What is wrong between the algorithm and how rollouts are drawn; empty when nothing is."""
        if self.algorithm == FLOW_GRPO and sampling.sde is None:
            return (
                "learner.algorithm is flow_grpo, whose rollouts need noise: set sampling.sde, e.g. {noise_level: 0.7}"
            )
        if self.algorithm == "nft" and sampling.sde is not None:
            return "sampling.sde is for learner.algorithm: flow_grpo, got nft: remove one of them"
        if self.algorithm == FLOW_GRPO and min(self.old_policy.slope, self.old_policy.max) > 0:
            return (
                f"learner.old_policy.slope is {self.old_policy.slope:g}, but flow_grpo draws with the trained policy "
                "itself; set it to 0"
            )
        return ""

    def num_trainable(self, sampling: SamplingConfig) -> int:
        """Timesteps of a rollout that can be trained: the noisiest ones, under an SDE those with noise."""
        highest = int(sampling.steps * self.timestep_fraction)
        if sampling.sde is None:
            return highest
        return sampling.sde.window or min(highest, sampling.sde_range[1])
