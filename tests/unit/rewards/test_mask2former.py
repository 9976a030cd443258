"""GenEval's detector against mmdetection's steps, written out here from its source: FAULTS 12, 13.

The reference works in NumPy on one image and one instance at a time; the network in the middle is the same.
"""

import math
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from PIL import Image

from rewards.config import GenevalArgs, Mask2FormerArgs
from rewards.detection import Detection, Detector
from rewards.geneval import GenevalScorer
from rewards.geneval_names import CLASSES
from rewards.mask2former import Mask2FormerDetector, instances, network_size, padded, resized_bilinear
from tests.unit.rewards.tiny_mask2former import SEED, SIDE, tiny_model

DETECTOR = "rewards.mask2former:Mask2FormerDetector"


@pytest.fixture(scope="module")
def detector(mask2former_folder: Path) -> Mask2FormerDetector:
    return Mask2FormerDetector(
        Mask2FormerArgs(checkpoint=str(mask2former_folder), short_side=90, long_side=130, batch_size=2)
    )


@pytest.fixture(scope="module")
def images() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (5, SIDE, SIDE, 3), dtype=np.uint8)


# -- the published steps ----------------------------------------------------------------------------------------------


def bilinear(grid_HW: NDArray[np.float32], height: int, width: int) -> NDArray[np.float64]:
    """Bilinear interpolation with half-pixel centres and clamped borders, as torch's with align_corners=False."""

    def weights(size_in: int, size_out: int) -> NDArray[np.float64]:
        matrix = np.zeros((size_out, size_in))
        for out in range(size_out):
            at = max((out + 0.5) * size_in / size_out - 0.5, 0.0)
            low = min(int(at), size_in - 1)
            high = min(low + 1, size_in - 1)
            matrix[out, low] += 1 - (at - low)
            matrix[out, high] += at - low
        return matrix

    return weights(grid_HW.shape[0], height) @ grid_HW @ weights(grid_HW.shape[1], width).T


def opencv_resize(pixels_NCHW: torch.Tensor, size: tuple[int, int]) -> torch.Tensor:
    """What mmcv resizes with."""
    images = pixels_NCHW.permute(0, 2, 3, 1).contiguous().numpy()
    resized = [cv2.resize(image, size[::-1], interpolation=cv2.INTER_LINEAR) for image in images]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2)


def reference(image_HWC: NDArray[np.uint8], model: Any, size: tuple[int, int]) -> list[Detection]:
    """What GenEval gets from mmdetection for one image (unsorted), above confidence 0.3."""
    height, width = image_HWC.shape[:2]
    resized = cv2.resize(image_HWC, size[::-1], interpolation=cv2.INTER_LINEAR)
    below, right = -size[0] % 32, -size[1] % 32
    filled = np.pad(resized, ((0, below), (0, right), (0, 0)), constant_values=128).astype(np.float64)
    inputs = (filled - [123.675, 116.28, 103.53]) / [58.395, 57.12, 57.375]
    with torch.inference_mode():
        output = model(pixel_values=torch.tensor(inputs.transpose(2, 0, 1)[None], dtype=torch.float32))
    logits = output.class_queries_logits[0].double().numpy()
    scores = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    found = []
    for flat in np.argsort(-scores[:, :-1], axis=None)[:100]:
        query, label = divmod(int(flat), scores.shape[1] - 1)
        mask = output.masks_queries_logits[0, query].numpy()
        mask = bilinear(mask, *filled.shape[:2])[: size[0], : size[1]]
        mask = bilinear(mask, height, width)
        inside = mask > 0
        confidence = scores[query, label] * (inside / (1 + np.exp(-mask))).sum() / (inside.sum() + 1e-6)
        if confidence > 0.3:
            ys, xs = np.nonzero(inside)
            box = (float(xs.min()), float(ys.min()), float(xs.max() + 1), float(ys.max() + 1))
            found.append(Detection(CLASSES[label], float(confidence), box, inside))
    return found


