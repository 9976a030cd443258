"""A look at a model folder without loading it: what is missing, of another kind or cut short, told within a second.

Imports no torch: preflight uses it before Ray starts, the loader before it loads.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from learner import json_text

PIPELINE = "StableDiffusion3Pipeline"
CLASSES: Mapping[str, str] = {
    "transformer": "SD3Transformer2DModel",
    "vae": "AutoencoderKL",
    "text_encoder": "CLIPTextModelWithProjection",
    "text_encoder_2": "CLIPTextModelWithProjection",
    "text_encoder_3": "T5EncoderModel",
}
TOKENIZERS = ("tokenizer", "tokenizer_2", "tokenizer_3")
PARTS = (*CLASSES, *TOKENIZERS, "scheduler")
OPTIONAL = ("text_encoder_3", "tokenizer_3")
"""T5, which the tiny world leaves out."""
TOKENIZER_FILES = ("tokenizer.json", "vocab.json", "spiece.model")
MAX_HEADER_BYTES = 100_000_000
"""The format's own limit on a safetensors header."""


def index_problem(index: object) -> str:
    """Why the content of a model_index.json is not that of a Stable Diffusion 3 pipeline; empty where it is."""
    if not isinstance(index, Mapping):
        return f"its model_index.json holds {json.dumps(index, default=str)[:40]}, expected an object"
    if index.get("_class_name") != PIPELINE:
        return f"is a {index.get('_class_name')}, expected a {PIPELINE}"
    for name in PARTS:
        part: Any = index.get(name)
        if _is_null(part):
            if name not in OPTIONAL:
                return f"leaves out {name}, which a {PIPELINE} needs (only T5 may be null)"
        elif not _is_pair(part):
            return f"has {name} {part!r}, expected [library, class]"
        elif part[1] != CLASSES.get(name, part[1]):
            return f"has {name} {part[1]}, expected {CLASSES[name]}"
    return ""


def absent_parts(index: Mapping[str, Any]) -> set[str]:
    """Parts of a sound index that are null or not named."""
    return {name for name in PARTS if _is_null(index.get(name))}


def _is_null(part: Any) -> bool:
    return part is None or (isinstance(part, list | tuple) and len(part) == 2 and part[0] is None and part[1] is None)


def _is_pair(part: Any) -> bool:
    return isinstance(part, list | tuple) and len(part) == 2 and all(isinstance(word, str) and word for word in part)


def folder_problems(folder: Path) -> list[str]:
    """What is wrong with a folder in diffusers' format, as far as a look at its files shows it; a line each."""
    path = folder / "model_index.json"
    if not path.is_file():
        return [f"{folder} has no model_index.json, so it is no model in diffusers' format"]
    index, problem = _read_json(path)
    problem = problem or index_problem(index)
    if problem:
        return [f"{folder} {problem}"]
    present = [name for name in PARTS if name not in absent_parts(index)]
    missing = [name for name in present if not (folder / name).is_dir()]
    if missing:
        return [f"{folder} lacks the folders {', '.join(missing)}"]
    return [f"{folder}: {problem}" for name in present for problem in _part_problems(folder, name)]


def _part_problems(folder: Path, name: str) -> Iterator[str]:
    if name in TOKENIZERS:
        if not any((folder / name / file).is_file() for file in TOKENIZER_FILES):
            yield f"{name} has none of {', '.join(TOKENIZER_FILES)}"
    elif name == "scheduler":
        yield from (f"{name}: {problem}" for problem in _json_problems(folder / name / "scheduler_config.json"))
    else:
        stem = "model" if name.startswith("text_encoder") else "diffusion_pytorch_model"
        yield from (f"{name}: {problem}" for problem in checkpoint_problems(folder / name, stem))


def checkpoint_problems(folder: Path, stem: str) -> list[str]:
    """What is wrong with the folder of one model: its config.json, and weights `stem`.safetensors, whole or in shards.

    Weights in another format are left to whoever loads them.
    """
    return [*_json_problems(folder / "config.json"), *_weight_problems(folder, stem)]


def _weight_problems(folder: Path, stem: str) -> Iterator[str]:
    single, shards = folder / f"{stem}.safetensors", folder / f"{stem}.safetensors.index.json"
    if shards.is_file():
        index, problem = _read_json(shards)
        names = index.get("weight_map") if isinstance(index, Mapping) else None
        if problem or not isinstance(names, Mapping) or not all(isinstance(file, str) for file in names.values()):
            yield problem or f"{shards.name} names no files"
            return
        files = [folder / file for file in dict.fromkeys(names.values())]
    elif single.is_file() or not any(folder.glob("*.bin*")):
        files = [single]
    else:
        return
    for file in files:
        if not file.is_file():
            yield f"{file.name} is missing"
        elif not is_whole(file):
            yield f"{file.name} is cut short or no safetensors file ({file.stat().st_size} bytes)"


def is_whole(path: Path) -> bool:
    """Whether a safetensors file is as long as its own header says."""
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 + length or length > MAX_HEADER_BYTES:
            return False
        try:
            header = json.loads(file.read(length))
            ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
            return size == 8 + length + max(ends, default=0)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError):
            return False


def _json_problems(path: Path) -> Iterator[str]:
    if not path.is_file():
        yield f"{path.name} is missing"
        return
    value, problem = _read_json(path)
    if problem or not isinstance(value, Mapping):
        yield problem or f"{path.name} holds no object"


def _read_json(path: Path) -> tuple[Any, str]:
    """What a file holds, or why it cannot be read."""
    try:
        return json_text.parse(path.read_text(encoding="utf-8")), ""
    except (OSError, ValueError) as error:  # no UTF-8 and no JSON are both ValueErrors
        return None, f"{path.name} is not JSON ({error})"
