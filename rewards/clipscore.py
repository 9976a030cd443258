"""CLIPScore: the cosine of CLIP ViT-L-14 (Radford et al. 2021), that is its logit over its logit scale of 100."""

from torch import Tensor

from rewards.clip import ClipScorer
from rewards.scorer_args import ClipscoreArgs


class ClipscoreScorer(ClipScorer):
    """CLIPScore of images against their prompts."""

    def __init__(self, args: ClipscoreArgs) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.clip_checkpoint).
        """
        super().__init__(args)

    def score(self, cosine_N: Tensor) -> Tensor:
        """The cosines [N] themselves."""
        return cosine_N
