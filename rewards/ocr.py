"""OCR reward: is the text that the prompt quotes legible in the image?"""

import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.config import OcrArgs
from rewards.contract import Metadata, RewardResult
from rewards.images import check_batch, upsample
from rewards.known import KNOWN_TEXT, known_image
from rewards.matching import MatchRule, match, normalized, text_target
from rewards.paddle_reader import PaddleOcrReader
from rewards.results import Cell, collect, describe
from rewards.text_reader import RapidOcrReader, TextReader, reading_order

_READERS: Mapping[str, Callable[[OcrArgs], TextReader]] = {"rapidocr": RapidOcrReader, "paddleocr": PaddleOcrReader}
_WARM_UP_SIDE = 256
"""Pixels; large enough for the warm-up's text to be read beyond doubt."""


class OcrScorer:
    """Reads each image and compares what it read with the prompt's target text (rules in rewards.matching).

    A prompt without target is not applicable. An image that cannot be read for a technical reason has failed, alone.
    An image without legible text scores 0.
    """

    score_range = (0.0, 1.0)

    def __init__(self, args: OcrArgs, reader: TextReader | None = None) -> None:
        """Start the reader and have it read a known text, which also loads its models.

        Args:
            args: see rewards.config.
            reader: in place of the engine that args name.

        Raises:
            RuntimeError: the known text was read wrong.
        """
        self.args = args
        self._reader = reader if reader is not None else _READERS[args.engine](args)
        # OCR engines keep per-call state; two threads on one instance mix up their results.
        self._lock = threading.Lock()
        self.warm_up()

    def warm_up(self) -> None:
        """Read the known image. Recognition models load on the first text, so a blank image would not do.

        Raises:
            RuntimeError: it was read wrong.
        """
        read = self.read(known_image(_WARM_UP_SIDE))
        if normalized(read) != normalized(KNOWN_TEXT):
            raise RuntimeError(f"the OCR engine read {read!r} where {KNOWN_TEXT!r} is written")

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]) by the matching rule of args, in [0, 1].

        Raises:
            ValueError: a batch that is not as rewards.images.check_batch wants it.
        """
        return self._score(images_NHWC, prompts, metadata, self.args.match)

    def score_for_evaluation(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """As a call, but always by the strict rule."""
        return self._score(images_NHWC, prompts, metadata, "strict")

    def read(self, image_HWC: NDArray[np.uint8]) -> str:
        """All text in one image (uint8 [H, W, 3]), lines joined in reading order, spaces as they were read."""
        if self.args.upsample is not None:
            image_HWC = upsample(image_HWC, self.args.upsample)
        with self._lock:
            lines = self._reader(image_HWC)
        return "".join(line.text for line in reading_order(lines))

    def _score(
        self,
        images_NHWC: NDArray[np.uint8],
        prompts: Sequence[str],
        metadata: Sequence[Metadata],
        rule: MatchRule,
    ) -> RewardResult:
        images = check_batch(images_NHWC, prompts, metadata)
        return collect([self._cell(*sample, rule) for sample in zip(images, prompts, metadata, strict=True)])

    def _cell(self, image_HWC: NDArray[np.uint8], prompt: str, metadata: Metadata, rule: MatchRule) -> Cell:
        try:
            target = text_target(prompt, metadata)
            if target is None:
                return Cell.not_applicable("the prompt quotes no text")
            return Cell.scored(match(rule, self.read(image_HWC), target))
        # Engines raise types of their own; one image they cannot take must not lose the others.
        except Exception as error:  # noqa: BLE001
            return Cell.failed(describe(error))
