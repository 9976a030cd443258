"""A CLIP checkpoint with all that a score needs: model, tokenizer and image preprocessing that fit together.

A half-loaded scorer still gives numbers, so every way of loading half is an error: here, a tokenizer whose end-of-text
is not the token the text tower pools at, and an image size its tower does not take; in rewards.checkpoint, the tensors.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rewards.checkpoint import folder_of, load_tokenizer, load_whole
from rewards.preprocess import Preprocess, read_preprocess
from rewards.scorer_args import ClipArgs

PROCESSOR_FILES = ("*.json", "*.txt")

_HARMLESS_EXTRA = re.compile(r"\.position_ids$")
"""Older checkpoints store this constant range 0, 1, 2, ..., which newer model classes make themselves."""

_LEGACY_EOS = 2
"""transformers' CLIP configs with eos_token_id 2 pool at the highest token id instead (its CLIPTextModel says why)."""


@dataclass(frozen=True)
class ClipCheckpoint:
    """All a score needs."""

    model: Any
    """transformers CLIPModel in eval mode on its device."""
    tokenizer: Any
    max_tokens: int
    """Longest text the model takes, with start and end."""
    preprocess: Preprocess


def load_clip(args: ClipArgs) -> ClipCheckpoint:
    """Model, tokenizer and preprocessing of a local folder or hub id.

    Raises:
        ValueError: it is not there, cannot be read, or does not fit the CLIP class; says which file or which keys.
    """
    from transformers import CLIPModel

    folder = folder_of(args.checkpoint, args.revision)
    model = load_whole(CLIPModel, folder, getattr(torch, args.dtype), _HARMLESS_EXTRA)
    return with_processor(model, processor_of(args) or folder, args.device)


def processor_of(args: ClipArgs) -> Path | None:
    """Folder of configuration, tokenizer and preprocessing, where args name one of its own.

    Raises:
        ValueError: it is not there.
    """
    return None if args.processor is None else folder_of(args.processor, args.processor_revision, PROCESSOR_FILES)


def with_processor(model: Any, processor: Path, device: str) -> ClipCheckpoint:
    """A loaded CLIPModel on its device, with tokenizer and preprocessing of a folder.

    Raises:
        ValueError: the folder lacks either, or they do not fit the model.
    """
    tokenizer, max_tokens = _load_tokenizer(processor, model)
    preprocess = read_preprocess(processor, int(model.config.vision_config.image_size))
    return ClipCheckpoint(model.to(device), tokenizer, max_tokens, preprocess)


def _load_tokenizer(folder: Path, model: Any) -> tuple[Any, int]:
    tokenizer = load_tokenizer(folder)
    text_config = model.config.text_config
    # An unset model_max_length is a number near 1e30.
    max_tokens = min(int(tokenizer.model_max_length), int(text_config.max_position_embeddings))
    if tokenizer.pad_token_id is None or tokenizer.eos_token_id is None:
        raise ValueError(f"{folder}: the tokenizer needs both a padding and an end-of-text token")
    _check_pooling(tokenizer, text_config, max_tokens, folder)
    return tokenizer, max_tokens


def _check_pooling(tokenizer: Any, text_config: Any, max_tokens: int, folder: Path) -> None:
    """The token the text tower pools at must be the end of text; otherwise no prompt has any effect on the score."""
    ids = tokenizer("a", padding="max_length", truncation=True, max_length=max_tokens).input_ids
    if max(ids) >= text_config.vocab_size:
        raise ValueError(f"{folder}: the tokenizer gives id {max(ids)}, the model has {text_config.vocab_size} tokens")
    pooled = max(ids) if text_config.eos_token_id == _LEGACY_EOS else text_config.eos_token_id
    if tokenizer.eos_token_id not in ids or pooled != tokenizer.eos_token_id:
        raise ValueError(
            f"{folder}: the text tower pools at token {pooled}, but the tokenizer ends texts with "
            f"{tokenizer.eos_token_id} ('a' gives {ids})"
        )
