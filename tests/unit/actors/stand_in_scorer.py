"""A scorer that keeps what it was asked. In a module of its own: scorers are found by dotted path."""

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from rewards.contract import Metadata, RewardResult
from rewards.results import Cell, collect
from tests.unit.actors.in_process import ProcessExit, ProcessHang


class Scripted:
    """First pixel of each image as its score; fails prompts with `bad` as often as it was told to.

    A prompt with `raise`, `exit` or `hang` in its batch ends the whole call that way, every time.
    """

    calls: ClassVar[list[tuple[list[str], int]]] = []
    """(prompts, images) of every call."""
    failures_left: ClassVar[int] = 0

    def __init__(self, **args: Any) -> None:
        pass

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        type(self).calls.append((list(prompts), len(images_NHWC)))
        if any("exit" in prompt for prompt in prompts):
            raise ProcessExit
        if any("hang" in prompt for prompt in prompts):
            raise ProcessHang
        if any("raise" in prompt for prompt in prompts):
            raise RuntimeError("cannot see it")
        fails = type(self).failures_left > 0
        if fails and any("bad" in prompt for prompt in prompts):
            type(self).failures_left -= 1
        cells = [
            Cell.failed("no ink") if fails and "bad" in prompt else Cell.scored(float(image[0, 0, 0]))
            for prompt, image in zip(prompts, images_NHWC, strict=True)
        ]
        return collect(cells)
