"""Which texts and object combinations are for training and which are held out.

Rules, not lists: an object combination or a text belongs to one split by its own name, so that generators, prompt files
and tests cannot drift apart. Pretraining draws from the train split only.
"""

import hashlib
from collections.abc import Sequence
from itertools import combinations, product
from typing import Final, Literal

from tinyworld.palette import COLORS, SHAPES

Split = Literal["train", "heldout"]

SIGN_ALPHABET: Final = "CFHKMNPRTXY234679"
"""Glyphs no reader confuses; no vowels, so that no sign text meets a merge of the tokenizer's words."""
SIGN_LENGTHS: Final = (3, 4, 5)
COUNTS: Final = (2, 3, 4)
RELATIONS: Final = ("left of", "right of", "above", "below")

Combination = tuple[str, ...]


def split_of_coloured(shape: str, color: str) -> Split:
    """Two colours of each shape are held out, spread over all colours."""
    return "heldout" if (SHAPES.index(shape) * 3 + COLORS.index(color)) % 4 == 0 else "train"


def split_of_shape(shape: str) -> Split:
    """Split of a prompt that names one shape alone; held-out shapes appear in training in other combinations."""
    return "heldout" if SHAPES.index(shape) in (2, 5) else "train"


def split_of_pair(first: str, second: str) -> Split:
    """Split of an unordered pair of two shapes without colours."""
    return "heldout" if (SHAPES.index(first) + SHAPES.index(second)) % 7 in (0, 3) else "train"


def split_of_count(shape: str, count: int) -> Split:
    """Split of several of one shape without a colour."""
    return "heldout" if (SHAPES.index(shape) + count) % 7 in (0, 3) else "train"


def split_of_text(text: str) -> Split:
    """Split of a sign text: one in eight is held out."""
    return "heldout" if hashlib.sha256(text.encode()).digest()[0] % 8 == 0 else "train"


def coloured_items(split: Split) -> list[tuple[str, str]]:
    """All (shape, colour) of a split."""
    return [(s, c) for s, c in product(SHAPES, COLORS) if split_of_coloured(s, c) == split]


def shape_pairs(split: Split) -> list[tuple[str, str]]:
    """All unordered pairs of different shapes of a split."""
    return [pair for pair in combinations(SHAPES, 2) if split_of_pair(*pair) == split]


def combination(items: Sequence[tuple[str, str | None]]) -> Combination:
    """Name of an object combination, whatever the order: what the two splits must not share.

    Args:
        items: (shape, colour or None) of every object the caption names.
    """
    return tuple(sorted(f"{color or 'any'} {shape}" for shape, color in items))
