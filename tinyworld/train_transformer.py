"""Stage ``transformer``: the denoiser and both text encoders together, on cached latents of what the base may see.

Rectified flow as SD3 is trained: x_t = (1 - s) x0 + s noise, target noise - x0, s logit-normal and shifted as the
scheduler shifts it. Text reaches the transformer exactly as ``StableDiffusion3Pipeline.encode_prompt`` sends it.
"""

import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from diffusers import AutoencoderKL, SD3Transformer2DModel, StableDiffusion3Pipeline
from numpy.typing import NDArray
from torch import nn

from tinyworld.loop import set_lr, warmup_cosine
from tinyworld.pipeline import WEIGHTS, build_pipeline, save_pipeline
from tinyworld.pool import PoolSpec, load_pool
from tinyworld.tokenizer import MAX_TOKENS
from tinyworld.train_vae import to_pixels

FLOW_POOL = PoolSpec("flow", seed=17, size=48_000, source_weights=(0.3, 0.3, 0.4))
BATCH = 64
LR = 1e-3
EMA_DECAY = 0.998
SIGN_SHARES = ((2800, 0.9), (1600, 0.65))
"""From which step on which share of a batch are signs. Shapes are learned long before letters; this ends both alike."""
PARTS = 2
"""Each batch is computed in two halves, side by side: on tensors this small that uses two cores better than threads
inside every operation, and does not depend on how many there are."""
ENCODE_BATCH = 64


class TransformerStage:
    """Flow-matching training. What is saved is the moving average of the weights."""

    name = "transformer"

    def __init__(self, seed: int, steps: int, work: Path) -> None:
        self.steps, self.work = steps, work
        self.attach(build_pipeline(seed), work)
        start_as_identity(self.pipeline.transformer)
        self.modules.train()
        self.workers = ThreadPoolExecutor(max_workers=PARTS)
        # Python's default of 5 ms lets one half wait for the other between operations that take far less.
        sys.setswitchinterval(2e-4)
        self.average = [p.detach().clone() for p in self.parameters]
        self.optimizer = torch.optim.AdamW(self.parameters, lr=LR, betas=(0.9, 0.99), weight_decay=0.01)
        self.latents, captions = load_latents(self.pipeline.vae, work)
        is_sign = np.array(['"' in caption for caption in captions])
        self.sign_indices, self.other_indices = np.flatnonzero(is_sign), np.flatnonzero(~is_sign)
        tokens = self.pipeline.tokenizer(
            captions, padding="max_length", max_length=MAX_TOKENS, truncation=True, return_tensors="pt"
        )
        self.token_ids = tokens.input_ids

    def attach(self, pipeline: StableDiffusion3Pipeline, work: Path) -> None:
        """Take a pipeline with the trained autoencoder, and what of it is trained here."""
        self.pipeline = pipeline
        self.pipeline.register_modules(vae=AutoencoderKL.from_pretrained(work / "vae").eval())
        self.modules = nn.ModuleList([pipeline.transformer, pipeline.text_encoder, pipeline.text_encoder_2])
        self.parameters = [p for p in self.modules.parameters() if p.requires_grad]

    def step(self, index: int, rng: np.random.Generator) -> float:
        picked = torch.from_numpy(self._pick(index, rng))
        x0 = self.latents[picked]
        noise = torch.randn_like(x0)
        sigma = torch.sigmoid(torch.randn(BATCH))
        shift = self.pipeline.scheduler.config.shift
        sigma = shift * sigma / (1 + (shift - 1) * sigma)
        parts = zip(*(tensor.chunk(PARTS) for tensor in (x0, noise, sigma, self.token_ids[picked])), strict=True)
        results = list(self.workers.map(lambda part: self._gradients(*part), parts))
        for parameter, *gradients in zip(self.parameters, *(found for _, found in results), strict=True):
            parameter.grad = torch.stack(gradients).mean(0)
        torch.nn.utils.clip_grad_norm_(self.parameters, 1.0)
        set_lr(self.optimizer, LR * warmup_cosine(index, self.steps, warmup=200))
        self.optimizer.step()
        self._follow(index)
        return float(np.mean([loss for loss, _ in results]))

    def _pick(self, index: int, rng: np.random.Generator) -> NDArray[np.int64]:
        """Pictures of a batch [BATCH]: all alike at first, then mostly signs."""
        share = next((share for start, share in SIGN_SHARES if index >= start), None)
        if share is None:
            return rng.integers(len(self.latents), size=BATCH)
        signs = rng.random(BATCH) < share
        return np.where(signs, rng.choice(self.sign_indices, BATCH), rng.choice(self.other_indices, BATCH))

    def _gradients(
        self, x0: torch.Tensor, noise: torch.Tensor, sigma: torch.Tensor, token_ids: torch.Tensor
    ) -> tuple[float, tuple[torch.Tensor, ...]]:
        """Loss and gradients of a part of the batch; touches no shared state, so that parts can run side by side."""
        blend = sigma.view(-1, 1, 1, 1)
        text, pooled = encode_text(self.pipeline, token_ids)
        velocity = self.pipeline.transformer(
            hidden_states=(1 - blend) * x0 + blend * noise,
            timestep=sigma * 1000,
            encoder_hidden_states=text,
            pooled_projections=pooled,
        ).sample
        loss = (velocity - (noise - x0)).pow(2).mean()
        # The text encoders' last layers do not reach the transformer; their gradient is none.
        gradients = torch.autograd.grad(loss, self.parameters, allow_unused=True, materialize_grads=True)
        return loss.item(), gradients

    def _follow(self, index: int) -> None:
        decay = min(EMA_DECAY, (1 + index) / (10 + index))
        torch._foreach_lerp_(self.average, [p.detach() for p in self.parameters], 1 - decay)

    def state(self) -> dict[str, Any]:
        return {
            "modules": self.modules.state_dict(),
            "average": self.average,
            "optimizer": self.optimizer.state_dict(),
        }

    def load(self, state: dict[str, Any]) -> None:
        self.modules.load_state_dict(state["modules"])
        copy_into(self.average, state["average"])
        self.optimizer.load_state_dict(state["optimizer"])

    def load_average(self, state: dict[str, Any]) -> None:
        """Restore the averaged weights alone."""
        self.average = state["average"]

    def use_average(self) -> StableDiffusion3Pipeline:
        """The pipeline with averaged weights, in eval mode; training cannot go on after this."""
        copy_into((p.data for p in self.parameters), self.average)
        self.modules.eval()
        return self.pipeline

    def finish(self) -> None:
        save_pipeline(self.use_average(), WEIGHTS / "pipeline")


