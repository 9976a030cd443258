"""Noise and seeds: distinct per sample, the same again from anywhere (FAULTS 5, 20)."""

import numpy as np
import torch
from diffusers.utils.torch_utils import randn_tensor

from learner.noise import initial_noise, kl_weights, sample_seed, timestep_slots, training_noise
from learner.types import RolloutTask

SHAPE = (16, 4, 4)


def task(ids: list[int], iteration: int = 3, seed: int = 42, purpose: str = "train") -> RolloutTask:
    return RolloutTask(purpose, iteration, seed, np.array(ids), ("a",) * len(ids))  # type: ignore[arg-type]


def test_seeds_fit_a_signed_64_bit_column_and_differ() -> None:
    seeds = {
        sample_seed(run, purpose, iteration, sample, *extra)
        for run in (0, 1)
        for purpose in ("train", "eval")
        for iteration in (0, 11)
        for sample in (1, 11)
        for extra in ((), (1,), (1, 1))
    }
    assert len(seeds) == 2 * 2 * 2 * 2 * 3
    assert all(0 <= seed < 2**63 for seed in seeds)
    assert sample_seed(42, "train", 0, 0) == 639463696976419691  # must never change: runs could not be repeated


def test_every_sample_has_its_own_noise_whatever_its_company() -> None:
    """FAULTS 20: distinct in a group, and the same set from other tasks, actors and after a restart."""
    whole = initial_noise(task(list(range(24))), SHAPE)
    assert len({row.numpy().tobytes() for row in whole}) == 24
    parts = torch.cat([initial_noise(task([5, 4]), SHAPE), initial_noise(task([23]), SHAPE)])
    assert torch.equal(parts, whole[[5, 4, 23]])
    for other in (task([0], iteration=4), task([0], seed=43), task([0], purpose="eval")):
        assert not torch.equal(initial_noise(other, SHAPE)[0], whole[0])


def test_noise_is_what_diffusers_draws_for_the_seed() -> None:
    generators = [torch.Generator().manual_seed(sample_seed(42, "train", 3, i)) for i in range(3)]
    assert torch.equal(randn_tensor((3, *SHAPE), generator=generators), initial_noise(task([0, 1, 2]), SHAPE))


def test_drawing_leaves_the_global_generator_alone() -> None:
    before = torch.random.get_rng_state()
    initial_noise(task([1]), SHAPE)
    timestep_slots(1, 2, [3], 5)
    training_noise(1, 2, 0, [(3, 0)], SHAPE)
    assert torch.equal(before, torch.random.get_rng_state())


def test_timesteps_are_a_permutation_per_sample() -> None:
    slots = timestep_slots(42, 3, range(50), 9)
    assert torch.equal(slots.sort(1).values, torch.arange(9).expand(50, 9))
    assert len({tuple(row.tolist()) for row in slots}) > 40
    assert torch.equal(timestep_slots(42, 3, [7, 3], 9), slots[[7, 3]])
    assert not torch.equal(timestep_slots(42, 4, range(50), 9), slots)


def test_training_noise_is_fresh_per_cell_and_independent_of_the_split() -> None:
    """FAULTS 5: it does not replay from the start either, since the iteration is in the seed."""
    cells = [(sample, slot) for sample in range(4) for slot in range(3)]
    whole = training_noise(42, 3, 0, cells, SHAPE)
    assert len({row.numpy().tobytes() for row in whole}) == 12
    assert torch.equal(training_noise(42, 3, 0, cells[7:9], SHAPE), whole[7:9])
    for other in (training_noise(42, 3, 1, cells, SHAPE), training_noise(42, 4, 0, cells, SHAPE)):
        assert not torch.equal(other, whole)


def test_kl_weights_leave_the_expectation_as_it_is() -> None:
    """A share is drawn anew each step, every cell as often as any other, and the mean weight is 1 each time."""
    drawn = torch.stack([kl_weights(3, iteration, 0, 40, 0.25) for iteration in range(400)])
    assert ((drawn != 0).sum(1) == 10).all()
    torch.testing.assert_close(drawn.mean(1), torch.ones(400))
    # Each cell's mean over 400 draws has a standard error of sqrt(3/400) = 0.087.
    assert float((drawn.mean(0) - 1).abs().max()) < 0.35
    assert not torch.equal(kl_weights(3, 0, 0, 40, 0.25), kl_weights(3, 0, 1, 40, 0.25))
    assert torch.equal(kl_weights(3, 0, 0, 40, 1.0), torch.ones(40))
    assert (kl_weights(3, 0, 0, 3, 0.01) != 0).sum() == 1
