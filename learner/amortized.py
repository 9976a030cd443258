"""The amortised step: the gradient of Σ_k a_k ℓ_k + β_KL KL in one backward into `.grad`, through DDP if any."""

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel

from learner.forward import Outcome
from learner.nft import weighted
from learner.ranks import Ranks


@dataclass(frozen=True)
class AmortizedLoss:
    """Values over all ranks; the gradient is in `.grad`."""

    loss: float
    """Σ_k a_k ℓ_k."""
    kl: float
    """Mean KL before β_KL; NaN when it is off."""


def accumulate(
    outcomes: Iterator[Outcome],
    num_batches: int,
    weights_N: tuple[Tensor, Tensor],
    kl_beta: float,
    num_cells: int,
    ranks: Ranks,
    ddp: DistributedDataParallel | None,
) -> AmortizedLoss:
    """Add the gradient of one update to `.grad` (DESIGN 4, amortised step; equals Σ a_k g_k for every mask and clamp).

    DDP averages over ranks, so cotangents are multiplied by their number; it synchronises on the last micro-batch only.

    Args:
        outcomes: micro-batches of one update, forwarded through `ddp` when there is one.
        num_batches: how many they are.
        weights_N: :func:`learner.nft.mixed_weights` for this rank's samples.
        kl_beta: β_KL.
        num_cells: N·T over all ranks.
        ranks: over which values are summed.
        ddp: the wrapper of the transformer, or None on one rank.
    """
    device = weights_N[0].device
    totals = torch.zeros(2, dtype=torch.float64, device=device)
    for index in range(num_batches):
        # The forward must be inside too: DDP decides there whether the next backward synchronises.
        with nullcontext() if ddp is None or index == num_batches - 1 else ddp.no_sync():
            outcome = next(outcomes)
            samples_M = outcome.cells.samples_M
            loss, cotangent = weighted(outcome.pair, weights_N[0][samples_M], weights_N[1][samples_M])
            totals[0] += loss
            if outcome.kl_M is not None and outcome.kl_cotangent is not None:
                totals[1] += outcome.kl_M.double().sum()
                cotangent = cotangent + kl_beta * outcome.kl_cotangent
            torch.autograd.backward(outcome.velocity, cotangent * ranks.world_size)
    with_kl = kl_beta > 0
    ranks.sum(totals)
    return AmortizedLoss(float(totals[0]), float(totals[1]) / num_cells if with_kl else float("nan"))
