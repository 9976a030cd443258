"""A randomly weighted SD3 transformer with adapters, of the sizes that benchmarks step."""

from dataclasses import dataclass

import torch
from diffusers import FlowMatchEulerDiscreteScheduler, SD3Transformer2DModel, StableDiffusion3Pipeline

from learner import adapters
from learner.config import LoraConfig, PolicyConfig
from learner.policy import Policy

SEED = 0


@dataclass(frozen=True)
class Size:
    """A model, and a step of it."""

    layers: int
    heads: int
    dual: tuple[int, ...]
    latents: int
    tokens: int
    text_widths: tuple[int, int]
    """Of the tokens, and pooled."""
    lora: int
    dtype: str
    num_samples: int
    timesteps: int
    micro_batch: int

    @property
    def num_cells(self) -> int:
        """N·T."""
        return self.num_samples * self.timesteps


CPU = Size(6, 6, (0, 1, 2), 32, 77, (768, 768), 16, "float32", num_samples=8, timesteps=2, micro_batch=4)
SD35_MEDIUM = Size(
    24, 24, tuple(range(13)), 64, 205, (4096, 2048), 32, "bfloat16", num_samples=18, timesteps=2, micro_batch=9
)


def random_policy(size: Size, device: str) -> Policy:
    """Adapters `default` and `old` with weights of their own on a random base."""
    torch.manual_seed(SEED)
    width = size.heads * 64
    with torch.device(device):
        torch.set_default_dtype(getattr(torch, size.dtype))
        transformer = SD3Transformer2DModel(
            sample_size=size.latents,
            num_layers=size.layers,
            num_attention_heads=size.heads,
            joint_attention_dim=size.text_widths[0],
            caption_projection_dim=width,
            pooled_projection_dim=size.text_widths[1],
            pos_embed_max_size=size.latents,
            dual_attention_layers=size.dual,
            qk_norm="rms_norm",
        ).eval()
        torch.set_default_dtype(torch.float32)
    absent = ("vae", "text_encoder", "tokenizer", "text_encoder_2", "tokenizer_2", "text_encoder_3", "tokenizer_3")
    scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    pipeline = StableDiffusion3Pipeline(transformer=transformer, scheduler=scheduler, **dict.fromkeys(absent))
    lora = LoraConfig(rank=size.lora, alpha=2 * size.lora)
    config = PolicyConfig(base="random", dtype=size.dtype, resolution=8 * size.latents, lora=lora)
    policy = Policy(pipeline, config, device)
    adapters.attach(policy.transformer, lora, ("default", "old"), SEED)
    for name in ("default", "old"):
        for parameter in adapters.parameters(policy.transformer, name).values():
            torch.nn.init.normal_(parameter, std=0.02)
    return policy
