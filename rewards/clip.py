"""Scores of the CLIP family: PickScore, HPSv2 and CLIPScore, one class over three checkpoints.

Letters: N images, U unique prompts, D the width of the shared embedding.
"""

import threading
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.clip_checkpoint import load_clip
from rewards.config import ClipArgs
from rewards.contract import Metadata, RewardResult
from rewards.images import check_batch
from rewards.results import from_scores

PICKSCORE_DIVISOR = 26.0
"""The public recipes train on PickScore/26, which brings it near 1 (PAPER 4)."""

_TEXTS_PER_PASS = 8
"""Texts always go through the tower in batches of this many, the last one filled up: a text's embedding then does not
depend on its company, not even in the last bit, whatever else is in the batch."""


def clip_score(
    image_ND: Tensor,
    text_ND: Tensor,
    logit_scale: float,
    kind: Literal["pickscore", "hpsv2", "clipscore"],
    scale: Literal["training", "published"] = "training",
) -> Tensor:
    """Score [N] of image and text embeddings [N, D], not yet normalised.

    cos for HPSv2.1 and CLIPScore; logit_scale · cos for PickScore (Kirstain et al. 2023, equation 1, where logit_scale
    is the exponential of the stored parameter), divided by 26 for training. Source: PAPER 4.
    """
    cosine = torch.nn.functional.cosine_similarity(image_ND.float(), text_ND.float(), dim=-1)
    if kind != "pickscore":
        return cosine
    return logit_scale * cosine / (PICKSCORE_DIVISOR if scale == "training" else 1.0)


def features(output: Any) -> Tensor:
    """The projected embeddings [N, D] of get_image_features and get_text_features.

    transformers 4 returns the tensor, 5 an output object that holds it as pooler_output.

    Raises:
        TypeError: another return type, which a later version may bring.
    """
    if isinstance(output, Tensor):
        return output
    pooled = getattr(output, "pooler_output", None)
    if isinstance(pooled, Tensor):
        return pooled
    raise TypeError(
        f"transformers' CLIP gave {type(output).__name__}, neither a tensor nor an object with pooler_output"
    )


class ClipScorer:
    """PickScore, HPSv2 or CLIPScore of images against their prompts; every sample has a score.

    Prompts longer than the model takes are cut at its limit, as the published pipelines do.
    """

    def __init__(self, args: ClipArgs) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.clip_checkpoint).
        """
        self.args = args
        self._checkpoint = load_clip(args)
        self._logit_scale = float(self._checkpoint.model.logit_scale.float().exp())
        # Fast tokenizers break when two threads change their padding at once.
        self._lock = threading.Lock()

    @property
    def score_range(self) -> tuple[float, float]:
        """Least and greatest score: those of a cosine of -1 and 1."""
        ends = clip_score(
            torch.tensor([[-1.0], [1.0]]), torch.ones(2, 1), self._logit_scale, self.args.kind, self.args.scale
        )
        return (float(ends[0]), float(ends[1]))

    def __call__(
        self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        """Score N images (uint8 [N, H, W, 3]) against their prompts; metadata is not used.

        Raises:
            ValueError: a batch that is not as rewards.images.check_batch wants it.
        """
        images = check_batch(images_NHWC, prompts, metadata)
        if len(images) == 0:
            return from_scores([])
        with self._lock, torch.inference_mode():
            image_ND = self.image_embeddings(images)
            text_ND = self.text_embeddings(prompts)
            scores_N = clip_score(image_ND, text_ND, self._logit_scale, self.args.kind, self.args.scale)
        return from_scores(scores_N.cpu().tolist())

    @torch.inference_mode()
    def image_embeddings(self, images_NHWC: NDArray[np.uint8]) -> Tensor:
        """Embeddings [N, D] of images (uint8 [N, H, W, 3]), not normalised, in passes of args.batch_size."""
        model, size = self._checkpoint.model, self.args.batch_size
        passes = []
        for start in range(0, len(images_NHWC), size):
            pixels = self._checkpoint.preprocess(images_NHWC[start : start + size], self.args.device)
            passes.append(features(model.get_image_features(pixel_values=pixels.to(model.dtype))))
        return torch.cat(passes)

    @torch.inference_mode()
    def text_embeddings(self, prompts: Sequence[str]) -> Tensor:
        """Embeddings [N, D] of N prompts, not normalised. Each different prompt is embedded once: a group shares it."""
        unique = list(dict.fromkeys(prompts))
        filled = unique + unique[:1] * (-len(unique) % _TEXTS_PER_PASS)
        passes = [self._text_pass(filled[i : i + _TEXTS_PER_PASS]) for i in range(0, len(filled), _TEXTS_PER_PASS)]
        row = {prompt: index for index, prompt in enumerate(unique)}
        return torch.cat(passes)[[row[prompt] for prompt in prompts]]

    def _text_pass(self, texts: list[str]) -> Tensor:
        checkpoint = self._checkpoint
        tokens = checkpoint.tokenizer(
            texts, padding="max_length", truncation=True, max_length=checkpoint.max_tokens, return_tensors="pt"
        ).to(self.args.device)
        output = checkpoint.model.get_text_features(
            input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]
        )
        return features(output)
