"""Flow-GRPO (arXiv 2505.05470): the clipped surrogate of the steps that drew the rollouts, two losses per cell.

Reward k's loss of one step is max(−A ρ, −A clip(ρ, 1 − c, 1 + c)) with ρ = p_θ/p_old. The sign of A decides which bound
counts: for A > 0 it is A·L⁺ with L⁺ = −min(ρ, 1 + c), for A < 0 it is |A|·L⁻ with L⁻ = max(ρ, 1 − c). So every reward's
loss is a weighted sum of the same two losses, as in NFT, and everything behind that is NFT's: gradients of K rewards,
amortised step, ranks.

Letters: K rewards, N samples of this rank, T trained timesteps, W steps with noise, M cells of a micro-batch, a cell
being one step of one sample, C, h, w latent channels and size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from learner.cells import Cells, LocalBatch, Schedule, parts
from learner.forward import Forward
from learner.nft import Pair, reward_weights
from learner.policy import Policy
from learner.ranks import Ranks
from learner.sampler import guided
from learner.sde import Transitions, log_density


@dataclass(frozen=True)
class StepCells(Cells):
    """One micro-batch of steps that rollouts took; KL's weights hold :func:`kl_scale` too."""

    following: Tensor
    """[M, C, h, w] where the step led."""
    log_density_M: Tensor
    """Under the policy that took it, as the rollout said."""
    steps: Transitions
    """[M]"""


def surrogate_pair(ratio_M: Tensor, clip_range: float, score: Tensor) -> Pair:
    """S = L⁺ + L⁻ and D = L⁺ − L⁻ of the clipped surrogate, and what each does to v_θ (Flow-GRPO, its objective).

    Args:
        ratio_M: ρ = exp(log p_θ − log p_old).
        clip_range: c; where ρ is beyond the bound that counts the loss is constant.
        score: [M, C, h, w] ∂ log p_θ/∂v_θ of each cell.
    """
    plus, minus = -ratio_M.clamp(max=1 + clip_range), ratio_M.clamp(min=1 - clip_range)
    slope = _per_cell(ratio_M) * score
    down = torch.where(_per_cell(ratio_M <= 1 + clip_range), -slope, 0.0)
    up = torch.where(_per_cell(ratio_M >= 1 - clip_range), slope, 0.0)
    return Pair(plus + minus, plus - minus, up + down, down - up)


def score(following: Tensor, mean: Tensor, steps: Transitions) -> Tensor:
    """[M, C, h, w] ∂/∂v of :func:`learner.sde.log_density`: (x′ − μ)/std² · ∂μ/∂v / numel."""
    scale_M = steps.from_v / (steps.std**2 * following[0].numel())
    return _per_cell(scale_M) * (following - mean)


def surrogate_weights(
    acceptance_KN: Tensor, signal_KN: Tensor, counts_K: Tensor, num_timesteps: int, a_max: float
) -> tuple[Tensor, Tensor]:
    """[K, N] weights of S and D in g_k: m_ki / (n_k T) times |A|/2 and A/2, A clipped to ±A_max.

    A L⁺ or |A| L⁻ is |A|/2 S + A/2 D, and A/2 = A_max (r − ½) for the r of :func:`learner.nft.acceptance`: NFT's weight
    of D at β = 1. Arguments as of :func:`learner.nft.reward_weights`.
    """
    _, differences_KN = reward_weights(acceptance_KN, signal_KN, counts_K, num_timesteps, a_max, 1.0)
    return differences_KN.abs(), differences_KN


def kl_scale(steps: Transitions) -> Tensor:
    """[M] by which mean (v_θ − v_ref)² becomes the KL divergence of the two steps, per element (Flow-GRPO, KL in closed
    form): (∂μ/∂v)²/(2 std²), for Gaussians of one variance."""
    return steps.from_v**2 / (2 * steps.std**2)


