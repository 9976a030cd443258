"""open_clip's checkpoint format of a CLIP vision transformer, converted to the transformers class.

The same network under other names: query, key and value are one matrix, and both projections are stored transposed.
Configuration is not in the file; it comes from a transformers folder of the same architecture.
"""

import re
from pathlib import Path
from typing import Any

import torch

from rewards.converted import Source, build_whole, convert, read_pickle, wanted_by

_WHOLE = {
    "logit_scale": "logit_scale",
    "text_model.embeddings.token_embedding.weight": "token_embedding.weight",
    "text_model.embeddings.position_embedding.weight": "positional_embedding",
    "text_model.final_layer_norm.weight": "ln_final.weight",
    "text_model.final_layer_norm.bias": "ln_final.bias",
    "vision_model.embeddings.class_embedding": "visual.class_embedding",
    "vision_model.embeddings.patch_embedding.weight": "visual.conv1.weight",
    "vision_model.embeddings.position_embedding.weight": "visual.positional_embedding",
    # The class itself spells it like this.
    "vision_model.pre_layrnorm.weight": "visual.ln_pre.weight",
    "vision_model.pre_layrnorm.bias": "visual.ln_pre.bias",
    "vision_model.post_layernorm.weight": "visual.ln_post.weight",
    "vision_model.post_layernorm.bias": "visual.ln_post.bias",
}
_TRANSPOSED = {"text_projection.weight": "text_projection", "visual_projection.weight": "visual.proj"}
_IN_LAYER = {
    "layer_norm1": "ln_1",
    "layer_norm2": "ln_2",
    "self_attn.out_proj": "attn.out_proj",
    "mlp.fc1": "mlp.c_fc",
    "mlp.fc2": "mlp.c_proj",
}
_PREFIX = {"text": "", "vision": "visual."}
_LAYER = re.compile(r"^(text|vision)_model\.encoder\.layers\.(\d+)\.([\w.]+)\.(weight|bias)$")
_FUSED = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")


def source_of(name: str) -> Source:
    """Which tensor of an open_clip checkpoint holds that of transformers' CLIPModel.

    Raises:
        KeyError: no such name is known.
    """
    if name in _WHOLE:
        return Source(_WHOLE[name])
    if name in _TRANSPOSED:
        return Source(_TRANSPOSED[name], lambda stored: stored.transpose(0, 1).contiguous())
    match = _LAYER.match(name)
    if match is None:
        raise KeyError(f"open_clip's format has no place for {name}")
    tower, number, module, leaf = match.groups()
    block = f"{_PREFIX[tower]}transformer.resblocks.{number}"
    if module not in _FUSED:
        return Source(f"{block}.{_IN_LAYER[module]}.{leaf}")
    third = _FUSED.index(module)
    return Source(f"{block}.attn.in_proj_{leaf}", lambda stored: stored.chunk(3)[third].clone())


def load_open_clip(path: Path, config_folder: Path, dtype: torch.dtype) -> Any:
    """transformers' CLIPModel with every tensor of an open_clip file `{"state_dict": ...}` in it.

    Args:
        path: the file.
        config_folder: holds config.json of the same architecture in the transformers format.
        dtype: torch dtype to load in.

    Raises:
        ValueError: either cannot be read, or the tensors do not fit the architecture; names the keys.
    """
    from transformers import CLIPConfig, CLIPModel

    stored = read_pickle(path).get("state_dict")
    if not isinstance(stored, dict):
        raise ValueError(f"{path} has no state_dict, so it is no open_clip checkpoint")
    try:
        config = CLIPConfig.from_pretrained(config_folder, local_files_only=True)
    # It checks its own fields, with errors of its own types.
    except Exception as error:
        raise ValueError(f"cannot read a CLIP configuration from {config_folder}: {error}") from error
    tensors = convert(stored, wanted_by(lambda: CLIPModel(config), config_folder), source_of, path)
    return build_whole(CLIPModel, config, tensors, dtype)
