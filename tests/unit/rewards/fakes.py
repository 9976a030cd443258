"""Stand-ins that read their answer out of the image, so that a mix-up of samples shows."""

import sys
import time
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.contract import Metadata, RewardResult
from rewards.detection import Detection
from rewards.results import from_scores


def painted(*values: int) -> NDArray[np.uint8]:
    """Images (uint8 [N, 4, 4, 3]), each filled with its value."""
    return np.stack([np.full((4, 4, 3), value, np.uint8) for value in values])


class PixelScorer:
    """Scores the first pixel over 100, plus a last bit that depends on the batch size as real models' scores do.

    Pixel 255 raises, 254 gives NaN through the contract's own check.
    """

    def __init__(self, offset: float = 0.0) -> None:
        self.offset = offset
        self.batches: list[list[int]] = []

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        values = [int(image[0, 0, 0]) for image in images_NHWC]
        self.batches.append(values)
        if 255 in values:
            raise RuntimeError(f"cannot score {prompts[values.index(255)]}")
        shape_noise = 1e-6 * len(values)
        return from_scores([float("nan") if v == 254 else v / 100 + self.offset + shape_noise for v in values])


class SlowScorer:
    """Scores the first pixel over 100; takes a second over pixel 200."""

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        values = [int(image[0, 0, 0]) for image in images_NHWC]
        if 200 in values:
            time.sleep(1.0)
        return from_scores([value / 100 for value in values])


class FailsToStart:
    """Raises a TypeError of its own."""

    def __init__(self, size: int = 1) -> None:
        raise TypeError("weights are of another type")


class ExitsAtStart:
    """Ends as a program does whose command line is wrong."""

    def __init__(self) -> None:
        sys.exit("usage: weights")


class PixelDetector:
    """Finds as many dogs as the first pixel says, side by side; pixel 253 raises, 254 gives a NaN confidence."""

    classes = ("dog", "cat")

    def __init__(self, confidence: float = 0.95) -> None:
        self.confidence = confidence
        self.batch_sizes: list[int] = []

    def __call__(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        self.batch_sizes.append(len(images_NHWC))
        return [self._dogs(int(image[0, 0, 0])) for image in images_NHWC]

    def _dogs(self, value: int) -> list[Detection]:
        if value == 253:
            raise RuntimeError("detector broke")
        if value == 254:
            return [Detection("dog", float("nan"), (0, 0, 1, 1))]
        return [Detection("dog", self.confidence, (10.0 * i, 0, 10.0 * i + 5, 5)) for i in range(value)]


class RedClassifier:
    """Calls everything red; raises on an image whose second channel is set."""

    colors = ("red", "blue")

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, image_HWC: NDArray[np.uint8], detections: Sequence[Detection]) -> list[str]:
        self.calls += 1
        if image_HWC[0, 0, 1] != image_HWC[0, 0, 0]:
            raise RuntimeError("classifier broke")
        return ["red"] * len(detections)


class NotAScorer:
    """Keeps no protocol at all."""
