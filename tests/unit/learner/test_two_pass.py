"""Two passes give what K autograd passes give, on every kind of layer (FAULTS 8, 15)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import SD3Transformer2DModel
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from learner import adapters
from learner.config import SD3_ATTENTION_TARGETS, LoraConfig
from learner.contraction import Contraction
from learner.forward import trainable, trained_layers
from learner.gradients import RewardGradients, reward_gradients
from learner.k_pass import k_pass_gradients
from learner.learner import Learner
from learner.nft import acceptance, reward_weights
from learner.train_step import Update
from tests.unit.learner.batches import NUM_SAMPLES, make_batch, make_learner, randomize
from tests.unit.learner.probes import kl_row, update_of

EVERY_LINEAR = (
    *SD3_ATTENTION_TARGETS,
    *(f"attn2.{name}" for name in ("to_q", "to_k", "to_v", "to_out.0")),
    *(f"{part}.{name}" for part in ("ff", "ff_context") for name in ("net.0.proj", "net.2")),
    *(f"{name}.linear" for name in ("norm1", "norm1_context", "norm_out")),
    *(f"{part}_embedder.{name}" for part in ("timestep", "text") for name in ("linear_1", "linear_2")),
    "context_embedder",
    "proj_out",
)
A_MAX = 0.9


def wide_learner(folder: Path, **changes: Any) -> Learner:
    """LoRA on every linear layer; lora_B random, θ_old ≠ θ, alpha / rank = 1.5."""
    lora = LoraConfig(rank=4, alpha=6.0, targets=EVERY_LINEAR)
    learner = make_learner(folder, policy={"lora": lora}, **{"micro_batch_size": 9, "nft_beta": 0.3, **changes})
    randomize(learner)
    return learner


@pytest.fixture(scope="module")
def learner(tiny_folder: Path) -> Learner:
    return wide_learner(tiny_folder)


def weights(num_rewards: int, seed: int = 0, scored: float = 0.6) -> tuple[Tensor, Tensor]:
    """[K, N] weights of S and D: random masks, every fourth reward without any cell, advantages on both sides of the
    clamp."""
    draws = torch.Generator().manual_seed(seed)
    advantages = 2 * torch.randn(num_rewards, NUM_SAMPLES, generator=draws)
    signal = torch.rand(num_rewards, NUM_SAMPLES, generator=draws) < scored
    signal[3::4] = False
    accepted = torch.where(signal, acceptance(advantages, A_MAX), torch.nan)
    assert num_rewards < 5 or ((accepted == 0).any() and (accepted == 1).any() and not signal[3].any())
    return reward_weights(accepted, signal, signal.sum(1).float(), 2, A_MAX, 0.3)


def both(learner: Learner, update: Update, weights_KN: tuple[Tensor, Tensor]) -> tuple[RewardGradients, ...]:
    """By two passes, and by K."""
    wanted = (update.batches, update.on_policy, update.num_cells)
    rest = (weights_KN, learner.config.kl_beta > 0, update.num_cells, learner.ranks)
    return (
        reward_gradients(learner._step.forward.outcomes(*wanted), trained_layers(learner.policy), *rest),
        k_pass_gradients(learner._step.forward.outcomes(*wanted), list(trainable(learner.policy).values()), *rest),
    )


def stacked(found: RewardGradients) -> Tensor:
    """[K + 1, P] with KL as the last row."""
    return torch.cat([found.gradients_KP, kl_row(found)[None]])


def error_per_parameter(learner: Learner, found_RP: Tensor, expected_RP: Tensor) -> float:
    """Largest ‖found − expected‖ / ‖expected‖ over rows and tensors; equal where the expected one is zero."""
    sizes = [parameter.numel() for parameter in trainable(learner.policy).values()]
    worst = 0.0
    for found, expected in zip(found_RP.double().split(sizes, 1), expected_RP.double().split(sizes, 1), strict=True):
        errors_R, lengths_R = (found - expected).norm(dim=1), expected.norm(dim=1)
        assert not errors_R[lengths_R == 0].any()
        worst = max([worst, *(errors_R / lengths_R)[lengths_R > 0].tolist()])
    return worst


def test_the_targets_are_every_linear_layer_there_is(learner: Learner) -> None:
    """Attention, second attention, feed-forward, modulation, embedders and output; blocks of both kinds."""
    model = learner.policy.transformer
    plain = SD3Transformer2DModel.from_config(model.config)
    assert adapters.num_target_modules(model) == sum(isinstance(m, nn.Linear) for m in plain.modules())
    assert [block.use_dual_attention for block in model.transformer_blocks] == [True, False]


@pytest.mark.parametrize("num_rewards", [1, 2, 5, 16])
def test_two_passes_equal_k_passes(num_rewards: int, learner: Learner) -> None:
    update = update_of(learner, make_batch(learner, 0))
    found, expected = both(learner, update, weights(num_rewards))
    assert error_per_parameter(learner, stacked(found), stacked(expected)) <= 1e-5
    torch.testing.assert_close(found.losses_K, expected.losses_K, rtol=1e-6, atol=0)
    assert found.kl == pytest.approx(expected.kl, rel=1e-6)


@pytest.mark.parametrize("num_rewards", [2, 5])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_the_same_with_gradient_checkpointing(
    num_rewards: int, checkpointing: bool, learner: Learner, tiny_folder: Path
) -> None:
    """And with KL on a share of the cells, in micro-batches of another size."""
    other = wide_learner(tiny_folder, gradient_checkpointing=checkpointing, micro_batch_size=7, kl_fraction=0.3)
    assert other.policy.pipeline().transformer.gradient_checkpointing == checkpointing
    update = update_of(other, make_batch(other, 0))
    found, expected = both(other, update, weights(num_rewards))
    assert error_per_parameter(other, stacked(found), stacked(expected)) <= 1e-5
    whole, _ = both(learner, update_of(learner, make_batch(learner, 0)), weights(num_rewards))
    assert error_per_parameter(learner, found.gradients_KP, whole.gradients_KP) <= 1e-5


@pytest.mark.parametrize("num_rewards", [5, 16])
@pytest.mark.parametrize("how", [{"autocast": "bfloat16"}, {"policy": {"dtype": "bfloat16"}}])
def test_in_bfloat16_no_worse_than_k_passes(num_rewards: int, how: dict[str, Any], tiny_folder: Path) -> None:
    """Against float32; of every row the error is at most 1.5 times that of K passes."""
    exact, coarse = (make_learner(tiny_folder, nft_beta=0.3, **changes) for changes in ({}, how))
    for made in (exact, coarse):
        randomize(made)
    truth, _ = both(exact, update_of(exact, make_batch(exact, 0)), weights(num_rewards))
    update = update_of(coarse, make_batch(coarse, 0))
    errors = [(stacked(found) - stacked(truth)).norm(dim=1) for found in both(coarse, update, weights(num_rewards))]
    assert errors[1].max() > 0
    assert (errors[0] <= 1.5 * errors[1]).all()


@pytest.mark.parametrize("field", ["x0", "x_t"])
def test_a_broken_cell_breaks_only_the_rewards_it_belongs_to(field: str, learner: Learner) -> None:
    """FAULTS 8: 0 · NaN is NaN; x0 breaks the loss alone, x_t every activation of the cell."""
    weights_KN = weights(5)
    clean, _ = both(learner, update_of(learner, make_batch(learner, 0)), weights_KN)
    members_KN = weights_KN[0] != 0
    sample = int(((members_KN.sum(0) > 0) & (members_KN.sum(0) < 4)).nonzero()[0])
    update = update_of(learner, make_batch(learner, 0))
    cells = next(cells for cells in update.batches if (cells.samples_M == sample).any())
    getattr(cells, field)[cells.samples_M == sample] = float("nan")
    found = reward_gradients(
        learner._step.forward.outcomes(update.batches, False, update.num_cells),
        trained_layers(learner.policy),
        weights_KN,
        True,
        update.num_cells,
        learner.ranks,
    )
    hit_K = members_KN[:, sample]
    assert torch.isnan(found.gradients_KP[hit_K]).all()
    torch.testing.assert_close(found.gradients_KP[~hit_K], clean.gradients_KP[~hit_K])
    assert torch.isfinite(found.losses_K).tolist() == (~hit_K).tolist()
    assert bool(torch.isfinite(kl_row(found)).all()) == (field == "x0")


class Products(TorchDispatchMode):
    """Shapes of all matrix products."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: list[tuple[int, ...]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if func.overloadpacket in (torch.ops.aten.mm, torch.ops.aten.addmm, torch.ops.aten.bmm):
            self.shapes.append(tuple(result.shape))
        return result


