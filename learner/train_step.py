"""One optimizer step: plan, gradients (K apart when it solves, one mix when not), KL, clip, AdamW, EMA.

Letters: K rewards, N samples of this rank, P trainable parameters.
"""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from harmonizer.harmonizer import AmortizedWeights, Signals, Solution
from learner.amortized import accumulate
from learner.cells import Cells
from learner.config import LearnerConfig
from learner.drift import Drift, Staleness, Stray, staleness
from learner.ema import Ema
from learner.forward import Forward, trained_layers
from learner.gradients import RewardGradients, combined, gramian, reward_gradients
from learner.nft import mixed_weights
from learner.optimizer import LoraOptimizer
from learner.probe import Probe, ProbeInput, Taken
from learner.ranks import Ranks
from learner.signals import kl_cosines, kl_geometry
from learner.types import Conflict, HarmonizerClient, StepRecord

NAN = float("nan")


@dataclass(frozen=True)
class Signal:
    """What the rewards say about this rank's samples."""

    acceptance_KN: Tensor
    """r_ki; NaN without signal."""
    signal_KN: Tensor
    """m_ki, this rank's columns."""
    counts_K: NDArray[np.int64]
    """n_k over all ranks."""
    correlation: tuple[NDArray[np.float64], NDArray[np.intp]] | None = None
    """:func:`learner.signals.advantage_correlation` of the whole batch."""


@dataclass(frozen=True)
class Update:
    """What one step trains on."""

    step: int
    """Optimizer steps done before."""
    iteration: int
    batches: Sequence[Cells]
    num_cells: int
    """N·T over all ranks."""
    signal: Signal
    on_policy: bool
    """`default` equals the policy that drew the batch, bit for bit."""
    probe: ProbeInput | None = None
    """What is to be measured beside the step."""


@dataclass(frozen=True)
class Direction:
    """A gradient that lies ready in `.grad`, or the reason why there is none."""

    active_K: NDArray[np.bool_]
    weights_K: NDArray[np.float64]
    coefficients_K: NDArray[np.float64]
    mean_norm: float = NAN
    solution: Solution | None = None
    loss: float = NAN
    kl: float = NAN
    kl_cosine: float = NAN
    kl_share: float = NAN
    fault: str = ""
    solve_reason: str = ""
    staleness: Staleness = field(default_factory=Staleness)


