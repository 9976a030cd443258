"""Flow-GRPO's sampler: its densities, its marginals, and where its noise comes from (FAULTS 20)."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from learner import adapters
from learner.config import SamplingConfig, SdeConfig
from learner.noise import initial_noise
from learner.policy import Policy
from learner.sampler import euler, sample_latents, sigmas
from learner.sde import Transitions, log_density, sample_trajectory, sde, step_noise, transitions, window
from learner.types import RolloutTask
from tests.unit.learner.batches import policy_config

LEVELS = sigmas({"num_train_timesteps": 1000, "shift": 3.0}, 10)
TASK = RolloutTask("train", 4, 42, np.array([3, 9, 1]), ("a red sign", "two cats", "two cats"))
NOISY = SamplingConfig(steps=6, sde=SdeConfig())


def draws(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@pytest.fixture(scope="module")
def policy(tiny_folder: Path) -> Policy:
    """With its VAE, and an `old` that is not the base."""
    policy = Policy.load(policy_config(tiny_folder), ("default", "old"))
    tensors = adapters.read(policy.transformer, "old")
    for index, value in enumerate(tensors.values()):
        value.copy_(0.2 * draws(*value.shape, seed=index))
    adapters.write(policy.transformer, "old", tensors)
    return policy


def test_the_density_of_a_step_is_torchs_normal() -> None:
    following, mean, std_M = draws(3, 2, 4, 4), draws(3, 2, 4, 4, seed=1), torch.tensor([0.02, 0.7, 3.0])
    normal = torch.distributions.Normal(mean, std_M[:, None, None, None])
    torch.testing.assert_close(log_density(following, mean, std_M), normal.log_prob(following).mean((1, 2, 3)))


def test_a_step_by_hand() -> None:
    """t = 0.5 → 0.4, a = 0.7: σ_t² = 0.49. At t = 1 the next level, 0.5, stands in σ_t² = 0.49 · 1/(1 − 0.5) = 0.98."""
    steps = transitions(torch.tensor([1.0, 0.5, 0.4, 0.0]), 0.7, range(2))
    assert steps.from_x.tolist() == pytest.approx([1 - 0.98 / 2 * 0.5, 1 - 0.49 / (2 * 0.5) * 0.1, 1])
    assert steps.from_v.tolist() == pytest.approx([-0.5, -(1 + 0.49 * 0.5) * 0.1, -0.4])
    assert steps.std.tolist() == pytest.approx([(0.98 * 0.5) ** 0.5, 0.7 * 0.1**0.5, 0])


def test_without_noise_it_is_eulers_sampler_bit_for_bit() -> None:
    def velocity(x: torch.Tensor, sigma_N: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * sigma_N[:, None, None, None] - x.flip(1)

    start, noisy = draws(3, 2, 4, 4), range(9)
    x0, latents, _ = sde(velocity, start, LEVELS, transitions(LEVELS, 0.0, noisy), noisy, lambda s: draws(3, 2, 4, 4))
    assert torch.equal(x0, euler(velocity, start, LEVELS))
    assert torch.equal(latents[:, 0], start)
    assert torch.equal(latents[:, 4], euler(velocity, start, LEVELS[:5]))


MEAN, SPREAD = 1.5, 0.6
"""Of the toy's clean latents, x0 ~ N(MEAN, SPREAD²) elementwise."""


