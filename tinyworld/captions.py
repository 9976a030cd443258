"""Prompts of the three sources: caption, GenEval metadata, and what a picture of it must hold.

A prompt fixes objects, relation, text and whatever style its caption names; everything else is drawn when a picture
is made of it (``world.realise``).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import numpy as np

from tinyworld.palette import COLORS, PLURALS, SHAPES, article
from tinyworld.scene import Background, Source
from tinyworld.splits import (
    COUNTS,
    RELATIONS,
    SIGN_ALPHABET,
    SIGN_LENGTHS,
    Kind,
    coloured_items,
    kind_of_count,
    kind_of_shape,
    kind_of_text,
    shape_pairs,
)

NUMBERS: Final = {2: "two", 3: "three", 4: "four"}
GENEVAL_TAGS: Final = ("single_object", "two_object", "counting", "colors", "position", "color_attr")
BACKGROUND_WORDS: Final[dict[str, Background]] = {
    "a plain": "plain",
    "a tinted": "solid",
    "a faded": "gradient",
    "a striped": "stripes",
    "a dotted": "dots",
    "a checked": "checks",
}
SIGN_COLORS: Final = ("red", "green", "blue", "yellow", "purple", "black")

Thing = tuple[str, str | None]
"""(shape, colour or None for any colour)."""
Range = tuple[float, float]

_T = TypeVar("_T")


@dataclass(frozen=True)
class Prompt:
    """One caption and what its pictures must hold."""

    source: Source
    caption: str
    things: tuple[Thing, ...] = ()
    relation: str | None = None
    """Where the first thing is, seen from the second."""
    text: str | None = None
    plate: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    background: Background | None = None
    saturation: Range = (0.0, 1.0)
    strength: Range = (0.0, 1.0)
    scale: Range = (0.0, 1.0)


def _choice(rng: np.random.Generator, options: Sequence[_T]) -> _T:
    return options[int(rng.integers(len(options)))]


def _named(shape: str, color: str | None = None) -> str:
    words = f"{color} {shape}" if color else shape
    return f"{article(words)} {words}"


def geneval_prompt(tag: str, things: tuple[Thing, ...], relation: str | None = None) -> Prompt:
    """Prompt with metadata in GenEval's public format.

    Args:
        tag: one of ``GENEVAL_TAGS``.
        things: the objects in reading order; of one kind for ``counting``.
        relation: for ``position`` only: "left of", "right of", "above", "below".
    """
    shape = things[0][0]
    include: list[dict[str, Any]] = [{"class": s, "count": 1} | ({"color": c} if c else {}) for s, c in things]
    exclude: list[dict[str, Any]] = []
    if tag == "counting":
        count = len(things)
        caption = f"a photo of {NUMBERS[count]} {PLURALS[shape]}"
        include = [{"class": shape, "count": count}]
        exclude = [{"class": shape, "count": count + 1}]
    elif tag == "position":
        # GenEval lists the object that others refer to first.
        include = [{"class": things[1][0], "count": 1}, {"class": shape, "count": 1, "position": [relation, 0]}]
        caption = f"a photo of {_named(shape)} {relation} {_named(things[1][0])}"
    else:
        caption = "a photo of " + " and ".join(_named(s, c) for s, c in things)
    metadata: dict[str, Any] = {"tag": tag, "include": include}
    if exclude:
        metadata["exclude"] = exclude
    metadata["prompt"] = caption
    return Prompt("geneval", caption, things, relation, metadata=metadata)


def sample_geneval(rng: np.random.Generator, kind: Kind, tag: str | None = None) -> Prompt:
    """Random GenEval-like prompt of a kind; the tag is drawn when it is None."""
    tag = tag or _choice(rng, GENEVAL_TAGS)
    if tag == "single_object":
        return geneval_prompt(tag, ((_choice(rng, [s for s in SHAPES if kind_of_shape(s) == kind]), None),))
    if tag == "colors":
        return geneval_prompt(tag, (_choice(rng, coloured_items(kind)),))
    if tag == "counting":
        options = [(s, n) for s in SHAPES for n in COUNTS if kind_of_count(s, n) == kind]
        shape, count = _choice(rng, options)
        return geneval_prompt(tag, ((shape, None),) * count)
    if tag == "color_attr":
        return geneval_prompt(tag, distinct_pair(rng, kind))
    first, second = _choice(rng, shape_pairs(kind))
    if rng.random() < 0.5:
        first, second = second, first
    relation = _choice(rng, RELATIONS) if tag == "position" else None
    return geneval_prompt(tag, ((first, None), (second, None)), relation)


def distinct_pair(rng: np.random.Generator, kind: Kind) -> tuple[Thing, Thing]:
    """Two coloured shapes of a kind that differ in both shape and colour."""
    items = coloured_items(kind)
    while True:
        first, second = _choice(rng, items), _choice(rng, items)
        if first[0] != second[0] and first[1] != second[1]:
            return first, second


def sample_text(rng: np.random.Generator, kind: Kind) -> str:
    """Random sign text of a kind."""
    while True:
        text = "".join(_choice(rng, SIGN_ALPHABET_LIST) for _ in range(_choice(rng, SIGN_LENGTHS)))
        if kind_of_text(text) == kind:
            return text


SIGN_ALPHABET_LIST: Final = tuple(SIGN_ALPHABET)


def sample_sign(rng: np.random.Generator, kind: Kind) -> Prompt:
    """Random sign prompt of a kind; the text stands in double quotes."""
    text = sample_text(rng, kind)
    plate = _choice(rng, SIGN_COLORS) if rng.random() < 0.25 else None
    noun, verb = _choice(rng, (("sign", "that reads"), ("sign", "that says"), ("plate", "with the text")))
    named = _named(noun, plate)
    return Prompt("ocr", f'{named} {verb} "{text}"', text=text, plate=plate)


def sample_general(rng: np.random.Generator, kind: Kind) -> Prompt:
    """Random free caption of a kind, with words for style, size, background or number."""
    shape, color = _choice(rng, coloured_items(kind))
    one: tuple[Thing, ...] = ((shape, color),)
    form = int(rng.integers(6))
    if form == 0:
        words, background = _choice(rng, tuple(BACKGROUND_WORDS.items()))
        caption = f"{_named(shape, color)} on {words} background"
        return Prompt("general", caption, one, background=background, strength=(0.35, 1.0))
    if form == 1:
        vivid = rng.random() < 0.5
        adjective = "vivid" if vivid else "muted"
        return Prompt("general", f"a {adjective} {color} {shape}", one, saturation=(0.6, 1.0) if vivid else (0.0, 0.4))
    if form == 2:
        large = rng.random() < 0.5
        adjective = "large" if large else "small"
        return Prompt("general", f"a {adjective} {color} {shape}", one, scale=(0.6, 1.0) if large else (0.0, 0.4))
    if form == 3:
        count = _choice(rng, COUNTS)
        return Prompt("general", f"{NUMBERS[count]} {color} {PLURALS[shape]}", one * count)
    if form == 4:
        pair = distinct_pair(rng, kind)
        return Prompt("general", " and ".join(_named(s, c) for s, c in pair), pair)
    pale = rng.random() < 0.5
    adjective, strength = ("pale", (0.0, 0.4)) if pale else ("rich", (0.6, 1.0))
    return Prompt("general", f"a {adjective} scene with {_named(shape, color)}", one, strength=strength)


def sample_prompt(rng: np.random.Generator, source: Source, kind: Kind) -> Prompt:
    """Random prompt of a source and a kind."""
    if source == "geneval":
        return sample_geneval(rng, kind)
    return sample_sign(rng, kind) if source == "ocr" else sample_general(rng, kind)


def words() -> list[str]:
    """Every word a caption may hold, sorted: the tokenizer's vocabulary beside single characters."""
    fixed = "a an photo of and left right above below sign plate that reads says with the text on background scene"
    fixed += " plain tinted faded striped dotted checked vivid muted large small pale rich"
    return sorted({*fixed.split(), *SHAPES, *PLURALS.values(), *COLORS, *NUMBERS.values()})
