"""What the two preference scorers like, as smooth numbers of a scene: the reason why the rewards disagree.

Both like pictures that fit the caption and are drawn cleanly: the common ground. Beyond it ``pickscore`` likes vivid
objects and few colours; ``hpsv2`` likes filled backgrounds, coloured plates and objects that do not shout. About
patterns it disagrees with ``pickscore``, about plates with ``ocr``, because letters on them are harder to read. A
strong plain tint pleases both. Fit weighs less than style, because a weak generator's pictures of one prompt differ in
fit far more than in style, and shared fit would drown every disagreement.
"""

import dataclasses
from typing import Final

import numpy as np

from tinyworld.captions import Prompt, Thing
from tinyworld.negatives import corrupt_text
from tinyworld.palette import COLORS, SHAPES
from tinyworld.scene import Background, Scene
from tinyworld.splits import RELATIONS

FILL: Final[dict[Background, float]] = {
    "plain": 0.0,
    "solid": 0.9,
    "gradient": 0.9,
    "stripes": 1.0,
    "dots": 1.0,
    "checks": 1.0,
}
"""How much of a filled background each kind is, at full strength."""
BUSY: Final[dict[Background, float]] = {
    "plain": 0.0,
    "solid": 0.0,
    "gradient": 0.5,
    "stripes": 1.0,
    "dots": 1.0,
    "checks": 1.0,
}
"""How many colours each kind adds, at full strength."""
NEARLY: Final = 0.3
"""Fit of a picture that shows one thing wrong; 1 fits, 0 shows something else."""


def utility(name: str, scene: Scene, fit: float, damage: float) -> float:
    """How much a scorer likes a picture.

    Args:
        name: "pickscore" or "hpsv2".
        fit: 1 when the scene was made for the caption, ``NEARLY`` or 0 otherwise.
        damage: 0 drawn cleanly to 1 badly bent out of shape.

    Raises:
        ValueError: another name.
    """
    style = scene.style
    fill = FILL[style.background] * style.strength
    busy = BUSY[style.background] * style.strength
    if name == "pickscore":
        tint = style.strength if style.background == "solid" else 0.0
        return 1.2 * fit - 0.8 * damage + 1.2 * style.saturation - 1.4 * busy + 0.8 * tint
    if name == "hpsv2":
        plate = 1.0 if scene.sign is not None and scene.sign.color is not None else 0.0
        return 1.0 * fit - 0.5 * damage + 2.0 * fill + 0.7 * plate - 0.4 * style.saturation
    raise ValueError(f"no preferences for {name!r}; there are pickscore and hpsv2")


def alter(prompt: Prompt, rng: np.random.Generator) -> Prompt:
    """A prompt for a picture that shows one thing wrong: a glyph, the relation, the number, a shape or a colour.

    Its caption is left as it was; only the picture counts.
    """
    if prompt.text is not None:
        return dataclasses.replace(prompt, text=corrupt_text(prompt.text, rng))
    if prompt.relation is not None and rng.random() < 0.5:
        opposite = RELATIONS[RELATIONS.index(prompt.relation) ^ 1]
        return dataclasses.replace(prompt, relation=opposite)
    if len(set(prompt.things)) == 1 and rng.random() < 0.4:
        count = [n for n in (1, 2, 3, 4) if n != len(prompt.things)][int(rng.integers(3))]
        return dataclasses.replace(prompt, things=prompt.things[:1] * count)
    return dataclasses.replace(prompt, things=_alter_things(prompt.things, rng))


def _alter_things(things: tuple[Thing, ...], rng: np.random.Generator) -> tuple[Thing, ...]:
    """Another shape or colour for one kind of object; two kinds never become one."""
    old = things[int(rng.integers(len(things)))]
    shape, color = old
    others = {thing for thing in things if thing != old}
    if color is not None and rng.random() < 0.5:
        colors = [c for c in COLORS if c != color and c not in {c for _, c in others}]
        new: Thing = (shape, colors[int(rng.integers(len(colors)))])
    else:
        shapes = [s for s in SHAPES if s != shape and s not in {s for s, _ in others}]
        new = (shapes[int(rng.integers(len(shapes)))], color)
    return tuple(new if thing == old else thing for thing in things)
