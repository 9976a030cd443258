"""The held-out detector and colour classifier: nothing of them is ``tinyworld.detector``'s, which training sees.

The detector is the trained network of ``spot_net``; the classifier lets the pixels of an object vote for the
nearest tone of the palette, where the other one asks for the hue of the middle.
"""

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import load_file
from torch.nn import functional

from rewards.detection import Detection
from tinyworld.palette import COLORS, SHAPES, tone
from tinyworld.scene import SIZE
from tinyworld.spot_net import CELL, FOLDER, WEIGHTS_FILE, build_spot_net

MIN_SURENESS: Final = 0.44
"""What the network is less sure of is no object; what it is surer of counts under every tag of GenEval. A focal loss
leaves a network modest: at this number 94% of clean pictures are read right and a quarter of spoilt ones (0.7), at 0.5
81% and 16%, at 0.35 99% and 36%, on 500 pictures each of `judge_report.pictures(1, 500, ...)`."""
SURE: Final = 0.9
"""GenEval's own threshold where objects are counted; ours takes its place, so confidences start just above it."""
REACH: Final = 0.8
"""Share of an object's box, per axis, whose pixels vote for its colour."""
BACKGROUND: Final = 0.20
"""A pixel further than this from every tone of the palette, of the length of RGB in 0..1, votes for none."""
NO_COLOR: Final = "none"
"""Name of what no pixel votes for: cyan, grey, the background."""
BATCH: Final = 64


class StrictDetector:
    """``rewards.detection.Detector`` for whole, clean shapes."""

    classes = SHAPES

    def __init__(self, folder: str | None = None, min_sureness: float = MIN_SURENESS) -> None:
        """Load the weights.

        Args:
            folder: where they lie; None is the shipped ones.
        """
        self._net = build_spot_net(0)
        tensors = load_file(Path(folder or FOLDER) / WEIGHTS_FILE)
        self._net.load_state_dict({key: tensor.float() for key, tensor in tensors.items()})
        self._net.eval().requires_grad_(False)
        self._min = min_sureness

    @torch.inference_mode()
    def __call__(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        """Objects of each of N images (uint8 [N, H, W, 3], of any size)."""
        found: list[list[Detection]] = []
        for at in range(0, len(images_NHWC), BATCH):
            part = images_NHWC[at : at + BATCH]
            height, width = part.shape[1:3]
            pixels = torch.from_numpy(np.ascontiguousarray(part)).permute(0, 3, 1, 2).float() / 255
            if (height, width) != (SIZE, SIZE):
                pixels = functional.interpolate(pixels, (SIZE, SIZE), mode="area")
            logits, places = self._net(pixels)
            sureness, places = torch.sigmoid(logits).numpy(), places.numpy()
            scale = np.array([width, height, width, height]) / SIZE
            found += [self._objects(s, p, scale) for s, p in zip(sureness, places, strict=True)]
        return found

    def _objects(
        self, sureness: NDArray[np.float32], places: NDArray[np.float32], scale: NDArray[np.float64]
    ) -> list[Detection]:
        objects = []
        for shape, row, column in np.argwhere(_peaks(sureness) & (sureness >= self._min)):
            x, y, radius = CELL * (places[:, row, column] + (column, row, 0))
            box = np.clip([x - radius, y - radius, x + radius, y + radius], 0, SIZE) * scale
            share = (sureness[shape, row, column] - self._min) / (1 - self._min)
            confidence = SURE + 1e-3 + (1 - SURE - 1e-3) * float(share)
            left, top, right, bottom = map(float, box)
            objects.append(Detection(SHAPES[shape], confidence, (left, top, right, bottom)))
        return objects


def _peaks(sureness: NDArray[np.float32]) -> NDArray[np.bool_]:
    """Where [shapes, H, W] a cell is the surest of its 3×3 neighbours in any shape: one object, one name."""
    best = torch.from_numpy(sureness).amax(dim=0)[None, None]
    around = functional.max_pool2d(best, 3, stride=1, padding=1)[0, 0].numpy()
    return np.asarray(sureness == around)


class NearestTone:
    """``rewards.detection.ColorClassifier`` by the votes of an object's pixels."""

    colors = (*COLORS, NO_COLOR)

    def __call__(self, image_HWC: NDArray[np.uint8], detections: Sequence[Detection]) -> list[str]:
        """One colour name per detection; NO_COLOR where no pixel has a tone of the palette."""
        return [_elected(image_HWC, found) for found in detections]


def _elected(image_HWC: NDArray[np.uint8], found: Detection) -> str:
    left, top, right, bottom = found.box_xyxy
    rows, columns = _voters(top, bottom, image_HWC.shape[0]), _voters(left, right, image_HWC.shape[1])
    pixels = image_HWC[rows, columns].reshape(-1, 3).astype(np.float32) / 255
    distances = np.linalg.norm(pixels[:, None, None] - _tones()[None], axis=-1).min(axis=2)  # [pixels, colours]
    voting = distances.min(axis=1) < BACKGROUND
    votes = np.bincount(distances[voting].argmin(axis=1), minlength=len(COLORS))
    return COLORS[int(votes.argmax())] if voting.any() else NO_COLOR


def _voters(low: float, high: float, size: int) -> slice:
    """The middle of a box along one axis, one pixel of the image at least."""
    trim = (1 - REACH) / 2 * (high - low)
    first = min(max(int(low + trim), 0), size - 1)
    return slice(first, max(int(high - trim), first + 1))


@lru_cache
def _tones() -> NDArray[np.float32]:
    """[colours, steps, 3] RGB in 0..1 from muted to vivid."""
    tones = [[tone(color, step) for step in np.linspace(0, 1, 6)] for color in COLORS]
    return (np.array(tones) / 255).astype(np.float32)
