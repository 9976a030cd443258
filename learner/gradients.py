"""Gradients of all K rewards apart, for a solving step: one forward per micro-batch, K backward passes over its graph.

Letters: K rewards, N samples of this rank, M cells of a micro-batch, P trainable parameters.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.forward import Outcome
from learner.nft import weighted
from learner.ranks import Ranks

GRAM_CHUNK = 1 << 20
"""Columns of [K, P] turned to float64 at a time."""


@dataclass(frozen=True)
class RewardGradients:
    """What a solving step needs, summed over ranks."""

    gradients_KP: Tensor
    """[K, P] float32 g_k; rows of rewards without signal are 0."""
    kl_P: Tensor | None
    """[P] float32 gradient of the mean KL, before β_KL; None when it is off."""
    losses_K: Tensor
    """[K] float64 ℓ_k."""
    kl: float
    """Mean KL before β_KL; NaN when it is off."""


def reward_gradients(
    outcomes: Iterable[Outcome],
    parameters: Sequence[torch.nn.Parameter],
    weights_KN: tuple[Tensor, Tensor],
    with_kl: bool,
    num_cells: int,
    ranks: Ranks,
) -> RewardGradients:
    """g_k of every reward (DESIGN 4, per-reward gradient), and ∇KL as a vector of its own.

    Args:
        outcomes: micro-batches of one update; each graph is freed before the next is asked for.
        parameters: the trained tensors, in the order of P.
        weights_KN: :func:`learner.nft.reward_weights` for this rank's samples.
        with_kl: whether outcomes carry KL.
        num_cells: N·T over all ranks.
        ranks: whose gradients are summed.
    """
    num_rewards = len(weights_KN[0])
    num_rows = num_rewards + with_kl
    gradients = torch.zeros(num_rows, sum(p.numel() for p in parameters), device=parameters[0].device)
    totals = torch.zeros(num_rows, dtype=torch.float64, device=gradients.device)
    for outcome in outcomes:
        rows = _cotangents(outcome, weights_KN)
        for index, (row, total, cotangent) in enumerate(rows):
            totals[row] += total
            last = index == len(rows) - 1
            gradients[row] += _flat(torch.autograd.grad(outcome.velocity, parameters, cotangent, retain_graph=not last))
    ranks.sum(gradients)
    ranks.sum(totals)
    return RewardGradients(
        gradients[:num_rewards],
        gradients[num_rewards] if with_kl else None,
        totals[:num_rewards],
        float(totals[num_rewards]) / num_cells if with_kl else float("nan"),
    )


def _cotangents(outcome: Outcome, weights_KN: tuple[Tensor, Tensor]) -> list[tuple[int, Tensor, Tensor]]:
    """(row, summed loss, ∂/∂v) of every reward with signal in this micro-batch, and of KL as the last row."""
    samples_M = outcome.cells.samples_M
    sums_KM, differences_KM = weights_KN[0][:, samples_M], weights_KN[1][:, samples_M]
    present_K = (sums_KM != 0).any(1).tolist()
    rows = [
        (k, *weighted(outcome.pair, sums_KM[k], differences_KM[k])) for k, present in enumerate(present_K) if present
    ]
    if outcome.kl_M is not None and outcome.kl_cotangent is not None:
        rows.append((len(present_K), outcome.kl_M.double().sum(), outcome.kl_cotangent))
    return rows


def gramian(gradients_KP: Tensor) -> NDArray[np.float64]:
    """[K, K] inner products of the gradients, summed in float64."""
    total = torch.zeros(len(gradients_KP), len(gradients_KP), dtype=torch.float64, device=gradients_KP.device)
    for chunk in torch.split(gradients_KP, GRAM_CHUNK, dim=1):
        part = chunk.double()
        total += part @ part.T
    matrix: NDArray[np.float64] = total.cpu().numpy()
    return matrix


def combined(gradients_KP: Tensor, coefficients_K: NDArray[np.float64], active_K: NDArray[np.bool_]) -> Tensor:
    """[P] d = Σ a_k g_k over the active rewards; rows of the others are not read, they may be NaN."""
    active = torch.as_tensor(active_K, device=gradients_KP.device)
    coefficients = torch.as_tensor(coefficients_K, dtype=gradients_KP.dtype, device=gradients_KP.device)
    return coefficients[active] @ gradients_KP[active]


def _flat(gradients: Sequence[Tensor]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])
