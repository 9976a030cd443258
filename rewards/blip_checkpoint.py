"""ImageReward's published files, converted to transformers' BLIP classes: a ViT, and a text encoder that looks at it.

ImageReward.pt holds the state of BLIP (`blip.`) and of a head (`mlp.`); med_config.json describes the text encoder. The
ViT's sizes follow from its tensors: BLIP's ViTs have heads of 64.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rewards.converted import Source, build_whole, convert, read_pickle, wanted_by
from rewards.preprocess import Preprocess
from rewards.score_head import ScoreHead, load_head
from rewards.scorer_args import IMAGEREWARD_FILES

WEIGHTS_FILE, CONFIG_FILE = IMAGEREWARD_FILES

_VISION = "blip.visual_encoder."
_TEXT = "blip.text_encoder."
_HEAD = "mlp."
_HEAD_WIDTH = 64
"""Of an attention head in both of BLIP's ViTs (768 / 12 and 1024 / 16)."""
_VISION_EPS = 1e-6
"""Of the ViT's layer norms; the text encoder's is in its configuration."""
_UNUSED = re.compile(r"^blip\.(vision_proj|text_proj)\.(weight|bias)$|\.position_ids$")
"""BLIP's projections for contrastive training play no part in the score; the range 0, 1, 2, ... is made anew."""

_VISION_NAMES = {
    "embeddings.class_embedding": "cls_token",
    "embeddings.position_embedding": "pos_embed",
    "embeddings.patch_embedding.weight": "patch_embed.proj.weight",
    "embeddings.patch_embedding.bias": "patch_embed.proj.bias",
    "post_layernorm.weight": "norm.weight",
    "post_layernorm.bias": "norm.bias",
}
_VISION_LAYER = re.compile(r"^encoder\.layers\.(\d+)\.([\w.]+)\.(weight|bias)$")
_IN_VISION_LAYER = {
    "layer_norm1": "norm1",
    "layer_norm2": "norm2",
    "self_attn.qkv": "attn.qkv",
    "self_attn.projection": "attn.proj",
    "mlp.fc1": "mlp.fc1",
    "mlp.fc2": "mlp.fc2",
}


@dataclass(frozen=True)
class BlipCheckpoint:
    """What ImageReward is made of, in eval mode on the CPU."""

    vision: Any
    """transformers BlipVisionModel."""
    text: Any
    """transformers BlipTextModel with cross-attention to the ViT's output."""
    head: ScoreHead
    preprocess: Preprocess


def load_blip(folder: Path, dtype: torch.dtype) -> BlipCheckpoint:
    """The two files of a folder.

    Raises:
        ValueError: a file is missing or cannot be read, or tensors do not fit; names the keys.
    """
    from transformers import BlipTextModel, BlipVisionModel

    path = folder / WEIGHTS_FILE
    stored = read_pickle(path)
    _check_prefixes(stored, path)
    vision_config, text_config = _configs(stored, folder / CONFIG_FILE, path)
    vision = _of(stored, _VISION, wanted_by(lambda: BlipVisionModel(vision_config), path), _vision_source, path)
    text_wanted = wanted_by(lambda: BlipTextModel(text_config, add_pooling_layer=False), folder / CONFIG_FILE)
    text = _of(stored, _TEXT, text_wanted, lambda name: Source(_TEXT + name), path)
    side = int(vision_config.image_size)
    return BlipCheckpoint(
        build_whole(BlipVisionModel, vision_config, vision, dtype),
        build_whole(BlipTextModel, text_config, text, dtype, add_pooling_layer=False),
        load_head(stored, int(text_config.hidden_size), path, _HEAD),
        # CLIP's pipeline and constants, through torchvision.
        Preprocess("crop", side, side, cut="nearest"),
    )


def _check_prefixes(stored: Mapping[str, Any], path: Path) -> None:
    foreign = [key for key in stored if not key.startswith((_VISION, _TEXT, _HEAD)) and not _UNUSED.search(key)]
    if foreign:
        raise ValueError(f"{path} does not fit: {len(foreign)} unexpected ({', '.join(sorted(foreign)[:3])})")


def _of(
    stored: Mapping[str, Any], prefix: str, wanted: Mapping[str, Tensor], source_of: Any, path: Path
) -> dict[str, Tensor]:
    part = {key: value for key, value in stored.items() if key.startswith(prefix)}
    return convert(part, wanted, source_of, path, _UNUSED)


def _vision_source(name: str) -> Source:
    """Which tensor of the file holds that of transformers' BlipVisionModel."""
    if name in _VISION_NAMES:
        return Source(_VISION + _VISION_NAMES[name])
    match = _VISION_LAYER.match(name)
    if match is None:
        raise KeyError(f"BLIP's ViT has no place for {name}")
    number, module, leaf = match.groups()
    return Source(f"{_VISION}blocks.{number}.{_IN_VISION_LAYER[module]}.{leaf}")


def _configs(stored: Mapping[str, Any], config_path: Path, path: Path) -> tuple[Any, Any]:
    from transformers import BlipTextConfig, BlipVisionConfig

    patches = _shape(stored, f"{_VISION}patch_embed.proj.weight", 4, path)
    positions = _shape(stored, f"{_VISION}pos_embed", 3, path)
    width, patch = patches[0], patches[2]
    blocks = {key.split(".")[3] for key in stored if key.startswith(f"{_VISION}blocks.")}
    vision = BlipVisionConfig(
        hidden_size=width,
        intermediate_size=_shape(stored, f"{_VISION}blocks.0.mlp.fc1.weight", 2, path)[0],
        num_hidden_layers=len(blocks),
        num_attention_heads=max(1, width // _HEAD_WIDTH),
        image_size=round((positions[1] - 1) ** 0.5) * patch,
        patch_size=patch,
        layer_norm_eps=_VISION_EPS,
    )
    try:
        text = BlipTextConfig(**_text_options(config_path), encoder_hidden_size=width, is_decoder=True)
    # It checks its own fields, with errors of its own types.
    except Exception as error:
        raise ValueError(f"cannot read a text encoder's configuration from {config_path}: {error!r}") from error
    return vision, text


_TEXT_OPTIONS = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "max_position_embeddings",
    "hidden_act",
    "layer_norm_eps",
)


def _text_options(path: Path) -> dict[str, Any]:
    """What med_config.json says of the text encoder; the rest of it concerns training, or is overruled by the code."""
    config = json.loads(path.read_text(encoding="utf-8"))
    return {name: config[name] for name in _TEXT_OPTIONS}


def _shape(stored: Mapping[str, Any], key: str, num_axes: int, path: Path) -> list[int]:
    tensor = stored.get(key)
    if not isinstance(tensor, Tensor) or tensor.ndim != num_axes:
        got = "missing" if tensor is None else f"of shape {list(getattr(tensor, 'shape', []))}"
        raise ValueError(f"{path} does not fit: {key} is {got}, wanted are {num_axes} axes")
    return list(tensor.shape)
