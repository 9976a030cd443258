"""The shipped weights: complete, small, fp16, loadable by the classes they are made for."""

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import CLIPModel

from tinyworld.judges import HEAD_FILE, HELDOUT, build_aesthetic_clip, build_heldout_clip
from tinyworld.manifest import MANIFEST, MAX_BYTES, describe
from tinyworld.pipeline import SCORERS, WEIGHTS, build_clip, build_pipeline, load_pipeline, save_pipeline

MEBIBYTE = 1024 * 1024
LIMITS = {
    "pipeline/transformer": 17 * MEBIBYTE,
    "pipeline/vae": 1.4 * MEBIBYTE,
    **dict.fromkeys(SCORERS, 3 * MEBIBYTE),
    **dict.fromkeys(HELDOUT, 2 * MEBIBYTE),
}


def test_manifest_names_every_file_and_its_hash() -> None:
    assert json.loads(MANIFEST.read_text(encoding="utf-8")) == describe(WEIGHTS)


def test_no_configuration_names_the_folder_it_was_made_in() -> None:
    named = [path for path in WEIGHTS.rglob("*.json") if '"_name_or_path": "/' in path.read_text(encoding="utf-8")]
    assert named == []


def test_a_saved_pipeline_forgets_where_its_parts_came_from(tmp_path: Path) -> None:
    pipeline = load_pipeline(WEIGHTS / "pipeline")
    save_pipeline(pipeline, tmp_path / "pipeline")
    for path in (tmp_path / "pipeline").glob("*/config.json"):
        saved = json.loads(path.read_text(encoding="utf-8"))
        shipped = json.loads((WEIGHTS / "pipeline" / path.parent.name / "config.json").read_text(encoding="utf-8"))
        assert "_name_or_path" not in saved
        assert saved == shipped


def test_weights_are_small() -> None:
    files = describe(WEIGHTS)
    sizes = {part: sum(int(e["bytes"]) for name, e in files.items() if name.startswith(part)) for part in LIMITS}
    assert {part: size for part, size in sizes.items() if size > LIMITS[part]} == {}
    assert sum(int(entry["bytes"]) for entry in files.values()) <= MAX_BYTES


def test_weights_are_stored_as_fp16() -> None:
    for path in WEIGHTS.rglob("*.safetensors"):
        with safe_open(path, "pt") as tensors:
            assert {tensors.get_slice(key).get_dtype() for key in tensors.keys()} == {"F16"}, path.name  # noqa: SIM118
    head = torch.load(WEIGHTS / "aesthetic" / HEAD_FILE, weights_only=True)
    assert {tensor.dtype for tensor in head.values()} == {torch.float16}


@pytest.mark.filterwarnings("ignore")  # the libraries' own deprecations; what is tested here are names and shapes
def test_folders_hold_what_the_code_builds() -> None:
    loaded, built = load_pipeline(WEIGHTS / "pipeline"), build_pipeline(0)
    for part in ("transformer", "vae", "text_encoder", "text_encoder_2"):
        shapes = [{k: v.shape for k, v in getattr(p, part).state_dict().items()} for p in (loaded, built)]
        assert shapes[0] == shapes[1]
    assert loaded.scheduler.config.shift == 3.0
    assert loaded.text_encoder_3 is None
    clips = dict.fromkeys(SCORERS, build_clip) | {
        "heldout_clip": build_heldout_clip,
        "aesthetic": build_aesthetic_clip,
    }
    for name, build in clips.items():
        shapes = [
            {k: v.shape for k, v in model.state_dict().items()}
            for model in (CLIPModel.from_pretrained(WEIGHTS / name), build(0))
        ]
        assert shapes[0] == shapes[1]
