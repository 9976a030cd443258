"""Writes the prompt files: ``python -m tinyworld.make_prompts``. Seeded; the files in the repository are its output."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from tinyworld.captions import (
    Prompt,
    Thing,
    distinct_pair,
    geneval_prompt,
    sample_general,
    sample_sign,
)
from tinyworld.palette import SHAPES
from tinyworld.splits import (
    COUNTS,
    RELATIONS,
    Kind,
    Split,
    coloured_items,
    kind_of_count,
    kind_of_shape,
    shape_pairs,
    split_of,
)

PROMPTS: Final = Path(__file__).parent / "prompts"
SIZES: Final[dict[Split, int]] = {"train": 640, "heldout": 192}
SEED: Final = 20
KINDS: Final[dict[Split, tuple[Kind, ...]]] = {"train": ("seen", "unseen"), "heldout": ("unseen",)}
"""What the prompts of a split are drawn from, evenly: half of those trained on are new to the base."""


def geneval_prompts(split: Split, size: int, rng: np.random.Generator) -> list[Prompt]:
    """Every prompt of the tags with few, filled up with pairs of coloured shapes, in random order."""
    prompts = [p for kind in KINDS[split] for p in _countable(kind) if split_of(kind, p.things) == split]
    seen = {prompt.caption for prompt in prompts}
    while len(prompts) < size:
        prompt = geneval_prompt("color_attr", _pair(split, KINDS[split][len(prompts) % len(KINDS[split])], rng))
        if prompt.caption not in seen:
            seen.add(prompt.caption)
            prompts.append(prompt)
    return [prompts[i] for i in rng.permutation(len(prompts))]


def _pair(split: Split, kind: Kind, rng: np.random.Generator) -> tuple[Thing, Thing]:
    """Two coloured shapes that differ in both; of an unseen pair half of the time only one shape is unseen."""
    while True:
        things = distinct_pair(rng, kind)
        if kind == "unseen" and rng.random() < 0.5:
            things = things[0], distinct_pair(rng, "seen")[0]
            things = things if rng.random() < 0.5 else (things[1], things[0])
        if len({s for s, _ in things}) == len({c for _, c in things}) == 2 and split_of(kind, things) == split:
            return things


def _countable(kind: Kind) -> Iterator[Prompt]:
    """All prompts of the tags with few."""
    yield from (geneval_prompt("single_object", ((s, None),)) for s in SHAPES if kind_of_shape(s) == kind)
    yield from (geneval_prompt("colors", (item,)) for item in coloured_items(kind))
    yield from (
        geneval_prompt("counting", ((s, None),) * n) for s in SHAPES for n in COUNTS if kind_of_count(s, n) == kind
    )
    for pair in shape_pairs(kind):
        for first, second in (pair, pair[::-1]):
            things = ((first, None), (second, None))
            yield geneval_prompt("two_object", things)
            yield from (geneval_prompt("position", things, relation) for relation in RELATIONS)


def text_prompts(source: str, split: Split, size: int, rng: np.random.Generator) -> list[Prompt]:
    """Distinct random prompts of the sources general and ocr."""
    prompts: dict[str, Prompt] = {}
    while len(prompts) < size:
        kind = KINDS[split][int(rng.integers(len(KINDS[split])))]
        prompt = sample_general(rng, kind) if source == "general" else sample_sign(rng, kind)
        if split_of(kind, prompt.things) == split:
            prompts[prompt.caption] = prompt
    return list(prompts.values())


def all_prompts() -> dict[tuple[str, Split], list[Prompt]]:
    """Prompts of every file, by source and split."""
    made: dict[tuple[str, Split], list[Prompt]] = {}
    for split, size in SIZES.items():
        rng = np.random.default_rng((SEED, *split.encode()))
        for source in ("general", "ocr"):
            made[source, split] = text_prompts(source, split, size, rng)
        made["geneval", split] = geneval_prompts(split, size, rng)
    return made


def file_text(source: str, prompts: list[Prompt]) -> str:
    """Content of one prompt file: a prompt a line, or for GenEval its metadata as JSON a line."""
    lines = [json.dumps(dict(p.metadata)) if source == "geneval" else p.caption for p in prompts]
    return "\n".join(lines) + "\n"


def file_name(source: str, split: Split) -> str:
    """Name of one prompt file."""
    return f"{source}_{split}.{'jsonl' if source == 'geneval' else 'txt'}"


def main() -> None:
    """Write all six files."""
    PROMPTS.mkdir(exist_ok=True)
    for (source, split), prompts in all_prompts().items():
        path = PROMPTS / file_name(source, split)
        path.write_text(file_text(source, prompts), encoding="utf-8")
        print(f"{path.name}: {len(prompts)} prompts")


if __name__ == "__main__":
    main()
