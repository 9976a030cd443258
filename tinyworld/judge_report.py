"""How well do the held-out scorers judge? ``python -m tinyworld.judge_report [--markdown docs/judges.md]``.

First against the truth, on procedural pictures that nothing was trained on, each beside the training scorer it is an
alternative to. Then on what the base draws: how far they go along with the training rewards within the pictures of one
prompt, which is where rewards train. One that went along with a training reward wholly would see no hacking of it.

Letters: N pictures, K scorers.
"""

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch
from numpy.typing import NDArray

from rewards.config import RewardConfig
from rewards.contract import RewardResult
from rewards.detection import ColorClassifier, Detector
from rewards.evaluation import score_for_evaluation
from rewards.registry import build_scorer
from tinyworld.aesthetics import rating
from tinyworld.base import draw, read_prompts
from tinyworld.captions import sample_geneval
from tinyworld.conflict import REWARDS, Score, scorers
from tinyworld.detector import ColourShapeDetector, PaletteColors
from tinyworld.judges import HEAD_FILE
from tinyworld.negatives import corrupt
from tinyworld.pipeline import WEIGHTS, load_pipeline
from tinyworld.render import render
from tinyworld.scene import SOURCES, Scene
from tinyworld.strict_detector import NearestTone, StrictDetector
from tinyworld.train_detector import without_half
from tinyworld.train_judges import draw_scene
from tinyworld.train_preference import warp
from tinyworld.world import realise

JUDGES: Final = ("aesthetic", "heldout_clip", "strict_geneval")
FOUND: Final = 0.9
"""GenEval's threshold where objects are counted."""
BENT: Final = 0.7
"""Damage of the spoilt pictures."""

Images = NDArray[np.uint8]


def judges() -> dict[str, Score]:
    """The held-out scorers by name, each with the figure it reports."""
    aesthetic = {"checkpoint": str(WEIGHTS / "aesthetic"), "head": str(WEIGHTS / "aesthetic" / HEAD_FILE)}
    parts = {
        "detector": "tinyworld.strict_detector:StrictDetector",
        "colors": "tinyworld.strict_detector:NearestTone",
        "report": "strict",
    }
    configs = {
        "aesthetic": RewardConfig(scorer="aesthetic", args=aesthetic),
        "heldout_clip": RewardConfig(scorer="clipscore", args={"checkpoint": str(WEIGHTS / "heldout_clip")}),
        "strict_geneval": RewardConfig(scorer="geneval", args=parts),
    }
    return {name: _reporting(build_scorer(name, config)) for name, config in configs.items()}


def _reporting(scorer: Any) -> Score:
    def score(images: Images, prompts: Sequence[str], metadata: Sequence[Any]) -> RewardResult:
        return score_for_evaluation(scorer, images, prompts, metadata)

    return score


# -- against the truth ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Pictures:
    """Procedural pictures, some of them bent."""

    scenes: list[Scene]
    images: Images
    damage_N: NDArray[np.float64]


def pictures(seed: int, count: int, bent: float | None = None, geneval: bool = False) -> Pictures:
    """Fresh ones; `bent` is the damage of all, None draws half of them cleanly and the others at random."""
    rng = np.random.default_rng((seed, 4711))
    scenes = [
        realise(sample_geneval(rng, "unseen"), rng, "unseen") if geneval else draw_scene(rng) for _ in range(count)
    ]
    damage = np.where(rng.random(count) < 0.5, 0.0, rng.random(count)) if bent is None else np.full(count, bent)
    return Pictures(scenes, bend(np.stack([render(scene) for scene in scenes]), damage, seed), damage)


def bend(images: Images, damage_N: NDArray[np.float64], seed: int) -> Images:
    """Pictures [N, 64, 64, 3] bent by so much."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        pixels = torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255
        bent = warp(pixels, torch.from_numpy(damage_N).float())
    return np.asarray((255 * bent).round().byte().permute(0, 2, 3, 1).numpy())


def own_caption_wins(score: Score, seed: int, count: int) -> float:
    """Share of clean pictures whose caption beats the same one with one word or glyph changed."""
    found, rng = pictures(seed, count, bent=0.0), np.random.default_rng(seed)
    captions = [scene.caption for scene in found.scenes]
    own, other = (
        score(found.images, texts, [{}] * count).scores for texts in (captions, [corrupt(c, rng) for c in captions])
    )
    return float(np.mean(np.asarray(own) > np.asarray(other)))


def rating_correlation(score: Score, seed: int, count: int) -> float:
    """Pearson's r of scores with the true ratings, on clean and bent pictures."""
    found = pictures(seed, count)
    ratings = [rating(scene, float(bent)) for scene, bent in zip(found.scenes, found.damage_N, strict=True)]
    scores = score(found.images, [scene.caption for scene in found.scenes], [{}] * count).scores
    return float(np.corrcoef(ratings, scores)[0, 1])


def read_right(detector: Detector, colors: ColorClassifier, found: Pictures) -> float:
    """Share of pictures of which exactly the drawn objects are found, with their colours."""
    right = 0
    for scene, image, objects in zip(found.scenes, found.images, detector(found.images), strict=True):
        sure = [item for item in objects if item.confidence > FOUND]
        names = zip(sure, colors(image, sure), strict=True)
        right += sorted((d.class_name, c) for d, c in names) == sorted((i.shape, i.color) for i in scene.items)
    return right / len(found.scenes)


