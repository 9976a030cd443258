"""Looking at a model folder: what a look can see is told without loading anything."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from learner.model_folder import checkpoint_problems, folder_problems, index_problem, is_whole
from tests.unit.hollow_model import write_hollow_checkpoint, write_hollow_model, write_safetensors

ROOT = Path(__file__).parents[3]
VAE = "vae/diffusion_pytorch_model.safetensors"


def good_index(tmp_path: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((write_hollow_model(tmp_path / "m") / "model_index.json").read_text())
    return index


def test_the_shipped_base_and_a_hollow_one_are_sound(tmp_path: Path) -> None:
    assert folder_problems(ROOT / "tinyworld/weights/pipeline") == []
    assert folder_problems(write_hollow_model(tmp_path / "m")) == []
    for name in ("pickscore", "hpsv2", "clipscore"):
        assert checkpoint_problems(ROOT / "tinyworld/weights" / name, "model") == []


@pytest.mark.parametrize("index", [[], None, 3, "x", True])
def test_an_index_of_another_type(index: object) -> None:
    assert "expected an object" in index_problem(index)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"_class_name": "FluxPipeline"}, "is a FluxPipeline, expected a StableDiffusion3Pipeline"),
        ({"transformer": None}, "leaves out transformer"),
        ({"vae": [None, None]}, "leaves out vae"),
        ({"tokenizer_2": [None, None]}, "leaves out tokenizer_2"),
        ({"scheduler": None}, "leaves out scheduler"),
        ({"transformer": []}, "has transformer [], expected [library, class]"),
        ({"vae": ["diffusers"]}, "has vae ['diffusers'], expected [library, class]"),
        ({"vae": "AutoencoderKL"}, "expected [library, class]"),
        ({"text_encoder": [None, "CLIPTextModelWithProjection"]}, "expected [library, class]"),
        ({"text_encoder_3": [1, 2]}, "has text_encoder_3 [1, 2]"),
        ({"vae": ["diffusers", "AutoencoderDC"]}, "has vae AutoencoderDC, expected AutoencoderKL"),
        ({"text_encoder_2": ["transformers", "CLIPModel"]}, "expected CLIPTextModelWithProjection"),
    ],
)
def test_an_index_of_another_pipeline(tmp_path: Path, changes: dict[str, Any], says: str) -> None:
    assert says in index_problem({**good_index(tmp_path), **changes})


def test_t5_may_be_null_or_unnamed_or_there(tmp_path: Path) -> None:
    index = good_index(tmp_path)
    assert index_problem({k: v for k, v in index.items() if k not in ("text_encoder_3", "tokenizer_3")}) == ""
    t5 = {"text_encoder_3": ["transformers", "T5EncoderModel"], "tokenizer_3": ["transformers", "T5TokenizerFast"]}
    assert index_problem(index | t5) == ""


@pytest.mark.parametrize(
    "data", [b"", b"1234567", b"\xff" * 8, b"\x02\0\0\0\0\0\0\0{", b"version https://git-lfs x" * 5]
)
def test_a_file_that_is_no_whole_safetensors(tmp_path: Path, data: bytes) -> None:
    path = write_hollow_model(tmp_path / "m") / VAE
    assert is_whole(path)
    whole = path.read_bytes()
    for broken in (data, whole[:-1], whole + b"x", whole[:20]):
        path.write_bytes(broken)
        assert not is_whole(path)
    (line,) = folder_problems(tmp_path / "m")
    assert (
        line
        == f"{tmp_path / 'm'}: vae: diffusion_pytorch_model.safetensors is cut short or no safetensors file (20 bytes)"
    )


def test_shards_are_all_looked_at(tmp_path: Path) -> None:
    folder = write_hollow_checkpoint(tmp_path / "c", "model")
    (folder / "model.safetensors").rename(folder / "one.safetensors")
    index = {"weight_map": {"a": "one.safetensors", "b": "two.safetensors"}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert checkpoint_problems(folder, "model") == ["two.safetensors is missing"]
    write_safetensors(folder / "two.safetensors")
    assert checkpoint_problems(folder, "model") == []
    (folder / "model.safetensors.index.json").write_text("[]")
    assert checkpoint_problems(folder, "model") == ["model.safetensors.index.json names no files"]


def test_every_part_that_is_broken_is_a_line(tmp_path: Path) -> None:
    folder = write_hollow_model(tmp_path / "m")
    (folder / VAE).unlink()
    (folder / "transformer" / "config.json").write_text("[")
    (folder / "tokenizer" / "tokenizer.json").unlink()
    (folder / "scheduler" / "scheduler_config.json").unlink()
    found = "\n".join(folder_problems(folder))
    for part in ("transformer: config.json is not JSON", "vae: diffusion_pytorch_model.safetensors is missing"):
        assert part in found
    for part in ("tokenizer has none of tokenizer.json", "scheduler: scheduler_config.json is missing"):
        assert part in found


def test_weights_in_another_format_are_left_to_the_loader(tmp_path: Path) -> None:
    folder = write_hollow_checkpoint(tmp_path / "c", "model")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    assert checkpoint_problems(folder, "model") == []


def test_a_look_needs_no_library() -> None:
    code = "import sys, learner.model_folder; print([m for m in ('torch', 'diffusers', 'numpy') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
