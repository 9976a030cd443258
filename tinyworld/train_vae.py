"""Stage ``vae``: the autoencoder, on pictures the base may see."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL
from torch import nn
from torch.nn import functional

from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.pipeline import build_vae
from tinyworld.pool import PoolSpec, load_pool

VAE_POOL = PoolSpec("vae", seed=11, size=24_000, source_weights=(0.3, 0.35, 0.35))
BATCH = 16
LR = 1.2e-3
KL_WEIGHT = 1e-4
"""Per latent element. Enough to keep latents bounded, too little to blur."""
CALM_SHARE = 0.7
"""Share of the steps before noise is put on the latents."""
MAX_NOISE = 0.4
"""Strongest noise, in standard deviations of the latents."""
SCALE_BATCHES = 16
"""Batches over which the latents' mean and deviation are measured at the end."""


class VaeStage:
    """Trains reconstruction (absolute and squared error) with a little KL."""

    name = "vae"

    def __init__(self, seed: int, steps: int, work: Path) -> None:
        torch.manual_seed(seed)
        self.steps, self.work = steps, work
        self.vae = _start_linear(build_vae()).train().to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.AdamW(self.vae.parameters(), lr=LR, betas=(0.9, 0.99), weight_decay=1e-4)
        self.images, _ = load_pool(VAE_POOL, work)

    def step(self, index: int, rng: np.random.Generator) -> float:
        pixels = to_pixels(self.images[np.sort(rng.integers(len(self.images), size=BATCH))])
        posterior = self.vae.encode(pixels).latent_dist
        decoded = self.vae.decode(self._disturb(posterior.sample(), index)).sample
        error = functional.l1_loss(decoded, pixels) + 2 * functional.mse_loss(decoded, pixels)
        loss = error + KL_WEIGHT * posterior.kl().mean() / posterior.mean[0].numel()
        self.optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.vae.parameters(), 1.0)
        set_lr(self.optimizer, LR * warmup_cosine(index, self.steps, floor=0.2))
        self.optimizer.step()
        return error.item()

    def _disturb(self, latents: torch.Tensor, index: int) -> torch.Tensor:
        """Noise on the latents in the last part of the training, of another strength for every picture.

        A small transformer never hits a latent exactly. Without this a miss of a few percent already bends the picture.
        """
        if index < CALM_SHARE * self.steps:
            return latents
        strength = MAX_NOISE * torch.rand(len(latents), 1, 1, 1)
        return latents + strength * latents.detach().std() * torch.randn_like(latents)

    def state(self) -> dict[str, Any]:
        return {"vae": self.vae.state_dict(), "optimizer": self.optimizer.state_dict()}

    def load(self, state: dict[str, Any]) -> None:
        self.vae.load_state_dict(state["vae"])
        self.optimizer.load_state_dict(state["optimizer"])

    @torch.no_grad()
    def finish(self) -> None:
        """Measure the latents, set scaling and shift so that they have mean 0 and deviation 1, and save."""
        self.vae.eval()
        batches = [to_pixels(self.images[at * BATCH : (at + 1) * BATCH]) for at in range(SCALE_BATCHES)]
        latents = torch.cat([self.vae.encode(pixels).latent_dist.sample() for pixels in batches])
        self.vae.register_to_config(scaling_factor=float(1 / latents.std()), shift_factor=float(latents.mean()))
        self.vae.save_pretrained(self.work / "vae")


def _start_linear(vae: AutoencoderKL) -> AutoencoderKL:
    """Set the last weights of every residual branch to zero.

    Flat pale backgrounds are a small signal beside the objects. Through a linear network they pass from the first step;
    through random branches it takes a thousand steps until they show.
    """
    for name, module in vae.named_modules():
        if name.endswith(("conv2", "to_out.0")):
            nn.init.zeros_(module.weight)
            nn.init.zeros_(module.bias)
    return vae


def to_pixels(images: np.ndarray[Any, Any]) -> torch.Tensor:
    """uint8 [N, H, W, 3] to float [N, 3, H, W] in [-1, 1], channels last in memory."""
    pixels = torch.tensor(images).permute(0, 3, 1, 2)
    return pixels.float() / 127.5 - 1
