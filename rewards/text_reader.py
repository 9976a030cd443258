"""Reading text in images: what a reader gives, and RapidOCR behind it.

Letters: L lines found in one image.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rewards.config import OcrArgs

_SMALLEST_DETECTOR_SIDE = 32
"""Pixels. RapidOCR enlarges an image until its shorter side has `limit_side_len` pixels, 736 by default: at 256 pixels
that is six times the work and reads no better. At 32, the detector's stride, images keep the size they come in."""


@dataclass(frozen=True)
class Line:
    """One line of text found in an image."""

    text: str
    left: float
    top: float
    right: float
    bottom: float
    """Bounding box in pixels of the image that was read."""


class TextReader(Protocol):
    """Whatever finds and reads text; one call at a time."""

    def __call__(self, image_HWC: NDArray[np.uint8]) -> list[Line]:
        """Lines in one image (uint8 RGB [H, W, 3]), in any order; empty when there is no text."""
        ...


def reading_order(lines: Sequence[Line]) -> list[Line]:
    """Lines sorted as a person reads them: rows from top to bottom, each from left to right.

    A line belongs to a row when its middle lies within the height of the row's first line, whatever the image's size.
    """
    rows: list[list[Line]] = []
    for line in sorted(lines, key=lambda item: (item.top + item.bottom, item.left)):
        first = rows[-1][0] if rows else None
        if first is not None and first.top <= (line.top + line.bottom) / 2 <= first.bottom:
            rows[-1].append(line)
        else:
            rows.append([line])
    return [line for row in rows for line in sorted(row, key=lambda item: item.left)]


class RapidOcrReader:
    """PP-OCR through RapidOCR and onnxruntime; the models ship in RapidOCR's wheel."""

    def __init__(self, args: OcrArgs) -> None:
        """Set up the engine. Its models load on the first call.

        Raises:
            ValueError: `cuda` asked for where onnxruntime has no CUDA provider.
        """
        import onnxruntime
        from rapidocr import RapidOCR

        if args.device == "cuda" and "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
            # RapidOCR itself would fall back to the CPU with a log line.
            raise ValueError(
                f"OCR on cuda needs onnxruntime-gpu; this onnxruntime has {onnxruntime.get_available_providers()}"
            )
        self._engine: Any = RapidOCR(params=_engine_params(args))
        # It reports every image without text as a warning.
        logging.getLogger("RapidOCR").setLevel(logging.ERROR)

    def __call__(self, image_HWC: NDArray[np.uint8]) -> list[Line]:
        """Lines in one image (uint8 RGB [H, W, 3]); empty when there is no text.

        Raises:
            TypeError: the engine returned something that is no OCR result.
        """
        # Arrays are taken as BGR, the order of OpenCV.
        output = self._engine(np.ascontiguousarray(image_HWC[..., ::-1]))
        if not hasattr(output, "txts") or not hasattr(output, "boxes"):
            raise TypeError(f"RapidOCR gave {type(output).__name__}, not boxes and texts")
        if output.txts is None:
            return []
        return [_line(text, box) for text, box in zip(output.txts, output.boxes, strict=True)]


def _engine_params(args: OcrArgs) -> dict[str, Any]:
    return {
        "Global.log_level": "error",
        "Global.text_score": args.min_confidence,
        # Upside-down text is not what a prompt asks for; the published rewards read without this step too.
        "Global.use_cls": False,
        "Det.limit_side_len": _SMALLEST_DETECTOR_SIDE,
        "Rec.rec_img_shape": [3, 48, args.line_width],
        "EngineConfig.onnxruntime.intra_op_num_threads": args.num_threads,
        "EngineConfig.onnxruntime.inter_op_num_threads": 1,
        "EngineConfig.onnxruntime.use_cuda": args.device == "cuda",
    }


def _line(text: str, box: NDArray[Any]) -> Line:
    corners = np.asarray(box, dtype=np.float64).reshape(4, 2)
    left, top = corners.min(axis=0)
    right, bottom = corners.max(axis=0)
    return Line(text, float(left), float(top), float(right), float(bottom))
