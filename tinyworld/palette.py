"""Names and colours of the world: shape classes, GenEval colours, background tints.

RGB values are 0..255. Each object colour is a line from a muted to a vivid tone of one hue; every tone on it stays
darker or more saturated than every background tint, so that a detector can separate object from background.
"""

import colorsys
from typing import Final

RGB = tuple[int, int, int]

SHAPES: Final = ("circle", "square", "triangle", "star", "cross", "ring", "heart")
PLURALS: Final = {name: ("crosses" if name == "cross" else name + "s") for name in SHAPES}

# (muted, vivid) tone of each colour. Brown is left out because muted orange is brown; white because of backgrounds.
TONES: Final[dict[str, tuple[RGB, RGB]]] = {
    "red": ((186, 72, 72), (230, 0, 0)),
    "orange": ((206, 132, 66), (255, 128, 0)),
    "yellow": ((204, 184, 74), (250, 215, 0)),
    "green": ((82, 158, 92), (0, 160, 40)),
    "blue": ((76, 112, 184), (0, 70, 240)),
    "purple": ((132, 84, 172), (130, 0, 215)),
    "pink": ((214, 116, 168), (255, 60, 160)),
    "black": ((66, 66, 66), (8, 8, 8)),
}
COLORS: Final = tuple(TONES)

TINT_VALUE: Final = 0.97
"""Brightness of every background tint."""
MAX_TINT_CHROMA: Final = 0.22
"""Largest difference of channels of a background, of 1; the most muted object has 0.38 or is dark."""


def tone(color: str, saturation: float) -> RGB:
    """RGB of an object colour; saturation 0 is muted, 1 is vivid."""
    muted, vivid = TONES[color]
    red, green, blue = (round(m + (v - m) * saturation) for m, v in zip(muted, vivid, strict=True))
    return red, green, blue


def tint(hue: float, strength: float) -> RGB:
    """RGB of a light background of a hue in [0, 1); strength 0 is near-white, 1 the strongest tint allowed."""
    red, green, blue = colorsys.hsv_to_rgb(hue % 1.0, strength * MAX_TINT_CHROMA / TINT_VALUE, TINT_VALUE)
    return round(red * 255), round(green * 255), round(blue * 255)


def article(word: str) -> str:
    """English indefinite article of a word of this world."""
    return "an" if word[0] in "aeiou" else "a"
