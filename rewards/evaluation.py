"""Scores for reporting, where they differ from those that are trained on.

GenEval trains on a graded score and is reported as *correct*; OCR may train on the published matching rule and is
reported under the strict one. A scorer that makes no such difference needs nothing.
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rewards.contract import Metadata, RewardResult, Scorer


@runtime_checkable
class EvaluationScorer(Protocol):
    """A scorer that reports another figure than it trains on."""

    def score_for_evaluation(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """The reported figure of N images (uint8 [N, H, W, 3]), in the same three states as training scores."""
        ...


def score_for_evaluation(
    scorer: Scorer, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
) -> RewardResult:
    """The scorer's reported figure, which is its training score unless it says otherwise."""
    if isinstance(scorer, EvaluationScorer):
        return scorer.score_for_evaluation(images_NHWC, prompts, metadata)
    return scorer(images_NHWC, prompts, metadata)
