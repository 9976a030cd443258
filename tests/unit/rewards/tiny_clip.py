"""A random CLIP checkpoint in the published format (same files, same keys), small enough to load in a moment."""

import json
import math
from pathlib import Path

import torch
from transformers import CLIPConfig, CLIPModel, CLIPTokenizer
from transformers.convert_slow_tokenizer import bytes_to_unicode

SIDE = 32
MAX_TOKENS = 12
LOGIT_SCALE = 50.0
EMBED = 16
MEAN = [0.5, 0.4, 0.3]
STD = [0.2, 0.25, 0.3]


def save_tiny_clip(folder: Path, seed: int, **preprocessor: object) -> Path:
    """Save model (fp16), tokenizer and preprocessing; `preprocessor` overrides keys of the latter."""
    tokenizer = tiny_tokenizer()
    _model(tokenizer, seed).half().save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_preprocessor(folder, **preprocessor)
    return folder


def save_preprocessor(folder: Path, **changes: object) -> None:
    """preprocessor_config.json as CLIP publishes it."""
    config = {
        "crop_size": {"height": SIDE, "width": SIDE},
        "do_center_crop": True,
        "do_normalize": True,
        "do_resize": True,
        "image_mean": MEAN,
        "image_std": STD,
        "resample": 3,
        "size": {"shortest_edge": SIDE},
    }
    (folder / "preprocessor_config.json").write_text(json.dumps(config | changes), encoding="utf-8")


def tiny_tokenizer() -> CLIPTokenizer:
    """One token a byte, with and without an end of word, and the two special ones."""
    characters = sorted(bytes_to_unicode().values())
    tokens = [*characters, *(c + "</w>" for c in characters), "<|startoftext|>", "<|endoftext|>"]
    return CLIPTokenizer(vocab={t: i for i, t in enumerate(tokens)}, merges=[], model_max_length=MAX_TOKENS)


def _model(tokenizer: CLIPTokenizer, seed: int) -> CLIPModel:
    tower = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 2}
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    text = tower | ids | {"vocab_size": len(tokenizer), "max_position_embeddings": MAX_TOKENS}
    vision = tower | {"image_size": SIDE, "patch_size": 8}
    torch.manual_seed(seed)
    model = CLIPModel(CLIPConfig(text_config=text, vision_config=vision, projection_dim=EMBED))
    with torch.no_grad():
        # The stock initialisation is so small that every image gets nearly the same embedding.
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
        model.logit_scale.fill_(math.log(LOGIT_SCALE))
    return model.eval()
