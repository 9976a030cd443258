"""What one update trains on: cells, a cell being one sample at one trained timestep, in micro-batches of cells.

Letters: N samples of this rank, T trained timesteps, M cells of a micro-batch, C, h, w latent channels and size.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from learner.nft import noised
from learner.noise import kl_weights, timestep_slots, training_noise
from learner.policy import TextEmbeddings


@dataclass(frozen=True)
class LocalBatch:
    """This rank's samples, on its device."""

    iteration: int
    sample_ids: tuple[int, ...]
    """[N] index of each sample within the iteration."""
    x0_NChw: Tensor
    text: TextEmbeddings
    """One row per different prompt."""
    text_rows_N: Tensor
    """[N] row of `text` of each sample."""


@dataclass(frozen=True)
class Cells:
    """One micro-batch."""

    samples_M: Tensor
    """[M] index into the rank's samples."""
    x_t: Tensor
    """[M, C, h, w]"""
    sigma_M: Tensor
    text: TextEmbeddings
    kl_weight_M: Tensor
    """[M] by which each cell's KL counts, on the CPU: 0 where it is not taken, 1 in the mean over a step."""


@dataclass(frozen=True)
class NftCells(Cells):
    """Clean latents with fresh noise on them."""

    x0: Tensor
    """[M, C, h, w]"""


@dataclass(frozen=True)
class Part:
    """Which cells a micro-batch holds."""

    samples_M: Tensor
    """[M] index into the rank's samples."""
    slots_M: Tensor
    """[M] index into the trainable timesteps."""
    kl_weight_M: Tensor
    """[M]"""
    keys: tuple[tuple[int, int], ...]
    """[M] (sample id, place in the sample's own order of timesteps): what fresh noise depends on."""


@dataclass(frozen=True)
class Schedule:
    """Which timesteps an update trains, and with which noise."""

    seed: int
    """Run seed."""
    sigmas: Tensor
    """The trainable sampling sigmas, CPU."""
    num_timesteps: int
    """T."""
    micro_batch_size: int
    """Most cells in a micro-batch."""
    num_samples: int
    """Samples of the batch, over all ranks."""
    kl_fraction: float = 1.0
    """Share of the cells on which KL is taken."""


def parts(batch: LocalBatch, schedule: Schedule, update: int) -> list[Part]:
    """All N·T cells of one update, sample by sample; those on which KL is taken come first.

    Timesteps, noise and the choice of KL's cells are a function of (seed, iteration, update, sample id, slot): the same
    cells for every split over ranks and micro-batches, and after a restart.
    """
    wanted = slice(update * schedule.num_timesteps, (update + 1) * schedule.num_timesteps)
    slots_NT = timestep_slots(schedule.seed, batch.iteration, batch.sample_ids, len(schedule.sigmas))[:, wanted]
    keys = [(i, slot) for i in batch.sample_ids for slot in range(wanted.start, wanted.stop)]
    slots_all = slots_NT.flatten()
    samples_all = torch.arange(len(batch.sample_ids)).repeat_interleave(schedule.num_timesteps)
    kl_weights_all = _kl_weights(batch, schedule, update)
    # Cells with KL stand together: the micro-batches without any need neither the reference nor a pass for KL.
    order = torch.argsort(kl_weights_all == 0, stable=True)
    return [
        Part(samples_all[part], slots_all[part], kl_weights_all[part], tuple(keys[cell] for cell in part.tolist()))
        for part in order.split(schedule.micro_batch_size)
    ]


def micro_batches(batch: LocalBatch, schedule: Schedule, update: int) -> list[NftCells]:
    """The cells of :func:`parts` with fresh noise on the clean latents."""
    return [_noised(batch, schedule, update, part) for part in parts(batch, schedule, update)]


def _kl_weights(batch: LocalBatch, schedule: Schedule, update: int) -> Tensor:
    """[N·T] this rank's part of the weights of all cells, sample by sample."""
    num_cells = schedule.num_samples * schedule.num_timesteps
    weights = kl_weights(schedule.seed, batch.iteration, update, num_cells, schedule.kl_fraction)
    return weights.view(schedule.num_samples, schedule.num_timesteps)[list(batch.sample_ids)].flatten()


def _noised(batch: LocalBatch, schedule: Schedule, update: int, part: Part) -> NftCells:
    device = batch.x0_NChw.device
    noise = training_noise(schedule.seed, batch.iteration, update, part.keys, batch.x0_NChw.shape[1:]).to(device)
    samples_M, sigma_M = part.samples_M.to(device), schedule.sigmas[part.slots_M].to(device)
    x0 = batch.x0_NChw[samples_M]
    text = batch.text.rows(batch.text_rows_N[samples_M])
    return NftCells(samples_M, noised(x0, noise, sigma_M), sigma_M, text, part.kl_weight_M, x0)