@pytest.mark.parametrize(("on_policy", "kl_fraction", "passes"), [(False, 1.0, 3), (True, 1.0, 2), (False, 0.1, 2)])
def test_no_pass_and_no_weight_gradient_is_thrown_away(
    on_policy: bool, kl_fraction: float, passes: int, tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S, D and KL, without S on policy, without KL where no cell has it; autograd forms no weight gradient."""
    learner = make_learner(tiny_folder, micro_batch_size=12, kl_fraction=kl_fraction)
    randomize(learner)
    update = update_of(learner, make_batch(learner, 0))
    layers = trained_layers(learner.policy)
    outcomes = learner._step.forward.outcomes(update.batches[1:], on_policy, update.num_cells)
    contracted: list[int] = []
    contract = Contraction.contract
    monkeypatch.setattr(Contraction, "contract", lambda *args: (contracted.append(args[1]), contract(*args))[1])
    with Products() as seen:
        reward_gradients(outcomes, layers, weights(5), True, update.num_cells, learner.ranks)
    assert sorted(contracted) == sorted([*range(len(layers))] * passes)
    assert seen.shapes
    assert not {tuple(layer.weight.shape) for layer in layers} & set(seen.shapes)


def test_a_layer_that_does_not_see_the_cells_is_named(learner: Learner) -> None:
    layer = nn.Linear(3, 2, bias=False)
    contraction = Contraction([layer], 1)
    with contraction.watching():
        output = layer(torch.ones(4, 3))
        with pytest.raises(ValueError, match="layer 0 saw 4 rows, but there are 5 cells"):
            contraction.add(output, torch.ones(4, 2), torch.ones(1, 5), slice(0, 1), False)
    assert not layer._forward_hooks
    assert layer(torch.ones(4, 3)).grad_fn.name() != "_TapBackward"
