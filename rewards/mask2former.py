"""GenEval's detector: Mask2Former with a Swin-S backbone, trained on COCO instances, through transformers.

The published code runs it in mmdetection. What that does around the network is done here step by step, because
transformers' own pre- and post-processing differ from it (docs/geneval.md says how).

Letters: N images, H × W pixels, Q object queries of the network, C classes, M instances found in one image.
"""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate, pad

from rewards.checkpoint import folder_of, load_whole
from rewards.config import Mask2FormerArgs
from rewards.detection import Detection
from rewards.geneval_names import CLASSES, is_label_of
from rewards.images import check_images

MAX_INSTANCES = 100
"""(query, class) pairs that are looked at in one image; mmdetection's `max_per_image` for this model."""
SIZE_DIVISOR = 32
"""Both sides of the network's input are multiples of it."""
PADDING_VALUE = 128
"""Grey level (of 255) that fills up to such a multiple, as in mmdetection's configuration of this model."""

_UNUSED = re.compile(r"relative_position_index$|\.swin\.layernorm\.|^criterion\.")
"""Constant tables that older checkpoints store, the norm after the last stage, which a backbone does not apply, and the
loss's class weights."""


class Mask2FormerDetector:
    """``rewards.detection.Detector`` for the 80 classes of GenEval's prompts."""

    classes = CLASSES

    def __init__(self, args: Mask2FormerArgs) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: it cannot be loaded whole, or its labels are not COCO's 80 classes in their order.
        """
        from transformers import Mask2FormerForUniversalSegmentation

        self.args = args
        folder = folder_of(args.checkpoint, args.revision)
        model: Any = load_whole(Mask2FormerForUniversalSegmentation, folder, getattr(torch, args.dtype), _UNUSED)
        _check_labels(model.config, str(folder))
        self._mean, self._std = _mean_and_std(folder / "preprocessor_config.json")
        self._model = model.to(args.device)

    @torch.inference_mode()
    def __call__(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        """Instances of each of N images (uint8 [N, H, W, 3]) that are surer than args.min_confidence.

        Raises:
            ValueError: images of another form.
            RuntimeError: the network gave values that are not finite.
        """
        images = check_images(images_NHWC)
        found: list[list[Detection]] = []
        for start in range(0, len(images), self.args.batch_size):
            found += self._detect(images[start : start + self.args.batch_size])
        return found

    def _detect(self, images_NHWC: NDArray[np.uint8]) -> list[list[Detection]]:
        # Copied, since images out of an object store are read-only, which torch does not take.
        pixels = torch.from_numpy(images_NHWC.copy()).to(self.args.device).permute(0, 3, 1, 2)
        image_size = (images_NHWC.shape[1], images_NHWC.shape[2])
        size = network_size(image_size, self.args.short_side, self.args.long_side)
        inputs = self._normalised(padded(resized_bilinear(pixels, size)))
        output = self._model(pixel_values=inputs.to(self._model.dtype))
        classes_NQC, masks_NQHW = output.class_queries_logits.float(), output.masks_queries_logits.float()
        if not (classes_NQC.isfinite().all() and masks_NQHW.isfinite().all()):
            raise RuntimeError(f"Mask2Former in {self.args.dtype} gave values that are not finite")
        sizes = ((inputs.shape[2], inputs.shape[3]), size, image_size)
        logits = zip(classes_NQC, masks_NQHW, strict=True)
        return [instances(classes_QC, masks_QHW, *sizes, self.args.min_confidence) for classes_QC, masks_QHW in logits]

    def _normalised(self, pixels_NCHW: Tensor) -> Tensor:
        mean = torch.tensor(self._mean, device=pixels_NCHW.device).view(3, 1, 1)
        std = torch.tensor(self._std, device=pixels_NCHW.device).view(3, 1, 1)
        return (pixels_NCHW.float() / 255.0 - mean) / std


def network_size(image_size: tuple[int, int], short_side: int, long_side: int) -> tuple[int, int]:
    """(height, width) of an image scaled until its shorter side is short_side, or its longer one long_side if less.

    Sides are rounded half up, as mmcv's `rescale_size` does.
    """
    scale = min(long_side / max(image_size), short_side / min(image_size))
    return int(image_size[0] * scale + 0.5), int(image_size[1] * scale + 0.5)


def resized_bilinear(pixels_NCHW: Tensor, size: tuple[int, int]) -> Tensor:
    """Bytes [N, 3, H, W] resized bilinearly without smoothing, as OpenCV does, and rounded to bytes again."""
    if tuple(pixels_NCHW.shape[2:]) == size:
        return pixels_NCHW
    values = interpolate(pixels_NCHW.float(), size=size, mode="bilinear", align_corners=False)
    return (values + 0.5).floor().clamp(0, 255).to(torch.uint8)


def padded(pixels_NCHW: Tensor) -> Tensor:
    """Bytes [N, 3, H, W] with grey below and to the right, up to multiples of SIZE_DIVISOR."""
    height, width = pixels_NCHW.shape[2:]
    return pad(pixels_NCHW, (0, -width % SIZE_DIVISOR, 0, -height % SIZE_DIVISOR), value=PADDING_VALUE)


def instances(
    class_logits_QC: Tensor,
    mask_logits_QHW: Tensor,
    padded_size: tuple[int, int],
    resized_size: tuple[int, int],
    image_size: tuple[int, int],
    min_confidence: float,
) -> list[Detection]:
    """The instances in one image, as mmdetection's MaskFormerFusionHead finds them.

    The MAX_INSTANCES surest (query, class) pairs are instances. A mask is where its logits, brought to the image's own
    size, are positive; the confidence is the class's probability times the mean of the mask's probabilities inside it.
    Masks may overlap, and one query may give several classes.

    Args:
        class_logits_QC: float [Q, C + 1], COCO's classes and then "no object".
        mask_logits_QHW: float [Q, h, w] at the network's own resolution.
        padded_size: (height, width) of the network's input.
        resized_size: the part of it that is not padding.
        image_size: of the image, and of the masks given back.
        min_confidence: instances that are not surer are left out.
    """
    num_classes = class_logits_QC.shape[1] - 1
    scores = class_logits_QC.softmax(dim=-1)[:, :-1].flatten()
    scores, pairs = scores.topk(min(MAX_INSTANCES, len(scores)))
    # A mask's mean probability is below 1, so these can only get less sure: leaving them out now changes nothing.
    pairs, scores = pairs[scores > min_confidence], scores[scores > min_confidence]
    if len(pairs) == 0:
        return []
    logits = interpolate(mask_logits_QHW[None, pairs // num_classes], padded_size, mode="bilinear", align_corners=False)
    logits = logits[:, :, : resized_size[0], : resized_size[1]]
    logits_MHW = interpolate(logits, image_size, mode="bilinear", align_corners=False)[0]
    inside_MHW = logits_MHW > 0
    mean_M = (logits_MHW.sigmoid() * inside_MHW).sum(dim=(1, 2)) / (inside_MHW.sum(dim=(1, 2)) + 1e-6)
    masks_MHW = inside_MHW.cpu().numpy()
    found = zip((pairs % num_classes).tolist(), (scores * mean_M).tolist(), masks_MHW, strict=True)
    return [
        Detection(CLASSES[label], confidence, box_of(mask_HW), mask_HW)
        for label, confidence, mask_HW in found
        if confidence > min_confidence
    ]


def box_of(mask_HW: NDArray[np.bool_]) -> tuple[float, float, float, float]:
    """Left, top, right, bottom of a mask that is not empty, right and bottom exclusive."""
    columns, rows = np.flatnonzero(mask_HW.any(axis=0)), np.flatnonzero(mask_HW.any(axis=1))
    return float(columns[0]), float(rows[0]), float(columns[-1] + 1), float(rows[-1] + 1)


def _check_labels(config: Any, where: str) -> None:
    labels = {int(index): str(label) for index, label in config.id2label.items()}
    # Labels that were never named are taken to be in COCO's order, those that are must be.
    if labels == {index: f"LABEL_{index}" for index in range(len(CLASSES))}:
        return
    if len(labels) != len(CLASSES):
        raise ValueError(f"{where}: {len(labels)} classes, where COCO's {len(CLASSES)} are needed")
    for index, name in enumerate(CLASSES):
        if not is_label_of(labels.get(index, ""), name):
            raise ValueError(f"{where}: class {index} is {labels.get(index)!r}, where COCO has {name!r}")


def _mean_and_std(path: Path) -> tuple[list[float], list[float]]:
    """Of the channels, for pixels in [0, 1], as they are written beside the checkpoint."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        mean, std = ([float(value) for value in config[key]] for key in ("image_mean", "image_std"))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path}: image_mean and image_std cannot be read ({error!r})") from error
    if len(mean) != 3 or len(std) != 3 or min(std) <= 0:
        raise ValueError(f"{path}: image_mean and image_std must be three numbers each, got {mean} and {std}")
    return mean, std
