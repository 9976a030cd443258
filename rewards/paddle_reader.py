"""PaddleOCR behind the OCR scorer, for versions 2.7 and later; its own package is imported when a reader is made.

Version 3 took other constructor arguments (an unknown one is an error there), another method and another result.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rewards.config import OcrArgs
from rewards.text_reader import Line

_INSTALL = "pip install paddleocr paddlepaddle, best in an environment of the pool's own"

_OPTIONAL = ("cpu_threads",)
"""Arguments that change no result and are left out where a version does not take them."""


class PaddleOcrReader:
    """Finds and reads text with PaddleOCR; one call at a time."""

    def __init__(self, args: OcrArgs) -> None:
        """Set up the engine, which loads its models.

        Raises:
            ValueError: paddleocr is not installed, cannot be imported, or refuses its arguments; `cuda` asked for where
                paddle has none. Says which.
        """
        engine_class = _engine_class()
        if args.device == "cuda":
            _require_cuda()
        self._min_confidence = args.min_confidence
        self._is_3 = hasattr(engine_class, "predict")
        self._engine = _made(engine_class, _arguments_3(args) if self._is_3 else _arguments_2(args), args.engine_args)
        for name in ("ppocr", "paddlex"):
            # They report every image without text as a warning.
            logging.getLogger(name).setLevel(logging.ERROR)

    def __call__(self, image_HWC: NDArray[np.uint8]) -> list[Line]:
        """Lines in one image (uint8 RGB [H, W, 3]); empty when there is no text.

        Raises:
            TypeError: the engine returned something that is no OCR result.
        """
        # Arrays are taken as BGR, the order of OpenCV.
        image = np.ascontiguousarray(image_HWC[..., ::-1])
        found = _lines_3(self._engine.predict(image)) if self._is_3 else _lines_2(self._engine.ocr(image, cls=False))
        return [line for line, confidence in found if confidence >= self._min_confidence]


def _engine_class() -> Any:
    try:
        from paddleocr import PaddleOCR
    except ModuleNotFoundError as error:
        missing = f"package {error.name}" if error.name else str(error)
        raise ValueError(f"OCR engine paddleocr needs the {missing}, which is not installed: {_INSTALL}") from error
    except ImportError as error:
        raise ValueError(f"OCR engine paddleocr cannot be imported: {error}") from error
    return PaddleOCR


def _require_cuda() -> None:
    import paddle

    if not paddle.device.is_compiled_with_cuda():
        # PaddleOCR itself would fall back to the CPU with a log line.
        raise ValueError("OCR on cuda needs paddlepaddle-gpu; this paddle is built without CUDA")


def _arguments_2(args: OcrArgs) -> dict[str, Any]:
    return {
        "lang": "en",
        "use_gpu": args.device == "cuda",
        "use_angle_cls": False,
        "show_log": False,
        "drop_score": args.min_confidence,
        "cpu_threads": args.num_threads,
    }


def _arguments_3(args: OcrArgs) -> dict[str, Any]:
    return {
        "lang": "en",
        "device": "gpu" if args.device == "cuda" else "cpu",
        # Upside-down and bent text is not what a prompt asks for; the published rewards read without these too.
        "use_doc_orientation_classify": False,
        "use_doc_unwarping": False,
        "use_textline_orientation": False,
        "text_rec_score_thresh": args.min_confidence,
        "cpu_threads": args.num_threads,
    }


def _made(engine_class: Any, arguments: dict[str, Any], given: Mapping[str, Any]) -> Any:
    """The engine; a user's own arguments win over ours."""
    wanted = arguments | dict(given)
    try:
        return engine_class(**wanted)
    except (TypeError, ValueError) as error:
        refused = [name for name in _OPTIONAL if name in wanted and name not in given and name in str(error)]
        if not refused:
            raise ValueError(f"PaddleOCR refuses its arguments ({', '.join(wanted)}): {error}") from error
    return _made(engine_class, {name: value for name, value in arguments.items() if name not in refused}, given)


def _lines_2(output: Any) -> list[tuple[Line, float]]:
    """Version 2: one list an image (None without text) of [corners, (text, confidence)]."""
    if not isinstance(output, list) or len(output) != 1:
        raise TypeError(f"PaddleOCR 2 gave {_described(output)}, not one list of lines for one image")
    try:
        return [_line(text, corners, confidence) for corners, (text, confidence) in output[0] or ()]
    except (TypeError, ValueError) as error:
        raise TypeError(f"PaddleOCR 2 gave lines of another form: {error}") from error


def _lines_3(output: Any) -> list[tuple[Line, float]]:
    """Version 3: one mapping an image, with rec_texts, rec_scores and rec_polys."""
    if not isinstance(output, Sequence) or len(output) != 1 or not isinstance(output[0], Mapping):
        raise TypeError(f"PaddleOCR 3 gave {_described(output)}, not one mapping for one image")
    result = output[0]
    lacking = [key for key in ("rec_texts", "rec_scores", "rec_polys") if key not in result]
    if lacking:
        raise TypeError(f"PaddleOCR 3 gave a result without {', '.join(lacking)}; it has {', '.join(map(str, result))}")
    lines = zip(result["rec_texts"], result["rec_polys"], result["rec_scores"], strict=True)
    return [_line(text, corners, confidence) for text, corners, confidence in lines]


def _line(text: Any, corners: Any, confidence: Any) -> tuple[Line, float]:
    if not isinstance(text, str):
        raise TypeError(f"a line's text is {type(text).__name__}")
    points = np.asarray(corners, dtype=np.float64).reshape(-1, 2)
    left, top = points.min(axis=0)
    right, bottom = points.max(axis=0)
    return Line(text, float(left), float(top), float(right), float(bottom)), float(confidence)


def _described(output: Any) -> str:
    return f"{type(output).__name__} of {len(output)}" if isinstance(output, list | tuple) else type(output).__name__
