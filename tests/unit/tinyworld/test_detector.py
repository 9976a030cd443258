"""The detector against the renderer, which knows the truth."""

import dataclasses

import numpy as np
import pytest
from numpy.typing import NDArray

from rewards.detection import ColorClassifier, Detector
from tinyworld.captions import GENEVAL_TAGS, sample_geneval
from tinyworld.detector import ColourShapeDetector, PaletteColors
from tinyworld.palette import COLORS, SHAPES
from tinyworld.render import render
from tinyworld.scene import BACKGROUNDS, Background, Item, Scene, Style
from tinyworld.world import realise

COUNTING_CONFIDENCE = 0.9
"""GenEval's threshold where objects are counted."""


def drawn(
    seed: int, count: int, background: Background | None = None, saturation: float = 0.8
) -> tuple[list[Scene], NDArray[np.uint8]]:
    rng = np.random.default_rng(seed)
    scenes = []
    for index in range(count):
        prompt = sample_geneval(rng, ("seen", "unseen")[index % 2], GENEVAL_TAGS[index % len(GENEVAL_TAGS)])
        scene = realise(prompt, rng, ("seen", "unseen")[index % 2])
        style = dataclasses.replace(scene.style, saturation=saturation, background=background or scene.style.background)
        scene = dataclasses.replace(scene, style=style)
        scenes.append(scene)
    return scenes, np.stack([render(scene) for scene in scenes])


def share_right(scenes: list[Scene], images: NDArray[np.uint8]) -> float:
    """Share of pictures of which exactly the drawn objects are found, above the threshold for counting."""
    colors = PaletteColors()
    right = 0
    for scene, image, found in zip(scenes, images, ColourShapeDetector()(images), strict=True):
        sure = [detection for detection in found if detection.confidence > COUNTING_CONFIDENCE]
        names = zip(sure, colors(image, sure), strict=True)
        right += sorted((d.class_name, c) for d, c in names) == sorted((i.shape, i.color) for i in scene.items)
    return right / len(scenes)


@pytest.mark.parametrize("background", BACKGROUNDS)
def test_clean_pictures_are_read_right_in_every_style(background: Background) -> None:
    assert share_right(*drawn(11, 150, background)) >= 0.97


@pytest.mark.parametrize(("saturation", "low", "high"), [(0.0, 0.0, 0.05), (0.22, 0.3, 0.7), (0.6, 0.95, 1.0)])
def test_what_hardly_stands_out_is_found_less_surely(saturation: float, low: float, high: float) -> None:
    """Whatever its colour: at 0.05 of the way to the vivid tone nothing is sure, at 0.4 everything."""
    found = [sure for image in ColourShapeDetector()(drawn(13, 60, "plain", saturation)[1]) for sure in image]
    confidences = np.array([detection.confidence for detection in found])
    assert len(confidences) >= 60
    assert low <= np.median(confidences) <= high


def test_slightly_blurred_pictures_are_read_right() -> None:
    scenes, images = drawn(12, 240)
    shifted = [np.roll(images, shift, axis) for axis in (1, 2) for shift in (-1, 1)]
    blurred = (np.mean([images, *shifted], axis=0)).astype(np.uint8)
    assert share_right(scenes, blurred) >= 0.9


def test_boxes_and_masks_are_where_the_objects_are() -> None:
    style = Style(1.0, "plain", 0.5, 0.0, 0.5, 0.0, 0.5)
    image = render(Scene("geneval", "", style, (Item("square", "red", 20.0, 40.0, 10.0),)))
    (found,) = ColourShapeDetector()(image[None])[0]
    assert found.class_name == "square"
    np.testing.assert_allclose(found.box_xyxy, (11, 31, 29, 49), atol=1.0)
    assert found.mask_HW is not None
    assert found.mask_HW.shape == (64, 64)
    assert found.mask_HW[40, 20]
    assert PaletteColors()(image, [found]) == ["red"]


def test_touching_objects_of_two_colours_are_two() -> None:
    style = Style(1.0, "plain", 0.5, 0.0, 0.5, 0.0, 0.5)
    items = (Item("square", "red", 20.0, 32.0, 11.0), Item("square", "blue", 40.0, 32.0, 11.0))
    found = ColourShapeDetector()(render(Scene("geneval", "", style, items))[None])[0]
    assert [detection.class_name for detection in found] == ["square", "square"]


def test_confidence_falls_smoothly_as_a_shape_is_eaten_away() -> None:
    style = Style(1.0, "plain", 0.5, 0.0, 0.5, 0.0, 0.5)
    confidences = []
    for eaten in range(0, 12, 2):
        image = render(Scene("geneval", "", style, (Item("square", "black", 32.0, 32.0, 14.0),))).copy()
        image[16 : 16 + eaten, 16 : 16 + 2 * eaten] = 250
        found = [d for d in ColourShapeDetector()(image[None])[0] if d.class_name == "square"]
        confidences.append(max((d.confidence for d in found), default=0.0))
    assert confidences[0] > COUNTING_CONFIDENCE
    assert confidences == sorted(confidences, reverse=True)
    assert max(np.abs(np.diff(confidences))) < 0.7


def test_empty_and_noisy_pictures_do_not_break_it() -> None:
    rng = np.random.default_rng(0)
    images = np.stack([np.full((64, 64, 3), 255), np.zeros((64, 64, 3)), rng.integers(0, 256, (64, 64, 3))])
    found = ColourShapeDetector()(images.astype(np.uint8))
    assert found[0] == []
    assert all(0 <= detection.confidence <= 1 for detections in found for detection in detections)


def test_it_keeps_the_protocols() -> None:
    assert isinstance(ColourShapeDetector(), Detector)
    assert isinstance(PaletteColors(), ColorClassifier)
    assert ColourShapeDetector().classes == SHAPES
    assert PaletteColors().colors == COLORS
    assert PaletteColors()(np.zeros((64, 64, 3), np.uint8), []) == []
