"""Rewards that look at the pixels alone: cheap, without a model, and each of them a measure somebody published.

They apply to every prompt and are reached by their dotted paths, e.g. `rewards.image_statistics:Sharpness`.
Letters: N images of H × W pixels.
"""

import io
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rewards.contract import Metadata, RewardResult
from rewards.images import check_batch
from rewards.results import Cell, collect

Floats = NDArray[np.float64]

LUMA = np.array([0.299, 0.587, 0.114])
"""Grey of RGB (ITU-R BT.601)."""
WELL_EXPOSED, EXPOSURE_SIGMA = 0.5, 0.2
"""Centre and width of Mertens's Gaussian, intensities in 0..1."""


class _Statistic(ABC):
    """Scores each image by itself."""

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]).

        Raises:
            ValueError: a batch that is not as rewards.images.check_batch wants it.
        """
        images = check_batch(images_NHWC, prompts, metadata)
        return collect([Cell.scored(self.value(image)) for image in images])

    @abstractmethod
    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """The measure of one image."""


class Compressibility(_Statistic):
    """−bits per pixel as JPEG (Black et al., arXiv 2305.13301): simple pictures."""

    def __init__(self, quality: int = 95) -> None:
        """
        Raises:
            ValueError: no quality of JPEG.
        """
        if not 1 <= quality <= 95:
            raise ValueError(f"quality must be 1 to 95, got {quality}")
        self.quality = quality

    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """See the class."""
        file = io.BytesIO()
        Image.fromarray(image_HWC).save(file, "JPEG", quality=self.quality)
        return -8.0 * len(file.getvalue()) / (image_HWC.shape[0] * image_HWC.shape[1])


class Sharpness(_Statistic):
    """log(1 + variance of the Laplacian), grey in 0..255 (Pech-Pacheco et al. 2000); the log tames checkerboards."""

    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """See the class."""
        grey = np.pad(255 * grey_HW(image_HWC), 1, mode="edge")
        around = grey[:-2, 1:-1] + grey[2:, 1:-1] + grey[1:-1, :-2] + grey[1:-1, 2:]
        return math.log1p(float(np.var(around - 4 * grey[1:-1, 1:-1])))


class Contrast(_Statistic):
    """RMS contrast: σ of grey in 0..1 (Peli 1990)."""

    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """See the class."""
        return float(grey_HW(image_HWC).std())


class Colorfulness(_Statistic):
    """σ + 0.3 μ of the opponent colours in 0..1 (Hasler and Süsstrunk 2003, M3)."""

    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """See the class."""
        red, green, blue = (image_HWC.astype(np.float64) / 255).transpose(2, 0, 1)
        opponents = np.stack([red - green, (red + green) / 2 - blue])
        return float(np.hypot(*opponents.std((1, 2))) + 0.3 * np.hypot(*opponents.mean((1, 2))))


class Exposure(_Statistic):
    """Mean over pixels of ∏ over channels exp(−(i − 0.5)²/(2·0.2²)) (Mertens et al. 2007, well-exposedness)."""

    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """See the class."""
        distance_HW = ((image_HWC / 255.0 - WELL_EXPOSED) ** 2).sum(-1)
        return float(np.exp(-distance_HW / (2 * EXPOSURE_SIGMA**2)).mean())


class Entropy(_Statistic):
    """Shannon entropy of the grey histogram, 256 bins, in units of its 8 bits (Shannon 1948)."""

    def value(self, image_HWC: NDArray[np.uint8]) -> float:
        """See the class."""
        counts = np.bincount(np.rint(255 * grey_HW(image_HWC)).astype(np.int64).ravel(), minlength=256)
        shares = counts[counts > 0] / counts.sum()
        return float(-(shares * np.log2(shares)).sum() / 8)


def grey_HW(image_HWC: NDArray[np.uint8]) -> Floats:
    """[H, W] grey in 0..1."""
    return np.asarray(image_HWC / 255.0 @ LUMA)
