"""The published image pipelines, step by step with Pillow and numpy, one image at a time."""

from collections.abc import Sequence
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image


def cropped(
    image: NDArray[np.uint8],
    side: int,
    mean: Sequence[float],
    std: Sequence[float],
    cut: Literal["transformers", "torchvision"] = "transformers",
) -> torch.Tensor:
    """[3, S, S] of CLIP's pipeline: Pillow's bicubic on the shorter side, centre cut, / 255, minus mean, / std."""
    height, width = image.shape[:2]
    short, long = min(height, width), max(height, width)
    new_long = int(side * long / short)
    size = (side, new_long) if width <= height else (new_long, side)
    # The width first, as every Pillow before 13 did (test_preprocess.py says more).
    small = Image.fromarray(image).resize((size[0], height), Image.Resampling.BICUBIC)
    small = small.resize(size, Image.Resampling.BICUBIC)
    left, top = small.width - side, small.height - side
    left, top = (left // 2, top // 2) if cut == "transformers" else (round(left / 2), round(top / 2))
    return normalised(np.asarray(small.crop((left, top, left + side, top + side))) / 255, mean, std)


def padded(image: NDArray[np.uint8], side: int, mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """[3, S, S] of HPSv2's pipeline: / 255, antialiased bicubic on the longer side, black bars, minus mean, / std."""
    height, width = image.shape[:2]
    scale = side / max(height, width)
    new_height, new_width = round(height * scale), round(width * scale)
    rows, columns = bicubic_matrix(height, new_height), bicubic_matrix(width, new_width)
    small = np.stack([rows @ (image[..., channel] / 255.0) @ columns.T for channel in range(3)], axis=-1)
    square = np.zeros((side, side, 3))
    top, left = (side - new_height) // 2, (side - new_width) // 2
    square[top : top + new_height, left : left + new_width] = small
    return normalised(square, mean, std)


def bicubic_matrix(size_in: int, size_out: int) -> NDArray[np.float64]:
    """[out, in] of Keys' cubic with a = -1/2, widened when shrinking and cut off beyond two (scaled) pixels."""
    scale = size_in / size_out
    stretch = max(scale, 1.0)
    matrix = np.zeros((size_out, size_in))
    for out in range(size_out):
        middle = (out + 0.5) * scale
        for i in range(size_in):
            if int(middle - 2 * stretch + 0.5) <= i < int(middle + 2 * stretch + 0.5):
                x = abs(i + 0.5 - middle) / stretch
                if x < 1:
                    matrix[out, i] = 1.5 * x**3 - 2.5 * x**2 + 1
                elif x < 2:
                    matrix[out, i] = -0.5 * x**3 + 2.5 * x**2 - 4 * x + 2
    return matrix / matrix.sum(axis=1, keepdims=True)


def normalised(pixels_HWC: NDArray[np.float64], mean: Sequence[float], std: Sequence[float]) -> torch.Tensor:
    """[3, H, W] float32."""
    return torch.from_numpy(((pixels_HWC - mean) / std).transpose(2, 0, 1)).float()
