"""How good is the base? ``python -m tinyworld.evaluate_base [--folder DIR | --checkpoint]``.

Draws every held-out prompt once and prints GenEval *correct* and strict OCR, which must both lie between 0.3 and 0.7,
with figures by tag and by text length. ``--checkpoint`` takes the moving average of an unfinished training.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import torch
from diffusers import StableDiffusion3Pipeline
from PIL import Image

from rewards.geneval import GenevalScorer
from rewards.ocr import OcrScorer
from tinyworld.base import draw, geneval_scorer, load_checkpoint, ocr_scorer, read_prompts
from tinyworld.loop import WORK
from tinyworld.pipeline import WEIGHTS, load_pipeline
from tinyworld.splits import Split


def evaluate(
    pipeline: StableDiffusion3Pipeline, split: Split, limit: int, seed: int, samples: int
) -> dict[str, dict[str, float]]:
    """Mean figures on the first ``limit`` prompts of GenEval and OCR, ``samples`` pictures a prompt.

    Returns:
        For "geneval" and "ocr": "all", one entry per tag or text length, and "mixed": the share of prompts whose
        pictures do not all get the same score.
    """
    groups: dict[str, Callable[[str, dict[str, object]], str]] = {
        "geneval": lambda _, metadata: str(metadata["tag"]),
        "ocr": lambda caption, _: f"{len(caption.split(chr(34))[1])} glyphs",
    }
    scorers: dict[str, GenevalScorer | OcrScorer] = {"geneval": geneval_scorer(), "ocr": ocr_scorer()}
    result = {}
    for source, group in groups.items():
        prompts = [p for p in read_prompts(source, split)[:limit] for _ in range(samples)]
        images, _ = draw(pipeline, [caption for caption, _ in prompts], seed)
        scored = scorers[source].score_for_evaluation(images, *zip(*prompts, strict=True))
        result[source] = _summary(scored.scores, [group(*p) for p in prompts], samples)
        if source == "geneval":
            graded = scorers[source](images, *zip(*prompts, strict=True)).scores
            result[source]["graded"] = float(np.mean(graded))
    return result


def _summary(scores: Iterable[float], groups: list[str], samples: int) -> dict[str, float]:
    values = np.fromiter(scores, dtype=np.float64)
    by_group: defaultdict[str, list[float]] = defaultdict(list)
    for group, value in zip(groups, values, strict=True):
        by_group[group].append(value)
    summary = {"all": float(values.mean())} | {g: float(np.mean(v)) for g, v in sorted(by_group.items())}
    if samples > 1:
        summary["mixed"] = float((np.ptp(values.reshape(-1, samples), axis=1) > 0).mean())
    return summary


def save_grid(pipeline: StableDiffusion3Pipeline, path: Path, seed: int, rows: int = 4, columns: int = 12) -> None:
    """A picture of held-out samples: a row of general, a row of signs, the rest GenEval."""
    sources = ["general", "ocr", *["geneval"] * (rows - 2)]
    tiles = []
    for row, source in enumerate(sources):
        captions = [caption for caption, _ in read_prompts(source, "heldout")[row * columns : (row + 1) * columns]]
        images, _ = draw(pipeline, captions, seed + row)
        tiles.append(np.concatenate(list(images), axis=1))
    grid = Image.fromarray(np.concatenate(tiles, axis=0))
    grid.resize((grid.width * 2, grid.height * 2), Image.Resampling.NEAREST).save(path)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--folder", type=Path, default=WEIGHTS / "pipeline")
    parser.add_argument("--checkpoint", action="store_true", help="evaluate the training in progress")
    parser.add_argument("--split", choices=["train", "heldout"], default="heldout")
    parser.add_argument("--limit", type=int, default=192, help="prompts a source")
    parser.add_argument("--samples", type=int, default=1, help="pictures a prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--grid", type=Path, help="also save a picture of samples here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    pipeline = load_checkpoint(WORK) if options.checkpoint else load_pipeline(options.folder)
    figures = evaluate(pipeline, options.split, options.limit, options.seed, options.samples)
    for source, values in figures.items():
        print(source, "  ".join(f"{name} {value:.3f}" for name, value in values.items()))
    if options.grid:
        save_grid(pipeline, options.grid, options.seed)


if __name__ == "__main__":
    main()
