"""One image whose content is known, made in code, for self-tests and warm-ups."""

from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

KNOWN_TEXT = "MARS"
KNOWN_PROMPT = f'a sign that says "{KNOWN_TEXT}"'

_TEXT_SHARE = 0.75
"""Of the image's width that the text takes."""


def known_image(side: int) -> NDArray[np.uint8]:
    """White square (uint8 [side, side, 3]) with KNOWN_TEXT in black across its middle.

    Args:
        side: pixels; at least 32, below which no letter is legible.

    Raises:
        ValueError: a smaller side.
    """
    if side < 32:
        raise ValueError(f"the known image needs at least 32 pixels a side, got {side}")
    picture = Image.new("RGB", (side, side), "white")
    draw = ImageDraw.Draw(picture)
    trial = draw.textlength(KNOWN_TEXT, font=_font(100))
    font = _font(100 * _TEXT_SHARE * side / trial)
    draw.text((side / 2, side / 2), KNOWN_TEXT, fill="black", font=font, anchor="mm")
    return np.asarray(picture)


def _font(size: float) -> Any:
    return ImageFont.load_default(size)
