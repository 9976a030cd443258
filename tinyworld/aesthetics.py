"""What the held-out aesthetic scorer likes, as a number from 1 to 10: the truth it is trained on and tested against.

It is not what any training reward likes. It likes calm pictures that are drawn cleanly: objects that stand out without
shouting, one soft tint behind them, a colour of the tint that suits the object's. So a policy that pleases the training
scorers by filled patterns or by the most vivid tones alone loses here.
"""

import colorsys
from typing import Final

from tinyworld.palette import tone
from tinyworld.scene import Scene

LOWEST: Final = 1.0
HIGHEST: Final = 10.0
BEST_SATURATION: Final = 0.55
BEST_TINT: Final = 0.45
CALM: Final = {"plain": 0.7, "solid": 1.0, "gradient": 0.9, "stripes": 0.2, "dots": 0.3, "checks": 0.0}
"""How calm each kind of background is at full strength; at none all are as calm as a plain one."""


def rating(scene: Scene, damage: float) -> float:
    """Between LOWEST and HIGHEST; which caption the picture was made for plays no part.

    Args:
        damage: 0 drawn cleanly to 1 badly bent out of shape.
    """
    style = scene.style
    moderate = 1 - abs(style.saturation - BEST_SATURATION) / BEST_SATURATION
    calm = CALM["plain"] + (CALM[style.background] - CALM["plain"]) * style.strength
    soft = 1 - abs(style.strength - BEST_TINT) / (1 - BEST_TINT) if style.background != "plain" else 0.5
    total = 3.2 + 1.6 * moderate + 2.4 * calm + 0.8 * soft + 1.0 * _harmony(scene) - 4.0 * damage
    return min(max(total, LOWEST), HIGHEST)


def _harmony(scene: Scene) -> float:
    """0 where tint and object are of one hue, 1 where their hues are opposite; ½ where either has none to speak of."""
    color = scene.items[0].color if scene.items else scene.sign.color if scene.sign else None
    if color is None or color == "black" or scene.style.background == "plain":
        return 0.5
    red, green, blue = (channel / 255 for channel in tone(color, 0.5))
    gap = abs(colorsys.rgb_to_hsv(red, green, blue)[0] - scene.style.hue) % 1.0
    apart = 2 * min(gap, 1 - gap)
    return 0.5 + (apart - 0.5) * scene.style.strength
