"""Makes a scene of a prompt: places objects and draws every style the caption leaves open. Seeded by the caller."""

import math
from typing import Final

import numpy as np

from tinyworld.captions import Prompt, Range, Thing
from tinyworld.palette import COLORS
from tinyworld.scene import BACKGROUNDS, SIZE, Item, Scene, Sign, Style
from tinyworld.splits import Split, split_of_coloured

RADII: Final[dict[int, Range]] = {1: (11.0, 20.0), 2: (9.0, 13.0), 3: (8.5, 11.0), 4: (8.0, 10.0)}
"""Smallest and largest radius by number of objects, pixels."""
MARGIN: Final = 2.0
"""Pixels between objects and to the border."""
TEXT_WIDTH: Final[Range] = (44.0, 56.0)
RELATION_ANGLE: Final = {"right of": 0.0, "below": 90.0, "left of": 180.0, "above": 270.0}
"""Direction from the second object to the first, degrees, y downwards."""


def realise(prompt: Prompt, rng: np.random.Generator, split: Split = "train") -> Scene:
    """Random scene of a prompt. Objects without a colour get one that keeps to the split."""
    style = sample_style(prompt, rng)
    if prompt.text is not None:
        sign = _place_sign(prompt, style, rng)
        return Scene(prompt.source, prompt.caption, style, sign=sign, metadata=prompt.metadata)
    things = _colour(prompt.things, rng, split)
    low, high = RADII[len(things)]
    radius = low + (high - low) * style.scale
    centres = _place(len(things), radius, prompt.relation, rng)
    items = tuple(Item(s, c, x, y, radius) for (s, c), (x, y) in zip(things, centres, strict=True))
    return Scene(prompt.source, prompt.caption, style, items, metadata=prompt.metadata)


def sample_style(prompt: Prompt, rng: np.random.Generator) -> Style:
    """Everything the caption leaves open, drawn independently and evenly."""
    background = BACKGROUNDS[int(rng.integers(len(BACKGROUNDS)))]
    hue, second_hue, phase = rng.random(3)
    return Style(
        saturation=float(rng.uniform(*prompt.saturation)),
        background=prompt.background or background,
        strength=float(rng.uniform(*prompt.strength)),
        hue=float(hue),
        # At least 60 degrees apart, or a pattern of two tints could not be seen.
        second_hue=float((hue + 1 / 6 + second_hue * 2 / 3) % 1.0),
        phase=float(phase),
        scale=float(rng.uniform(*prompt.scale)),
    )


def _colour(things: tuple[Thing, ...], rng: np.random.Generator, split: Split) -> list[tuple[str, str]]:
    """Colours for objects without one: several of one kind share a colour, different kinds differ."""
    coloured: list[tuple[str, str]] = []
    for shape, color in things:
        if color is None and coloured and coloured[0][0] == shape:
            color = coloured[0][1]
        if color is None:
            taken = {c for _, c in coloured}
            options = [c for c in COLORS if split_of_coloured(shape, c) == split and c not in taken]
            color = options[int(rng.integers(len(options)))]
        coloured.append((shape, color))
    return coloured


def _place(count: int, radius: float, relation: str | None, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Centres of equal objects, apart and inside the image."""
    low, high = radius + MARGIN, SIZE - radius - MARGIN
    distance = 2 * radius + MARGIN
    while True:
        if count == 2:
            # Pairs without a stated relation lie in any direction; stated ones within 25 degrees of theirs.
            degrees = rng.uniform(0, 360) if relation is None else RELATION_ANGLE[relation] + rng.uniform(-25, 25)
            step = rng.uniform(distance, distance + 8)
            dx, dy = step * math.cos(math.radians(degrees)) / 2, step * math.sin(math.radians(degrees)) / 2
            x, y = rng.uniform(low, high, 2)
            centres = [(float(x + dx), float(y + dy)), (float(x - dx), float(y - dy))]
        else:
            centres = [(float(x), float(y)) for x, y in rng.uniform(low, high, (count, 2))]
        inside = all(low <= x <= high and low <= y <= high for x, y in centres)
        apart = all(
            # Boxes, not circles, must be apart: squares fill their box.
            max(abs(a[0] - b[0]), abs(a[1] - b[1])) >= 2 * radius * 0.9 + MARGIN and math.dist(a, b) >= distance
            for i, a in enumerate(centres)
            for b in centres[:i]
        )
        if inside and apart:
            return centres


def _place_sign(prompt: Prompt, style: Style, rng: np.random.Generator) -> Sign:
    low, high = TEXT_WIDTH
    width = low + (high - low) * style.scale
    ink = ("black", "blue", "red", "purple")[int(rng.integers(4))]
    assert prompt.text is not None
    plate = prompt.plate
    if plate is None and rng.random() < 0.3:
        plate = ("red", "green", "blue", "yellow", "purple", "black")[int(rng.integers(6))]
    return Sign(prompt.text, plate, ink, 32 + float(rng.uniform(-1, 1)), 32 + float(rng.uniform(-6, 6)), width)