class TrainStep:
    """Takes optimizer steps on the trained adapter; every rank calls it with its own cells and the same counts."""

    def __init__(
        self,
        config: LearnerConfig,
        reward_names: Sequence[str],
        forward: Forward,
        optimizer: LoraOptimizer,
        ema: Ema,
        harmonizer: HarmonizerClient,
        ranks: Ranks,
        ddp: DistributedDataParallel | None,
    ) -> None:
        self.config = config
        self.reward_names = tuple(reward_names)
        self.forward = forward
        self.optimizer = optimizer
        self.ema = ema
        self.harmonizer = harmonizer
        self.ranks = ranks
        self.ddp = ddp
        self.drift = Drift()
        self.probe = Probe(forward, ranks, self.weights)
        self.conflicts: list[Conflict] = []
        """Measured since they were last taken."""
        self.probe_s = 0.0
        """What that took."""
        self.amortized_norm = NAN
        """Gradient norm of the last step if that was applied and did not solve; part of the learner's state."""

    def forget(self) -> None:
        """As before the first step; what waits to be measured stays."""
        self.drift, self.amortized_norm = Drift(), NAN

    def run(self, update: Update) -> StepRecord:
        """Take one step, or say why not; a step not taken leaves adapter, moments and EMA untouched."""
        started = time.perf_counter()
        self.optimizer.clear()
        direction = self._direction(update)
        norm, fault, stray = NAN, direction.fault, Stray()
        if not fault:
            norm = self.optimizer.gradient_norm()
            fault = "" if math.isfinite(norm) and norm > 0 else f"the gradient's norm is {norm}"
        self.probe.before(update.probe, update.batches, update.on_policy, update.num_cells)
        taken = None
        if not fault:
            solved = direction.solution is not None
            stray = self.drift.step(self.optimizer.gradients(), norm, solved, direction.coefficients_K)
            taken = self._step(update, direction, norm)
            self.ema.update(self.optimizer.parameters)
        self.conflicts += self.probe.after(update.probe, taken)
        self.probe_s += self.probe.seconds
        self.optimizer.clear()
        self.amortized_norm = norm if not fault and direction.solution is None else NAN
        clip_fraction, approx_kl = self.forward.policy_shift(self.ranks)
        record = _record(update, direction, stray, norm, fault, time.perf_counter() - started - self.probe.seconds)
        return replace(record, clip_fraction=clip_fraction, approx_kl=approx_kl)

    def _step(self, update: Update, direction: Direction, norm: float) -> Taken | None:
        """The optimizer's step; what it did, where that is measured."""
        if update.probe is None or not update.probe.own:
            self.optimizer.step(norm)
            return None
        gradient_P, before_P = flat(self.optimizer.gradients()), flat(self.optimizer.parameters)
        self.optimizer.step(norm)
        moved_P = before_P - flat(self.optimizer.parameters)
        solved = direction.solution is not None
        return Taken(update.step, update.iteration, solved, direction.coefficients_K, gradient_P, moved_P)

    def _direction(self, update: Update) -> Direction:
        active_K = update.signal.counts_K > 0
        if not active_K.any():
            nothing = np.zeros(len(active_K))
            return Direction(active_K, nothing, nothing, fault="no reward has signal in this batch")
        correlation = update.signal.correlation
        signals = None if correlation is None else Signals(*correlation, self.amortized_norm)
        plan = self.ranks.from_first(lambda: self.harmonizer.plan(update.step, active_K, signals))
        if plan.solve or plan.weights is None:
            return replace(self._solved(update, active_K), solve_reason=plan.reason)
        return self._amortized(update, plan.weights)

    def weights(self, signal: Signal) -> tuple[Tensor, Tensor]:
        """[K, N] weights of S and D: :func:`learner.nft.reward_weights`."""
        counts_K = torch.as_tensor(signal.counts_K, device=signal.acceptance_KN.device, dtype=torch.float32)
        return self.forward.reward_weights(
            signal.acceptance_KN, signal.signal_KN, counts_K, self.config.timesteps, self.config.advantage.max
        )

    def _solved(self, update: Update, active_K: NDArray[np.bool_]) -> Direction:
        """d = Σ a_k g_k + β_KL ∇KL with the harmonizer's answer to this batch's Gram matrix."""
        with_kl = self.config.kl_beta > 0
        found = reward_gradients(
            self.forward.outcomes(update.batches, update.on_policy, update.num_cells),
            trained_layers(self.forward.policy),
            self.weights(update.signal),
            with_kl,
            update.num_cells,
            self.ranks,
        )
        gramian_RR = gramian(found.rows_RP)
        gramian_KK = gramian_RR[: len(active_K), : len(active_K)]
        cosines_K = kl_cosines(gramian_RR) if with_kl else None
        solution = self.ranks.from_first(lambda: self.harmonizer.solve(update.step, gramian_KK, active_K, cosines_K))
        a_K, kl_beta = solution.coefficients_K, self.config.kl_beta
        self.optimizer.set_gradient(combined(found.rows_RP, np.append(a_K, kl_beta) if with_kl else a_K))
        cosine, share = kl_geometry(gramian_RR, a_K, kl_beta) if with_kl else (NAN, NAN)
        return Direction(
            solution.active_K,
            unit_shares(solution),
            a_K,
            solution.mean_norm,
            solution,
            combined_loss(found, solution),
            found.kl,
            cosine,
            share,
            self._fault(solution, gramian_RR),
            staleness=staleness(gramian_KK, solution.active_K, self.drift.coefficients_K, a_K),
        )

    def _amortized(self, update: Update, weights: AmortizedWeights) -> Direction:
        """The same sum with the weights of the last solve, by one backward pass."""
        weights_KN = self.weights(update.signal)
        coefficients_K = torch.as_tensor(weights.coefficients_K, dtype=torch.float32, device=weights_KN[0].device)
        found = accumulate(
            self.forward.outcomes(update.batches, update.on_policy, update.num_cells, self.ddp),
            len(update.batches),
            mixed_weights(weights_KN, coefficients_K),
            self.config.kl_beta,
            update.num_cells,
            self.ranks,
            self.ddp,
        )
        broken = [
            f"{name} is {value}"
            for name, value, known in (("the loss", found.loss, True), ("KL", found.kl, self.config.kl_beta > 0))
            if known and not math.isfinite(value)
        ]
        return Direction(
            weights.active_K,
            weights.weights_K,
            weights.coefficients_K,
            weights.mean_norm,
            loss=found.loss,
            kl=found.kl,
            fault="; ".join(broken),
        )

    def _fault(self, solution: Solution, gramian_RR: NDArray[np.float64]) -> str:
        if not solution.active_K.any():
            left: Mapping[str, str] = solution.report.left
            return "no reward left to weigh: " + ", ".join(f"{name}: {why}" for name, why in left.items())
        if len(gramian_RR) > len(self.reward_names) and not np.isfinite(gramian_RR[-1, -1]):
            return "the KL gradient is not finite"
        return ""


def _record(update: Update, direction: Direction, stray: Stray, norm: float, fault: str, seconds: float) -> StepRecord:
    return StepRecord(
        step=update.step,
        iteration=update.iteration,
        solved=direction.solution is not None,
        applied=not fault,
        skip_reason=fault,
        active_K=direction.active_K,
        weights_K=direction.weights_K,
        coefficients_K=direction.coefficients_K,
        solution=direction.solution,
        mean_norm=direction.mean_norm,
        loss=direction.loss,
        kl=direction.kl,
        kl_cosine=direction.kl_cosine,
        kl_share=direction.kl_share,
        grad_norm=norm,
        seconds=seconds,
        steps_since_solve=stray.steps_since_solve,
        solve_cosine=stray.cosine,
        solve_norm_ratio=stray.norm_ratio,
        stale_cosine=direction.staleness.cosine,
        stale_norm_ratio=direction.staleness.norm_ratio,
        solve_reason=direction.solve_reason,
    )


def flat(tensors: Mapping[str, Tensor]) -> Tensor:
    """[P] a copy, in the order of the mapping."""
    return torch.cat([tensor.detach().flatten() for tensor in tensors.values()])


def unit_shares(solution: Solution) -> NDArray[np.float64]:
    """[K] weights of the unit gradients in what was applied: w_k = a_k ‖g_k‖ / Σ_j a_j ‖g_j‖; 0 where inactive."""
    lengths_K = np.where(solution.active_K, solution.coefficients_K * solution.norms_K, 0.0)
    total = lengths_K.sum()
    return lengths_K / total if total > 0 else lengths_K


def combined_loss(found: RewardGradients, solution: Solution) -> float:
    """Σ_k a_k ℓ_k over the active rewards; NaN when there are none."""
    losses_K = found.losses_K.cpu().numpy()
    if not solution.active_K.any():
        return NAN
    return float(losses_K[solution.active_K] @ solution.coefficients_K[solution.active_K])