def marginal(t: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mean and variance of x_t = (1 − t) x0 + t ε."""
    return (1 - t) * MEAN, (1 - t) ** 2 * SPREAD**2 + t**2


def toy_velocity(x: torch.Tensor, sigma_N: torch.Tensor) -> torch.Tensor:
    """E[ε − x0 | x_t = x]."""
    t = sigma_N.view(-1, *[1] * (x.ndim - 1))
    mean, variance = marginal(t)
    return (t - (1 - t) * SPREAD**2) / variance * (x - mean) - MEAN


def moments(levels: torch.Tensor, steps: Transitions) -> torch.Tensor:
    """[S + 1, 2] mean and variance of the chain on the toy, by its own linear recursion from N(0, 1)."""
    mean, variance, found = 0.0, 1.0, [(0.0, 1.0)]
    for s, t in enumerate(levels[:-1].double()):
        at_0, at_1 = (float(toy_velocity(torch.tensor([x]).double(), t[None])) for x in (0.0, 1.0))
        slope = float(steps.from_x[s]) + float(steps.from_v[s]) * (at_1 - at_0)
        mean, variance = slope * mean + float(steps.from_v[s]) * at_0, slope**2 * variance + float(steps.std[s]) ** 2
        found.append((mean, variance))
    return torch.tensor(found)


@pytest.mark.parametrize("noise_level", [0.0, 0.7, 1.0])
def test_moments_of_every_step_on_a_gaussian_toy(noise_level: float) -> None:
    """Sampled mean and variance are the chain's within five standard errors."""
    noisy, size = range(len(LEVELS) - 2), (4000, 2, 2, 2)
    steps = transitions(LEVELS, noise_level, noisy)
    noise = [draws(*size, seed=s) for s in noisy]
    _, latents, _ = sde(toy_velocity, draws(*size, seed=99), LEVELS, steps, noisy, lambda s: noise[s])
    expected = moments(LEVELS, steps)[:-1]
    numbers = latents.double().transpose(0, 1).flatten(1)  # [steps, samples · elements]
    count = numbers.shape[1]
    off_mean = (numbers.mean(1) - expected[:, 0]).abs() / (expected[:, 1] / count).sqrt()
    off_variance = (numbers.var(1) / expected[:, 1] - 1).abs() / (2 / count) ** 0.5
    assert float(off_mean.max()) < 5
    assert float(off_variance.max()) < 5


@pytest.mark.parametrize("noise_level", [0.0, 0.4, 0.7, 1.0])
def test_the_marginals_are_the_flows(noise_level: float) -> None:
    """Whatever the noise, from t = 0.9 on the moments are those of x_t, and nearer with more steps.

    Noise alone, without the pull that makes up for it, would widen them.
    """
    errors = []
    for count in (250, 1000):
        levels = torch.linspace(1, 0, count + 1).double()
        found = moments(levels, transitions(levels, noise_level, range(count - 1)))
        mean, variance = marginal(levels)
        late, wanted = levels <= 0.9, torch.stack([mean, variance], 1)
        errors.append(float((found - wanted)[late].abs().max()))
    assert errors[1] < min(0.02, 0.8 * errors[0])
    steps = transitions(levels, noise_level, range(count - 1))
    unpulled = Transitions(torch.ones_like(steps.from_x), levels.diff(), steps.std)
    assert (float((moments(levels, unpulled) - wanted)[late].abs().max()) > 0.1) == (noise_level > 0)


def test_only_steps_of_the_window_are_noisy() -> None:
    x, noisy = draws(3, 2, 4, 4), range(3, 5)
    steps = transitions(LEVELS, 0.7, noisy)
    x0, latents, densities = sde(toy_velocity, x, LEVELS, steps, noisy, lambda s: draws(3, 2, 4, 4, seed=s))
    assert latents.shape == (3, 3, 2, 4, 4)
    assert densities.shape == (3, 2)
    before = euler(toy_velocity, x, LEVELS[:4])
    assert torch.equal(latents[:, 0], before)
    assert torch.equal(x0, euler(toy_velocity, latents[:, 2], LEVELS[5:]))
    step = steps.at(torch.tensor([3, 3, 3]))
    mean = step.mean(before, toy_velocity(before, LEVELS[3].expand(3)))
    assert torch.equal(latents[:, 1], mean + step.std[:, None, None, None] * draws(3, 2, 4, 4, seed=3))
    torch.testing.assert_close(densities[:, 0], log_density(latents[:, 1], mean, step.std))


def test_a_window_begins_anywhere_in_its_range_and_is_of_the_iteration() -> None:
    assert window(1, 7, SamplingConfig(steps=10, sde=SdeConfig())) == range(9)
    how = SamplingConfig(steps=10, sde=SdeConfig(window=2, window_range=(1, 5)))
    found = [window(1, iteration, how) for iteration in range(60)]
    assert {w.start for w in found} == {1, 2, 3}
    assert {len(w) for w in found} == {2}
    assert found == [window(1, iteration, how) for iteration in range(60)]
    assert found != [window(2, iteration, how) for iteration in range(60)]
    with pytest.raises(ValueError, match="has no SDE"):
        window(1, 0, SamplingConfig(steps=10))


def test_noise_is_of_run_iteration_sample_and_step() -> None:
    """FAULTS 20: whatever the company, and none of it the rollout's initial noise."""
    shape = (2, 3, 3)
    alone = step_noise(replace(TASK, sample_ids=np.array([9]), prompts=("x",)), 2, shape)
    assert torch.equal(step_noise(TASK, 2, shape)[1], alone[0])
    others = [
        step_noise(TASK, 2, shape)[0],
        step_noise(TASK, 3, shape)[1],
        step_noise(replace(TASK, iteration=5), 2, shape)[1],
        step_noise(replace(TASK, seed=43), 2, shape)[1],
        initial_noise(TASK, shape)[1],
    ]
    assert not any(torch.equal(alone[0], other) for other in others)


def test_a_task_gives_the_same_bits_and_every_sample_alone_the_same_numbers(policy: Policy) -> None:
    """FAULTS 20: nothing depends on who draws it or with whom."""
    with adapters.using(policy.transformer, "old"):
        x0, images, trajectory = sample_trajectory(policy, TASK, NOISY)
        again = sample_trajectory(policy, TASK, NOISY)
        alone = sample_trajectory(policy, replace(TASK, sample_ids=np.array([9]), prompts=("two cats",)), NOISY)
    assert torch.equal(x0, again[0])
    assert np.array_equal(images, again[1])
    assert np.array_equal(trajectory.x_NWChw, again[2].x_NWChw)
    np.testing.assert_allclose(alone[2].x_NWChw[0], trajectory.x_NWChw[1], atol=1e-4)
    np.testing.assert_allclose(alone[2].log_densities_NW[0], trajectory.log_densities_NW[1], atol=1e-4)
    assert trajectory.x_NWChw.shape == (3, 6, *policy.latent_shape)
    assert trajectory.x_NWChw.dtype == trajectory.log_densities_NW.dtype == np.float32
    assert not np.array_equal(trajectory.x_NWChw[1], trajectory.x_NWChw[2])  # same prompt, noise of its own
    assert not torch.allclose(x0, sample_latents(policy, TASK, SamplingConfig(steps=6)), atol=1e-2)


def test_latents_that_are_not_finite_are_named(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "velocity", lambda x, *_: torch.full_like(x, float("nan")))
    with pytest.raises(ValueError, match=r"latents that are not finite for samples \[3, 9, 1\]"):
        sample_trajectory(policy, TASK, NOISY)


REFUSED = {
    "a window without room": (
        {"steps": 5, "sde": {"window": 5}},
        r"a window of 5 steps within \[0, 4\] does not fit 5 steps",
    ),
    "beyond the last": ({"steps": 5, "sde": {"window": 1, "window_range": (0, 5)}}, "the last of which has no noise"),
    "one step": ({"steps": 1, "sde": {}}, "does not fit 1 steps"),
    "range of no window": ({"sde": {"window_range": (0, 5)}}, "there is no window; set window too"),
    "range too short": ({"sde": {"window": 3, "window_range": (4, 6)}}, r"\[4, 6\] does not hold a window of 3"),
    "no noise": ({"sde": {"noise_level": 0}}, "greater than 0"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name: str) -> None:
    """FAULTS 24."""
    section, message = REFUSED[name]
    with pytest.raises(ValueError, match=message):
        SamplingConfig.model_validate(section)


def test_guidance_is_allowed_under_an_sde() -> None:
    """FAULTS 19: Flow-GRPO trains the guided velocity itself; NFT's refusal stands."""
    assert SamplingConfig(guidance_scale=4.5, sde=SdeConfig()).guidance_scale == 4.5
    with pytest.raises(ValueError, match="NFT assumes rollouts without guidance"):
        SamplingConfig(guidance_scale=4.5)
