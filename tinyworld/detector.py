"""Finds coloured shapes in a picture of the tiny world: no weights, deterministic, about a millisecond a picture.

Every background is light in all three channels and every object is dark in at least one, so the smallest channel
separates them. A connected part is an object; its shape is the template it covers best once both are moved to the same
centre and area. As with detectors of photographs, an object that hardly stands out is found less surely. It implements
``rewards.detection`` in place of the detector and colour model GenEval uses on photos.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy import ndimage

from rewards.detection import Detection
from tinyworld.palette import COLORS, SHAPES, tone
from tinyworld.render import OVERSAMPLE, shape_mask
from tinyworld.scene import SIZE, Item

FOREGROUND_MIN: Final = 0.62
"""A pixel whose smallest channel is below this is of an object; backgrounds stay above 0.74, objects below 0.46."""
MIN_AREA: Final = 20
"""Smaller parts are specks, pixels; the smallest object drawn has about 90."""
FULL_AREA: Final = 60
"""From this area on the size no longer lowers the confidence, pixels."""
IOU_ZERO: Final = 0.50
IOU_FULL: Final = 0.80
"""Overlap with the best template that gives confidence 0 and 1. Clean objects reach 0.79 and more."""
VIVID_ZERO: Final = 0.05
VIVID_FULL: Final = 0.40
"""Vividness, on the way from the muted to the vivid tone of its colour, that gives an object confidence 0 and 1."""
SECOND_SHARE: Final = 0.22
"""Share of a second colour from which a part is taken for two touching objects."""
GRID: Final = 25
"""Side of the grid on which shapes are compared; the unit of length there is the square root of the area."""
EXTENT: Final = 1.05
"""Half of the grid's side in that unit; the widest shape (star) reaches 0.95."""
DARK_VALUE: Final = 0.40
GREY_CHROMA: Final = 0.12


class ColourShapeDetector:
    """``rewards.detection.Detector`` for the shapes of the tiny world."""

    classes = SHAPES

    def __call__(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        """Objects of each of N images (uint8 [N, H, W, 3], of any size)."""
        return [_detect(image) for image in images_NHWC]


class PaletteColors:
    """``rewards.detection.ColorClassifier`` that names the palette colour of nearest hue, or black."""

    colors = COLORS

    def __call__(self, image_HWC: NDArray[np.uint8], detections: Sequence[Detection]) -> list[str]:
        """One colour name per detection; without a mask the middle of the box counts."""
        return [COLORS[int(_color_indices(_core_color(image_HWC, found))[0])] for found in detections]


def _detect(image: NDArray[np.uint8]) -> list[Detection]:
    rgb = image.astype(np.float32) / 255
    smallest = rgb.min(axis=2)
    labels, count = ndimage.label(smallest < FOREGROUND_MIN)
    found = []
    for index, box in enumerate(ndimage.find_objects(labels, count), start=1):
        mask = labels[box] == index
        for part in _split_touching(rgb[box], mask):
            detection = _classify(smallest, part, box)
            if detection is not None:
                sure = np.clip((_vividness(image, detection) - VIVID_ZERO) / (VIVID_FULL - VIVID_ZERO), 0, 1)
                found.append(replace(detection, confidence=detection.confidence * float(sure)))
    return found


def _vividness(image: NDArray[np.uint8], found: Detection) -> float:
    """Where an object lies between the muted (0) and the vivid (1) tone of its colour: by chroma, black by darkness."""
    rgb = _core_color(image, found)[0]
    color = COLORS[int(_color_indices(rgb[None])[0])]
    muted, vivid = (np.array(tone(color, saturation)) / 255 for saturation in (0.0, 1.0))
    if color == "black":
        return float((muted.max() - rgb.max()) / (muted.max() - vivid.max()))
    return float((np.ptp(rgb) - np.ptp(muted)) / (np.ptp(vivid) - np.ptp(muted)))


def _split_touching(rgb: NDArray[np.float32], mask: NDArray[np.bool_]) -> list[NDArray[np.bool_]]:
    """Parts of one connected part by colour, or the part itself when one colour rules it."""
    if mask.sum() < 2 * MIN_AREA:
        return [mask]
    colors = _color_indices(rgb[mask])
    counts = np.bincount(colors, minlength=len(COLORS))
    strong = np.flatnonzero(counts >= max(MIN_AREA, SECOND_SHARE * len(colors)))
    if len(strong) < 2:
        return [mask]
    parts = []
    for color in strong:
        part = np.zeros_like(mask)
        part[mask] = colors == color
        labels, count = ndimage.label(part)
        parts += [labels == index for index in range(1, count + 1)]
    return parts


def _classify(smallest: NDArray[np.float32], mask: NDArray[np.bool_], box: tuple[slice, slice]) -> Detection | None:
    """Shape and confidence of one part; ``mask`` covers ``box`` of the picture."""
    area = int(mask.sum())
    if area < MIN_AREA:
        return None
    overlaps = _overlaps(_soft_coverage(smallest, mask, box))
    best = int(np.argmax(overlaps))
    fit = np.clip((overlaps[best] - IOU_ZERO) / (IOU_FULL - IOU_ZERO), 0, 1)
    size = np.clip((area - MIN_AREA) / (FULL_AREA - MIN_AREA), 0, 1)
    rows = np.flatnonzero(mask.any(axis=1)) + box[0].start
    columns = np.flatnonzero(mask.any(axis=0)) + box[1].start
    full = np.zeros(smallest.shape, dtype=np.bool_)
    full[box] = mask
    return Detection(
        class_name=SHAPES[best],
        confidence=float(fit * size),
        box_xyxy=(float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)),
        mask_HW=full,
    )