def step_cells(
    batch: LocalBatch, schedule: Schedule, update: int, x_NWChw: Tensor, log_densities_NW: Tensor, steps: Transitions
) -> list[StepCells]:
    """The cells of :func:`learner.cells.parts`, slot w being the w-th step with noise.

    Args:
        batch: this rank's samples.
        schedule: its noise levels are those of the steps with noise.
        update: of the iteration.
        x_NWChw: [N, W + 1, C, h, w] latents around these steps.
        log_densities_NW: of these steps.
        steps: [W] these steps.
    """
    device = x_NWChw.device
    sigmas = schedule.sigmas.to(device)
    cells = []
    for part in parts(batch, schedule, update):
        samples_M, slots_M = part.samples_M.to(device), part.slots_M.to(device)
        taken = steps.at(slots_M)
        cells.append(
            StepCells(
                samples_M,
                x_NWChw[samples_M, slots_M],
                sigmas[slots_M],
                batch.text.rows(batch.text_rows_N[samples_M]),
                part.kl_weight_M * kl_scale(taken).cpu(),
                x_NWChw[samples_M, slots_M + 1],
                log_densities_NW[samples_M, slots_M],
                taken,
            )
        )
    return cells


class StepForward(Forward):
    """Velocities at the steps that rollouts took; under guidance the guided velocity is what is trained."""

    def __init__(
        self,
        policy: Policy,
        clip_range: float,
        guidance_scale: float,
        with_kl: bool,
        autocast: Literal["none", "bfloat16"],
    ) -> None:
        super().__init__(policy, 1.0, with_kl, autocast)
        self.clip_range = clip_range
        self.guidance_scale = guidance_scale
        self.rows_per_cell = 1 if guidance_scale == 1.0 else 2
        self._totals = torch.zeros(3, dtype=torch.float64, device=policy.device)

    def reward_weights(
        self, acceptance_KN: Tensor, signal_KN: Tensor, counts_K: Tensor, num_timesteps: int, a_max: float
    ) -> tuple[Tensor, Tensor]:
        """As :func:`surrogate_weights`."""
        return surrogate_weights(acceptance_KN, signal_KN, counts_K, num_timesteps, a_max)

    def policy_shift(self, ranks: Ranks) -> tuple[float, float]:
        """(share of cells with |ρ − 1| > c, mean ½ (log ρ)²) since the last call, over all ranks; NaN without cells."""
        clipped, squares, count = ranks.sum(self._totals).tolist()
        self._totals = torch.zeros_like(self._totals)
        return (clipped / count, squares / (2 * count)) if count else (float("nan"), float("nan"))

    def _olds(self, batches: Sequence[Cells], on_policy: bool) -> Sequence[Tensor | None]:
        return [None] * len(batches)  # its densities came with the rollouts

    def _velocity(self, cells: Cells, module: DistributedDataParallel | None) -> Tensor:
        return guided(self.policy, cells.text, self.guidance_scale, module)(cells.x_t, cells.sigma_M)

    def _pair(self, cells: Cells, velocity: Tensor, v_old: Tensor | None, on_policy: bool) -> Pair:
        assert isinstance(cells, StepCells)
        mean = cells.steps.mean(cells.x_t, velocity.detach())
        now_M = log_density(cells.following, mean, cells.steps.std)
        # The rollout's own density differs in the last bits when it was drawn in another company; the policy does not.
        log_ratio_M = torch.zeros_like(now_M) if on_policy else now_M - cells.log_density_M
        ratio_M = log_ratio_M.exp()
        outside_M = (ratio_M - 1).abs() > self.clip_range
        counted_3M = torch.stack(
            [outside_M.double(), log_ratio_M.double().square(), torch.ones_like(outside_M).double()]
        )
        self._totals = self._totals + counted_3M.sum(1)
        return surrogate_pair(ratio_M, self.clip_range, score(cells.following, mean, cells.steps))


def _per_cell(values_M: Tensor) -> Tensor:
    """[M, 1, 1, 1]"""
    return values_M[:, None, None, None]
