"""The tiny pipeline and the tiny CLIP scorers: real classes, small configurations, random weights; and saving them.

``StableDiffusion3Pipeline`` with the parts of SD3.5 Medium: rms qk-norm, dual attention in the first blocks, a
16-channel 8x VAE, two CLIP text encoders and no T5. Weights are stored as fp16.
"""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Final

import torch
from diffusers import (
    AutoencoderKL,
    FlowMatchEulerDiscreteScheduler,
    SD3Transformer2DModel,
    StableDiffusion3Pipeline,
)
from transformers import (
    CLIPConfig,
    CLIPImageProcessor,
    CLIPModel,
    CLIPTextConfig,
    CLIPTextModelWithProjection,
    CLIPTokenizer,
    CLIPVisionConfig,
)

from tinyworld.scene import SIZE
from tinyworld.tokenizer import MAX_TOKENS, build_tokenizer

WEIGHTS: Final = Path(__file__).parent / "weights"
"""Where the shipped weights lie: ``pipeline/``, ``clipscore/``, ``pickscore/``, ``hpsv2/``."""
SCORERS: Final = ("clipscore", "pickscore", "hpsv2")
TEXT_WIDTHS: Final = (128, 96)
TEXT_LAYERS: Final = (3, 4)
PROJECTION: Final = 128
"""Width of pooled text embeddings and of the scorers' shared space."""


def build_text_config(tokenizer: CLIPTokenizer, width: int, layers: int) -> CLIPTextConfig:
    """Configuration of a small CLIP text model for a tokenizer."""
    return CLIPTextConfig(
        vocab_size=len(tokenizer),
        hidden_size=width,
        intermediate_size=3 * width,
        projection_dim=PROJECTION,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=MAX_TOKENS,
        hidden_act="gelu",
        bos_token_id=tokenizer.bos_token_id,
        # The pooled token is the first one with this id, so it must be the tokenizer's own.
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )


def build_vae() -> AutoencoderKL:
    """Autoencoder from 64x64 RGB to 8x8x16 latents; scaling and shift are set after training."""
    channels = (8, 16, 32, 64)
    return AutoencoderKL(
        down_block_types=("DownEncoderBlock2D",) * len(channels),
        up_block_types=("UpDecoderBlock2D",) * len(channels),
        block_out_channels=channels,
        layers_per_block=1,
        latent_channels=16,
        # Few channels a group: with one channel a group, normalisation would wipe out flat colours.
        norm_num_groups=2,
        sample_size=SIZE,
        scaling_factor=1.0,
        shift_factor=0.0,
        use_quant_conv=False,
        use_post_quant_conv=False,
    )


def build_transformer() -> SD3Transformer2DModel:
    """Denoiser with 16 image tokens and 16 text tokens."""
    return SD3Transformer2DModel(
        sample_size=SIZE // 8,
        patch_size=2,
        in_channels=16,
        out_channels=16,
        num_layers=6,
        attention_head_dim=32,
        num_attention_heads=6,
        joint_attention_dim=sum(TEXT_WIDTHS),
        caption_projection_dim=192,
        pooled_projection_dim=2 * PROJECTION,
        pos_embed_max_size=8,
        dual_attention_layers=(0, 1, 2),
        qk_norm="rms_norm",
    )


def build_pipeline(seed: int) -> StableDiffusion3Pipeline:
    """Whole tiny pipeline with random weights (fp32, CPU), the same for the same seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        tokenizer = build_tokenizer()
        encoders = [
            CLIPTextModelWithProjection(build_text_config(tokenizer, width, layers))
            for width, layers in zip(TEXT_WIDTHS, TEXT_LAYERS, strict=True)
        ]
        pipeline = StableDiffusion3Pipeline(
            transformer=build_transformer(),
            scheduler=FlowMatchEulerDiscreteScheduler(num_train_timesteps=1000, shift=3.0),
            vae=build_vae(),
            text_encoder=encoders[0],
            tokenizer=tokenizer,
            text_encoder_2=encoders[1],
            tokenizer_2=build_tokenizer(),
            text_encoder_3=None,
            tokenizer_3=None,
        )
    for part in (pipeline.transformer, pipeline.vae, pipeline.text_encoder, pipeline.text_encoder_2):
        part.eval()
    return pipeline


def build_clip(seed: int) -> CLIPModel:
    """CLIP scorer with random weights (fp32): 64x64 images in 8x8 patches, 16 text positions."""
    vision = CLIPVisionConfig(
        hidden_size=128,
        intermediate_size=384,
        projection_dim=PROJECTION,
        num_hidden_layers=4,
        num_attention_heads=4,
        image_size=SIZE,
        patch_size=8,
        hidden_act="gelu",
    )
    text = build_text_config(build_tokenizer(), 128, 3)
    config = CLIPConfig(text_config=text.to_dict(), vision_config=vision.to_dict(), projection_dim=PROJECTION)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = CLIPModel(config)
    return model.eval()


def image_processor() -> CLIPImageProcessor:
    """CLIP's preprocessing for 64x64 images."""
    return CLIPImageProcessor(size={"shortest_edge": SIZE}, crop_size={"height": SIZE, "width": SIZE})


def load_pipeline(folder: Path) -> StableDiffusion3Pipeline:
    """Load a saved pipeline as fp32. A folder without T5 loads only when told so."""
    return StableDiffusion3Pipeline.from_pretrained(folder, text_encoder_3=None, tokenizer_3=None, dtype=torch.float32)


def save_pipeline(pipeline: StableDiffusion3Pipeline, folder: Path) -> None:
    """Save as fp16; the caller's pipeline is left in fp16 too. The folder is replaced as a whole."""
    pipeline.to(dtype=torch.float16)

    def write(target: Path) -> None:
        pipeline.save_pretrained(target, safe_serialization=True)
        for path in target.glob("*/config.json"):
            _forget_origin(path)

    replace_folder(folder, write)


def _forget_origin(path: Path) -> None:
    """Drop the folder that a part was loaded from, which diffusers writes into its configuration."""
    config = json.loads(path.read_text(encoding="utf-8"))
    if config.pop("_name_or_path", None) is not None:
        path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def save_clip(model: CLIPModel, folder: Path, beside: Callable[[Path], None] = lambda _: None) -> None:
    """Save a scorer as fp16 with tokenizer and preprocessing; the caller's model is left in fp16.

    Args:
        beside: writes whatever else belongs into the folder.
    """

    def write(target: Path) -> None:
        model.half().save_pretrained(target)
        build_tokenizer().save_pretrained(target)
        image_processor().save_pretrained(target)
        beside(target)

    replace_folder(folder, write)


def replace_folder(folder: Path, write: Callable[[Path], None]) -> None:
    """Write a folder beside the old one and put it in its place, so that readers never see half of it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    fresh, stale = folder.with_name(folder.name + ".new"), folder.with_name(folder.name + ".old")
    for leftover in (fresh, stale):
        shutil.rmtree(leftover, ignore_errors=True)
    write(fresh)
    if folder.exists():
        folder.rename(stale)
    fresh.rename(folder)
    shutil.rmtree(stale, ignore_errors=True)
