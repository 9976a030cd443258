"""A Stable Diffusion 3 pipeline with random weights, small enough for unit tests of any room.

Real classes in diffusers' folder format, without T5: 32x32 pixels, 16x4x4 latents, 4 image tokens and 8 text tokens.
"""

from pathlib import Path

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from transformers import CLIPTextConfig, CLIPTextModelWithProjection, CLIPTokenizer

RESOLUTION = 32
LATENT_SHAPE = (16, 4, 4)
MAX_TOKENS = 8
TEXT_WIDTHS = (16, 8)


def tokenizer() -> CLIPTokenizer:
    """One token per character."""
    characters = [chr(c) for c in range(33, 127)]
    tokens = [*characters, *(c + "</w>" for c in characters), "<|startoftext|>", "<|endoftext|>"]
    vocab = {token: index for index, token in enumerate(tokens)}
    return CLIPTokenizer(vocab=vocab, merges=[], model_max_length=MAX_TOKENS)


def text_encoder(width: int) -> CLIPTextModelWithProjection:
    words = tokenizer()
    return CLIPTextModelWithProjection(
        CLIPTextConfig(
            vocab_size=len(words),
            hidden_size=width,
            intermediate_size=2 * width,
            projection_dim=width,
            num_hidden_layers=2,
            num_attention_heads=2,
            max_position_embeddings=MAX_TOKENS,
            bos_token_id=words.bos_token_id,
            eos_token_id=words.eos_token_id,
            pad_token_id=words.pad_token_id,
        )
    )


def transformer() -> SD3Transformer2DModel:
    """Two joint blocks, the first with dual attention."""
    return SD3Transformer2DModel(
        sample_size=LATENT_SHAPE[-1],
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=2,
        attention_head_dim=8,
        num_attention_heads=2,
        joint_attention_dim=sum(TEXT_WIDTHS),
        caption_projection_dim=16,
        pooled_projection_dim=sum(TEXT_WIDTHS),
        pos_embed_max_size=4,
        dual_attention_layers=(0,),
        qk_norm="rms_norm",
    )


def autoencoder() -> AutoencoderKL:
    channels = (4, 4, 8, 8)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        block_out_channels=channels,
        layers_per_block=1,
        latent_channels=16,
        norm_num_groups=2,
        sample_size=RESOLUTION,
        scaling_factor=1.5,
        shift_factor=0.1,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def tiny_sd3(seed: int = 0) -> StableDiffusion3Pipeline:
    """The pipeline in fp32, the same for the same seed; torch's global generator is left alone."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        pipeline = StableDiffusion3Pipeline(
            transformer=transformer(),
            scheduler=FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0),
            vae=autoencoder(),
            text_encoder=text_encoder(TEXT_WIDTHS[0]),
            tokenizer=tokenizer(),
            text_encoder_2=text_encoder(TEXT_WIDTHS[1]),
            tokenizer_2=tokenizer(),
            text_encoder_3=None,
            tokenizer_3=None,
        )
        _wake(pipeline.transformer)
    for part in (pipeline.transformer, pipeline.vae, pipeline.text_encoder, pipeline.text_encoder_2):
        part.eval()
    return pipeline


def _wake(model: torch.nn.Module) -> None:
    """Random modulation and output layers: a fresh transformer hardly reacts to its blocks, text or adapters."""
    for name, parameter in model.named_parameters():
        if parameter.ndim == 2 and ("norm" in name or "proj_out" in name):
            torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)


def save_tiny_sd3(path: Path, seed: int = 0, dtype: torch.dtype = torch.float16) -> Path:
    """Save in diffusers' format (weights as fp16 by default, like the tiny world's); returns the folder."""
    tiny_sd3(seed).to(dtype=dtype).save_pretrained(path, safe_serialization=True)
    return path
