"""From checked images to what a CLIP image tower takes, in torch on the model's own device.

Letters: N images, H × W pixels, S the side of the square the model sees. The result is the published Pillow pipeline's:
resized bytes are the same, because Pillow's fixed-point filter is reproduced in exact float64 arithmetic. HPSv2 is
published with a pipeline that resizes tensors instead; that one is torch's own filter.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.images import COEFFICIENT_BITS, check_images, resize_matrix

_PIL_BICUBIC = 3
_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)

_IMAGES_IN_CACHE = 2
"""Prepared at once on a CPU. In a batch of 32 at 512 pixels each takes three times as long, most of it for memory."""

Fit = Literal["crop", "stretch", "pad"]


@dataclass(frozen=True)
class Preprocess:
    """How an image becomes a square: [N, H, W, 3] bytes to [N, 3, S, S] floats."""

    fit: Fit
    """crop: shorter side to `resize`, centre cut out (CLIP). stretch: both sides to `side`. pad: longer side to `side`,
    black bars around (HPSv2)."""
    resize: int
    """Pixels of the shorter side before the cut (crop only)."""
    side: int
    """Pixels of the square, S."""
    mean: tuple[float, float, float] = _CLIP_MEAN
    """Of the channels, for pixels in [0, 1]."""
    std: tuple[float, float, float] = _CLIP_STD
    """Of the channels, for pixels in [0, 1]."""
    rounded: bool = True
    """Whether resized pixels are rounded and cut to bytes, as Pillow does; tensors are resized without (HPSv2)."""
    cut: Literal["down", "nearest"] = "down"
    """First row and column of the cut: transformers rounds down, torchvision to the nearest, halves to even."""

    def __call__(self, images_NHWC: NDArray[np.uint8], device: torch.device | str = "cpu") -> Tensor:
        """Normalised float32 [N, 3, S, S] on the device.

        Raises:
            ValueError: images that are not uint8 [N, H, W, 3].
        """
        images, device = check_images(images_NHWC), torch.device(device)
        at_once = _IMAGES_IN_CACHE if device.type == "cpu" else max(len(images), 1)
        starts = range(0, max(len(images), 1), at_once)
        return torch.cat([self._prepared(images[start : start + at_once], device) for start in starts])

    def _prepared(self, images_NHWC: NDArray[np.uint8], device: torch.device) -> Tensor:
        return self._normalized(self.fitted(_uploaded(images_NHWC, device).permute(0, 3, 1, 2)))

    def fitted(self, pixels_NCHW: Tensor) -> Tensor:
        """The square: uint8 [N, 3, H, W] to uint8 [N, 3, S, S], or to float32 around [0, 1] where not rounded."""
        height, width = pixels_NCHW.shape[2:]
        resize = resized if self.rounded else resized_tensor
        if self.fit == "stretch":
            return resize(pixels_NCHW, self.side, self.side)
        if self.fit == "pad":
            # Python's round, as the published pipeline: halves go to the even number.
            scale = self.side / max(height, width)
            return centred(resize(pixels_NCHW, round(height * scale), round(width * scale)), self.side)
        if height <= width:
            size = (self.resize, int(self.resize * width / height))
        else:
            size = (int(self.resize * height / width), self.resize)
        return centred(resize(pixels_NCHW, *size), self.side, self.cut)

    def _normalized(self, pixels_NCHW: Tensor) -> Tensor:
        pixels = pixels_NCHW.float() / 255.0 if pixels_NCHW.dtype == torch.uint8 else pixels_NCHW
        return (pixels - _channels(self.mean, pixels.device)) / _channels(self.std, pixels.device)


def resized(pixels_NCHW: Tensor, height: int, width: int) -> Tensor:
    """Pillow's bicubic resize: uint8 [N, C, H, W] to uint8 [N, C, height, width]."""
    pixels = pixels_NCHW
    # The width first, rounded to bytes, then the height: the order of every Pillow before 13, with which the published
    # scores were made. Version 13 turns it round for some sizes, which may shift a byte by a level or two.
    if pixels.shape[3] != width:
        exact, bands = pixels.contiguous().double(), _bands(pixels.shape[3], width, pixels.device)
        pixels = _to_bytes(torch.cat([exact[..., used] @ weights.T for used, weights in bands], dim=3))
    if pixels.shape[2] != height:
        exact, bands = pixels.double(), _bands(pixels.shape[2], height, pixels.device)
        pixels = _to_bytes(torch.cat([weights @ exact[:, :, used] for used, weights in bands], dim=2))
    return pixels


def resized_tensor(pixels_NCHW: Tensor, height: int, width: int) -> Tensor:
    """torch's antialiased bicubic resize, neither rounded nor cut: uint8 [N, C, H, W] to float32, white at 1.

    What torchvision does with a tensor from version 0.17 on. The filter is Pillow's; it overshoots at hard edges.
    """
    pixels = pixels_NCHW.float() / 255.0
    if pixels.shape[2:] == (height, width):
        return pixels
    return torch.nn.functional.interpolate(pixels, (height, width), mode="bicubic", align_corners=False, antialias=True)


