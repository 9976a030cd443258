"""ImageReward's published files: small random ones, and the forward pass on their raw tensors.

From the published code of ImageReward and of BLIP's ViT and text encoder, without transformers and without rewards/:
the ViT (pre-norm blocks, fused qkv, GELU, eps 1e-6), BERT with a cross-attention after each self-attention (post-norm,
GELU, eps 1e-12), the first token's state through the head. All in float64.
"""

import json
import math
import unicodedata
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import conv2d, gelu, layer_norm

from tests.unit.rewards.head_format import apply_head, head_state

SIDE, PATCH = 32, 8
VISION_WIDTH, VISION_HEADS, VISION_LAYERS = 128, 2, 2
TEXT_WIDTH, TEXT_HEADS, TEXT_LAYERS = 32, 4, 2
MAX_TOKENS = 35
LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{letter}" for letter in LETTERS), "cat", "##s"]
VOCABULARY = list(dict.fromkeys(WORDS))
PAD, UNKNOWN, START, END = 0, 1, 2, 3
VOCAB_SIZE = len(VOCABULARY) + 2
"""BLIP adds [DEC] and [ENC]."""
CLIP_MEAN, CLIP_STD = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)


def state_dict(seed: int) -> dict[str, Tensor]:
    """Random tensors under the published keys, those without use included."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int, scale: float = 0.1, around: float = 0.0) -> Tensor:
        return around + scale * torch.randn(*shape, generator=generator)

    def linear(name: str, after: int, before: int, scale: float = 0.1) -> dict[str, Tensor]:
        return {f"{name}.weight": draw(after, before, scale=scale), f"{name}.bias": draw(after)}

    def norm(name: str, width: int) -> dict[str, Tensor]:
        return {f"{name}.weight": draw(width, around=1.0), f"{name}.bias": draw(width)}

    v, t, w, d = "blip.visual_encoder.", "blip.text_encoder.", VISION_WIDTH, TEXT_WIDTH
    state = {
        f"{v}cls_token": draw(1, 1, w),
        f"{v}pos_embed": draw(1, (SIDE // PATCH) ** 2 + 1, w),
        f"{v}patch_embed.proj.weight": draw(w, 3, PATCH, PATCH),
        f"{v}patch_embed.proj.bias": draw(w),
        **norm(f"{v}norm", w),
        f"{t}embeddings.position_ids": torch.arange(512)[None],
        f"{t}embeddings.word_embeddings.weight": draw(VOCAB_SIZE, d, scale=0.5),
        f"{t}embeddings.position_embeddings.weight": draw(512, d, scale=0.3),
        **norm(f"{t}embeddings.LayerNorm", d),
        **linear("blip.vision_proj", 256, w),
        **linear("blip.text_proj", 256, d),
        **head_state(d, seed + 1, prefix="mlp."),
    }
    for i in range(VISION_LAYERS):
        at = f"{v}blocks.{i}."
        state |= norm(f"{at}norm1", w) | norm(f"{at}norm2", w) | linear(f"{at}attn.qkv", 3 * w, w)
        state |= linear(f"{at}attn.proj", w, w) | linear(f"{at}mlp.fc1", 4 * w, w) | linear(f"{at}mlp.fc2", w, 4 * w)
    for i in range(TEXT_LAYERS):
        at = f"{t}encoder.layer.{i}."
        for name, width in (("attention", d), ("crossattention", w)):
            state |= linear(f"{at}{name}.self.query", d, d, scale=0.3)
            state |= linear(f"{at}{name}.self.key", d, width, scale=0.3)
            state |= linear(f"{at}{name}.self.value", d, width, scale=0.3)
            state |= linear(f"{at}{name}.output.dense", d, d, scale=0.3) | norm(f"{at}{name}.output.LayerNorm", d)
        state |= linear(f"{at}intermediate.dense", 4 * d, d) | linear(f"{at}output.dense", d, 4 * d)
        state |= norm(f"{at}output.LayerNorm", d)
    return state


def save_checkpoint(folder: Path, tensors: dict[str, Any]) -> Path:
    """ImageReward.pt and med_config.json, which says encoder_width 768 whatever the ViT; the code overrules it."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save(tensors, folder / "ImageReward.pt")
    config = {
        "architectures": ["BertModel"],
        "attention_probs_dropout_prob": 0.1,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "hidden_size": TEXT_WIDTH,
        "initializer_range": 0.02,
        "intermediate_size": 4 * TEXT_WIDTH,
        "layer_norm_eps": 1e-12,
        "max_position_embeddings": 512,
        "model_type": "bert",
        "num_attention_heads": TEXT_HEADS,
        "num_hidden_layers": TEXT_LAYERS,
        "pad_token_id": PAD,
        "add_type_embeddings": False,
        "type_vocab_size": 2,
        "vocab_size": VOCAB_SIZE,
        "encoder_width": 768,
        "add_cross_attention": True,
    }
    (folder / "med_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder


def save_tokenizer(folder: Path) -> Path:
    """BERT's files, with a word, a word piece and the letters."""
    from transformers import BertTokenizer

    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    BertTokenizer(vocab=vocabulary, do_lower_case=True, model_max_length=512).save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "bert"}), encoding="utf-8")
    return folder


