"""What GenEval's rules need from a detector and a colour classifier, whatever stands behind them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Detection:
    """One object found in one image."""

    class_name: str
    confidence: float
    """In [0, 1]."""
    box_xyxy: tuple[float, float, float, float]
    """Left, top, right, bottom in pixels, right and bottom exclusive."""
    mask_HW: NDArray[np.bool_] | None = None
    """[H, W] pixels of the object, or None when the detector gives boxes only."""


@runtime_checkable
class Detector(Protocol):
    """Finds objects of a closed set of classes."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Class names it can find, as they stand in prompt metadata."""
        ...

    def __call__(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        """Detections of each of N images (uint8 [N, H, W, 3]), in any order, at any confidence."""
        ...


@runtime_checkable
class ColorClassifier(Protocol):
    """Names the colour of detected objects."""

    @property
    def colors(self) -> tuple[str, ...]:
        """Colour names it can give."""
        ...

    def __call__(self, image_HWC: NDArray[np.uint8], detections: Sequence[Detection]) -> list[str]:
        """One colour name per detection of one image (uint8 [H, W, 3])."""
        ...