def start_as_identity(transformer: SD3Transformer2DModel) -> None:
    """Zero every modulation and the output layer, so that each block begins as the identity (DiT, arXiv 2212.09748)."""
    zeroed = [transformer.proj_out, transformer.norm_out.linear]
    for block in transformer.transformer_blocks:
        zeroed += [block.norm1.linear, block.norm1_context.linear]
    for layer in zeroed:
        nn.init.zeros_(layer.weight)
        nn.init.zeros_(layer.bias)


def encode_text(pipeline: StableDiffusion3Pipeline, token_ids: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Text of N captions (ids [N, 16]) with gradients, as ``encode_prompt`` gives it with max_sequence_length 0.

    Returns:
        Token embeddings [N, 16, sum of widths] (last but one hidden states, side by side) and pooled embeddings.
    """
    first = pipeline.text_encoder(token_ids, output_hidden_states=True)
    second = pipeline.text_encoder_2(token_ids, output_hidden_states=True)
    text = torch.cat([first.hidden_states[-2], second.hidden_states[-2]], dim=-1)
    return text, torch.cat([first[0], second[0]], dim=-1)


@torch.no_grad()
def load_latents(vae: AutoencoderKL, work: Path) -> tuple[torch.Tensor, list[str]]:
    """Scaled latents [pool size, 16, 8, 8] and captions of the pool; encoded when not cached."""
    images, captions = load_pool(FLOW_POOL, work)
    path = work / f"latents-{FLOW_POOL.seed}-{FLOW_POOL.size}.pt"
    # Scaling and shift name the autoencoder: a retrained one must not meet old latents.
    key = [vae.config.scaling_factor, vae.config.shift_factor]
    if path.exists():
        cached = torch.load(path, weights_only=True)
        if cached["key"] == key:
            return cached["latents"].float(), captions
    parts = []
    for at in range(0, len(images), ENCODE_BATCH):
        mean = vae.encode(to_pixels(images[at : at + ENCODE_BATCH])).latent_dist.mean
        parts.append(((mean - vae.config.shift_factor) * vae.config.scaling_factor).half())
    latents = torch.cat(parts)
    torch.save({"key": key, "latents": latents}, path)
    return latents.float(), captions


def copy_into(targets: Iterable[torch.Tensor], sources: Iterable[torch.Tensor]) -> None:
    """Copy tensors one by one, in place."""
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
