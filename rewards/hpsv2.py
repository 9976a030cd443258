"""HPSv2.1 (Wu et al. 2023, arXiv 2306.09341): the cosine of CLIP ViT-H-14, fine-tuned on rankings of images.

The published file is open_clip's, and with it comes open_clip's pipeline: text is cleaned before it is split into
tokens, and the whole image is seen, its longer side resized and the rest padded with black.
"""

import html
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from rewards.checkpoint import file_of
from rewards.clip import ClipScorer
from rewards.clip_checkpoint import ClipCheckpoint, load_clip, processor_of, with_processor
from rewards.open_clip import load_open_clip
from rewards.scorer_args import Hpsv2Args


def open_clip_text(prompt: str) -> str:
    """A prompt as open_clip cleans it: broken encodings repaired (curly quotes among others become straight), HTML
    entities resolved, twice over, since some are escaped twice. Its lower case and white space are the tokenizer's too.
    """
    import ftfy

    return html.unescape(html.unescape(ftfy.fix_text(prompt)))


class Hpsv2Scorer(ClipScorer):
    """HPSv2.1 of images against their prompts."""

    def __init__(self, args: Hpsv2Args) -> None:
        """Load the checkpoint: open_clip's file, or a folder in the transformers format.

        Raises:
            ValueError: it cannot be loaded whole (see rewards.open_clip, rewards.clip_checkpoint).
        """
        self._is_open_clip = _holds_open_clip(args)
        loaded = _load_open_clip(args) if self._is_open_clip else load_clip(args)
        side = loaded.preprocess.side
        preprocess = replace(loaded.preprocess, fit="pad", resize=side, rounded=False)
        super().__init__(args, replace(loaded, preprocess=preprocess))

    def text_embeddings(self, prompts: Sequence[str]) -> Tensor:
        """Embeddings [N, D] of N prompts, not normalised."""
        texts = [open_clip_text(prompt) for prompt in prompts] if self._is_open_clip else prompts
        return super().text_embeddings(texts)

    def score(self, cosine_N: Tensor) -> Tensor:
        """The cosines [N] themselves."""
        return cosine_N


def _holds_open_clip(args: Hpsv2Args) -> bool:
    """A local folder without the file is in the transformers format."""
    folder = Path(args.checkpoint).expanduser()
    return not folder.is_dir() or (folder / args.file).is_file()


def _load_open_clip(args: Hpsv2Args) -> ClipCheckpoint:
    path = file_of(args.checkpoint, args.revision, args.file)
    processor = processor_of(args)
    if processor is None:
        raise ValueError(
            f"{path} is an open_clip file without configuration and tokenizer; name a processor with both, such as a "
            "copy of laion/CLIP-ViT-H-14-laion2B-s32B-b79K"
        )
    model = load_open_clip(path, processor, getattr(torch, args.dtype))
    return with_processor(model, processor, args.device)
