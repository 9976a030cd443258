"""Captions that nearly fit: one word or glyph of a caption changed, for hard negatives."""

from typing import Final

import numpy as np

from tinyworld.captions import NUMBERS, SIGN_ALPHABET_LIST
from tinyworld.palette import COLORS, PLURALS, SHAPES, article

OPPOSITES: Final = {
    "vivid": "muted",
    "muted": "vivid",
    "large": "small",
    "small": "large",
    "pale": "rich",
    "rich": "pale",
    "left": "right",
    "right": "left",
    "above": "below",
    "below": "above",
}
PATTERNS: Final = ("plain", "tinted", "faded", "striped", "dotted", "checked")
GROUPS: Final = (SHAPES, tuple(PLURALS.values()), COLORS, tuple(NUMBERS.values()), PATTERNS)
PLURAL_TO_SHAPE: Final = {plural: shape for shape, plural in PLURALS.items()}


def corrupt(caption: str, rng: np.random.Generator) -> str:
    """A caption of the same form that no picture of the given one shows.

    Two different objects may also trade their colours. A sign's text has one glyph changed or two swapped.
    """
    tokens = caption.split(" ")
    places = [i for i, word in enumerate(tokens) if word in OPPOSITES or any(word in group for group in GROUPS)]
    if '"' in caption and (not places or rng.random() < 0.8):
        tokens[-1] = f'"{corrupt_text(tokens[-1][1:-1], rng)}"'
        return " ".join(tokens)
    colored = [i for i in places if tokens[i] in COLORS]
    if len(colored) == 2 and rng.random() < 0.4:
        tokens[colored[0]], tokens[colored[1]] = tokens[colored[1]], tokens[colored[0]]
    else:
        at = places[int(rng.integers(len(places)))]
        tokens[at] = _other(tokens[at], tokens, rng)
    return " ".join(_fix_articles(tokens))


def _other(word: str, tokens: list[str], rng: np.random.Generator) -> str:
    if word in OPPOSITES:
        return OPPOSITES[word]
    group = next(group for group in GROUPS if word in group)
    # A word the caption already holds could only name the other object: still wrong, but not the same form.
    options = [other for other in group if other not in tokens]
    return options[int(rng.integers(len(options)))]


def corrupt_text(text: str, rng: np.random.Generator) -> str:
    """A sign text with one glyph changed or two swapped."""
    glyphs = list(text)
    first, second = rng.choice(len(glyphs), 2, replace=False)
    if glyphs[first] != glyphs[second] and rng.random() < 0.3:
        glyphs[first], glyphs[second] = glyphs[second], glyphs[first]
    else:
        options = [glyph for glyph in SIGN_ALPHABET_LIST if glyph != glyphs[first]]
        glyphs[first] = options[int(rng.integers(len(options)))]
    return "".join(glyphs)


def _fix_articles(tokens: list[str]) -> list[str]:
    return [
        article(after) if word in ("a", "an") and after else word
        for word, after in zip(tokens, [*tokens[1:], ""], strict=True)
    ]