def surest_first(found: list[Detection]) -> list[Detection]:
    return sorted(found, key=lambda item: -item.confidence)


@pytest.mark.parametrize(("height", "width", "size"), [(SIDE, SIDE, (90, 90)), (50, 100, (65, 130))])
def test_equals_the_published_pipeline(
    detector: Mask2FormerDetector, monkeypatch: pytest.MonkeyPatch, height: int, width: int, size: tuple[int, int]
) -> None:
    """Padding, mask resolution, confidence and box, on a square image and a wide one.

    A random network makes much of one grey level, so the resize, which has a test of its own, is OpenCV's here.
    """
    monkeypatch.setattr("rewards.mask2former.resized_bilinear", opencv_resize)
    image = np.random.default_rng(7).integers(0, 256, (height, width, 3), dtype=np.uint8)
    wanted = surest_first(reference(image, tiny_model(SEED), size))
    got = surest_first(detector(image[None])[0])
    assert len(wanted) >= 8
    assert [d.class_name for d in got] == [d.class_name for d in wanted]
    assert [d.confidence for d in got] == pytest.approx([d.confidence for d in wanted], abs=1e-4)
    assert [d.box_xyxy for d in got] == [d.box_xyxy for d in wanted]
    assert all(np.array_equal(a.mask_HW, b.mask_HW) for a, b in zip(got, wanted, strict=True))


@pytest.mark.parametrize(
    ("height", "width", "expected"),
    [
        (512, 512, (800, 800)),
        (1024, 1024, (800, 800)),
        (480, 640, (800, 1067)),
        (640, 480, (1067, 800)),
        # The longer side decides: 1333 / 2000 of 500 pixels is 333.25.
        (500, 2000, (333, 1333)),
        # 800 / 333 of 400 pixels is 960.96.
        (333, 400, (800, 961)),
    ],
)
def test_network_size_by_hand(height: int, width: int, expected: tuple[int, int]) -> None:
    assert network_size((height, width), 800, 1333) == expected


@pytest.mark.parametrize(
    ("size_in", "size_out"), [((64, 64), (100, 100)), ((37, 53), (90, 128)), ((90, 120), (60, 80))]
)
def test_resize_is_within_one_level_of_opencv(size_in: tuple[int, int], size_out: tuple[int, int]) -> None:
    """FAULTS 13; also of Pillow where it enlarges (Pillow smooths when it shrinks, OpenCV does not)."""
    image = np.random.default_rng(1).integers(0, 256, (*size_in, 3), dtype=np.uint8)
    got = resized_bilinear(torch.tensor(image).permute(2, 0, 1)[None], size_out)[0].permute(1, 2, 0).numpy().astype(int)
    wanted = cv2.resize(image, size_out[::-1], interpolation=cv2.INTER_LINEAR)
    assert np.abs(got - wanted).max() <= 1
    if size_out > size_in:
        pillow = np.asarray(Image.fromarray(image).resize(size_out[::-1], Image.Resampling.BILINEAR))
        assert np.abs(got - pillow).max() <= 1


def test_padding_is_grey_below_and_to_the_right() -> None:
    filled = padded(torch.zeros(1, 3, 40, 64, dtype=torch.uint8))
    assert filled.shape == (1, 3, 64, 64)
    assert filled[:, :, :40].max() == 0
    assert (filled[:, :, 40:] == 128).all()


# -- instances by hand ------------------------------------------------------------------------------------------------


def found_in(classes: list[list[float]], masks: list[list[list[float]]], min_confidence: float) -> list[Detection]:
    """Instances of hand-made probabilities [Q, C + 1] and mask logits [Q, h, w] that need no resize."""
    logits = torch.tensor(classes).log()
    size = (len(masks[0]), len(masks[0][0]))
    return instances(logits, torch.tensor(masks), size, size, size, min_confidence)


