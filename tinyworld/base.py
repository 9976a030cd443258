"""Drawing pictures from a tiny pipeline as rollouts and evaluation do: 10 Euler steps, guidance off, no T5 tokens."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from diffusers import StableDiffusion3Pipeline
from numpy.typing import NDArray

from rewards.config import GenevalArgs, OcrArgs
from rewards.geneval import GenevalScorer
from rewards.ocr import OcrScorer
from tinyworld.make_prompts import PROMPTS, file_name
from tinyworld.pipeline import build_pipeline
from tinyworld.scene import SIZE
from tinyworld.splits import Split
from tinyworld.train_transformer import TransformerStage

STEPS: Final = 10
BATCH: Final = 64
OCR_PIXELS: Final = 256
"""Signs are read at this size."""


def load_checkpoint(work: Path) -> StableDiffusion3Pipeline:
    """The pipeline with the averaged weights of the last transformer checkpoint, finished or not."""
    stage = TransformerStage.__new__(TransformerStage)
    stage.attach(build_pipeline(0), work)
    stage.load_average(torch.load(work / "transformer.pt", weights_only=True)["stage"])
    return stage.use_average()


def read_prompts(source: str, split: Split) -> list[tuple[str, dict[str, Any]]]:
    """Caption and metadata of each line of a committed prompt file; metadata is empty where there is none."""
    lines = (PROMPTS / file_name(source, split)).read_text(encoding="utf-8").splitlines()
    if source != "geneval":
        return [(line, {}) for line in lines]
    rows = [json.loads(line) for line in lines]
    return [(row["prompt"], row) for row in rows]


@torch.no_grad()
def draw(
    pipeline: StableDiffusion3Pipeline, captions: Sequence[str], seed: int
) -> tuple[NDArray[np.uint8], torch.Tensor]:
    """Pictures uint8 [N, 64, 64, 3] and their latents [N, 16, 8, 8], with noise from (seed, position)."""
    pipeline.set_progress_bar_config(disable=True)
    latents = []
    for at in range(0, len(captions), BATCH):
        chunk = list(captions[at : at + BATCH])
        generators = [torch.Generator().manual_seed(seed * 1_000_003 + at + i) for i in range(len(chunk))]
        drawn = pipeline(
            chunk,
            num_inference_steps=STEPS,
            guidance_scale=1.0,
            max_sequence_length=0,
            height=SIZE,
            width=SIZE,
            generator=generators,
            output_type="latent",
        )
        latents.append(drawn.images)
    x0 = torch.cat(latents)
    return decode(pipeline, x0), x0


@torch.no_grad()
def decode(pipeline: StableDiffusion3Pipeline, latents: torch.Tensor) -> NDArray[np.uint8]:
    """Pictures uint8 [N, 64, 64, 3] of scaled latents [N, 16, 8, 8]."""
    vae = pipeline.vae
    images = []
    for chunk in latents.split(BATCH):
        pixels = vae.decode(chunk / vae.config.scaling_factor + vae.config.shift_factor).sample
        images.append(((pixels.clamp(-1, 1) + 1) * 127.5).round().byte().permute(0, 2, 3, 1).numpy())
    return np.concatenate(images)


def geneval_scorer() -> GenevalScorer:
    """GenEval with the colour-shape detector, graded and clipped as the tiny recipe trains on it."""
    return GenevalScorer(
        GenevalArgs(
            detector="tinyworld.detector:ColourShapeDetector", colors="tinyworld.detector:PaletteColors", clip=True
        )
    )


def ocr_scorer() -> OcrScorer:
    """RapidOCR under the strict rule."""
    return OcrScorer(OcrArgs(match="strict", upsample=OCR_PIXELS))
