"""Model folders with every file a look finds and nothing in them: quick to write, and whole as far as a look shows."""

import json
import struct
from pathlib import Path

from learner.model_folder import CLASSES, OPTIONAL, PIPELINE, TOKENIZERS


def write_hollow_model(folder: Path) -> Path:
    """A Stable Diffusion 3 folder without T5."""
    index: dict[str, object] = {"_class_name": PIPELINE, "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"]}
    for name, class_name in CLASSES.items():
        index[name] = [None, None] if name in OPTIONAL else ["a_library", class_name]
        if name not in OPTIONAL:
            write_hollow_checkpoint(folder / name, "model" if name.startswith("text") else "diffusion_pytorch_model")
    for name in TOKENIZERS:
        index[name] = [None, None] if name in OPTIONAL else ["transformers", "CLIPTokenizer"]
        if name not in OPTIONAL:
            (folder / name).mkdir()
            (folder / name / "tokenizer.json").write_text("{}")
    (folder / "scheduler").mkdir()
    (folder / "scheduler" / "scheduler_config.json").write_text("{}")
    (folder / "model_index.json").write_text(json.dumps(index))
    return folder


def write_hollow_checkpoint(folder: Path, stem: str) -> Path:
    """One model with a single weight of four bytes."""
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    write_safetensors(folder / f"{stem}.safetensors")
    return folder


def write_safetensors(path: Path) -> None:
    """A whole file of one float."""
    header = json.dumps({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}).encode()
    path.write_bytes(struct.pack("<Q", len(header)) + header + b"\0\0\0\0")