def centred(pixels_NCHW: Tensor, side: int, cut: Literal["down", "nearest"] = "down") -> Tensor:
    """Square of that side cut out of the middle; where the image is smaller, black bars are added around it."""
    height, width = pixels_NCHW.shape[2:]
    over = [max(size - side, 0) for size in (height, width)]
    top, left = (extra // 2 if cut == "down" else round(extra / 2) for extra in over)
    middle = pixels_NCHW[:, :, top : top + side, left : left + side]
    missing_h, missing_w = side - middle.shape[2], side - middle.shape[3]
    if missing_h == 0 and missing_w == 0:
        return middle
    bars = (missing_w // 2, missing_w - missing_w // 2, missing_h // 2, missing_h - missing_h // 2)
    return torch.nn.functional.pad(middle, bars)


def read_preprocess(folder: Path, model_side: int) -> Preprocess:
    """Preprocessing written beside a checkpoint (preprocessor_config.json, or inside processor_config.json).

    Args:
        folder: where the file lies.
        model_side: pixels the model's image tower takes.

    Raises:
        ValueError: no such file, an unknown filter, or a size the model does not take.
    """
    path, config = _config_beside(folder)
    side = _side_of(config.get("crop_size"), path) or model_side
    if side != model_side:
        raise ValueError(f"{path}: images are cut to {side} pixels, but the model takes {model_side}")
    _check_steps(config, path)
    mean = _three(config.get("image_mean", _CLIP_MEAN), path)
    std = _three(config.get("image_std", _CLIP_STD), path)
    if min(std) <= 0:
        raise ValueError(f"{path}: image_std must be above 0, got {list(std)}")
    size = config.get("size", side)
    if isinstance(size, Mapping) and "height" in size and size.get("height") == size.get("width") == side:
        return Preprocess("stretch", side, side, mean, std)
    if config.get("do_center_crop") is False:
        raise ValueError(f"{path}: do_center_crop is false and size {size!r} is no square; the model takes one")
    shorter = size.get("shortest_edge") if isinstance(size, Mapping) else size
    if not isinstance(shorter, int) or shorter < side:
        raise ValueError(f"{path}: size {size!r} does not give the {side} × {side} pixels the model takes")
    return Preprocess("crop", shorter, side, mean, std)


def _config_beside(folder: Path) -> tuple[Path, dict[str, Any]]:
    for name in ("preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            config = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError) as error:
            raise ValueError(f"{path} is not JSON: {error}") from error
        # transformers 5 saves a whole processor into the second file.
        own = config if name.startswith("pre") else None
        inner = config.get("image_processor", own) if isinstance(config, dict) else config
        if not isinstance(inner, dict):
            raise ValueError(f"{path} holds a {type(inner).__name__} where the image preprocessing should stand")
        return path, inner
    raise ValueError(f"{folder} has neither preprocessor_config.json nor processor_config.json")


def _check_steps(config: dict[str, Any], path: Path) -> None:
    if config.get("resample", _PIL_BICUBIC) != _PIL_BICUBIC:
        raise ValueError(f"{path}: resample {config['resample']} is not supported, only 3 (bicubic)")
    skipped = [step for step in ("do_resize", "do_rescale", "do_normalize") if config.get(step) is False]
    if skipped:
        raise ValueError(f"{path}: {', '.join(skipped)} is false; every step of CLIP's preprocessing is needed here")
    factor = config.get("rescale_factor", 1 / 255)
    if not isinstance(factor, float) or abs(factor * 255 - 1) > 1e-6:
        raise ValueError(f"{path}: rescale_factor must be 1/255, got {factor!r}")


def _side_of(size: object, path: Path) -> int | None:
    if isinstance(size, Mapping):
        if size.get("height") != size.get("width"):
            raise ValueError(f"{path}: crop_size {dict(size)} is not square")
        size = size.get("height")
    if size is not None and not isinstance(size, int):
        raise ValueError(f"{path}: crop_size {size!r} is not a number of pixels")
    return size


def _three(values: Any, path: Path) -> tuple[float, float, float]:
    if not isinstance(values, list | tuple) or len(values) != 3 or not all(map(_is_number, values)):
        raise ValueError(f"{path}: mean and std need three numbers, got {values!r}")
    return float(values[0]), float(values[1]), float(values[2])


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _uploaded(images_NHWC: NDArray[np.uint8], device: torch.device) -> Tensor:
    """The bytes on the device. To CUDA through pinned memory, which is filled while the model is at the last batch.

    Copied in any case, since images out of an object store are read-only, which torch does not take.
    """
    staged = torch.empty(images_NHWC.shape, dtype=torch.uint8, pin_memory=device.type == "cuda")
    np.copyto(staged.numpy(), images_NHWC)
    return staged.to(device, non_blocking=True)


_BAND = 16
"""Rows of a resize matrix that are applied at once. A row has some ten weights, side by side, for hundreds of pixels: a
whole matrix is mostly zeros."""


@lru_cache(maxsize=32)
def _bands(size_in: int, size_out: int, device: torch.device) -> tuple[tuple[slice, Tensor], ...]:
    """A resize matrix in strips: the pixels each uses, and its weights on the device (an upload waits for its work)."""
    matrix = torch.from_numpy(resize_matrix(size_in, size_out) / (1 << COEFFICIENT_BITS))
    strips = []
    for rows in matrix.split(_BAND):
        used = rows.any(dim=0).nonzero()
        pixels = slice(int(used[0]), int(used[-1]) + 1)
        strips.append((pixels, rows[:, pixels].contiguous().to(device)))
    return tuple(strips)


@lru_cache(maxsize=32)
def _channels(values: tuple[float, float, float], device: torch.device) -> Tensor:
    return torch.tensor(values, device=device).view(3, 1, 1)


def _to_bytes(sums: Tensor) -> Tensor:
    # Rounded to the nearest, halves up: the conversion cuts off the fraction.
    return sums.clamp_(0, 255).add_(0.5).to(torch.uint8)
