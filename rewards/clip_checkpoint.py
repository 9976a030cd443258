"""Loading a CLIP checkpoint whole, or not at all.

A half-loaded scorer still gives numbers, so every way of loading half is an error here: missing, extra or misshapen
tensors, a tokenizer whose end-of-text is not the token the text tower pools at, an image size its tower does not take.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError

from rewards.config import ClipArgs
from rewards.preprocess import Preprocess, read_preprocess

_HUB_ID = re.compile(r"^[A-Za-z0-9][\w.-]*/[\w.-]+$")

_HARMLESS_EXTRA = re.compile(r"\.position_ids$")
"""Older checkpoints store this constant range 0, 1, 2, ..., which newer model classes make themselves."""

_TEXT_FILES = ["*.json", "*.txt"]
_MODEL_FILES = [*_TEXT_FILES, "*.safetensors"]

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
    folder = _folder_of(args.checkpoint, args.revision, _MODEL_FILES)
    processor = folder if args.processor is None else _folder_of(args.processor, args.processor_revision, _TEXT_FILES)
    model = _load_model(folder, getattr(torch, args.dtype)).to(args.device).eval().requires_grad_(False)
    tokenizer, max_tokens = _load_tokenizer(processor, model)
    preprocess = read_preprocess(processor, args.kind, int(model.config.vision_config.image_size))
    return ClipCheckpoint(model, tokenizer, max_tokens, preprocess)


def _folder_of(name: str, revision: str | None, patterns: list[str]) -> Path:
    """A local folder as it is; a hub id as the folder its files are cached in."""
    path = Path(name).expanduser()
    if path.is_dir():
        return path
    if not _HUB_ID.match(name):
        raise ValueError(f"no CLIP checkpoint folder {name!r}, and it is not a hub id owner/name either")
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, allow_patterns=patterns))
    # The hub client raises many types (HTTP, offline, cache, validation); to the recipe they are all one fault.
    except Exception as error:
        raise ValueError(f"{name!r} is no local folder, and the hub does not give it: {error}") from error


def _load_model(folder: Path, dtype: torch.dtype) -> Any:
    from transformers import CLIPModel

    # Tensors of another shape are let through only to be reported by name below: transformers' own error does not.
    options = {"output_loading_info": True, "ignore_mismatched_sizes": True, "use_safetensors": True}
    with _quiet_transformers():
        try:
            model, info = CLIPModel.from_pretrained(folder, dtype=dtype, local_files_only=True, **options)
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, SafetensorError) as error:
            raise ValueError(f"cannot load a CLIP model from {folder}: {error}") from error
    wrong = _wrong_keys(info)
    if wrong:
        raise ValueError(f"{folder} does not fit the CLIP class: {wrong}")
    return model


def _wrong_keys(info: dict[str, Any]) -> str:
    """What keeps a checkpoint from being loaded whole; empty when nothing does."""
    found = {
        "missing": sorted(info.get("missing_keys", ())),
        "unexpected": sorted(key for key in info.get("unexpected_keys", ()) if not _HARMLESS_EXTRA.search(key)),
        "of another shape": sorted(_named(entry) for entry in info.get("mismatched_keys", ())),
        "errors": sorted(str(message) for message in info.get("error_msgs", ())),
    }
    return "; ".join(f"{len(keys)} {what} ({_first(keys)})" for what, keys in found.items() if keys)


def _named(mismatch: Any) -> str:
    """`key: stored shape, wanted shape` of one entry, whose form transformers does not promise."""
    if isinstance(mismatch, tuple) and len(mismatch) == 3:
        key, stored, wanted = mismatch
        return f"{key}: stored {list(stored)}, wanted {list(wanted)}"
    return str(mismatch)


def _first(keys: list[str]) -> str:
    return ", ".join(keys[:3]) + (", ..." if len(keys) > 3 else "")


def _load_tokenizer(folder: Path, model: Any) -> tuple[Any, int]:
    from transformers import AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"cannot load a tokenizer from {folder}: {error}") from error
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


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    """No progress bar, since many actors share one terminal, and no load report: what is wrong is raised."""
    from transformers.utils import logging

    bar, verbosity = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bar:
            logging.enable_progress_bar()
