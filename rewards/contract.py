"""What every reward returns: one cell per sample, in one of three states.

Letters: N samples in a batch, H and W pixels.

A scorer never invents a number. A sample it could not score is FAILED with a reason, a sample that carries no
such signal is NOT_APPLICABLE, and only SCORED cells hold a finite score. Whoever reads scores masks by state.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

Metadata = Mapping[str, Any]
"""What a prompt file says of one prompt beyond its text (GenEval's include/exclude, a target text, ...)."""


class State(IntEnum):
    """State of one (reward, sample) cell. The integers are what the ledger stores."""

    SCORED = 0
    NOT_APPLICABLE = 1
    FAILED = 2


@dataclass(frozen=True)
class RewardResult:
    """Scores of one reward for N samples.

    Raises:
        ValueError: lengths differ, or a SCORED cell is not finite, or a FAILED cell has no reason.
    """

    scores: NDArray[np.float32]
    """[N] finite where SCORED, NaN elsewhere."""
    states: NDArray[np.uint8]
    """[N] values of :class:`State`."""
    reasons: tuple[str, ...]
    """[N] why a cell failed or does not apply; empty where it was scored."""

    def __post_init__(self) -> None:
        n = len(self.scores)
        if self.scores.shape != (n,) or self.states.shape != (n,) or len(self.reasons) != n:
            raise ValueError(
                f"scores, states and reasons must have one entry per sample, got shapes {self.scores.shape}, "
                f"{self.states.shape} and {len(self.reasons)} reasons"
            )
        scored = self.states == State.SCORED
        if not np.isfinite(self.scores[scored]).all():
            raise ValueError("a SCORED cell must be finite; mark it FAILED with a reason instead")
        if any(not reason for reason, state in zip(self.reasons, self.states, strict=True) if state == State.FAILED):
            raise ValueError("a FAILED cell needs a reason")


@runtime_checkable
class Scorer(Protocol):
    """One reward model. An instance handles one call at a time; the pool sees to that.

    It may raise: the pool then treats every cell of that call as failed with the exception's text, retries,
    and never turns the failure into a number.
    """

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]) against their prompts and metadata."""
        ...
