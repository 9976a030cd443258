"""GenEval's colour classifier: CLIP ViT-L/14, zero-shot, on each object cut out of the image.

Letters: M objects of one image, K colours, D the width of CLIP's embedding.
Source: GenEval (arXiv 2310.11513), section 3.3, and its published evaluation code; numbers in PAPER 4.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from rewards.clip import features, text_features
from rewards.clip_checkpoint import load_clip
from rewards.config import ClipColorsArgs
from rewards.detection import Detection
from rewards.geneval_names import COLORS
from rewards.preprocess import resized
from rewards.scorer_args import ClipArgs

BACKGROUND = 0x99
"""Level of all three channels outside an object's mask (#999)."""
MAX_ASPECT = 32
"""Longer crops lose their ends before they are enlarged; what is cut off lies far outside the square CLIP sees."""
CROPS_PER_PASS = 16


def prompts_of(color: str, class_name: str) -> tuple[str, str, str]:
    """The published texts whose mean embedding stands for a colour of a class."""
    return (
        f"a photo of a {color} {class_name}",
        f"a photo of a {color}-colored {class_name}",
        f"a photo of a {color} object",
    )


def zero_shot_weights(text_KTD: Tensor) -> Tensor:
    """[K, D] one unit vector a colour: the mean of the unit vectors of its T texts (Radford et al. 2021, 3.1.4).

    Args:
        text_KTD: embeddings [K, T, D], not yet normalised.
    """
    return normalize(normalize(text_KTD.float(), dim=-1).mean(dim=1), dim=-1)


class ClipColors:
    """``rewards.detection.ColorClassifier`` with ten colours."""

    colors = COLORS

    def __init__(self, args: ClipColorsArgs) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.clip_checkpoint).
        """
        shared = args.model_dump(include={"checkpoint", "revision", "device", "dtype"})
        self._clip = load_clip(ClipArgs(**shared))
        self._device = torch.device(args.device)
        self._weights: dict[str, Tensor] = {}
        """[K, D] of each class asked for so far."""

    def __call__(self, image_HWC: NDArray[np.uint8], detections: Sequence[Detection]) -> list[str]:
        """The colour of each of M objects in one image (uint8 [H, W, 3]); errors as in :meth:`scores`."""
        return [COLORS[int(row_K.argmax())] for row_K in self.scores(image_HWC, detections)]

    @torch.inference_mode()
    def scores(self, image_HWC: NDArray[np.uint8], detections: Sequence[Detection]) -> Tensor:
        """Cosines [M, K] of M objects in one image (uint8 [H, W, 3]) with the colours' texts.

        Raises:
            ValueError: an object's box covers no pixel of the image, or its mask has another size.
        """
        squares = [self._square(cut_out(image_HWC, found)) for found in detections]
        model: Any = self._clip.model
        rows: list[Tensor] = []
        for start in range(0, len(squares), CROPS_PER_PASS):
            pixels = torch.cat(squares[start : start + CROPS_PER_PASS])
            image_MD = features(model.get_image_features(pixel_values=pixels.to(model.dtype))).float()
            named = zip(normalize(image_MD, dim=-1), detections[start : start + CROPS_PER_PASS], strict=True)
            rows += [self._weights_of(found.class_name) @ image_D for image_D, found in named]
        return torch.stack(rows) if rows else torch.empty(0, len(COLORS))

    def _square(self, crop_HWC: NDArray[np.uint8]) -> Tensor:
        """Normalised float32 [1, 3, S, S] of one crop: the shorter side resized to S, the middle cut out."""
        preprocess = self._clip.preprocess
        pixels = torch.from_numpy(crop_HWC.copy()).to(self._device).permute(2, 0, 1)[None]
        square = middle(pixels, preprocess.side).float() / 255.0
        mean, std = (square.new_tensor(values).view(3, 1, 1) for values in (preprocess.mean, preprocess.std))
        return (square - mean) / std

    def _weights_of(self, class_name: str) -> Tensor:
        if class_name not in self._weights:
            texts = [text for color in COLORS for text in prompts_of(color, class_name)]
            embedded = text_features(self._clip, texts, self._device)
            self._weights[class_name] = zero_shot_weights(embedded.unflatten(0, (len(COLORS), -1)))
        return self._weights[class_name]


def cut_out(image_HWC: NDArray[np.uint8], found: Detection) -> NDArray[np.uint8]:
    """The pixels inside an object's box; outside its mask, if it has one, they are grey.

    Raises:
        ValueError: no pixel is left, or the mask has another size than the image.
    """
    height, width = image_HWC.shape[:2]
    left, top, right, bottom = (round(edge) for edge in found.box_xyxy)
    rows, columns = slice(max(top, 0), min(bottom, height)), slice(max(left, 0), min(right, width))
    crop = image_HWC[rows, columns]
    if 0 in crop.shape or rows.start >= rows.stop or columns.start >= columns.stop:
        raise ValueError(f"the {found.class_name} at {found.box_xyxy} covers no pixel of a {width} x {height} image")
    if found.mask_HW is None:
        return crop
    if found.mask_HW.shape != (height, width):
        raise ValueError(f"a mask of {list(found.mask_HW.shape)} does not fit an image of {[height, width]}")
    return np.where(found.mask_HW[rows, columns, None], crop, np.uint8(BACKGROUND))


def middle(pixels_NCHW: Tensor, side: int) -> Tensor:
    """Bytes [N, 3, H, W] as open_clip prepares them for CLIP: uint8 [N, 3, S, S] of that side.

    The shorter side becomes S pixels and the middle of the longer one is cut out, its first pixel rounded half to even
    as torchvision's CenterCrop does (CLIP's own processor rounds it down).
    """
    pixels = _not_too_long(pixels_NCHW)
    height, width = pixels.shape[2:]
    short = min(height, width)
    pixels = resized(pixels, side * height // short, side * width // short)
    top, left = (round((size - side) / 2) for size in pixels.shape[2:])
    return pixels[:, :, top : top + side, left : left + side]


def _not_too_long(pixels_NCHW: Tensor) -> Tensor:
    """Without the ends of a side longer than MAX_ASPECT times the other: enlarging a hair would take gigabytes."""
    height, width = pixels_NCHW.shape[2:]
    limit = MAX_ASPECT * min(height, width)
    cut_h, cut_w = (max((size - limit) // 2, 0) for size in (height, width))
    return pixels_NCHW[:, :, cut_h : height - cut_h, cut_w : width - cut_w]
