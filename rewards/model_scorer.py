"""Scorers that are one torch model on one device and give every sample a score."""

import threading
from abc import ABC, abstractmethod
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.contract import Metadata, RewardResult
from rewards.images import check_batch
from rewards.results import from_scores


class ModelScorer(ABC):
    """Checks batches and lets one call in at a time; what a score is stands in :meth:`scores`. Metadata is not used."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        # Fast tokenizers break when two threads change their padding at once.
        self._lock = threading.Lock()

    @abstractmethod
    def scores(self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str]) -> Tensor:
        """Scores [N] of N > 0 images (uint8 [N, H, W, 3]) and their prompts; NaN is a failure of its sample."""

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]) with their prompts.

        Raises:
            ValueError: a batch that is not as rewards.images.check_batch wants it.
        """
        images = check_batch(images_NHWC, prompts, metadata)
        if len(images) == 0:
            return from_scores([])
        with self._lock, torch.inference_mode():
            scores_N = self.scores(images, prompts)
        return from_scores(scores_N.cpu().tolist())
