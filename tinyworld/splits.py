"""Which texts and object combinations the base has seen, which are trained on, and which are held out.

Rules, not lists: an object combination or a text belongs where its own name puts it, so that generators, prompt files
and tests cannot drift apart. Pretraining of the generator draws what is "seen" only. Fine-tuning trains on all of that
and on a third of the unseen coloured combinations; the rest of what is unseen is held out. So a shape in a colour that
the base has never drawn, and draws badly, can be learned from the rewards, and is tested in other combinations.
"""

import hashlib
from collections.abc import Sequence
from itertools import combinations, product
from typing import Final, Literal

from tinyworld.palette import COLORS, SHAPES

Kind = Literal["seen", "unseen"]
"""By the base, in pretraining."""
Split = Literal["train", "heldout"]
"""Of the prompts of fine-tuning."""

SIGN_ALPHABET: Final = "CFHKMNPRTXY234679"
"""Glyphs no reader confuses; no vowels, so that no sign text meets a merge of the tokenizer's words."""
SIGN_LENGTHS: Final = (3, 4, 5)
COUNTS: Final = (2, 3, 4)
RELATIONS: Final = ("left of", "right of", "above", "below")

Combination = tuple[str, ...]


def kind_of_coloured(shape: str, color: str) -> Kind:
    """Two colours of each shape are unseen, spread over all colours."""
    return "unseen" if (SHAPES.index(shape) * 3 + COLORS.index(color)) % 4 == 0 else "seen"


def kind_of_shape(shape: str) -> Kind:
    """Kind of a prompt that names one shape alone; such shapes are seen in other combinations."""
    return "unseen" if SHAPES.index(shape) in (2, 5) else "seen"


def kind_of_pair(first: str, second: str) -> Kind:
    """Kind of an unordered pair of two shapes without colours."""
    return "unseen" if (SHAPES.index(first) + SHAPES.index(second)) % 7 in (0, 3) else "seen"


def kind_of_count(shape: str, count: int) -> Kind:
    """Kind of several of one shape without a colour."""
    return "unseen" if (SHAPES.index(shape) + count) % 7 in (0, 3) else "seen"


def kind_of_text(text: str) -> Kind:
    """Kind of a sign text: one in eight is unseen."""
    return "unseen" if hashlib.sha256(text.encode()).digest()[0] % 8 == 0 else "seen"


def coloured_items(kind: Kind) -> list[tuple[str, str]]:
    """All (shape, colour) of a kind."""
    return [(s, c) for s, c in product(SHAPES, COLORS) if kind_of_coloured(s, c) == kind]


def shape_pairs(kind: Kind) -> list[tuple[str, str]]:
    """All unordered pairs of different shapes of a kind."""
    return [pair for pair in combinations(SHAPES, 2) if kind_of_pair(*pair) == kind]


def combination(items: Sequence[tuple[str, str | None]]) -> Combination:
    """Name of an object combination, whatever the order: what the two splits must not share.

    Args:
        items: (shape, colour or None) of every object the caption names.
    """
    return tuple(sorted(f"{color or 'any'} {shape}" for shape, color in items))


def split_of(kind: Kind, items: Sequence[tuple[str, str | None]]) -> Split:
    """Split of a prompt that names these objects, or none: a third of the unseen coloured ones are trained on."""
    if kind == "seen":
        return "train"
    coloured = bool(items) and all(color for _, color in items)
    chosen = coloured and hashlib.sha256("/".join(combination(items)).encode()).digest()[0] % 3 == 0
    return "train" if chosen else "heldout"