def ids_of(prompt: str) -> list[int]:
    """[CLS], the longest pieces from the left of each word, [SEP]; cut to 35 and filled up with [PAD]. No accents."""
    bare = "".join(c for c in unicodedata.normalize("NFD", prompt.lower()) if unicodedata.category(c) != "Mn")
    ids = []
    for word in bare.split():
        start, pieces = 0, []
        while start < len(word):
            for end in range(len(word), start, -1):
                piece = ("##" if start else "") + word[start:end]
                if piece in VOCABULARY:
                    pieces.append(VOCABULARY.index(piece))
                    break
            else:
                pieces, end = [UNKNOWN], len(word)
            start = end
        ids += pieces
    ids = [START, *ids[: MAX_TOKENS - 2], END]
    return ids + [PAD] * (MAX_TOKENS - len(ids))


def score(tensors: dict[str, Tensor], pixels_CHW: Tensor, prompt: str) -> float:
    """The head's output on the first token's state, minus the published mean, over the published deviation."""
    hidden = read_with_image(tensors, encode_image(tensors, pixels_CHW), ids_of(prompt))
    raw = float(apply_head(tensors, hidden[0], prefix="mlp."))
    return (raw - 0.16717362830052426) / 1.0333394966054072


def encode_image(tensors: dict[str, Tensor], pixels_CHW: Tensor) -> Tensor:
    """[P, W] of one prepared image, the class token first."""
    prefix = "blip.visual_encoder."
    t = {key.removeprefix(prefix): value.double() for key, value in tensors.items() if key.startswith(prefix)}
    patches = conv2d(pixels_CHW.double()[None], t["patch_embed.proj.weight"], t["patch_embed.proj.bias"], stride=PATCH)
    x = torch.cat([t["cls_token"][0], patches[0].flatten(1).T]) + t["pos_embed"][0]
    for i in range(VISION_LAYERS):
        at = f"blocks.{i}."
        q, k, v = _linear(_norm(x, t, f"{at}norm1", 1e-6), t, f"{at}attn.qkv").chunk(3, dim=1)
        x = x + _linear(_attend(q, k, v, VISION_HEADS), t, f"{at}attn.proj")
        x = x + _linear(gelu(_linear(_norm(x, t, f"{at}norm2", 1e-6), t, f"{at}mlp.fc1")), t, f"{at}mlp.fc2")
    return _norm(x, t, "norm", 1e-6)


def read_with_image(tensors: dict[str, Tensor], image_PW: Tensor, ids: list[int]) -> Tensor:
    """[T, D] of one text, read with one image before the eyes."""
    prefix = "blip.text_encoder."
    t = {key.removeprefix(prefix): value.double() for key, value in tensors.items() if key.startswith(prefix)}
    x = t["embeddings.word_embeddings.weight"][ids] + t["embeddings.position_embeddings.weight"][: len(ids)]
    x = _norm(x, t, "embeddings.LayerNorm", 1e-12)
    mask = torch.tensor([-10000.0 if token == PAD else 0.0 for token in ids]).double()
    for i in range(TEXT_LAYERS):
        at = f"encoder.layer.{i}."
        for name, other, hidden in (("attention", None, mask), ("crossattention", image_PW, None)):
            q = _linear(x, t, f"{at}{name}.self.query")
            k, v = (_linear(x if other is None else other, t, f"{at}{name}.self.{n}") for n in ("key", "value"))
            attended = _linear(_attend(q, k, v, TEXT_HEADS, hidden), t, f"{at}{name}.output.dense")
            x = _norm(attended + x, t, f"{at}{name}.output.LayerNorm", 1e-12)
        y = _linear(gelu(_linear(x, t, f"{at}intermediate.dense")), t, f"{at}output.dense")
        x = _norm(y + x, t, f"{at}output.LayerNorm", 1e-12)
    return x


def _attend(q: Tensor, k: Tensor, v: Tensor, heads: int, mask: Tensor | None = None) -> Tensor:
    q, k, v = (x.unflatten(1, (heads, -1)).transpose(0, 1) for x in (q, k, v))
    weights = q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])
    if mask is not None:
        weights = weights + mask
    return (weights.softmax(dim=-1) @ v).transpose(0, 1).flatten(1)


def _linear(x: Tensor, t: dict[str, Tensor], name: str) -> Tensor:
    return x @ t[f"{name}.weight"].T + t[f"{name}.bias"]


def _norm(x: Tensor, t: dict[str, Tensor], name: str, eps: float) -> Tensor:
    return layer_norm(x, x.shape[-1:], t[f"{name}.weight"], t[f"{name}.bias"], eps=eps)
