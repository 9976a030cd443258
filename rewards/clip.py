"""Embeddings and cosines of CLIP, on which PickScore, HPSv2, CLIPScore and Aesthetic build.

Letters: N images, U unique prompts, D the width of the shared embedding.
"""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.clip_checkpoint import ClipCheckpoint, load_clip
from rewards.model_scorer import ModelScorer
from rewards.scorer_args import ClipArgs

_TEXTS_PER_PASS = {"cpu": 2}
_TEXTS_PER_GPU_PASS = 64
"""Texts always go through the tower in batches of one size, the last one filled up: a text's embedding then does not
depend on its company, not even in the last bit, whatever else is in the batch. On a CPU a text costs the same in small
passes, and few are filled up; a GPU needs large ones to be busy."""


def cosines(image_ND: Tensor, text_ND: Tensor) -> Tensor:
    """Cosine [N] of each image's with its text's embedding [N, D], not yet normalised; in float32."""
    return torch.nn.functional.cosine_similarity(image_ND.float(), text_ND.float(), dim=-1)


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


def text_features(checkpoint: ClipCheckpoint, texts: Sequence[str], device: torch.device) -> Tensor:
    """Projected embeddings [N, D] of N texts, not normalised; longer ones are cut where the model's own text ends."""
    tokens = checkpoint.tokenizer(
        list(texts), padding="max_length", truncation=True, max_length=checkpoint.max_tokens, return_tensors="pt"
    ).to(device)
    return features(
        checkpoint.model.get_text_features(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"])
    )


class ClipEncoder(ModelScorer):
    """A CLIP checkpoint that turns images and prompts into embeddings.

    Prompts longer than the model takes are cut at its limit, as the published pipelines do.
    """

    def __init__(self, args: ClipArgs, checkpoint: ClipCheckpoint | None = None) -> None:
        """Load the checkpoint, unless it is given.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.clip_checkpoint).
        """
        super().__init__(args.device)
        self._checkpoint = checkpoint or load_clip(args)
        self._images_per_pass = args.batch_size
        self._texts_per_pass = _TEXTS_PER_PASS.get(self._device.type, _TEXTS_PER_GPU_PASS)

    @property
    def logit_scale(self) -> float:
        """The exponential of the stored parameter."""
        return float(self._checkpoint.model.logit_scale.float().exp())

    @torch.inference_mode()
    def image_embeddings(self, images_NHWC: NDArray[np.uint8]) -> Tensor:
        """Embeddings [N, D] of images (uint8 [N, H, W, 3]), not normalised, in passes of args.batch_size."""
        model, size = self._checkpoint.model, self._images_per_pass
        passes = []
        for start in range(0, len(images_NHWC), size):
            pixels = self._checkpoint.preprocess(images_NHWC[start : start + size], self._device)
            passes.append(features(model.get_image_features(pixel_values=pixels.to(model.dtype))))
        return torch.cat(passes)

    @torch.inference_mode()
    def text_embeddings(self, prompts: Sequence[str]) -> Tensor:
        """Embeddings [N, D] of N prompts, not normalised. Each different prompt is embedded once: a group shares it."""
        size, unique = self._texts_per_pass, list(dict.fromkeys(prompts))
        filled = unique + unique[:1] * (-len(unique) % size)
        parts = [filled[i : i + size] for i in range(0, len(filled), size)]
        passes = [text_features(self._checkpoint, part, self._device) for part in parts]
        row = {prompt: index for index, prompt in enumerate(unique)}
        return torch.cat(passes)[[row[prompt] for prompt in prompts]]


class ClipScorer(ClipEncoder):
    """A score that is a function of the cosine between image and prompt; every sample has one."""

    @abstractmethod
    def score(self, cosine_N: Tensor) -> Tensor:
        """Scores [N] of cosines [N]."""

    @property
    def score_range(self) -> tuple[float, float]:
        """Least and greatest score: those of a cosine of -1 and 1."""
        ends = self.score(torch.tensor([-1.0, 1.0]))
        return (float(ends[0]), float(ends[1]))

    def scores(self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str]) -> Tensor:
        """Scores [N] of N images (uint8 [N, H, W, 3]) against their prompts."""
        return self.score(cosines(self.image_embeddings(images_NHWC), self.text_embeddings(prompts)))
