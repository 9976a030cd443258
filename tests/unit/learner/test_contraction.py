"""What the contraction leaves in memory and on the model."""

import weakref
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from learner import train_step
from learner.contraction import Contraction
from learner.forward import trained_layers
from learner.gradients import combined, reward_gradients
from learner.k_pass import k_pass_gradients
from learner.learner import Learner
from learner.nft import mixed_weights
from tests.unit.learner.batches import NUM_SAMPLES, REWARDS, make_batch, make_learner, randomize
from tests.unit.learner.probes import update_of


def randomized(folder: Path, **changes: Any) -> Learner:
    learner = make_learner(folder, **changes)
    randomize(learner)
    return learner


def even_weights(num_rewards: int = 2, num_samples: int = NUM_SAMPLES) -> tuple[Tensor, Tensor]:
    """[K, N] weights of S and D."""
    return torch.ones(num_rewards, num_samples), torch.linspace(-1, 1, num_samples).repeat(num_rewards, 1)


def kept_bytes(learner: Learner, watched: bool) -> int:
    """Of all different memory that one forward's graph keeps."""
    update = update_of(learner, make_batch(learner, 0))
    contraction = Contraction(trained_layers(learner.policy), 1)
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: (kept.append(tensor), tensor)[1], lambda tensor: tensor
    ):
        forward = learner._step.forward.outcomes(update.batches[:1], False, update.num_cells)
        if watched:
            with contraction.watching():
                outcome = next(forward)
        else:
            outcome = next(forward)
    assert outcome.velocity.requires_grad
    storages = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage().nbytes() for tensor in kept}
    return sum(storages.values())


@pytest.mark.parametrize(
    "how", [{}, {"autocast": "bfloat16"}, {"policy": {"dtype": "bfloat16"}}], ids=["float32", "autocast", "base"]
)
def test_taps_keep_no_activation_that_a_plain_step_does_not(how: dict[str, Any], tiny_folder: Path) -> None:
    """Inputs that are slices of larger tensors, or wider than what autocast multiplies, included."""
    learner = randomized(tiny_folder, **how)
    assert kept_bytes(learner, watched=True) == kept_bytes(learner, watched=False) > 0


def test_a_graph_without_any_pass_is_gone_before_the_next_forward(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Micro-batches whose groups carry no signal, with KL off."""
    learner = randomized(tiny_folder, kl_beta=0.0, micro_batch_size=8)
    update = update_of(learner, make_batch(learner, 0))
    velocities: list[weakref.ref[Tensor]] = []
    velocity = learner.policy.velocity

    def watched(*args: Any) -> Tensor:
        if torch.is_grad_enabled():
            assert not [one for one in velocities if one() is not None]
        found = velocity(*args)
        if found.requires_grad:
            velocities.append(weakref.ref(found))
        return found

    monkeypatch.setattr(learner.policy, "velocity", watched)
    nothing = torch.zeros(len(REWARDS), NUM_SAMPLES)
    outcomes = learner._step.forward.outcomes(update.batches, False, update.num_cells)
    found = reward_gradients(
        outcomes, trained_layers(learner.policy), (nothing, nothing), False, update.num_cells, learner.ranks
    )
    assert len(velocities) == 3
    assert not found.rows_RP.any()


class Allocated(TorchDispatchMode):
    """Bytes of each result that is not a view of anything seen before."""

    def __init__(self, *known: Tensor) -> None:
        super().__init__()
        self._seen = {tensor.untyped_storage().data_ptr(): tensor for tensor in known}
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor):
            pointer = result.untyped_storage().data_ptr()
            if pointer not in self._seen:
                self._seen[pointer] = result
                self.sizes.append(result.untyped_storage().nbytes())
        return result


def test_after_its_passes_a_solve_allocates_one_vector(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside the rows, which are K + 1 with KL: Gram matrix, cosines and direction take no copy of them."""
    learner = randomized(tiny_folder, updates_per_iteration=1)
    update = update_of(learner, make_batch(learner, 0))
    found = reward_gradients(
        learner._step.forward.outcomes(update.batches, False, update.num_cells),
        trained_layers(learner.policy),
        learner._step.weights(update.signal),
        True,
        update.num_cells,
        learner.ranks,
    )
    monkeypatch.setattr(train_step, "reward_gradients", lambda *_: found)
    monkeypatch.setattr("learner.gradients.GRAM_CHUNK", 16)
    learner._optimizer.clear()
    with Allocated(found.rows_RP) as seen:
        direction = learner._step._solved(update, update.signal.counts_K > 0)
    size = found.rows_RP[0].nbytes
    assert found.rows_RP.nbytes == (len(REWARDS) + 1) * size
    assert [nbytes for nbytes in seen.sizes if nbytes > size // 4] == [size]
    expected = combined(found.rows_RP, np.append(direction.coefficients_K, learner.config.kl_beta))
    assert torch.equal(torch.cat([g.flatten() for g in learner._optimizer.gradients().values()]), expected)


def test_an_exception_leaves_no_hook_behind(tiny_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the second micro-batch's forward; a step taken afterwards is as if nothing had been."""
    learner = randomized(tiny_folder, micro_batch_size=8)
    layers, update = trained_layers(learner.policy), update_of(learner, make_batch(learner, 0))

    def gradients() -> Tensor:
        outcomes = learner._step.forward.outcomes(update.batches, False, update.num_cells)
        return reward_gradients(outcomes, layers, even_weights(), True, update.num_cells, learner.ranks).rows_RP

    expected, velocity, forwards = gradients(), learner.policy.velocity, iter(range(99))

    def broken(*args: Any) -> Tensor:
        if torch.is_grad_enabled() and next(forwards) == 1:
            raise RuntimeError("out of memory")
        return velocity(*args)

    with monkeypatch.context() as patch:
        patch.setattr(learner.policy, "velocity", broken)
        with pytest.raises(RuntimeError, match="out of memory"):
            gradients()
    assert not any(layer._forward_hooks or layer._forward_pre_hooks for layer in layers)
    assert torch.equal(gradients(), expected)


@pytest.mark.parametrize("gradients", [reward_gradients, k_pass_gradients])
@pytest.mark.parametrize(
    ("weights_KN", "said"),
    [
        (even_weights(0), r"two of shape \[K, N\] with K ≥ 1, got \[0, 12\] and \[0, 12\]"),
        ((torch.ones(2, 12), torch.ones(3, 12)), r"got \[2, 12\] and \[3, 12\]"),
        ((torch.ones(12), torch.ones(12)), r"got \[12\] and \[12\]"),
    ],
)
def test_weights_of_another_shape_are_refused(gradients: Any, weights_KN: tuple[Tensor, Tensor], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        gradients([], [nn.Linear(2, 2, bias=False)], weights_KN, False, 1, None)


def test_coefficients_of_other_rewards_are_refused() -> None:
    with pytest.raises(ValueError, match=r"coefficients must be \[2\], one per reward, got \[3\]"):
        mixed_weights(even_weights(2), torch.ones(3))
