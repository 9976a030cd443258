"""PickScore (Kirstain et al. 2023, arXiv 2305.01569): CLIP ViT-H-14, fine-tuned on choices of users."""

from typing import Literal

from torch import Tensor

from rewards.clip import ClipScorer
from rewards.scorer_args import PickscoreArgs

PICKSCORE_DIVISOR = 26.0
"""The public recipes train on PickScore/26, which brings it near 1 (PAPER 4)."""


def pick_score(cosine_N: Tensor, logit_scale: float, scale: Literal["training", "published"]) -> Tensor:
    """Score [N]: logit_scale · cos (equation 1, the exponential of the stored parameter), over 26 for training."""
    return logit_scale * cosine_N / (PICKSCORE_DIVISOR if scale == "training" else 1.0)


class PickscoreScorer(ClipScorer):
    """PickScore of images against their prompts."""

    def __init__(self, args: PickscoreArgs) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.clip_checkpoint).
        """
        super().__init__(args)
        self._scale = args.scale
        self._logit_scale = self.logit_scale

    def score(self, cosine_N: Tensor) -> Tensor:
        """PickScore [N] of cosines [N]."""
        return pick_score(cosine_N, self._logit_scale, self._scale)
