"""Draws images: Euler steps on the scheduler's own sigmas, calling the transformer directly.

Letters: N samples, S sampling steps, C, h, w latent channels and size, H, W pixels.
"""

import itertools
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from diffusers import FlowMatchEulerDiscreteScheduler
from numpy.typing import NDArray
from torch import Tensor

from learner.config import SamplingConfig
from learner.errors import PolicyError
from learner.noise import initial_noise
from learner.policy import Policy, TextEmbeddings
from learner.types import RolloutTask

Velocity = Callable[[Tensor, Tensor], Tensor]
"""(x_NChw, sigma_N) → v_NChw."""


def sigmas(scheduler_config: Mapping[str, Any], steps: int) -> Tensor:
    """[S + 1] noise levels from 1 to 0, exactly those of diffusers' pipeline for this many steps.

    Raises:
        PolicyError: a scheduler whose sigmas depend on the image size, which Stable Diffusion 3 does not use.
    """
    if scheduler_config.get("use_dynamic_shifting"):
        raise PolicyError("the base's scheduler has use_dynamic_shifting on: its sigmas depend on the image size")
    scheduler = FlowMatchEulerDiscreteScheduler.from_config(dict(scheduler_config))
    scheduler.set_timesteps(steps)
    levels: Tensor = scheduler.sigmas.float().cpu()
    return levels


def trainable_sigmas(scheduler_config: Mapping[str, Any], steps: int, fraction: float) -> Tensor:
    """[int(S · fraction)] the sampling sigmas that are trained, noisiest first."""
    return sigmas(scheduler_config, steps)[: int(steps * fraction)]


def euler(velocity: Velocity, x_NChw: Tensor, sigmas_S: Tensor) -> Tensor:
    """[N, C, h, w] latents at the last sigma: x ← x + (σ_{s+1} − σ_s) v(x, σ_s) (Flow-GRPO, arXiv 2505.05470, ODE)."""
    for sigma, following in itertools.pairwise(sigmas_S):
        x_NChw = x_NChw + (following - sigma) * velocity(x_NChw, sigma.expand(len(x_NChw)))
    return x_NChw


def guided(policy: Policy, text: TextEmbeddings, scale: float, module: Callable[..., Any] | None = None) -> Velocity:
    """Velocity under classifier-free guidance, v(∅) + scale · (v(text) − v(∅)), against the empty prompt.

    The two rows of a sample stand together, so that whatever is summed per sample finds both.
    """
    forward = policy.velocity if module is None else partial(policy.velocity, module=module)
    if scale == 1.0:
        return lambda x_NChw, sigma_N: forward(x_NChw, sigma_N, text)
    size = len(text.pooled_NP)
    turns = torch.stack([torch.zeros(size, dtype=torch.long), 1 + torch.arange(size)], 1).flatten()
    both = TextEmbeddings.cat([policy.encode([""]), text]).rows(turns)

    def velocity(x_NChw: Tensor, sigma_N: Tensor) -> Tensor:
        pairs = forward(x_NChw.repeat_interleave(2, 0), sigma_N.repeat_interleave(2), both)
        uncond, cond = pairs[0::2], pairs[1::2]
        return uncond + scale * (cond - uncond)

    return velocity


@torch.no_grad()
def sample_latents(policy: Policy, task: RolloutTask, sampling: SamplingConfig) -> Tensor:
    """[N, C, h, w] float32 x0 of one task by the active adapter, as one batch."""
    noise_NChw = initial_noise(task, policy.latent_shape).to(policy.device)
    levels_S = sigmas(policy.scheduler_config, sampling.steps).to(policy.device)
    velocity = guided(policy, policy.encode(task.prompts), sampling.guidance_scale)
    return euler(velocity, noise_NChw, levels_S)


def sample(policy: Policy, task: RolloutTask, sampling: SamplingConfig) -> tuple[Tensor, NDArray[np.uint8]]:
    """x0 [N, C, h, w] on the CPU and its images [N, H, W, 3], of one task by the active adapter.

    Raises:
        ValueError: latents or pixels that are not finite.
    """
    x0_NChw = sample_latents(policy, task, sampling)
    return x0_NChw.cpu(), finished(policy, task, x0_NChw)


def finished(policy: Policy, task: RolloutTask, x0_NChw: Tensor) -> NDArray[np.uint8]:
    """[N, H, W, 3] images of a task's latents.

    Raises:
        ValueError: latents or pixels that are not finite.
    """
    if not bool(torch.isfinite(x0_NChw).all()):
        broken = [int(i) for i, x in zip(task.sample_ids, x0_NChw, strict=True) if not bool(torch.isfinite(x).all())]
        raise ValueError(f"iteration {task.iteration}: sampling gave latents that are not finite for samples {broken}")
    return policy.decode(x0_NChw)
