"""Flow-GRPO's sampler (arXiv 2505.05470): the flow's ODE as an SDE of the same marginals, and the density of its steps.

With v = dx/dt, t the noise level and σ_t = a √(t / (1 − t)), the SDE that runs from t = 1 to 0 is
dx = [v + σ_t²/(2t) (x + (1 − t) v)] dt + σ_t dw (the SDE of section 4.2 there). One step to t′ is a Gaussian whose mean
is linear in x and v; at a = 0 it is Euler's step.

Letters: N samples, S sampling steps, W steps with noise, M transitions, C, h, w latent channels and size. "mean" over a
transition is over its C·h·w elements.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from learner.config import SamplingConfig
from learner.noise import generator, initial_noise, sample_seed
from learner.policy import Policy
from learner.sampler import Velocity, finished, guided, sigmas
from learner.types import RolloutTask, Trajectory

StepNoise = Callable[[int], Tensor]
"""Step of a rollout → z [N, C, h, w], standard normal."""


@dataclass(frozen=True)
class Transitions:
    """The Gaussians N(from_x · x + from_v · v, std²) of some steps."""

    from_x: Tensor
    """[M] 1 + σ_t²/(2t) Δt, Δt = t′ − t < 0."""
    from_v: Tensor
    """[M] (1 + σ_t² (1 − t)/(2t)) Δt."""
    std: Tensor
    """[M] σ_t √(−Δt); 0 on steps without noise."""

    def at(self, steps_M: Tensor | slice) -> "Transitions":
        """These steps only."""
        return Transitions(self.from_x[steps_M], self.from_v[steps_M], self.std[steps_M])

    def mean(self, x: Tensor, v: Tensor) -> Tensor:
        """[M, C, h, w] where v leads from x."""
        return _per_item(self.from_x) * x + _per_item(self.from_v) * v

    def to(self, device: torch.device) -> "Transitions":
        """The same on a device."""
        return Transitions(self.from_x.to(device), self.from_v.to(device), self.std.to(device))


def transitions(sigmas_S1: Tensor, noise_level: float, noisy: range) -> Transitions:
    """[S] every step between neighbouring noise levels (Flow-GRPO, Euler-Maruyama).

    Where t = 1, at which σ_t has no value, the next level stands for t in 1 − t (public code).

    Args:
        sigmas_S1: [S + 1] noise levels from 1 to 0.
        noise_level: a.
        noisy: steps with noise; the others are Euler's.
    """
    t, following = sigmas_S1[:-1], sigmas_S1[1:]
    change = following - t
    variance = noise_level**2 * t / (1 - torch.where(t == 1, sigmas_S1[1], t))
    steps = torch.arange(len(t))
    variance = torch.where((steps >= noisy.start) & (steps < noisy.stop), variance, 0.0)
    pull = variance / (2 * t)
    return Transitions(1 + pull * change, (1 + pull * (1 - t)) * change, (-variance * change).sqrt())


def log_density(following: Tensor, mean: Tensor, std_M: Tensor) -> Tensor:
    """[M] mean over elements of log N(following; mean, std²), as the public Flow-GRPO code takes it.

    A mean in place of the sum keeps ratios of policies near 1 whatever the size of the latents.
    """
    std = _per_item(std_M)
    each = -((following - mean) ** 2) / (2 * std**2) - std.log() - 0.5 * math.log(2 * math.pi)
    return each.flatten(1).mean(1)


def window(seed: int, iteration: int, sampling: SamplingConfig) -> range:
    """Steps with noise in one iteration, the same for all its samples; a window begins anywhere in its range.

    Raises:
        ValueError: a sampling without an SDE.
    """
    if sampling.sde is None:
        raise ValueError("this sampling has no SDE")
    low, high = sampling.sde_range
    if sampling.sde.window is None:
        return range(low, high)
    draws = generator(sample_seed(seed, "sde window", iteration, 0))
    start = low + int(torch.randint(high - low - sampling.sde.window + 1, (1,), generator=draws))
    return range(start, start + sampling.sde.window)


def step_noise(task: RolloutTask, step: int, latent_shape: tuple[int, ...]) -> Tensor:
    """[N, C, h, w] z of one step: a function of (run seed, iteration, sample id, step), whoever draws it."""
    seeds = [sample_seed(task.seed, "sde noise", task.iteration, int(i), step) for i in task.sample_ids]
    return torch.stack([torch.randn(*latent_shape, generator=generator(seed)) for seed in seeds])


def sde(
    velocity: Velocity, x_NChw: Tensor, sigmas_S1: Tensor, steps: Transitions, noisy: range, noise: StepNoise
) -> tuple[Tensor, Tensor, Tensor]:
    """Latents at the last noise level [N, C, h, w], those around the steps with noise [N, W + 1, C, h, w] and the log
    densities of these steps [N, W].

    Args:
        velocity: of the policy that draws.
        x_NChw: latents at the first noise level.
        sigmas_S1: noise levels.
        steps: :func:`transitions` between them.
        noisy: which of them have noise, at least one.
        noise: z of each of these.
    """
    kept: list[Tensor] = []
    densities: list[Tensor] = []
    for s, sigma in enumerate(sigmas_S1[:-1]):
        step = steps.at(torch.full((len(x_NChw),), s, device=x_NChw.device))
        mean = step.mean(x_NChw, velocity(x_NChw, sigma.expand(len(x_NChw))))
        if s in noisy:
            kept.append(x_NChw)
            x_NChw = mean + _per_item(step.std) * noise(s)
            densities.append(log_density(x_NChw, mean, step.std))
            if s == noisy[-1]:
                kept.append(x_NChw)
        else:
            x_NChw = mean
    return x_NChw, torch.stack(kept, 1), torch.stack(densities, 1)


@torch.no_grad()
def sample_trajectory(
    policy: Policy, task: RolloutTask, sampling: SamplingConfig
) -> tuple[Tensor, NDArray[np.uint8], Trajectory]:
    """x0 [N, C, h, w] on the CPU, its images [N, H, W, 3] and how they came about, by the active adapter.

    Raises:
        ValueError: latents or pixels that are not finite, or a sampling without an SDE.
    """
    noisy = window(task.seed, task.iteration, sampling)
    levels = sigmas(policy.scheduler_config, sampling.steps)
    steps = transitions(levels, sampling.sde.noise_level if sampling.sde else 0.0, noisy).to(policy.device)
    velocity = guided(policy, policy.encode(task.prompts), sampling.guidance_scale)
    start = initial_noise(task, policy.latent_shape).to(policy.device)

    def noise(step: int) -> Tensor:
        return step_noise(task, step, policy.latent_shape).to(policy.device)

    x0, latents, densities = sde(velocity, start, levels.to(policy.device), steps, noisy, noise)
    images = finished(policy, task, x0)
    return x0.cpu(), images, Trajectory(latents.cpu().numpy(), densities.cpu().numpy())


def _per_item(values_M: Tensor) -> Tensor:
    """[M, 1, 1, 1]"""
    return values_M[:, None, None, None]
