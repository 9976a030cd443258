"""Cheap scorers for whole runs: deterministic, of the pixels only, and one for each way in which a scorer goes wrong.

Each appends a line to `$MARBLE_TEST_LOADS` when it is built, so that loads can be counted over processes.
"""

import hashlib
import importlib
import os
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rewards.contract import Metadata, RewardResult
from rewards.results import Cell, collect, from_scores

Images = NDArray[np.uint8]


class Channel:
    """Mean of one colour channel, or less of it: two of them disagree by design."""

    def __init__(self, channel: int = 0, sign: float = 1.0, loads: str | None = None) -> None:
        self._channel, self._sign = channel, sign
        _count_load(loads)

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        means = images_NHWC[..., self._channel].astype(np.float64).mean(axis=(1, 2)) / 255
        return from_scores((self._sign * means).tolist())


class Contrast:
    """Spread of the pixels; reports another figure than it trains on."""

    def __init__(self, loads: str | None = None) -> None:
        _count_load(loads)

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        return from_scores((images_NHWC.astype(np.float64).std(axis=(1, 2, 3)) / 255).tolist())

    def score_for_evaluation(
        self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        return from_scores((images_NHWC.astype(np.float64).std(axis=(1, 2, 3)) > 60).astype(float).tolist())


class Keeps(Channel):
    """Notes the hash of every image it scores for training."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self._file = Path(file)

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        lines = [
            f"{prompt}\t{hashlib.sha256(np.ascontiguousarray(image).tobytes()).hexdigest()}\n"
            for prompt, image in zip(prompts, images_NHWC, strict=True)
        ]
        with self._file.open("a") as file:
            file.writelines(lines)
        return super().__call__(images_NHWC, prompts, metadata)

    def score_for_evaluation(
        self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        return super().__call__(images_NHWC, prompts, metadata)


class FailsOn(Channel):
    """Fails cells whose prompt holds a word; scores the others."""

    def __init__(self, word: str, channel: int = 0, sign: float = 1.0, loads: str | None = None) -> None:
        super().__init__(channel, sign, loads)
        self._word = word

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        result = super().__call__(images_NHWC, prompts, metadata)
        cells = [Cell.scored(float(score)) for score in result.scores]
        return collect(
            [
                Cell.failed(f"cannot bear {self._word}") if self._word in prompt else cell
                for prompt, cell in zip(prompts, cells, strict=True)
            ]
        )


class Falling:
    """Gives every later evaluation less, whatever the images: each of its calls beyond the self-test counts."""

    calls = 0

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        return from_scores([0.5] * len(prompts))

    def score_for_evaluation(
        self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """An evaluation of five prompts in batches of three is two calls."""
        evaluation, Falling.calls = Falling.calls // 2, Falling.calls + 1
        return from_scores([len(prompt) * 0.01 - evaluation for prompt in prompts])


class Rising(Falling):
    """The other way round, as a training reward: training scores follow the images."""

    calls = 0

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        return from_scores((images_NHWC[..., 0].mean(axis=(1, 2)) / 255).tolist())

    def score_for_evaluation(
        self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        evaluation, Rising.calls = Rising.calls // 2, Rising.calls + 1
        return from_scores([len(prompt) * 0.01 + evaluation for prompt in prompts])


class Broken:
    """Cannot even be built."""

    def __init__(self) -> None:
        raise FileNotFoundError("checkpoint weights.bin is not there")


class HangsOnce(Channel):
    """Its first call after the self-test in the first process never ends; a replacement's does."""

    def __init__(self, marker: str, channel: int = 0, sign: float = 1.0) -> None:
        super().__init__(channel, sign)
        self._marker = Path(marker)
        self._calls = 0

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        self._calls += 1
        if self._calls > 1 and not self._marker.exists():
            self._marker.write_text("hung")
            time.sleep(3600)
        return super().__call__(images_NHWC, prompts, metadata)


class PackageVersion:
    """The major version of a package of its own, which its environment brings."""

    def __init__(self, package: str) -> None:
        self._score = float(importlib.import_module(package).VERSION.split(".")[0])

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        return from_scores([self._score] * len(prompts))


def _count_load(loads: str | None) -> None:
    if loads is not None:
        with Path(loads).open("a") as file:
            file.write(f"{os.getpid()}\n")
