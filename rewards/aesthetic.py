"""The LAION aesthetic predictor, version 2 (Schuhmann 2022): how much people like an image, on a scale of 1 to 10.

A linear head on the image embedding of CLIP ViT-L-14. Which prompt the image was made for plays no part.

Letters: N images, D the width of the embedding.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.checkpoint import file_of
from rewards.clip import ClipEncoder
from rewards.clip_checkpoint import load_clip
from rewards.converted import read_pickle
from rewards.score_head import ScoreHead, load_head
from rewards.scorer_args import AestheticArgs


def aesthetic_score(embedding_ND: Tensor, head: ScoreHead) -> Tensor:
    """Scores [N]: the head on embeddings [N, D] of length one. The published code leaves a zero vector as it is."""
    scores: Tensor = head(torch.nn.functional.normalize(embedding_ND.float(), dim=-1))
    return scores


class AestheticScorer(ClipEncoder):
    """Aesthetic scores of images; every sample has one."""

    def __init__(self, args: AestheticArgs) -> None:
        """Load CLIP and the head.

        Raises:
            ValueError: either cannot be loaded whole (see rewards.clip_checkpoint, rewards.score_head).
        """
        loaded = load_clip(args)
        # The published code prepares images with torchvision.
        super().__init__(args, replace(loaded, preprocess=replace(loaded.preprocess, cut="nearest")))
        path = file_of(args.head, args.head_revision, args.head_file)
        self._head = load_head(read_pickle(path), int(loaded.model.config.projection_dim), path).to(args.device)

    def scores(self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str]) -> Tensor:
        """Scores [N] of N images (uint8 [N, H, W, 3]); prompts are not used."""
        return aesthetic_score(self.image_embeddings(images_NHWC), self._head)
