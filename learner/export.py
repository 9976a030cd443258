"""LoRA files in diffusers' format, written and read.

The alpha travels in the file's metadata: without it diffusers takes alpha = rank, silently, at half the strength of the
usual alpha = 2 rank.
"""

import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from learner import json_text
from learner.config import LoraConfig
from learner.errors import UserError

FILE_NAME = "pytorch_lora_weights.safetensors"
"""What `load_lora_weights(folder)` looks for."""
PREFIX = "transformer."
METADATA = "__metadata__"
METADATA_KEY = "lora_adapter_metadata"
A, B = ".lora_A.weight", ".lora_B.weight"


@dataclass(frozen=True)
class LoraExport:
    """An adapter on its way to a file."""

    tensors: Mapping[str, Tensor]
    """By canonical key."""
    lora: LoraConfig
    record: Mapping[str, str] = field(default_factory=dict)
    """What else the file's metadata should say (base, max_sequence_length, …)."""


@dataclass(frozen=True)
class LoadedLora:
    """What a LoRA file holds."""

    tensors: Mapping[str, Tensor]
    """float32, by canonical key, sorted."""
    rank: int
    alpha: float

    @property
    def modules(self) -> tuple[str, ...]:
        """Full names of the linear layers it adapts."""
        return tuple(key.removesuffix(A) for key in self.tensors if key.endswith(A))


def save_lora(
    folder: Path, tensors: Mapping[str, Tensor], lora: LoraConfig, record: Mapping[str, str] | None = None
) -> Path:
    """Write the file that `load_lora_weights(folder)` reads at full strength; returns it. Replaced as a whole."""
    folder.mkdir(parents=True, exist_ok=True)
    # The fields every PEFT version knows: an unknown one would make an older or newer one refuse the file.
    adapter = {"r": lora.rank, "lora_alpha": lora.alpha, "target_modules": list(lora.targets)}
    described = {f"{PREFIX}{name}": value for name, value in adapter.items()}
    metadata = {**(record or {}), "format": "pt", METADATA_KEY: json.dumps(described, sort_keys=True)}
    file, fresh = folder / FILE_NAME, folder / f".{FILE_NAME}.{os.getpid()}"
    save_file(
        {PREFIX + key: value.detach().to("cpu", torch.float32).contiguous() for key, value in tensors.items()},
        fresh,
        metadata=metadata,
    )
    _sort_metadata(fresh)
    fresh.replace(file)
    return file


def _sort_metadata(file: Path) -> None:
    """Put the metadata in order: safetensors writes it as its hash map happens to lie, and equal LoRAs would differ."""
    with file.open("r+b") as opened:
        length = int.from_bytes(opened.read(8), "little")
        header = json.loads(opened.read(length))
        header = {METADATA: dict(sorted(header.pop(METADATA).items())), **header}
        ordered = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode().ljust(length)
        if len(ordered) != length:
            raise RuntimeError(f"{file}: the header is {len(ordered)} bytes in order, {length} before")
        opened.seek(8)
        opened.write(ordered)


def load_lora(path: Path | str) -> LoadedLora:
    """Read a LoRA of the transformer from a file or a folder in diffusers' format.

    A file without alpha has alpha = rank, as diffusers reads it.

    Raises:
        UserError: no such file, a broken one, or a LoRA this project cannot continue; the message says which key.
    """
    file = _find(Path(path))
    try:
        with safe_open(file, framework="pt") as opened:
            metadata = opened.metadata() or {}
            stored = {key: opened.get_tensor(key) for key in sorted(opened.keys())}
    except (SafetensorError, OSError) as error:
        raise UserError(f"{file} is no readable safetensors file: {error}") from error
    strangers = [key for key in stored if not (key.startswith(PREFIX) and key.endswith((A, B)))]
    if strangers or not stored:
        raise UserError(
            f"{file} is no LoRA of an SD3 transformer in diffusers' format: {strangers[:1] or 'it is empty'}"
        )
    for key, value in stored.items():
        _check_matrix(file, key, value)
    tensors = {key.removeprefix(PREFIX): value.float() for key, value in stored.items()}
    rank = _common_rank(file, tensors)
    return LoadedLora(tensors, rank, _alpha(file, metadata, rank))


def _find(path: Path) -> Path:
    if path.is_file():
        return path
    if not path.is_dir():
        raise UserError(f"there is no LoRA file or folder {path}")
    if (path / FILE_NAME).is_file():
        return path / FILE_NAME
    files = sorted(path.glob("*.safetensors"))
    if len(files) != 1:
        raise UserError(f"{path} holds {len(files)} safetensors files and no {FILE_NAME}; name the file")
    return files[0]


def _check_matrix(file: Path, key: str, value: Tensor) -> None:
    if value.ndim != 2 or 0 in value.shape or not value.is_floating_point():
        kind = str(value.dtype).removeprefix("torch.")
        raise UserError(f"{file}: {key} is no matrix of real numbers: shape {list(value.shape)}, {kind}")
    if not bool(torch.isfinite(value.float()).all()):
        raise UserError(f"{file}: {key} holds values that are not finite")


def _common_rank(file: Path, tensors: Mapping[str, Tensor]) -> int:
    ranks = set()
    for key, value in tensors.items():
        partner = key.removesuffix(A) + B if key.endswith(A) else key.removesuffix(B) + A
        if partner not in tensors:
            raise UserError(f"{file} lacks {PREFIX}{partner}, the partner of {PREFIX}{key}")
        ranks.add(value.shape[0] if key.endswith(A) else value.shape[1])
    if len(ranks) > 1:
        raise UserError(f"{file} has different ranks ({', '.join(map(str, sorted(ranks)))}); one is supported")
    return int(ranks.pop())


def _alpha(file: Path, metadata: Mapping[str, str], rank: int) -> float:
    try:
        described = json_text.parse(metadata.get(METADATA_KEY, "{}"))
    except ValueError as error:
        raise UserError(f"{file} has broken {METADATA_KEY}: {error}") from error
    if not isinstance(described, dict):
        raise UserError(f"{file} has broken {METADATA_KEY}: expected an object, got {type(described).__name__}")
    fields: dict[str, Any] = {key.removeprefix(PREFIX): value for key, value in described.items()}
    unsupported = [
        name
        for name in ("rank_pattern", "alpha_pattern", "use_dora", "use_rslora", "lora_bias", "modules_to_save")
        if fields.get(name)
    ]
    if unsupported:
        raise UserError(f"{file} uses {', '.join(unsupported)}, which is not supported here")
    said, alpha = fields.get("r", rank), fields.get("lora_alpha", rank)
    if type(said) is not int or said != rank:
        raise UserError(f"{file} says rank {said!r} but holds matrices of rank {rank}")
    if isinstance(alpha, bool) or not isinstance(alpha, int | float) or not 0 < alpha < math.inf:
        raise UserError(f"{file} says lora_alpha {alpha!r}, which is no positive number")
    return float(alpha)
