"""Held-out pictures of a run: a folder per evaluation, and one grid of the same prompts before and after."""

import json
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw, ImageFont

from actors.results import EvalSample, EvaluationResult, IterationResult
from actors.run_config import RunConfig
from deploy.files import write_json
from deploy.progress.view import number

INDEX = "samples.json"
GRID = "before_after.png"
SHOWN_SIDE = 192
"""Side of a picture in the grid, pixels; smaller ones are enlarged by whole factors, larger ones reduced."""
FONT_SIZE = 13
LINE_HEIGHT = 17
GAP = 12
NUM_COLUMNS = 3
BACKGROUND, INK, FAINT = (250, 250, 250), (20, 20, 20), (110, 110, 110)


class PictureListener:
    """Writes what evaluations show."""

    def __init__(self, samples_dir: Path) -> None:
        self._dir = samples_dir

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """Nothing to show yet."""

    def on_stage(self, stage: str, detail: str) -> None:
        """Not shown."""

    def on_iteration(self, result: IterationResult) -> None:
        """Not shown."""

    def on_evaluation(self, result: EvaluationResult) -> None:
        """A folder of pictures; the grid as soon as there is something after the base."""
        if not result.samples:
            return
        folder = write_samples(self._dir, result)
        before = evaluation_dir(self._dir, 0)
        if result.which != "before" and (before / INDEX).is_file():
            write_grid(before, folder, self._dir / GRID)

    def on_checkpoint(self, path: Path) -> None:
        """Not shown."""

    def on_warning(self, text: str) -> None:
        """Not shown."""

    def close(self) -> None:
        """Nothing to put away."""


def evaluation_dir(samples_dir: Path, iteration: int) -> Path:
    """Folder of the evaluation after so many iterations."""
    return samples_dir / f"{iteration:06d}"


def write_samples(samples_dir: Path, result: EvaluationResult) -> Path:
    """One PNG per kept sample, and an index with prompts and scores, written last."""
    folder = evaluation_dir(samples_dir, result.iteration)
    folder.mkdir(parents=True, exist_ok=True)
    entries = []
    for sample in result.samples:
        name = sample.prompt_id.replace("/", "-") + ".png"
        Image.fromarray(sample.image_HWC).save(folder / name)
        entries.append(_entry(sample, name, result))
    write_json(folder / INDEX, {"iteration": result.iteration, "which": result.which, "samples": entries})
    return folder


def _entry(sample: EvalSample, file: str, result: EvaluationResult) -> dict[str, Any]:
    row = result.prompt_ids.index(sample.prompt_id)
    scores = {name: float(values[row]) for name, values in result.per_prompt.items() if np.isfinite(values[row])}
    return {
        "prompt_id": sample.prompt_id,
        "source": sample.source,
        "prompt": sample.prompt,
        "file": file,
        "scores": scores,
    }


Cells = tuple[tuple[int, str], ...]
"""(left edge in pixels, text) of the cells of one line."""

COLUMN_LEFTS = (0, 130, 220, 330)
"""Left edges of a card's score table, pixels: the built-in font is proportional, spaces would not line up."""


@dataclass(frozen=True)
class _Card:
    """One prompt: two pictures and their captions."""

    before: Image.Image
    after: Image.Image
    lines: tuple[tuple[Cells, tuple[int, int, int]], ...]


def write_grid(before_dir: Path, after_dir: Path, path: Path) -> None:
    """Before (left) and after (right) of each prompt that both evaluations kept, with prompt and scores beneath."""
    before = {entry["prompt_id"]: entry for entry in _read_index(before_dir)["samples"]}
    after_index = _read_index(after_dir)
    pairs = [(before[e["prompt_id"]], e) for e in after_index["samples"] if e["prompt_id"] in before]
    if not pairs:
        return
    cards = [_card(old, new, before_dir, after_dir, after_index["iteration"]) for old, new in _by_source(pairs)]
    width = 2 * SHOWN_SIDE + 4
    height = SHOWN_SIDE + 4 + LINE_HEIGHT * max(len(card.lines) for card in cards)
    columns = min(NUM_COLUMNS, len(cards))
    rows = -(-len(cards) // columns)
    size = (GAP + columns * (width + GAP), GAP + rows * (height + GAP))
    page = Image.new("RGB", size, BACKGROUND)
    for index, card in enumerate(cards):
        column, row = index % columns, index // columns
        _draw(page, card, GAP + column * (width + GAP), GAP + row * (height + GAP))
    temporary = path.with_suffix(".tmp.png")
    page.save(temporary)
    temporary.replace(path)


def _read_index(folder: Path) -> dict[str, Any]:
    index: dict[str, Any] = json.loads((folder / INDEX).read_text(encoding="utf-8"))
    return index


def _by_source(pairs: list[tuple[dict[str, Any], dict[str, Any]]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Prompts of all sources in turn, so that a row of the grid shows each of them."""
    by_source: dict[str, list[tuple[dict[str, Any], dict[str, Any]]]] = {}
    for pair in pairs:
        by_source.setdefault(pair[1]["source"], []).append(pair)
    longest = max(map(len, by_source.values()))
    return [group[i] for i in range(longest) for group in by_source.values() if i < len(group)]


def _card(old: dict[str, Any], new: dict[str, Any], before: Path, after: Path, iteration: int) -> _Card:
    prompt = textwrap.wrap(new["prompt"], width=66, max_lines=2, placeholder=" ...")
    lines: list[tuple[Cells, tuple[int, int, int]]] = [(((0, line),), INK) for line in prompt]
    lines.append((_row("score", "base", f"after {iteration}", "change"), FAINT))
    for name, value in new["scores"].items():
        was = old["scores"].get(name, float("nan"))
        lines.append((_row(name, number(was), number(value), number(value - was, sign=True)), INK))
    return _Card(_shown(before / old["file"]), _shown(after / new["file"]), tuple(lines))


def _row(*cells: str) -> Cells:
    return tuple(zip(COLUMN_LEFTS, cells, strict=True))


def _shown(path: Path) -> Image.Image:
    with Image.open(path) as image:
        picture = image.convert("RGB")
    factor = SHOWN_SIDE // max(picture.size)
    if factor >= 1:
        return picture.resize((picture.width * factor, picture.height * factor), Image.Resampling.NEAREST)
    picture.thumbnail((SHOWN_SIDE, SHOWN_SIDE))
    return picture


def _draw(page: Image.Image, card: _Card, x: int, y: int) -> None:
    page.paste(card.before, (x, y))
    page.paste(card.after, (x + SHOWN_SIDE + 4, y))
    draw = ImageDraw.Draw(page)
    font = ImageFont.load_default(FONT_SIZE)
    for index, (cells, colour) in enumerate(card.lines):
        top = y + SHOWN_SIDE + 4 + index * LINE_HEIGHT
        for left, text in cells:
            draw.text((x + left, top), text, font=font, fill=colour)
