"""Every random number of the learner and the rollouts, each from a seed of its own.

Nothing is drawn from a stream, so what a sample gets does not depend on ranks, actors, micro-batches or restarts.
"""

import hashlib
from collections.abc import Sequence

import torch
from torch import Tensor

from learner.types import RolloutTask

SEED_BITS = 63
"""Seeds are stored in ledgers as signed 64-bit integers."""


def sample_seed(run_seed: int, purpose: str, iteration: int, sample_id: int, *extra: int) -> int:
    """Seed of one use of randomness: SHA-256 over all arguments, cut to 63 bits.

    torch's CPU generator starts from the lowest 32 bits only, so two of n seeds give the same noise with a chance of
    n²/2³³: one in ten million within a prompt group of 24.
    """
    text = "/".join([str(run_seed), purpose, *(str(int(number)) for number in (iteration, sample_id, *extra))])
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> (64 - SEED_BITS)


def generator(seed: int) -> torch.Generator:
    """CPU generator, so that the same numbers come out on every device."""
    return torch.Generator().manual_seed(seed)


def initial_noise(task: RolloutTask, latent_shape: Sequence[int]) -> Tensor:
    """[N, C, h, w] start of the rollouts: one generator per sample.

    Row i equals what diffusers draws for ``generator=torch.Generator().manual_seed(seed of sample i)``.
    """
    return torch.stack(
        [
            torch.randn(
                *latent_shape,
                generator=generator(sample_seed(task.seed, task.purpose, task.iteration, int(sample_id))),
            )
            for sample_id in task.sample_ids
        ]
    )


def timestep_slots(seed: int, iteration: int, sample_ids: Sequence[int], num_trainable: int) -> Tensor:
    """[N, num_trainable] permutations of the trainable timesteps; update u trains columns u·T to (u+1)·T − 1."""
    return torch.stack(
        [
            torch.randperm(
                num_trainable, generator=generator(sample_seed(seed, "timesteps", iteration, int(sample_id)))
            )
            for sample_id in sample_ids
        ]
    )


def kl_weights(seed: int, iteration: int, update: int, num_cells: int, fraction: float) -> Tensor:
    """[num_cells] weight of each cell's KL: cells / drawn for the drawn ones, 0 for the others; their mean is 1.

    As many cells are drawn as ``fraction`` says, at least one, every set of that size equally likely.
    """
    drawn = max(1, round(fraction * num_cells))
    order = torch.randperm(num_cells, generator=generator(sample_seed(seed, "kl cells", iteration, 0, update)))
    weights = torch.zeros(num_cells)
    weights[order[:drawn]] = num_cells / drawn
    return weights


def training_noise(
    seed: int, iteration: int, update: int, cells: Sequence[tuple[int, int]], latent_shape: Sequence[int]
) -> Tensor:
    """[M, C, h, w] fresh noise ε per trained cell, a cell being (sample id, slot)."""
    return torch.stack(
        [
            torch.randn(
                *latent_shape,
                generator=generator(sample_seed(seed, "training noise", iteration, sample_id, update, slot)),
            )
            for sample_id, slot in cells
        ]
    )
