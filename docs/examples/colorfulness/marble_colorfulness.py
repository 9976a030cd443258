"""A reward for colourful images: M = σ + 0.3 μ of the opponent colours (Hasler and Süsstrunk 2003, M3)."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rewards.contract import Metadata, RewardResult
from rewards.results import Cell, collect


class Colorfulness:
    def __init__(self, scale: float = 100.0, skip: Sequence[str] = ("black and white", "monochrome")) -> None:
        self.scale, self.skip = scale, skip

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        return collect([self._cell(image, prompt) for image, prompt in zip(images_NHWC, prompts, strict=True)])

    def _cell(self, image_HWC: NDArray[np.uint8], prompt: str) -> Cell:
        if any(words in prompt.lower() for words in self.skip):
            return Cell.not_applicable("the prompt asks for a picture without colour")
        red, green, blue = image_HWC.astype(np.float64).transpose(2, 0, 1)
        opponents = np.stack([red - green, (red + green) / 2 - blue])
        spread, mean = np.hypot(*opponents.std(axis=(1, 2))), np.hypot(*opponents.mean(axis=(1, 2)))
        return Cell.scored((spread + 0.3 * mean) / self.scale)