TO_075 = math.log(3.0)
"""A logit whose probability is 0.75."""
TO_050_AND_A_BIT = 1e-6


def test_confidence_box_and_mask_by_hand() -> None:
    """Class probability 0.6 times mean mask probability (0.75 + 0.5)/2: 0.375. The second class gets 0.3 * 0.625."""
    mask = [[-1.0, TO_075, -1.0], [-1.0, TO_050_AND_A_BIT, 0.0]]
    one, two = found_in([[0.6, 0.3, 0.1]], [mask], 0.1)
    assert (one.class_name, two.class_name) == ("person", "bicycle")
    assert (one.confidence, two.confidence) == pytest.approx((0.375, 0.1875), abs=1e-5)
    assert one.box_xyxy == (1.0, 0.0, 2.0, 2.0)  # right and bottom exclusive
    assert one.mask_HW is not None
    assert one.mask_HW.tolist() == [[False, True, False], [False, True, False]]  # a logit of 0 is outside


@pytest.mark.parametrize(
    ("min_confidence", "names"), [(0.1, ["person", "bicycle"]), (0.2, ["person"]), (0.37, ["person"]), (0.38, [])]
)
def test_what_is_not_surer_is_left_out(min_confidence: float, names: list[str]) -> None:
    mask = [[TO_075, TO_050_AND_A_BIT]]
    assert [item.class_name for item in found_in([[0.6, 0.3, 0.1]], [mask], min_confidence)] == names


def test_an_empty_mask_is_no_instance() -> None:
    """Its confidence is 0/1e-6, whatever the class's probability."""
    assert found_in([[0.98, 0.01, 0.01]], [[[-1.0, -2.0]]], 0.0) == []


def test_no_object_is_no_class_and_masks_may_overlap() -> None:
    everywhere = [[9.0, 9.0]]
    found = found_in([[0.05, 0.05, 0.9], [0.8, 0.1, 0.1], [0.1, 0.7, 0.2]], [everywhere] * 3, 0.3)
    assert [item.class_name for item in found] == ["person", "bicycle"]
    assert all(item.mask_HW is not None and item.mask_HW.all() for item in found)


def test_at_most_a_hundred_pairs() -> None:
    """120 queries sure of one class each: the 100 surest are instances."""
    probabilities = [[0.5 + i / 300, 0.0, 0.5 - i / 300] for i in range(120)]
    found = found_in(probabilities, [[[9.0]]] * 120, 0.3)
    assert len(found) == 100
    assert min(item.confidence for item in found) == pytest.approx(0.5 + 20 / 300, abs=1e-3)


def test_padding_is_cut_off_before_the_masks_are_resized() -> None:
    """An object in the padded right half only is not in the image."""
    logits = torch.tensor([[0.9, 0.1]]).log()
    mask = torch.tensor([[[-9.0, -9.0, 9.0, 9.0]] * 4])
    assert instances(logits, mask, (4, 4), (4, 2), (8, 4), 0.1) == []
    (found,) = instances(logits, -mask, (4, 4), (4, 2), (8, 4), 0.1)
    assert found.box_xyxy == (0.0, 0.0, 4.0, 8.0)
    assert found.mask_HW is not None
    assert found.mask_HW.shape == (8, 4)


# -- the class --------------------------------------------------------------------------------------------------------


def test_keeps_the_protocol(detector: Mask2FormerDetector, images: NDArray[np.uint8]) -> None:
    assert isinstance(detector, Detector)
    assert detector.classes == CLASSES
    found = detector(images)
    assert len(found) == len(images)
    for one in found[0]:
        assert one.class_name in CLASSES
        assert 0.3 < one.confidence <= 1.0
        assert one.mask_HW is not None
        assert one.mask_HW.shape == (SIDE, SIDE)
        assert one.mask_HW.dtype == np.bool_


