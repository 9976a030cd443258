"""What crosses the learner's border: frozen dataclasses of numpy arrays.

Letters: K rewards, N samples, G images per prompt, S sampling steps, T trained timesteps, P trainable parameters,
C, h, w latent channels and size, H, W pixels.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from harmonizer.harmonizer import Plan, Signals, Solution

Purpose = Literal["train", "eval"]


@dataclass(frozen=True)
class RolloutTask:
    """One prompt group (or a fixed chunk of one): the unit of rollout work, always of the same shape."""

    purpose: Purpose
    iteration: int
    """Iteration of the run; 0 for evaluation, whose noise must not depend on when it happens."""
    seed: int
    """Run seed (evaluation: the evaluation seed)."""
    sample_ids: NDArray[np.int64]
    """[N] index of each sample within the iteration."""
    prompts: tuple[str, ...]
    """[N] one prompt per sample."""


@dataclass(frozen=True)
class Trajectory:
    """What the W steps with noise of one task went through (Flow-GRPO)."""

    x_NWChw: NDArray[np.float32]
    """[N, W + 1, C, h, w] latents before each of these steps, and behind the last."""
    log_densities_NW: NDArray[np.float32]
    """[N, W] of each step under the policy that drew it (learner.sde.log_density)."""


@dataclass(frozen=True)
class Latents:
    """x0 of one task, with the policy that drew it."""

    x0_NChw: NDArray[np.float32]
    sample_ids: NDArray[np.int64]
    policy_version: int
    policy_hash: str
    trajectory: Trajectory | None = None
    """Rollouts under an SDE only."""


@dataclass(frozen=True)
class AdapterState:
    """LoRA tensors by canonical name (no adapter name in the key), ready to be sent."""

    tensors: Mapping[str, NDArray[np.float32]]
    policy_version: int
    hash: str
    """:func:`learner.adapters.hash_tensors` of `tensors`."""


@dataclass(frozen=True)
class TrainBatch:
    """All N samples of one iteration as every rank sees them; only `latents` may hold just this rank's tasks."""

    iteration: int
    prompts: tuple[str, ...]
    """[N]"""
    group_ids: NDArray[np.int64]
    """[N] which prompt group a sample belongs to (prompt identity, never its text)."""
    scores_KN: NDArray[np.float32]
    states_KN: NDArray[np.uint8]
    """0 scored, 1 not applicable, 2 failed (rewards.contract.State)."""
    latents: tuple[Latents, ...]


@dataclass(frozen=True)
class StepRecord:
    """One optimizer step, as it goes into the ledger. NaN and None mean: not known on this step."""

    step: int
    """Optimizer steps done before this one, from 0."""
    iteration: int
    solved: bool
    applied: bool
    skip_reason: str
    active_K: NDArray[np.bool_]
    weights_K: NDArray[np.float64]
    """Applied simplex weights: alpha* or the renormalised EMA, as each unit gradient's share of the direction."""
    coefficients_K: NDArray[np.float64]
    """a_k on the raw gradients."""
    solution: Solution | None
    """What the harmonizer returned, on solving steps."""
    mean_norm: float
    loss: float
    """NFT loss under the applied coefficients (amortised steps; NaN where only gradients were computed)."""
    kl: float
    """Mean squared velocity difference to the reference, before kl_beta."""
    kl_cosine: float
    """Cosine of the KL gradient with the reward direction."""
    kl_share: float
    """Norm of the KL part over the norm of the whole step."""
    grad_norm: float
    """Norm before clipping."""
    seconds: float
    steps_since_solve: int = -1
    """Applied steps since the last solving step before this one; -1 where there was none. Also what the two below are
    about: the drift of the steps between solves, batches' own noise included."""
    solve_cosine: float = float("nan")
    """Cosine of this step's gradient, before clipping, with that solving step's."""
    solve_norm_ratio: float = float("nan")
    """This step's gradient norm over that solving step's."""
    stale_cosine: float = float("nan")
    """Solving steps: cosine of the direction that the coefficients of the step before would have given on this batch
    with the one that was solved; how far amortised weights have fallen behind, free of noise."""
    stale_norm_ratio: float = float("nan")
    """Norm of the former over the latter's."""
    solve_reason: str = ""
    """Why this step solved (harmonizer.report.Plan.reason); empty when it did not."""
    clip_fraction: float = float("nan")
    """Flow-GRPO: share of the cells whose ratio lies outside 1 ± c."""
    approx_kl: float = float("nan")
    """Flow-GRPO: mean ½ (log ratio)² of the cells, how far the policy has moved from the one that drew them."""


CONFLICT_VECTORS = ("direction", "gradient", "update")
"""What of a step is held against each reward's gradient: learner.probe."""


@dataclass(frozen=True)
class Conflict:
    """How one applied step lies to every reward's gradient of one batch. NaN: the reward had no signal there."""

    step: int
    iteration: int
    """Of the step."""
    solved: bool
    against: str
    """`same`: the step's own batch; `next`: that of the iteration after."""
    cosines: Mapping[str, NDArray[np.float64]]
    """[K] for each of CONFLICT_VECTORS; negative where the step makes the reward worse, to first order."""


@dataclass(frozen=True)
class WeightedMean:
    """The rewards added up, where that is what is trained."""

    scores_N: NDArray[np.float32]
    states_N: NDArray[np.uint8]
    advantages_N: NDArray[np.float64]


@dataclass(frozen=True)
class IterationReport:
    """What one iteration did."""

    iteration: int
    steps: tuple[StepRecord, ...]
    advantages_KN: NDArray[np.float64]
    """NaN where the cell carries no signal."""
    signal_KN: NDArray[np.bool_]
    """m_ki of DESIGN 4: scored, and the group has signal; also of rewards that are not trained in this stage."""
    applied: bool
    """Whether any optimizer step was applied."""
    default_hash: str
    old_hash: str
    policy_version: int
    """Version of `old` after this iteration."""
    eta: float
    timings_s: Mapping[str, float] = field(default_factory=dict)
    """prepare, steps, publish; and probe, where conflicts were measured, which is in none of the others."""
    weighted_mean: WeightedMean | None = None
    conflicts: tuple[Conflict, ...] = ()


class HarmonizerClient(Protocol):
    """What the learner needs of the harmonizer; in a run the Ray actor stands behind it, in tests the object itself."""

    def plan(self, step: int, active_K: NDArray[np.bool_], signals: Signals | None = None) -> Plan: ...

    def solve(
        self,
        step: int,
        gramian_KK: NDArray[np.float64],
        active_K: NDArray[np.bool_],
        kl_cosines_K: NDArray[np.float64] | None = None,
    ) -> Solution: ...

    def reset(self) -> None: ...
