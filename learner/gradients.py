"""Gradients of all K rewards apart, for a solving step: one forward and two backward passes per micro-batch.

L± do not depend on the reward, so every g_k is a weighted sum, over cells, of the same two gradients ∇S and ∇D; each is
taken once and contracted with all K rows of weights as it passes the trained layers. ∇KL is a third pass.

Letters: K rewards, R = K rows and one more with KL, N samples of this rank, M cells of a micro-batch, C, h, w latent
channels and size, P trainable parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from learner.contraction import Contraction
from learner.forward import Outcome
from learner.nft import number_of_rewards, used_cells, weighted, weighted_loss
from learner.ranks import Ranks

GRAM_CHUNK = 1 << 15
"""Columns of [R, P] turned to float64 at a time: a fraction of what the rows themselves take."""


@dataclass(frozen=True)
class RewardGradients:
    """What a solving step needs, summed over ranks."""

    rows_RP: Tensor
    """[R, P] float32: g_k, 0 for rewards without signal; with KL one row more, the gradient of its mean before β_KL."""
    losses_K: Tensor
    """[K] float64 ℓ_k."""
    kl: float
    """Mean KL before β_KL; NaN when it is off."""

    @classmethod
    def of_rows(cls, rows_RP: Tensor, totals_R: Tensor, num_rewards: int, num_cells: int) -> Self:
        """From rows and totals over all ranks; KL's total is summed over N·T cells."""
        kl = float(totals_R[num_rewards]) / num_cells if len(rows_RP) > num_rewards else float("nan")
        return cls(rows_RP, totals_R[:num_rewards], kl)

    @property
    def gradients_KP(self) -> Tensor:
        """[K, P] the rewards' rows; no copy."""
        return self.rows_RP[: len(self.losses_K)]


def reward_gradients(
    outcomes: Iterable[Outcome],
    layers: Sequence[nn.Linear],
    weights_KN: tuple[Tensor, Tensor],
    with_kl: bool,
    num_cells: int,
    ranks: Ranks,
) -> RewardGradients:
    """g_k of every reward (DESIGN 4, K gradients for the price of two), and ∇KL as a vector of its own.

    Args:
        outcomes: micro-batches of one update, each forwarded when it is asked for; its graph is freed before the next.
        layers: the trained matrices as layers, in the order of P.
        weights_KN: :func:`learner.nft.reward_weights` for this rank's samples.
        with_kl: whether outcomes carry KL.
        num_cells: N·T over all ranks.
        ranks: whose gradients are summed.

    Raises:
        ValueError: weights of another shape, or a layer whose inputs do not have the cells as their first dimension.
    """
    num_rewards = number_of_rewards(weights_KN)
    contraction = Contraction(layers, num_rewards + with_kl)
    rows_RP = contraction.rows_RP
    totals_R = torch.zeros(len(rows_RP), dtype=torch.float64, device=rows_RP.device)
    poisoned_R = torch.zeros(len(rows_RP), dtype=torch.bool, device=rows_RP.device)
    with contraction.watching():
        for outcome in outcomes:
            weights_KM = [weights[:, outcome.cells.samples_M] for weights in weights_KN]
            totals_R[:num_rewards] += weighted_loss(outcome.pair, *weights_KM)
            if outcome.kl_M is not None:
                totals_R[num_rewards] += outcome.kl_M.double().sum()
            passes = _passes(outcome, weights_KM[0], weights_KM[1])
            for index, one in enumerate(passes):
                last = index == len(passes) - 1
                broken_M = contraction.add(
                    outcome.velocity, one.cotangent, one.coefficients_RM, one.rows, not last, outcome.rows_per_cell
                )
                poisoned_R[one.rows] |= (one.used_RM & broken_M).any(1)
            del outcome  # where no pass has freed its graph, the next forward would find it in memory
    # A gradient that is not finite has no better value than NaN: it is the harmonizer's to drop.
    rows_RP.masked_fill_(poisoned_R[:, None], float("nan"))
    ranks.sum_in_buckets(rows_RP)
    ranks.sum(totals_R)
    return RewardGradients.of_rows(rows_RP, totals_R, num_rewards, num_cells)


@dataclass(frozen=True)
class _Pass:
    """One backward pass and what it adds to which rows."""

    cotangent: Tensor
    """[M, C, h, w] of each cell."""
    coefficients_RM: Tensor
    used_RM: Tensor
    """Which cells belong to which row, whatever their coefficient."""
    rows: slice


def _passes(outcome: Outcome, sums_KM: Tensor, differences_KM: Tensor) -> list[_Pass]:
    """Passes over one micro-batch: S (none when θ = θ_old), D and KL, each only if some cell counts in it."""
    num_rewards = len(sums_KM)
    rewards, passes = slice(num_rewards), []
    used_KM = used_cells(sums_KM, differences_KM)
    pair = outcome.pair
    if num_rewards == 1 and bool(used_KM.any()):  # nothing to tell apart: S and D go together
        _, cotangent = weighted(pair, sums_KM[0], differences_KM[0])
        passes.append(_Pass(cotangent, used_KM.float(), used_KM, rewards))
    elif bool(used_KM.any()):
        if not outcome.on_policy:
            passes.append(_Pass(pair.sum_cotangent, sums_KM, used_KM, rewards))
        passes.append(_Pass(pair.difference_cotangent, differences_KM, used_KM, rewards))
    if outcome.kl_cotangent is not None:
        taken_1M = (outcome.cells.kl_weight_M != 0)[None].to(sums_KM.device)
        passes.append(_Pass(outcome.kl_cotangent, taken_1M.float(), taken_1M, slice(num_rewards, None)))
    return passes


def gramian(rows_RP: Tensor) -> NDArray[np.float64]:
    """[R, R] inner products of the rows, summed in float64."""
    total = torch.zeros(len(rows_RP), len(rows_RP), dtype=torch.float64, device=rows_RP.device)
    for chunk in torch.split(rows_RP, GRAM_CHUNK, dim=1):
        part = chunk.double()
        total += part @ part.T
    matrix: NDArray[np.float64] = total.cpu().numpy()
    return matrix


def combined(rows_RP: Tensor, weights_R: NDArray[np.float64]) -> Tensor:
    """[P] Σ w_r g_r; rows of weight 0 are not read, they may be NaN. No row is copied."""
    total = torch.zeros_like(rows_RP[0])
    for row in np.flatnonzero(weights_R):
        total.add_(rows_RP[row], alpha=float(weights_R[row]))
    return total