def test_nothing_in_nothing_out(detector: Mask2FormerDetector) -> None:
    assert detector(np.zeros((0, SIDE, SIDE, 3), np.uint8)) == []


def test_a_large_batch_is_one_by_one_and_the_same_again(
    detector: Mask2FormerDetector, images: NDArray[np.uint8]
) -> None:
    together, again = detector(images), detector(images)
    alone = [detector(images[i : i + 1])[0] for i in range(len(images))]
    for a, b, c in zip(together, again, alone, strict=True):
        assert [(d.class_name, d.confidence, d.box_xyxy) for d in a] == [
            (d.class_name, d.confidence, d.box_xyxy) for d in b
        ]
        a, c = surest_first(a), surest_first(c)
        assert [d.class_name for d in a] == [d.class_name for d in c]
        assert [d.confidence for d in a] == pytest.approx([d.confidence for d in c], abs=1e-5)
        assert all(np.array_equal(one.mask_HW, other.mask_HW) for one, other in zip(a, c, strict=True))


@pytest.mark.parametrize(("dtype", "tolerance"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_half_precision_stays_near(
    detector: Mask2FormerDetector, images: NDArray[np.uint8], dtype: str, tolerance: float
) -> None:
    half = Mask2FormerDetector(detector.args.model_copy(update={"dtype": dtype}))
    assert half._model.dtype == getattr(torch, dtype)
    for near, exact in zip(half(images), detector(images), strict=True):
        assert surest_first(near)[0].confidence == pytest.approx(surest_first(exact)[0].confidence, abs=tolerance)


def test_numbers_that_are_not_finite_raise(detector: Mask2FormerDetector, monkeypatch: pytest.MonkeyPatch) -> None:
    """A NaN confidence compares as false and would pass for an object that is not there (FAULTS 8)."""
    weight = detector._model.class_predictor.weight
    monkeypatch.setattr(weight, "data", torch.full_like(weight, float("nan")))
    with pytest.raises(RuntimeError, match="float32 gave values that are not finite"):
        detector(np.zeros((1, SIDE, SIDE, 3), np.uint8))


def test_images_are_checked(detector: Mask2FormerDetector) -> None:
    """FAULTS 13."""
    with pytest.raises(ValueError, match="must be uint8"):
        detector(np.zeros((1, SIDE, SIDE, 3), np.float32))  # type: ignore[arg-type]


def test_the_scorer_is_built_from_its_recipe(mask2former_folder: Path, images: NDArray[np.uint8]) -> None:
    args = GenevalArgs(
        detector=DETECTOR, detector_args={"checkpoint": str(mask2former_folder), "short_side": 90, "long_side": 130}
    )
    scorer = GenevalScorer(args)
    asked = [{"tag": "single_object", "include": [{"class": "handbag", "count": 1}]}] * 2
    states = scorer(images[1:3], ["a photo of a handbag"] * 2, asked).states
    assert states.tolist() == [0, 0]
    assert scorer.self_test_metadata()["include"][0]["class"] == "person"


def test_arguments_are_checked_and_filled_in_when_the_recipe_is_loaded() -> None:
    args = GenevalArgs(detector=DETECTOR, detector_args={"checkpoint": "x/y"})
    assert args.detector_args["short_side"] == 800
    assert args.detector_args["long_side"] == 1333
    with pytest.raises(ValueError, match=r"detector_args\.min_confidence"):  # it would hide what the rules look at
        GenevalArgs(detector=DETECTOR, detector_args={"checkpoint": "x/y", "min_confidence": 0.5})
    with pytest.raises(ValueError, match=r"detector_args\.chekpoint"):
        GenevalArgs(detector=DETECTOR, detector_args={"chekpoint": "x/y"})
    with pytest.raises(ValueError, match=r"detector_args\.checkpoint"):
        GenevalArgs(detector=DETECTOR)
    assert GenevalArgs(detector="my.own:Detector", detector_args={"anything": 1}).detector_args == {"anything": 1}