def halves_found(detector: Detector, found: Pictures, seed: int) -> float:
    """Share of objects still found, by their shape and in their place, of which one half is painted over."""
    rng = np.random.default_rng(seed)
    cut = np.stack([without_half(i, s.items[0], rng) for s, i in zip(found.scenes, found.images, strict=True)])
    hits = 0
    for scene, objects in zip(found.scenes, detector(cut), strict=True):
        item = scene.items[0]
        near = [o for o in objects if o.confidence > FOUND and o.class_name == item.shape]
        hits += any(o.box_xyxy[0] < item.x < o.box_xyxy[2] and o.box_xyxy[1] < item.y < o.box_xyxy[3] for o in near)
    return hits / len(found.scenes)


def truth_table(known: Mapping[str, Score], seed: int, count: int) -> list[str]:
    """Markdown lines: each held-out scorer against the truth, beside training scorers."""
    lines = ["| question | held out | trained on |", "|---|---|---|"]

    def row(question: str, measure: Callable[[Score], float], own: str, *others: str) -> None:
        beside = ", ".join(f"{name} {measure(known[name]):.3f}" for name in others)
        lines.append(f"| {question} | {own} {measure(known[own]):.3f} | {beside} |")

    row(
        "own caption beats a corrupted one, share of clean pictures",
        lambda score: own_caption_wins(score, seed, count),
        "heldout_clip",
        "clipscore",
    )
    row(
        "correlation with the true rating, clean and bent pictures",
        lambda score: rating_correlation(score, seed, count),
        "aesthetic",
        "pickscore",
        "hpsv2",
    )
    detectors: tuple[tuple[Detector, ColorClassifier], ...] = (
        (StrictDetector(), NearestTone()),
        (ColourShapeDetector(), PaletteColors()),
    )
    for question, bent in (("clean pictures", 0.0), ("slightly bent ones (0.2)", 0.2), (f"spoilt ones ({BENT})", BENT)):
        found = pictures(seed, count, bent, geneval=True)
        strict, training = (read_right(*pair, found) for pair in detectors)
        lines.append(f"| objects and colours read right, share of {question} | strict {strict:.3f} | {training:.3f} |")
    found = pictures(seed, count, 0.0, geneval=True)
    strict, training = (halves_found(detector, found, seed) for detector, _ in detectors)
    lines.append(f"| objects still found of which half is gone | strict {strict:.3f} | {training:.3f} |")
    return lines


# -- beside the training rewards --------------------------------------------------------------------------------------


def within_groups(scores_KN: NDArray[np.float64], groups_N: NDArray[np.int64]) -> NDArray[np.float64]:
    """[K, K] correlation of scores after each group's mean is taken off, over the pictures both have scored."""
    count = len(scores_KN)
    centred_KN = np.full(scores_KN.shape, np.nan)
    for group in np.unique(groups_N):
        rows = scores_KN[:, groups_N == group]
        known = np.isfinite(rows).all(axis=1)
        centred_KN[np.ix_(known, groups_N == group)] = rows[known] - rows[known].mean(axis=1, keepdims=True)
    matrix = np.full((count, count), np.nan)
    for a in range(count):
        for b in range(count):
            both = np.isfinite(centred_KN[a]) & np.isfinite(centred_KN[b])
            x, y = centred_KN[a, both], centred_KN[b, both]
            if x.any() and y.any():
                matrix[a, b] = (x @ y) / np.sqrt((x @ x) * (y @ y))
    return matrix


def base_scores(
    known: Mapping[str, Score], prompts: int, images: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Scores [K, N] of what the base draws for the first held-out prompts of each source, and their groups [N]."""
    rows = [(s, *p) for s in SOURCES for p in read_prompts(s, "heldout")[:prompts] for _ in range(images)]
    drawn, _ = draw(load_pipeline(WEIGHTS / "pipeline"), [caption for _, caption, _ in rows], seed)
    scores = np.full((len(known), len(rows)), np.nan)
    for k, (name, score) in enumerate(known.items()):
        source = "geneval" if name == "strict_geneval" else name
        own = np.flatnonzero([source not in SOURCES or s == source for s, _, _ in rows])
        result = score(drawn[own], [rows[i][1] for i in own], [rows[i][2] for i in own])
        scores[k, own] = result.scores
    return scores, np.repeat(np.arange(len(rows) // images), images)


def correlation_table(known: Mapping[str, Score], matrix_KK: NDArray[np.float64]) -> list[str]:
    """Markdown lines: held-out scorers down, all across."""
    names = list(known)
    lines = ["| within a prompt | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    rows = {name: ["-" if np.isnan(x) else f"{x:+.2f}" for x in matrix_KK[names.index(name)]] for name in JUDGES}
    return [*lines, *(f"| {name} | {' | '.join(row)} |" for name, row in rows.items())]


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=600, help="procedural pictures for each question")
    parser.add_argument("--prompts", type=int, default=48, help="held-out prompts of each source")
    parser.add_argument("--images", type=int, default=8, help="pictures of each prompt")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--markdown", type=Path, help="also write the report here")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    known = {**scorers(), **judges()}
    scores_KN, groups_N = base_scores(known, options.prompts, options.images, options.seed)
    means = {name: float(np.nanmean(row)) for name, row in zip(known, scores_KN, strict=True)}
    settings = f"--count {options.count} --prompts {options.prompts} --images {options.images} --seed {options.seed}"
    text = "\n".join(
        [
            *truth_table(known, options.seed, options.count),
            "",
            f"{options.count} procedural pictures for each question.",
            "",
            *correlation_table(known, within_groups(scores_KN, groups_N)),
            "",
            f"The base's pictures of {options.prompts} held-out prompts of each source, {options.images} each. "
            f"Their means: {', '.join(f'{name} {means[name]:.3f}' for name in (*JUDGES, *REWARDS))}.",
            "",
            f"Command: `python -m tinyworld.judge_report {settings}`",
        ]
    )
    print(text)
    if options.markdown:
        options.markdown.write_text(f"# How well the held-out rewards judge\n\n{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
