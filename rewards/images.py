"""The one place where images are checked and resized.

Letters: N images of H × W pixels and C = 3 channels (RGB). Every scorer takes uint8 [N, H, W, 3] and nothing else: a
float image may mean [0, 1], [-1, 1] or [0, 255], and guessing wrong gives plausible scores of wrong pictures.

Resizing is Pillow's bicubic filter (a = -1/2, widened when shrinking) written as integer matrices, so that Pillow
itself (here) and torch on any device (rewards.preprocess) give the same bytes.
"""

from collections.abc import Mapping, Sequence
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from rewards.contract import Metadata

COEFFICIENT_BITS = 22
"""Pillow's fixed point for 8-bit images: 32 bits less 8 for the pixel and 2 for the overshoot of the filter."""

_CUBIC_A = -0.5
_CUBIC_SUPPORT = 2.0


def check_images(images: object) -> NDArray[np.uint8]:
    """The images themselves if they are uint8 [N, H, W, 3].

    Raises:
        ValueError: anything else, with what was got (dtype, shape, value range, values that are not finite).
    """
    if not isinstance(images, np.ndarray):
        raise ValueError(f"images must be a numpy array of uint8 [N, H, W, 3], got {type(images).__name__}")
    if images.dtype != np.uint8:
        raise ValueError(f"images must be uint8 [N, H, W, 3], got {images.dtype}{_value_range(images)}")
    if images.ndim != 4 or images.shape[-1] != 3 or 0 in images.shape[1:]:
        raise ValueError(f"images must have shape [N, H, W, 3], got {list(images.shape)}{_layout_hint(images)}")
    return images


def check_batch(images: object, prompts: Sequence[str], metadata: Sequence[Metadata]) -> NDArray[np.uint8]:
    """The images of a batch whose three parts fit together.

    Raises:
        ValueError: bad images, or another number of prompts or metadata, or a prompt that is not a string, or metadata
            that is not a mapping.
    """
    checked = check_images(images)
    if not len(checked) == len(prompts) == len(metadata):
        raise ValueError(
            f"one prompt and one metadata per image, got {len(checked)} images, {len(prompts)} prompts "
            f"and {len(metadata)} metadata"
        )
    for index, prompt in enumerate(prompts):
        if not isinstance(prompt, str):
            raise ValueError(f"prompt {index} must be a string, got {type(prompt).__name__}")
    for index, note in enumerate(metadata):
        if not isinstance(note, Mapping):
            raise ValueError(f"metadata {index} must be a mapping, got {type(note).__name__}")
    return checked


def upsample(image_HWC: NDArray[np.uint8], shorter_side: int) -> NDArray[np.uint8]:
    """One image (uint8 [H, W, 3]), enlarged bicubically until its shorter side has that many pixels.

    An image that is large enough comes back as it is.
    """
    height, width = image_HWC.shape[:2]
    if min(height, width) >= shorter_side:
        return image_HWC
    scale = shorter_side / min(height, width)
    size = (round(width * scale), round(height * scale))
    return np.asarray(Image.fromarray(image_HWC).resize(size, Image.Resampling.BICUBIC))


@lru_cache(maxsize=32)
def resize_matrix(size_in: int, size_out: int) -> NDArray[np.float64]:
    """[size_out, size_in] weights of Pillow's bicubic resize along one axis, in units of 2^-22.

    The entries are whole numbers in float64, where products and sums of them with pixels are exact. A pixel is
    floor(sum / 2^22 + 1/2), cut to 0..255; The width comes first and is rounded, then the height.
    """
    scale = size_in / size_out
    # Shrinking widens the filter to cover the pixels that vanish; enlarging does not narrow it.
    stretch = max(scale, 1.0)
    support = _CUBIC_SUPPORT * stretch
    matrix = np.zeros((size_out, size_in))
    for out in range(size_out):
        center = (out + 0.5) * scale
        first = max(int(center - support + 0.5), 0)
        last = min(int(center + support + 0.5), size_in)
        weights = np.array([_cubic((i - center + 0.5) / stretch) for i in range(first, last)])
        fixed = weights / weights.sum() * (1 << COEFFICIENT_BITS)
        # Half away from zero, as a C cast after adding ±0.5 does.
        matrix[out, first:last] = np.trunc(fixed + np.copysign(0.5, fixed))
    matrix.flags.writeable = False
    return matrix


def _cubic(x: float) -> float:
    """Cubic convolution kernel (Keys 1981, equation 4) with a = -1/2."""
    x = abs(x)
    if x < 1.0:
        return ((_CUBIC_A + 2.0) * x - (_CUBIC_A + 3.0)) * x * x + 1.0
    if x < 2.0:
        return (((x - 5.0) * x + 8.0) * x - 4.0) * _CUBIC_A
    return 0.0


def _value_range(images: NDArray[np.generic]) -> str:
    """What a wrong dtype holds, for the error message."""
    if images.size == 0 or images.dtype.kind not in "fiub":
        return f" of shape {list(images.shape)}"
    values = images.astype(np.float64)
    finite = values[np.isfinite(values)]
    if finite.size < values.size:
        return f" with {values.size - finite.size} values that are not finite"
    return f" with values from {finite.min():g} to {finite.max():g}"


def _layout_hint(images: NDArray[np.uint8]) -> str:
    """The likely mistake behind a wrong shape."""
    if images.ndim == 4 and images.shape[1] == 3:
        return "; the channels come last"
    if images.ndim == 3 and images.shape[-1] == 3:
        return "; a single image needs a leading axis of 1"
    return ""
