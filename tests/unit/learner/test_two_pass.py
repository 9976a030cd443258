"""Two passes give what K autograd passes give, on every kind of layer (FAULTS 8, 15)."""

from pathlib import Path
from typing import Any

import pytest
import torch
from diffusers import SD3Transformer2DModel
from torch import Tensor, nn

from learner import adapters
from learner.config import SD3_ATTENTION_TARGETS, LoraConfig
from learner.forward import trainable, trained_layers
from learner.gradients import RewardGradients, reward_gradients
from learner.k_pass import k_pass_gradients
from learner.learner import Learner
from learner.nft import acceptance, reward_weights
from learner.train_step import Update
from tests.unit.learner.batches import NUM_SAMPLES, make_batch, make_learner, randomize
from tests.unit.learner.probes import update_of

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
    learner = make_learner(folder, policy={"lora": lora}, micro_batch_size=9, nft_beta=0.3, **changes)
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
    assert found.kl_P is not None
    return torch.cat([found.gradients_KP, found.kl_P[None]])


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
