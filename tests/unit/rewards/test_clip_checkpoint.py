"""A CLIP checkpoint loads whole or not at all."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rewards.clip_checkpoint import load_clip
from rewards.preprocess import Preprocess
from rewards.scorer_args import ClipArgs
from tests.unit.rewards.tiny_clip import MAX_TOKENS, MEAN, SIDE, STD


@pytest.fixture
def folder(clip_folder: Path, tmp_path: Path) -> Path:
    """A copy of the checkpoint that may be broken."""
    return Path(shutil.copytree(clip_folder, tmp_path / "broken"))


def args(folder: Path) -> ClipArgs:
    return ClipArgs(checkpoint=str(folder))


def change_tensors(folder: Path, **changes: torch.Tensor | None) -> None:
    """Overwrite or (None) drop tensors of the checkpoint; dots of the keys are written as double underscores."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    for key, value in changes.items():
        name = key.replace("__", ".")
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value
    save_file(tensors, path, metadata={"format": "pt"})


def change_json(path: Path, **changes: object) -> None:
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | changes), encoding="utf-8")


def test_missing_tensor(folder: Path) -> None:
    change_tensors(folder, text_projection__weight=None)
    with pytest.raises(ValueError, match=r"1 missing \(text_projection\.weight\)"):
        load_clip(args(folder))


def test_extra_tensor(folder: Path) -> None:
    change_tensors(folder, score_head__weight=torch.ones(2))
    with pytest.raises(ValueError, match=r"1 unexpected \(score_head\.weight\)"):
        load_clip(args(folder))


def test_position_ids_of_older_checkpoints_are_harmless(folder: Path) -> None:
    change_tensors(folder, text_model__embeddings__position_ids=torch.arange(MAX_TOKENS)[None])
    assert load_clip(args(folder)).max_tokens == MAX_TOKENS


def test_tensor_of_another_shape(folder: Path) -> None:
    change_tensors(folder, visual_projection__weight=torch.ones(3, 3))
    with pytest.raises(
        ValueError, match=r"1 of another shape \(visual_projection\.weight: stored \[3, 3\], wanted \[16, 32\]\)"
    ):
        load_clip(args(folder))


def test_truncated_file(folder: Path) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(ValueError, match="cannot load CLIPModel from"):
        load_clip(args(folder))


def test_no_weights(folder: Path) -> None:
    (folder / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="cannot load CLIPModel from"):
        load_clip(args(folder))


def test_no_such_folder(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no checkpoint folder"):
        load_clip(args(tmp_path / "nowhere"))


def test_no_tokenizer(folder: Path) -> None:
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.json", "merges.txt", "special_tokens_map.json"):
        (folder / name).unlink(missing_ok=True)
    with pytest.raises(ValueError, match="tokenizer"):
        load_clip(args(folder))


def test_text_pooled_at_a_token_that_ends_no_text(folder: Path) -> None:
    """transformers would pool at position 0 and every prompt would score alike."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["text_config"]["eos_token_id"] = 7
    change_json(folder / "config.json", text_config=config["text_config"])
    with pytest.raises(ValueError, match="pools at token 7"):
        load_clip(args(folder))


def test_no_preprocessing(folder: Path) -> None:
    (folder / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"neither preprocessor_config\.json nor processor_config\.json"):
        load_clip(args(folder))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("crop_size", 64, "cut to 64 pixels, but the model takes 32"),
        ("crop_size", {"height": 32, "width": 40}, "not square"),
        ("resample", 2, "resample 2"),
        ("size", {"shortest_edge": 16}, "does not give the 32"),
        ("image_std", [0.5], "three numbers"),
        ("do_normalize", False, "do_normalize is false"),
        ("rescale_factor", 1.0, "1/255"),
        ("image_mean", [0.5, None, 0.5], "three numbers, got"),
        ("image_mean", ["0.5", 0.5, 0.5], "three numbers, got"),
        ("image_std", [0.2, 0.0, 0.2], "image_std must be above 0, got"),
        ("image_std", [0.2, float("nan"), 0.2], "three numbers, got"),
        ("do_center_crop", False, "do_center_crop is false and size"),
    ],
)
def test_preprocessing_that_does_not_fit(folder: Path, key: str, value: object, message: str) -> None:
    """FAULTS 13."""
    change_json(folder / "preprocessor_config.json", **{key: value})
    with pytest.raises(ValueError, match=message):
        load_clip(args(folder))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("preprocessor_config.json", "[1]", "holds a list where the image preprocessing should stand"),
        ("preprocessor_config.json", '{"image_processor": 3}', "holds a int where"),
        ("preprocessor_config.json", "[" * 100_000, "is not JSON"),
        ("processor_config.json", '{"processor_class": "CLIPProcessor"}', "holds a NoneType where"),
    ],
)
def test_preprocessing_that_is_none(folder: Path, name: str, content: str, message: str) -> None:
    """Never CLIP's own in place of what nobody could read; the file is named."""
    (folder / "preprocessor_config.json").unlink()
    (folder / name).write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{name} {message}"):
        load_clip(args(folder))


@pytest.mark.parametrize("content", ['{"model": 3}', "[]", "{", '{"model": {"type": "BPE", "vocab": 1}}'])
def test_a_tokenizer_that_cannot_be_read(folder: Path, content: str) -> None:
    """Whatever the library raises, the folder is named."""
    (folder / "tokenizer.json").write_text(content, encoding="utf-8")
    with pytest.raises(ValueError, match=f"{re.escape(str(folder))}"):
        load_clip(args(folder))


@pytest.mark.parametrize(
    "vision",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": 5},
        {"hidden_size": "32"},
        {"patch_size": 0},
        {"hidden_act": "x"},
    ],
)
def test_a_configuration_of_no_model(folder: Path, vision: dict[str, object]) -> None:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    change_json(folder / "config.json", vision_config=config["vision_config"] | vision)
    with pytest.raises(ValueError, match=f"cannot load CLIPModel from {re.escape(str(folder))}"):
        load_clip(args(folder))


@pytest.mark.parametrize("size", [{"shortest_edge": SIDE}, SIDE])
def test_preprocessing_as_the_file_says(folder: Path, size: object) -> None:
    change_json(folder / "preprocessor_config.json", size=size)
    mean, std = tuple(MEAN), tuple(STD)
    assert load_clip(args(folder)).preprocess == Preprocess("crop", SIDE, SIDE, mean, std)  # type: ignore[arg-type]


def test_preprocessing_inside_a_whole_processor(folder: Path) -> None:
    """FAULTS 12: transformers 5 saves it under another name."""
    path = folder / "preprocessor_config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    path.unlink()
    (folder / "processor_config.json").write_text(json.dumps({"image_processor": config}), encoding="utf-8")
    assert load_clip(args(folder)).preprocess.mean == tuple(MEAN)


def test_processor_from_elsewhere(folder: Path, clip_folder: Path) -> None:
    """PickScore's published code takes tokenizer and preprocessing of the base model."""
    for name in ("preprocessor_config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).unlink()
    both = ClipArgs(checkpoint=str(folder), processor=str(clip_folder))
    assert load_clip(both).preprocess.side == SIDE


def test_a_hub_id_wants_a_revision() -> None:
    """FAULTS 27: what `main` holds tomorrow is not what was scored today. Said before anything is asked of the hub."""
    with pytest.raises(ValueError, match=r"'openai/clip-vit-large-patch14' is no local folder, .* needs a revision"):
        load_clip(ClipArgs(checkpoint="openai/clip-vit-large-patch14"))
