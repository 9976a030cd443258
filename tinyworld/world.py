"""Makes a scene of a prompt: places objects and draws every style the caption leaves open. Seeded by the caller."""

from typing import Final

import numpy as np

from tinyworld.captions import Prompt, Range, Thing
from tinyworld.palette import COLORS
from tinyworld.scene import BACKGROUNDS, SIZE, Item, Scene, Sign, Style
from tinyworld.splits import Kind, kind_of_coloured

RADII: Final[dict[int, Range]] = {1: (14.0, 20.0), 2: (10.5, 13.5), 3: (10.0, 13.0), 4: (10.0, 13.0)}
"""Smallest and largest radius by number of objects, pixels."""
MIDDLE: Final = SIZE / 2
OFFSET: Final = 15.5
"""Distance of the places for several objects from the middle, per axis, pixels."""
JITTER: Final = {1: 4.0, 2: 1.5, 3: 1.5, 4: 1.5}
"""Largest shift of an object from its place by number of objects, pixels, per axis."""
RELATION_PLACE: Final = {"right of": (1, 0), "below": (0, 1), "left of": (-1, 0), "above": (0, -1)}
"""Direction from the second object to the first, y downwards."""
PHASES: Final = (0.0, 0.5)
PLATE_COLORS: Final = ("red", "green", "blue", "yellow", "purple", "black")
INKS: Final = ("black", "blue", "red", "purple")


def realise(prompt: Prompt, rng: np.random.Generator, kind: Kind = "seen") -> Scene:
    """Random scene of a prompt. Objects without a colour get one that keeps to the kind."""
    style = sample_style(prompt, rng)
    if prompt.text is not None:
        sign = _place_sign(prompt, rng)
        return Scene(prompt.source, prompt.caption, style, sign=sign, metadata=prompt.metadata)
    things = _colour(prompt.things, rng, kind)
    low, high = RADII[len(things)]
    radius = low + (high - low) * style.scale
    centres = _place(len(things), prompt.relation, rng)
    items = tuple(Item(s, c, x, y, radius) for (s, c), (x, y) in zip(things, centres, strict=True))
    return Scene(prompt.source, prompt.caption, style, items, metadata=prompt.metadata)


def sample_style(prompt: Prompt, rng: np.random.Generator) -> Style:
    """Everything the caption leaves open, drawn independently and evenly."""
    background = BACKGROUNDS[int(rng.integers(len(BACKGROUNDS)))]
    hue, second_hue = rng.random(2)
    return Style(
        saturation=float(rng.uniform(*prompt.saturation)),
        background=prompt.background or background,
        strength=float(rng.uniform(*prompt.strength)),
        hue=float(hue),
        # At least 60 degrees apart, or a pattern of two tints could not be seen.
        second_hue=float((hue + 1 / 6 + second_hue * 2 / 3) % 1.0),
        phase=PHASES[int(rng.integers(len(PHASES)))],
        scale=float(rng.uniform(*prompt.scale)),
    )


def _colour(things: tuple[Thing, ...], rng: np.random.Generator, kind: Kind) -> list[tuple[str, str]]:
    """Colours for objects without one: several of one kind share a colour, different kinds differ."""
    coloured: list[tuple[str, str]] = []
    for shape, color in things:
        if color is None and coloured and coloured[0][0] == shape:
            color = coloured[0][1]
        if color is None:
            taken = {c for _, c in coloured}
            options = [c for c in COLORS if kind_of_coloured(shape, c) == kind and c not in taken]
            color = options[int(rng.integers(len(options)))]
        coloured.append((shape, color))
    return coloured


def _place(count: int, relation: str | None, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Centres of objects: one in the middle, two beside or above each other, three or four on a 2×2 grid.

    Few places keep the world learnable within an hour; a little jitter keeps pictures apart.
    """
    if count == 1:
        places = [(0, 0)]
    elif count == 2:
        x, y = RELATION_PLACE[relation] if relation else ((-1, 0), (0, -1))[int(rng.integers(2))]
        places = [(x, y), (-x, -y)]
    else:
        corners = [(-1, -1), (1, -1), (-1, 1), (1, 1)]
        places = [corners[i] for i in sorted(rng.choice(4, count, replace=False))]
    shifts = rng.uniform(-JITTER[count], JITTER[count], (count, 2))
    return [
        (MIDDLE + OFFSET * x + float(dx), MIDDLE + OFFSET * y + float(dy))
        for (x, y), (dx, dy) in zip(places, shifts, strict=True)
    ]


def _place_sign(prompt: Prompt, rng: np.random.Generator) -> Sign:
    assert prompt.text is not None
    plate = prompt.plate
    if plate is None and rng.random() < 0.3:
        plate = PLATE_COLORS[int(rng.integers(len(PLATE_COLORS)))]
    return Sign(prompt.text, plate, INKS[int(rng.integers(len(INKS)))])
