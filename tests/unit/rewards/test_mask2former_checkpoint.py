"""The detector's checkpoint is loaded whole or not at all: FAULTS 12."""

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from rewards.config import Mask2FormerArgs
from rewards.mask2former import Mask2FormerDetector
from tests.unit.rewards.tiny_mask2former import PUBLISHED_LABELS, SEED, SIDE, tiny_model

QUERY = "model.pixel_level_module.encoder.encoder.layers.2.blocks.1.attention.self.query.weight"


def copied(folder: Path, target: Path, shapes: Mapping[str, int | None]) -> Path:
    """The checkpoint with some tensors replaced by zeros of a length, or left out where it is None."""
    target.mkdir()
    for name in ("config.json", "preprocessor_config.json"):
        (target / name).write_bytes((folder / name).read_bytes())
    tensors = load_file(folder / "model.safetensors")
    changed = {key: torch.zeros(length) for key, length in shapes.items() if length is not None}
    kept = {key: value for key, value in tensors.items() if key not in shapes}
    save_file(kept | changed, target / "model.safetensors", metadata={"format": "pt"})
    return target


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"class_predictor.bias": None}, r"1 missing \(class_predictor\.bias\)"),
        ({QUERY: None}, r"1 missing .*layers\.2\.blocks\.1\.attention"),
        ({"model.something.weight": 2}, r"1 unexpected \(model\.something\.weight\)"),
        ({"class_predictor.bias": 3}, r"class_predictor\.bias: stored \[3\], wanted \[81\]"),
    ],
)
def test_a_checkpoint_that_does_not_fit_is_refused(
    mask2former_folder: Path, tmp_path: Path, shapes: dict[str, int | None], message: str
) -> None:
    broken = copied(mask2former_folder, tmp_path / "broken", shapes)
    with pytest.raises(ValueError, match=message):
        Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(broken)))


def test_every_tensor_of_the_published_layout_arrives(mask2former_folder: Path) -> None:
    """The older key names are all mapped: the loaded network computes what the saved one did."""
    pixels = torch.randn(1, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(1))
    loaded = Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(mask2former_folder)))._model
    with torch.inference_mode():
        got, wanted = loaded(pixel_values=pixels), tiny_model(SEED)(pixel_values=pixels)
    torch.testing.assert_close(got.class_queries_logits, wanted.class_queries_logits, atol=1e-3, rtol=1e-4)
    torch.testing.assert_close(got.masks_queries_logits, wanted.masks_queries_logits, atol=1e-3, rtol=1e-4)


def relabelled(folder: Path, target: Path, labels: dict[str, str]) -> Path:
    copied(folder, target, {})
    config = json.loads((target / "config.json").read_text())
    config["id2label"] = labels
    config["label2id"] = {label: int(index) for index, label in labels.items()}
    (target / "config.json").write_text(json.dumps(config))
    return target


def test_labels_in_another_order_are_refused(mask2former_folder: Path, tmp_path: Path) -> None:
    """They would make every horse a sheep, in silence."""
    labels = {str(i): label for i, label in enumerate(PUBLISHED_LABELS)}
    labels["17"], labels["18"] = labels["18"], labels["17"]
    with pytest.raises(ValueError, match="class 17 is 'sheep', where COCO has 'horse'"):
        Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(relabelled(mask2former_folder, tmp_path / "a", labels))))


def test_labels_without_names_are_taken_in_their_order(mask2former_folder: Path, tmp_path: Path) -> None:
    labels = {str(i): f"LABEL_{i}" for i in range(80)}
    Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(relabelled(mask2former_folder, tmp_path / "a", labels))))


def test_a_folder_that_lacks_a_file_is_refused(mask2former_folder: Path, tmp_path: Path) -> None:
    target = copied(mask2former_folder, tmp_path / "a", {})
    (target / "preprocessor_config.json").unlink()
    with pytest.raises(ValueError, match=r"preprocessor_config\.json: image_mean and image_std cannot be read"):
        Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(target)))
    (target / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="cannot load Mask2FormerForUniversalSegmentation"):
        Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(target)))
    with pytest.raises(ValueError, match="no checkpoint folder"):
        Mask2FormerDetector(Mask2FormerArgs(checkpoint=str(tmp_path / "none")))
