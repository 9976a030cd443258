"""GenEval's colours against the published steps: Pillow's crop, CLIP's towers, three texts a colour."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from rewards.clip_colors import ClipColors, cut_out, middle, prompts_of, zero_shot_weights
from rewards.config import ClipColorsArgs, GenevalArgs
from rewards.detection import ColorClassifier, Detection
from rewards.geneval import GenevalScorer
from tests.unit.rewards import tiny_clip
from tests.unit.rewards.tiny_clip import MEAN, SIDE, STD

COLORS = ["red", "orange", "yellow", "green", "blue", "purple", "pink", "brown", "black", "white"]
FAKES = "tests.unit.rewards.fakes"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A tiny random CLIP checkpoint whose texts are long enough to hold a colour."""
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tiny_clip, "MAX_TOKENS", 60)
        yield tiny_clip.save_tiny_clip(tmp_path_factory.mktemp("colors") / "clip", seed=8)


@pytest.fixture(scope="module")
def classifier(folder: Path) -> ClipColors:
    return ClipColors(ClipColorsArgs(checkpoint=str(folder)))


@pytest.fixture(scope="module")
def image() -> NDArray[np.uint8]:
    """Read-only, as images out of an object store are."""
    picture = np.random.default_rng(2).integers(0, 256, (90, 120, 3), dtype=np.uint8)
    picture.flags.writeable = False
    return picture


def objects() -> list[Detection]:
    """20 objects of two classes: discs in boxes of many shapes, the last one without a mask."""
    rng = np.random.default_rng(4)
    ys, xs = np.mgrid[:90, :120]
    found = []
    for i in range(20):
        left, top = rng.integers(0, 80), rng.integers(0, 60)
        right, bottom = left + rng.integers(8, 40), top + rng.integers(8, 30)
        middle_x, middle_y = (left + right) / 2, (top + bottom) / 2
        mask = ((xs - middle_x) / (right - left)) ** 2 + ((ys - middle_y) / (bottom - top)) ** 2 < 0.25
        box = (float(left), float(top), float(right), float(bottom))
        found.append(Detection("dog" if i % 3 else "computer mouse", 0.9, box, mask if i < 19 else None))
    return found


def published_square(image_HWC: NDArray[np.uint8], found: Detection) -> NDArray[np.uint8]:
    """Grey background, crop, shorter side resized to S, torchvision's CenterCrop: bytes [S, S, 3]."""
    picture = Image.fromarray(image_HWC)
    if found.mask_HW is not None:
        picture = Image.composite(picture, Image.new("RGB", picture.size, "#999"), Image.fromarray(found.mask_HW))
    picture = picture.crop(found.box_xyxy)
    short = min(picture.size)
    width, height = (int(SIDE * size / short) for size in picture.size)
    picture = picture.resize((width, height), Image.Resampling.BICUBIC)
    left, top = round((width - SIDE) / 2.0), round((height - SIDE) / 2.0)
    return np.asarray(picture.crop((left, top, left + SIDE, top + SIDE)))


def published_cosines(folder: Path, image_HWC: NDArray[np.uint8], found: list[Detection]) -> list[list[float]]:
    """Zero-shot classification, one object and one text at a time: [M, K]."""
    from transformers import CLIPModel, CLIPTokenizer

    model = CLIPModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = CLIPTokenizer.from_pretrained(folder)

    def text_vector(text: str) -> torch.Tensor:
        ids = tokenizer(text).input_ids
        hidden = model.text_model(input_ids=torch.tensor([ids])).last_hidden_state[0, ids.index(tokenizer.eos_token_id)]
        vector = model.text_projection.weight @ hidden
        return vector / vector.norm()

    def color_vector(color: str, name: str) -> torch.Tensor:
        texts = [f"a photo of a {color} {name}", f"a photo of a {color}-colored {name}", f"a photo of a {color} object"]
        mean = torch.stack([text_vector(text) for text in texts]).mean(dim=0)
        return mean / mean.norm()

    rows = []
    with torch.no_grad():
        for item in found:
            pixels = (published_square(image_HWC, item) / 255 - MEAN) / STD
            tower = model.vision_model(pixel_values=torch.tensor(pixels.transpose(2, 0, 1)[None], dtype=torch.float32))
            vision = model.visual_projection.weight @ model.vision_model.post_layernorm(tower.last_hidden_state[0, 0])
            vision = vision / vision.norm()
            rows.append([float(color_vector(color, item.class_name) @ vision) for color in COLORS])
    return rows


def test_equals_the_published_classifier(folder: Path, classifier: ClipColors, image: NDArray[np.uint8]) -> None:
    """On objects of two classes, in more than one pass, one of them without a mask."""
    found = objects()
    some = [found[i] for i in (0, 1, 2, 17, 18, 19)]
    wanted = np.array(published_cosines(folder, image, some))
    assert np.ptp(wanted, axis=0).min() > 1e-3  # objects differ by more than the tolerance below
    assert np.ptp(wanted, axis=1).min() > 1e-3  # and so do colours
    got = classifier.scores(image, found)[[0, 1, 2, 17, 18, 19]]
    # Pillow 13 may resize a byte a level or two off.
    assert got.numpy() == pytest.approx(wanted, abs=1e-4)
    assert classifier(image, some) == [COLORS[i] for i in wanted.argmax(axis=1)]


def test_the_largest_cosine_names_the_colour(classifier: ClipColors, monkeypatch: pytest.MonkeyPatch) -> None:
    cosines = torch.zeros(2, 10)
    cosines[0, 3] = cosines[1, 9] = 0.2
    monkeypatch.setattr(classifier, "scores", lambda image, found: cosines)
    assert classifier(np.zeros((1, 1, 3), np.uint8), objects()[:2]) == ["green", "white"]


