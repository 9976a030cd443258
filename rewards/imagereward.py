"""ImageReward (Xu et al. 2023, arXiv 2304.05977): BLIP reads the prompt with an eye on the image, a head rates it.

Letters: N samples, P patches (with the class token), T tokens, D the width of the text encoder.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rewards.blip_checkpoint import CONFIG_FILE, WEIGHTS_FILE, load_blip
from rewards.checkpoint import folder_of, load_tokenizer
from rewards.clip_checkpoint import PROCESSOR_FILES
from rewards.model_scorer import ModelScorer
from rewards.scorer_args import ImagerewardArgs

MEAN, STD = 0.16717362830052426, 1.0333394966054072
"""Of the head's output over the authors' validation set; part of the published model."""
MAX_TOKENS = 35
"""Longer prompts are cut, as in training; shorter ones are filled up."""


def image_reward(raw_N: Tensor) -> Tensor:
    """Scores [N] of the head's output [N], standardised (section 3.2 and the published code)."""
    return (raw_N - MEAN) / STD


def hidden_state(output: Any) -> Tensor:
    """The last layer's output of a transformers encoder, whatever it is wrapped in.

    Raises:
        TypeError: another return type, which a later version may bring.
    """
    hidden = getattr(output, "last_hidden_state", output[0] if isinstance(output, tuple) and output else None)
    if not isinstance(hidden, Tensor):
        raise TypeError(f"transformers' BLIP gave {type(output).__name__}, without a last_hidden_state")
    return hidden


class ImagerewardScorer(ModelScorer):
    """ImageReward of images against their prompts; every sample has a score."""

    def __init__(self, args: ImagerewardArgs) -> None:
        """Load the checkpoint.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.blip_checkpoint), or has no tokenizer that fits.
        """
        super().__init__(args.device)
        folder = folder_of(args.checkpoint, args.revision, (WEIGHTS_FILE, CONFIG_FILE))
        blip = load_blip(folder, getattr(torch, args.dtype))
        self._vision, self._text = blip.vision.to(args.device), blip.text.to(args.device)
        self._head, self._preprocess = blip.head.to(args.device), blip.preprocess
        name = args.tokenizer
        self._tokenizer = _tokenizer_of(
            folder if name is None else folder_of(name, args.tokenizer_revision, PROCESSOR_FILES),
            int(blip.text.config.vocab_size),
        )
        self._per_pass = args.batch_size

    def scores(self, images_NHWC: NDArray[np.uint8], prompts: Sequence[str]) -> Tensor:
        """Scores [N] of N images (uint8 [N, H, W, 3]) against their prompts."""
        ids_NT, mask_NT = self._tokens(prompts)
        passes = map(self._slice, range(0, len(images_NHWC), self._per_pass))
        return torch.cat([self._pass(images_NHWC[at], ids_NT[at], mask_NT[at]) for at in passes])

    def _slice(self, start: int) -> slice:
        return slice(start, start + self._per_pass)

    def _pass(self, images_NHWC: NDArray[np.uint8], ids_NT: Tensor, mask_NT: Tensor) -> Tensor:
        pixels = self._preprocess(images_NHWC, self._device).to(self._vision.dtype)
        patches_NPD = hidden_state(self._vision(pixel_values=pixels))
        hidden_NTD = hidden_state(
            self._text(input_ids=ids_NT, attention_mask=mask_NT, encoder_hidden_states=patches_NPD)
        )
        # The first token gathers the text, as in BERT.
        return image_reward(self._head(hidden_NTD[:, 0].float()))

    def _tokens(self, prompts: Sequence[str]) -> tuple[Tensor, Tensor]:
        tokens = self._tokenizer(
            list(prompts), padding="max_length", truncation=True, max_length=MAX_TOKENS, return_tensors="pt"
        )
        return tokens["input_ids"].to(self._device), tokens["attention_mask"].to(self._device)


def _tokenizer_of(folder: Path, vocab_size: int) -> Any:
    tokenizer = load_tokenizer(folder)
    # BLIP's two own tokens have the last two rows of the embedding; a prompt that spells one gets it.
    tokenizer.add_tokens(["[DEC]", "[ENC]"], special_tokens=True)
    if len(tokenizer) != vocab_size:
        raise ValueError(
            f"{folder}: the tokenizer has {len(tokenizer)} tokens with BLIP's two, the text encoder {vocab_size}"
        )
    return tokenizer
