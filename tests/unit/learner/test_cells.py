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


def joined(batches: list[Cells], field: str) -> torch.Tensor:
    return torch.cat([getattr(cells, field) for cells in batches])


@pytest.mark.parametrize("world_size", [2, 3, 4, 5])
@pytest.mark.parametrize("kl_fraction", [0.25, 0.5, 1.0])
@pytest.mark.parametrize("update", [0, 1])
def test_cells_noise_and_kl_are_those_of_one_rank(world_size: int, kl_fraction: float, update: int) -> None:
    """A draw over a rank's own cells would take KL elsewhere, and more or less of it on a rank of another size."""
    alone = micro_batches(local(slice(None)), schedule(kl_fraction), update)
    slices = [rank_slice(NUM_SAMPLES, rank, world_size) for rank in range(world_size)]
    apart = [cells for part in slices for cells in micro_batches(local(part), schedule(kl_fraction, 3), update)]
    for field in ("x0", "x_t", "sigma_M", "kl_weight_M"):
        assert torch.equal(joined(apart, field), joined(alone, field)), field
    weights = joined(alone, "kl_weight_M")
    assert int((weights > 0).sum()) == round(kl_fraction * NUM_SAMPLES * NUM_TIMESTEPS)
    assert float(weights.mean()) == pytest.approx(1.0)


def test_each_update_draws_cells_of_its_own_for_kl() -> None:
    first, second = (joined(micro_batches(local(slice(None)), schedule(0.25), u), "kl_weight_M") for u in (0, 1))
    assert not torch.equal(first, second)
