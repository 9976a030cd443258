"""Gradients of all K rewards by K backward passes: what :mod:`learner.gradients` must equal, and is measured against.

Letters: K rewards, N samples of this rank, P trainable parameters.
"""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor

from learner.forward import Outcome
from learner.gradients import RewardGradients
from learner.nft import number_of_rewards, weighted
from learner.ranks import Ranks


def k_pass_gradients(
    outcomes: Iterable[Outcome],
    parameters: Sequence[torch.nn.Parameter],
    weights_KN: tuple[Tensor, Tensor],
    with_kl: bool,
    num_cells: int,
    ranks: Ranks,
) -> RewardGradients:
    """g_k of every reward and ∇KL, each by plain autograd; arguments as of :func:`learner.gradients.reward_gradients`.

    Args:
        outcomes: micro-batches of one update.
        parameters: the trained tensors, in the order of P.
        weights_KN: weights of S and D.
        with_kl: whether outcomes carry KL.
        num_cells: N·T over all ranks.
        ranks: whose gradients are summed.

    Raises:
        ValueError: weights of another shape.
    """
    num_rewards = number_of_rewards(weights_KN)
    num_rows = num_rewards + with_kl
    gradients = torch.zeros(num_rows, sum(p.numel() for p in parameters), device=parameters[0].device)
    totals = torch.zeros(num_rows, dtype=torch.float64, device=gradients.device)
    for outcome in outcomes:
        rows = _cotangents(outcome, weights_KN)
        for index, (row, total, cotangent) in enumerate(rows):
            totals[row] += total
            last = index == len(rows) - 1
            parts = torch.autograd.grad(outcome.velocity, parameters, cotangent, retain_graph=not last)
            gradients[row] += torch.cat([part.flatten() for part in parts])
    ranks.sum(gradients)
    ranks.sum(totals)
    return RewardGradients.of_rows(gradients, totals, num_rewards, num_cells)


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
