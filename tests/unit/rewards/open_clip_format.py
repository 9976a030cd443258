"""open_clip's ViT from its published source: a small random checkpoint, and the forward pass on its raw tensors.

Written without transformers and without rewards/: conv1, class token, ln_pre, blocks x + attn(ln_1 x), x + mlp(ln_2 x)
with one in_proj for query, key and value and exact GELU (ViT-H-14 has no QuickGELU), ln_post, proj; the text tower with
a causal mask, ln_final, pooled at the highest token id. All in float64.
"""

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, layer_norm

from tests.unit.rewards.tiny_clip import MAX_TOKENS, MEAN, SIDE, STD, save_preprocessor, tiny_tokenizer

VISION_WIDTH, VISION_HEADS, VISION_LAYERS = 48, 3, 3
TEXT_WIDTH, TEXT_HEADS, TEXT_LAYERS = 32, 2, 2
EMBED, PATCH, LOGIT_SCALE = 16, 8, 50.0
FILE = "HPS_v2.1_compressed.pt"

__all__ = ["FILE", "MEAN", "SIDE", "STD", "cosine", "save_checkpoint", "save_processor", "state_dict"]


def state_dict(seed: int) -> dict[str, Tensor]:
    """Random tensors under the published keys, fp32."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, scale: float = 0.15, around: float = 0.0) -> Tensor:
        return around + scale * torch.randn(*shape, generator=generator)

    def blocks(prefix: str, width: int, layers: int) -> dict[str, Tensor]:
        made = {}
        for i in range(layers):
            at = f"{prefix}transformer.resblocks.{i}."
            for norm in ("ln_1", "ln_2"):
                made[f"{at}{norm}.weight"], made[f"{at}{norm}.bias"] = draw(width, around=1.0), draw(width)
            made[f"{at}attn.in_proj_weight"], made[f"{at}attn.in_proj_bias"] = draw(3 * width, width), draw(3 * width)
            made[f"{at}attn.out_proj.weight"], made[f"{at}attn.out_proj.bias"] = draw(width, width), draw(width)
            made[f"{at}mlp.c_fc.weight"], made[f"{at}mlp.c_fc.bias"] = draw(4 * width, width), draw(4 * width)
            made[f"{at}mlp.c_proj.weight"], made[f"{at}mlp.c_proj.bias"] = draw(width, 4 * width), draw(width)
        return made

    positions = (SIDE // PATCH) ** 2 + 1
    return {
        "positional_embedding": draw(MAX_TOKENS, TEXT_WIDTH),
        "text_projection": draw(TEXT_WIDTH, EMBED),
        "logit_scale": torch.tensor(math.log(LOGIT_SCALE)),
        "visual.class_embedding": draw(VISION_WIDTH),
        "visual.positional_embedding": draw(positions, VISION_WIDTH),
        "visual.proj": draw(VISION_WIDTH, EMBED),
        "visual.conv1.weight": draw(VISION_WIDTH, 3, PATCH, PATCH),
        "visual.ln_pre.weight": draw(VISION_WIDTH, around=1.0),
        "visual.ln_pre.bias": draw(VISION_WIDTH),
        **blocks("visual.", VISION_WIDTH, VISION_LAYERS),
        "visual.ln_post.weight": draw(VISION_WIDTH, around=1.0),
        "visual.ln_post.bias": draw(VISION_WIDTH),
        **blocks("", TEXT_WIDTH, TEXT_LAYERS),
        "token_embedding.weight": draw(len(tiny_tokenizer()), TEXT_WIDTH),
        "ln_final.weight": draw(TEXT_WIDTH, around=1.0),
        "ln_final.bias": draw(TEXT_WIDTH),
    }


def save_checkpoint(path: Path, tensors: dict[str, Any]) -> Path:
    """As published: a dictionary with the state_dict in it."""
    torch.save({"state_dict": tensors}, path)
    return path


def save_processor(folder: Path) -> Path:
    """What laion publishes beside the base model: configuration, tokenizer and preprocessing; no weights."""
    from transformers import CLIPConfig

    tokenizer = tiny_tokenizer()
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    shared = {"hidden_act": "gelu", "projection_dim": EMBED}
    text = {"hidden_size": TEXT_WIDTH, "intermediate_size": 4 * TEXT_WIDTH, "num_hidden_layers": TEXT_LAYERS}
    vision = {"hidden_size": VISION_WIDTH, "intermediate_size": 4 * VISION_WIDTH, "num_hidden_layers": VISION_LAYERS}
    CLIPConfig(
        text_config=shared
        | text
        | ids
        | {"num_attention_heads": TEXT_HEADS, "vocab_size": len(tokenizer), "max_position_embeddings": MAX_TOKENS},
        vision_config=shared | vision | {"num_attention_heads": VISION_HEADS, "image_size": SIDE, "patch_size": PATCH},
        projection_dim=EMBED,
    ).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_preprocessor(folder)
    return folder


def cosine(tensors: dict[str, Tensor], pixels_CHW: Tensor, ids: list[int]) -> float:
    """What the published code calls the score: the two normalised features multiplied."""
    image, text = encode_image(tensors, pixels_CHW), encode_text(tensors, ids)
    return float((image / image.norm()) @ (text / text.norm()))


def encode_image(tensors: dict[str, Tensor], pixels_CHW: Tensor) -> Tensor:
    """[EMBED] of one prepared image."""
    t = {key.removeprefix("visual."): value.double() for key, value in tensors.items() if key.startswith("visual.")}
    patches = conv2d(pixels_CHW.double()[None], t["conv1.weight"], stride=PATCH)[0].flatten(1).T
    x = torch.cat([t["class_embedding"][None], patches]) + t["positional_embedding"]
    x = _norm(x, t, "ln_pre")
    for i in range(VISION_LAYERS):
        x = _block(x, t, f"transformer.resblocks.{i}.", VISION_HEADS, causal=False)
    return _norm(x[0], t, "ln_post") @ t["proj"]


def encode_text(tensors: dict[str, Tensor], ids: list[int]) -> Tensor:
    """[EMBED] of one text."""
    t = {key: value.double() for key, value in tensors.items() if not key.startswith("visual.")}
    padded = ids + [0] * (MAX_TOKENS - len(ids))
    x = t["token_embedding.weight"][padded] + t["positional_embedding"]
    for i in range(TEXT_LAYERS):
        x = _block(x, t, f"transformer.resblocks.{i}.", TEXT_HEADS, causal=True)
    return _norm(x, t, "ln_final")[int(torch.tensor(padded).argmax())] @ t["text_projection"]


def _block(x: Tensor, t: dict[str, Tensor], at: str, heads: int, causal: bool) -> Tensor:
    y = _norm(x, t, f"{at}ln_1")
    fused = y @ t[f"{at}attn.in_proj_weight"].T + t[f"{at}attn.in_proj_bias"]
    width = x.shape[1]
    q, k, v = (fused[:, i * width : (i + 1) * width].unflatten(1, (heads, -1)).transpose(0, 1) for i in range(3))
    weights = q @ k.transpose(1, 2) / math.sqrt(width / heads)
    if causal:
        weights = weights + torch.full(weights.shape[1:], -math.inf, dtype=x.dtype).triu(1)
    attended = (weights.softmax(dim=-1) @ v).transpose(0, 1).flatten(1)
    x = x + attended @ t[f"{at}attn.out_proj.weight"].T + t[f"{at}attn.out_proj.bias"]
    y = gelu(_norm(x, t, f"{at}ln_2") @ t[f"{at}mlp.c_fc.weight"].T + t[f"{at}mlp.c_fc.bias"])
    return x + y @ t[f"{at}mlp.c_proj.weight"].T + t[f"{at}mlp.c_proj.bias"]


def _norm(x: Tensor, t: dict[str, Tensor], name: str) -> Tensor:
    return layer_norm(x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], eps=1e-5)
