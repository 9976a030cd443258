"""Our Euler sampler against diffusers' own pipeline (FAULTS 3, 19, 20)."""

from pathlib import Path

import numpy as np
import pytest
import torch

from learner import adapters
from learner.config import SamplingConfig
from learner.errors import PolicyError
from learner.noise import generator, initial_noise
from learner.policy import Policy
from learner.sampler import sample, sample_latents, sigmas, trainable_sigmas
from learner.types import RolloutTask
from tests.unit.learner.batches import policy_config

TASK = RolloutTask("train", 4, 42, np.array([3, 9, 1]), ("a red sign", "two cats", "two cats"))
STEPS = SamplingConfig(steps=6)


@pytest.fixture(scope="module")
def policy(tiny_folder: Path) -> Policy:
    """With an `old` that is not the base."""
    policy = Policy.load(policy_config(tiny_folder), ("default", "old"))
    tensors = adapters.read(policy.transformer, "old")
    draws = generator(0)
    for value in tensors.values():
        value.normal_(std=0.2, generator=draws)
    adapters.write(policy.transformer, "old", tensors)
    return policy


def by_diffusers(policy: Policy, output_type: str, guidance_scale: float = 1.0) -> torch.Tensor:
    """The same prompts and noise through the pipeline's own loop."""
    result: torch.Tensor = (
        policy.pipeline()(
            prompt=list(TASK.prompts),
            negative_prompt=[""] * len(TASK.prompts),
            num_inference_steps=STEPS.steps,
            guidance_scale=guidance_scale,
            height=policy.config.resolution,
            width=policy.config.resolution,
            max_sequence_length=policy.config.max_sequence_length,
            latents=initial_noise(TASK, policy.latent_shape),
            output_type=output_type,
        )
    ).images
    return result


@pytest.mark.parametrize("adapter", ["default", "old", None])
def test_equals_the_diffusers_pipeline(adapter: str | None, policy: Policy) -> None:
    with adapters.using(policy.transformer, adapter):
        x0, images = sample(policy, TASK, STEPS)
        torch.testing.assert_close(x0, by_diffusers(policy, "latent"), atol=1e-5, rtol=0)
        torch.testing.assert_close(policy.decode_float(x0), by_diffusers(policy, "pt"), atol=1e-5, rtol=0)
    assert images.shape == (3, 32, 32, 3)
    assert images.dtype == np.uint8


def test_adapters_change_the_samples(policy: Policy) -> None:
    drawn = {}
    for adapter in ("old", None):
        with adapters.using(policy.transformer, adapter):
            drawn[adapter] = sample_latents(policy, TASK, STEPS)
    assert not torch.allclose(drawn["old"], drawn[None], atol=1e-2)


def test_guidance_equals_the_diffusers_pipeline(policy: Policy) -> None:
    """FAULTS 19: off unless asked for twice; then it is the usual formula."""
    guided = sample_latents(policy, TASK, SamplingConfig(steps=6, guidance_scale=3.5, allow_guidance=True))
    torch.testing.assert_close(guided, by_diffusers(policy, "latent", 3.5), atol=1e-4, rtol=0)
    assert not torch.allclose(guided, sample_latents(policy, TASK, STEPS), atol=1e-2)
    with pytest.raises(ValueError, match="NFT assumes rollouts without guidance"):
        SamplingConfig(guidance_scale=3.5)


def test_the_same_task_gives_the_same_bits(policy: Policy) -> None:
    first, second = sample(policy, TASK, STEPS), sample(policy, TASK, STEPS)
    assert torch.equal(first[0], second[0])
    assert np.array_equal(first[1], second[1])
    assert not torch.equal(first[0][1], first[0][2])  # same prompt, other noise (FAULTS 20)


def test_sigmas_of_the_public_recipe() -> None:
    """PAPER 3: 25 steps with shift 3 go 1.0 … 0.1227, 0.0089, 0; 24 of them are trained."""
    config = {"num_train_timesteps": 1000, "shift": 3.0}
    levels = sigmas(config, 25)
    assert len(levels) == 26
    assert levels[0] == 1
    assert levels[-3:].tolist() == pytest.approx([0.1227, 0.0089, 0], abs=1e-4)
    assert torch.equal(trainable_sigmas(config, 25, 0.99), levels[:24])


def test_a_scheduler_with_dynamic_shifting_is_refused() -> None:
    with pytest.raises(PolicyError, match="use_dynamic_shifting"):
        sigmas({"num_train_timesteps": 1000, "use_dynamic_shifting": True}, 5)


def test_samples_that_are_not_finite_are_named(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(x: torch.Tensor, sigma: torch.Tensor, text: object) -> torch.Tensor:
        velocity = torch.zeros_like(x)
        velocity[1] = float("nan")
        return velocity

    monkeypatch.setattr(policy, "velocity", broken)
    with pytest.raises(ValueError, match=r"iteration 4: sampling gave latents that are not finite for samples \[9\]"):
        sample(policy, TASK, STEPS)
