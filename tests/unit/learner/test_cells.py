"""The cells of an update are the same for any number of ranks (FAULTS 15)."""

import pytest
import torch

from learner.cells import Cells, LocalBatch, Schedule, micro_batches
from learner.policy import TextEmbeddings
from learner.ranks import rank_slice

NUM_SAMPLES, NUM_TIMESTEPS = 12, 2
X0 = torch.randn(NUM_SAMPLES, 2, 3, 3, generator=torch.Generator().manual_seed(1))


def schedule(kl_fraction: float, micro_batch_size: int = 5) -> Schedule:
    return Schedule(7, torch.linspace(0.9, 0.1, 9), NUM_TIMESTEPS, micro_batch_size, NUM_SAMPLES, kl_fraction)


def local(samples: slice) -> LocalBatch:
    """One rank's samples."""
    text = TextEmbeddings(torch.zeros(1, 2, 4), torch.zeros(1, 4))
    ids = tuple(range(NUM_SAMPLES)[samples])
    return LocalBatch(3, ids, X0[samples], text, torch.zeros(len(ids), dtype=torch.long))


def in_order(parts: list[tuple[int, list[Cells]]], field: str) -> torch.Tensor:
    """One field of all cells, by sample and timestep, wherever they are trained.

    Args:
        parts: each rank's first sample, and its cells.
    """
    cells = [batch for _, batches in parts for batch in batches]
    samples = torch.cat([first + batch.samples_M for first, batches in parts for batch in batches]).tolist()
    sigmas = torch.cat([batch.sigma_M for batch in cells]).tolist()
    order = sorted(range(len(samples)), key=lambda i: (samples[i], sigmas[i]))
    return torch.cat([getattr(batch, field) for batch in cells])[order]


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
@pytest.mark.parametrize("kl_fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("update", [0, 1])
def test_cells_noise_and_kl_are_those_of_one_rank(world_size: int, kl_fraction: float, update: int) -> None:
    """A draw over a rank's own cells would take KL elsewhere, and more or less of it on a rank of another size."""
    alone = [(0, micro_batches(local(slice(None)), schedule(kl_fraction), update))]
    slices = [rank_slice(NUM_SAMPLES, rank, world_size) for rank in range(world_size)]
    apart = [(part.start, micro_batches(local(part), schedule(kl_fraction, 3), update)) for part in slices]
    for field in ("x0", "x_t", "sigma_M", "kl_weight_M"):
        assert torch.equal(in_order(apart, field), in_order(alone, field)), field
    weights = in_order(alone, "kl_weight_M")
    assert int((weights > 0).sum()) == round(kl_fraction * NUM_SAMPLES * NUM_TIMESTEPS)
    assert float(weights.mean()) == pytest.approx(1.0)


def test_each_update_draws_cells_of_its_own_for_kl() -> None:
    """Counted by sample: each update has timesteps of its own anyway."""
    first, second = (
        in_order([(0, micro_batches(local(slice(None)), schedule(0.25), update))], "kl_weight_M") for update in (0, 1)
    )
    of_sample = (NUM_SAMPLES, NUM_TIMESTEPS)
    assert not torch.equal(first.view(of_sample).sum(1), second.view(of_sample).sum(1))