def test_pixels_are_within_one_level_of_pillow(image: NDArray[np.uint8]) -> None:
    """FAULTS 13."""
    for found in objects():
        crop = torch.from_numpy(cut_out(image, found).copy()).permute(2, 0, 1)[None]
        got = middle(crop, SIDE)[0].permute(1, 2, 0).numpy().astype(int)
        assert np.abs(got - published_square(image, found)).max() <= 1


def test_a_large_batch_is_one_by_one_and_the_same_again(classifier: ClipColors, image: NDArray[np.uint8]) -> None:
    found = objects()
    together = classifier(image, found)
    assert together == [classifier(image, [item])[0] for item in found]
    assert together == classifier(image, found)
    assert classifier(image, []) == []


def test_texts_by_hand() -> None:
    assert prompts_of("red", "dining table") == (
        "a photo of a red dining table",
        "a photo of a red-colored dining table",
        "a photo of a red object",
    )


def test_texts_are_read_once_for_each_class(
    classifier: ClipColors, image: NDArray[np.uint8], monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    monkeypatch.setattr(
        "rewards.clip_colors.prompts_of", lambda color, name: seen.append(name) or prompts_of(color, name)
    )
    box = (0.0, 0.0, 20.0, 20.0)
    for _ in range(2):
        classifier(image, [Detection("kite", 0.9, box), Detection("vase", 0.9, box), Detection("kite", 0.8, box)])
    assert seen == ["kite"] * 10 + ["vase"] * 10


def test_mean_of_unit_vectors_by_hand() -> None:
    """(3, 4) and (0, 2) point along (0.6, 0.8) and (0, 1): their mean (0.3, 0.9) has length sqrt(0.9)."""
    weights = zero_shot_weights(torch.tensor([[[3.0, 4.0], [0.0, 2.0]]]))
    assert weights[0].tolist() == pytest.approx([0.3 / 0.9**0.5, 0.9 / 0.9**0.5])


def test_cut_out_by_hand() -> None:
    image = np.arange(4 * 4 * 3, dtype=np.uint8).reshape(4, 4, 3)
    mask = np.zeros((4, 4), np.bool_)
    mask[1, 1] = mask[2, 2] = True
    crop = cut_out(image, Detection("dog", 0.9, (1.0, 1.0, 3.0, 4.0), mask))
    assert crop.shape == (3, 2, 3)
    assert crop[0, 0].tolist() == image[1, 1].tolist()
    assert crop[1, 1].tolist() == image[2, 2].tolist()
    assert crop[0, 1].tolist() == crop[1, 0].tolist() == crop[2, 0].tolist() == [0x99] * 3
    assert cut_out(image, Detection("dog", 0.9, (0.4, 1.6, 2.2, 9.0))).tolist() == image[2:4, 0:2].tolist()


@pytest.mark.parametrize(
    "box", [(4.0, 0.0, 8.0, 4.0), (2.0, 2.0, 2.0, 4.0), (3.0, 0.0, 1.0, 4.0), (-5.0, 0.0, -1.0, 4.0)]
)
def test_a_box_without_pixels_raises(box: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match=r"the dog at .* covers no pixel of a 4 x 4 image"):
        cut_out(np.zeros((4, 4, 3), np.uint8), Detection("dog", 0.9, box))


def test_a_mask_of_another_size_raises() -> None:
    with pytest.raises(ValueError, match=r"a mask of \[2, 2\] does not fit an image of \[4, 4\]"):
        cut_out(np.zeros((4, 4, 3), np.uint8), Detection("dog", 0.9, (0, 0, 2, 2), np.ones((2, 2), np.bool_)))


def test_a_hair_is_cut_before_it_is_enlarged(classifier: ClipColors) -> None:
    """One pixel wide and 800 high: enlarged whole, it would be 25,600 rows here and 179,200 in the real model."""
    hair = torch.arange(800, dtype=torch.int64).floor_divide(4).to(torch.uint8).view(1, 1, 800, 1).expand(1, 3, 800, 1)
    square = middle(hair, SIDE)
    assert square.shape == (1, 3, SIDE, SIDE)
    assert abs(int(square[0, 0, SIDE // 2, 0]) - 100) <= 1  # the middle of the hair is still in the middle
    image = np.zeros((800, 40, 3), np.uint8)
    assert classifier(image, [Detection("tie", 0.9, (3.0, 0.0, 4.0, 800.0))])[0] in COLORS


def test_keeps_the_protocol_and_is_built_from_its_recipe(folder: Path, classifier: ClipColors) -> None:
    assert isinstance(classifier, ColorClassifier)
    assert list(classifier.colors) == COLORS
    args = GenevalArgs(
        detector=f"{FAKES}:PixelDetector",
        colors="rewards.clip_colors:ClipColors",
        colors_args={"checkpoint": str(folder)},
    )
    assert args.colors_args["dtype"] == "float32"
    asked = {"tag": "colors", "include": [{"class": "dog", "count": 1, "color": "red"}]}
    image = np.full((1, 8, 8, 3), 1, np.uint8)  # the detector sees one dog, at (0, 0, 5, 5)
    assert GenevalScorer(args)(image, ["a red dog"], [asked]).scores[0] in (0.5, 1.0)
    with pytest.raises(ValueError, match=r"colors_args\.checkpont"):
        GenevalArgs(detector="a.b:C", colors="rewards.clip_colors:ClipColors", colors_args={"checkpont": "x"})