def _soft_coverage(
    smallest: NDArray[np.float32], mask: NDArray[np.bool_], box: tuple[slice, slice]
) -> NDArray[np.float32]:
    """Coverage of the pixels in and one around a part, from how far they lie between background and object."""
    padded = np.pad(mask, 2)
    rows, columns = box
    near = np.pad(smallest, 2, mode="edge")[rows.start : rows.stop + 4, columns.start : columns.stop + 4]
    inside = float(np.percentile(smallest[box][mask], 30))
    rim = ndimage.binary_dilation(padded, iterations=1)
    outside = max(0.78, inside + 0.2)
    coverage = np.clip((outside - near) / (outside - inside), 0, 1)
    return np.where(rim, coverage, 0).astype(np.float32)


def _overlaps(coverage: NDArray[np.float32]) -> NDArray[np.float32]:
    """Intersection over union with each shape's template, [len(SHAPES)], after moving to a common centre and area."""
    grid = _to_grid(coverage)
    templates = _templates()
    return np.asarray(np.minimum(grid, templates).sum(axis=(1, 2)) / np.maximum(grid, templates).sum(axis=(1, 2)))


def _to_grid(coverage: NDArray[np.float32]) -> NDArray[np.float32]:
    area = float(coverage.sum())
    y, x = ndimage.center_of_mass(coverage)
    step = 2 * EXTENT * np.sqrt(area) / (GRID - 1)
    start = np.array([y, x]) - EXTENT * np.sqrt(area)
    # Averaging over a grid cell keeps large shapes from aliasing.
    smooth = ndimage.uniform_filter(coverage, size=max(1, round(step)))
    return np.asarray(ndimage.affine_transform(smooth, np.array([step, step]), start, (GRID, GRID), order=1))


@lru_cache
def _templates() -> NDArray[np.float32]:
    grids = []
    for shape in SHAPES:
        drawn = shape_mask(Item(shape, COLORS[0], SIZE / 2, SIZE / 2, 12.0)).reduce(OVERSAMPLE)
        grids.append(_to_grid((np.asarray(drawn) / 255).astype(np.float32)))
    return np.stack(grids)


def _core_color(image: NDArray[np.uint8], found: Detection) -> NDArray[np.float32]:
    """Mean RGB [1, 3] of an object's inner pixels."""
    mask = found.mask_HW
    if mask is None:
        left, top, right, bottom = (round(edge) for edge in found.box_xyxy)
        mask = np.zeros(image.shape[:2], dtype=np.bool_)
        mask[top:bottom, left:right] = True
    core = ndimage.binary_erosion(mask)
    pixels = image[core if core.any() else mask].astype(np.float32) / 255
    return np.asarray(np.median(pixels, axis=0, keepdims=True))


@lru_cache
def _palette_hues() -> NDArray[np.float32]:
    """Hue of each colour in turns; black has none and gets NaN."""
    hues = _hues((np.array([tone(color, 0.5) for color in COLORS]) / 255).astype(np.float32))
    hues[COLORS.index("black")] = np.nan
    return hues


def _hues(rgb: NDArray[np.float32]) -> NDArray[np.float32]:
    """Hue [N] in [0, 1) of RGB [N, 3]."""
    red, green, blue = rgb[:, 0], rgb[:, 1], rgb[:, 2]
    largest = rgb.max(axis=1)
    chroma = np.maximum(largest - rgb.min(axis=1), 1e-6)
    sextant = np.where(
        largest == red,
        (green - blue) / chroma % 6,
        np.where(largest == green, (blue - red) / chroma + 2, (red - green) / chroma + 4),
    )
    return np.asarray(sextant / 6, dtype=np.float32)


def _color_indices(rgb: NDArray[np.float32]) -> NDArray[np.intp]:
    """Index into ``COLORS`` of each of N pixels [N, 3]."""
    largest = rgb.max(axis=1)
    dark = (largest < DARK_VALUE) | (largest - rgb.min(axis=1) < GREY_CHROMA)
    gap = np.abs(_hues(rgb)[:, None] - _palette_hues()[None, :])
    nearest = np.nanargmin(np.minimum(gap, 1 - gap), axis=1)
    return np.where(dark, COLORS.index("black"), nearest)
