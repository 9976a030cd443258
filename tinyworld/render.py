"""Draws a scene: 64x64 RGB, anti-aliased by drawing four times larger. Deterministic, no randomness here."""

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont

from tinyworld.palette import RGB, tint, tone
from tinyworld.scene import SIZE, Item, Scene, Sign, Style

OVERSAMPLE = 4
CANVAS = SIZE * OVERSAMPLE
LIGHT_PLATE: RGB = (252, 252, 248)
GLYPH_CELL = {3: 17.0, 4: 14.0, 5: 11.5}
"""Width of the cell of each glyph by length of the text, pixels: all glyphs of a length stand in the same places."""
FONT_SIZE = 1.25
"""Font size in cells; the widest glyph (M) then fills its cell."""
PLATE_HEIGHT = 1.55
"""Height of the plate in cells."""


def render(scene: Scene) -> NDArray[np.uint8]:
    """Image of a scene, uint8 [64, 64, 3]."""
    canvas = _background(scene.style)
    for item in scene.items:
        canvas.paste(tone(item.color, scene.style.saturation), (0, 0), shape_mask(item))
    if scene.sign is not None:
        _draw_sign(canvas, scene.sign, scene.style.saturation)
    return np.asarray(canvas.reduce(OVERSAMPLE), dtype=np.uint8)


def _background(style: Style) -> Image.Image:
    base = tint(style.hue, style.strength)
    if style.background == "plain":
        return Image.new("RGB", (CANVAS, CANVAS), tint(style.hue, 0.12 * style.strength))
    canvas = Image.new("RGB", (CANVAS, CANVAS), base)
    if style.background == "solid":
        return canvas
    # The second tone of a pattern is another tint: more strength means two stronger, more different colours.
    canvas.paste(tint(style.second_hue, 0.8 * style.strength), (0, 0), _pattern(style.background, style.phase))
    return canvas


def _pattern(kind: str, phase: float) -> Image.Image:
    if kind == "gradient":
        ramp = Image.linear_gradient("L").resize((CANVAS, CANVAS))
        return ramp.transpose(Image.Transpose.ROTATE_90) if phase < 0.5 else ramp
    mask = Image.new("L", (CANVAS, CANVAS), 0)
    draw = ImageDraw.Draw(mask)
    if kind == "stripes":
        period = 16 * OVERSAMPLE
        for start in np.arange(-period + (phase * 2 % 1) * period, CANVAS, period):
            box = [start, 0, start + period / 2, CANVAS]
            draw.rectangle(box if phase < 0.5 else [box[1], box[0], box[3], box[2]], fill=255)
    elif kind == "dots":
        period = 16 * OVERSAMPLE
        for x in np.arange(phase * period - period, CANVAS + period, period):
            for y in np.arange(phase * period - period, CANVAS + period, period):
                draw.ellipse([x, y, x + period * 0.6, y + period * 0.6], fill=255)
    else:
        cell = 16 * OVERSAMPLE
        for row in range(-1, 5):
            for column in range(-1, 5):
                if (row + column) % 2:
                    x, y = (column + phase) * cell, (row + phase) * cell
                    draw.rectangle([x, y, x + cell - 1, y + cell - 1], fill=255)
    return mask


def shape_mask(item: Item) -> Image.Image:
    """Coverage of a shape on the large canvas, mode L."""
    mask = Image.new("L", (CANVAS, CANVAS), 0)
    draw = ImageDraw.Draw(mask)
    x, y, r = item.x * OVERSAMPLE, item.y * OVERSAMPLE, item.radius * OVERSAMPLE
    if item.shape in ("circle", "ring"):
        draw.ellipse([x - r, y - r, x + r, y + r], fill=255)
        if item.shape == "ring":
            hole = 0.54 * r
            draw.ellipse([x - hole, y - hole, x + hole, y + hole], fill=0)
    else:
        draw.polygon([(x + r * px, y + r * py) for px, py in outline(item.shape)], fill=255)
    return mask


@lru_cache
def outline(shape: str) -> tuple[tuple[float, float], ...]:
    """Polygon of a shape in the box [-1, 1]², y downwards.

    Raises:
        ValueError: the shape is not a polygon of this world.
    """
    if shape == "square":
        return ((-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9))
    if shape == "triangle":
        return ((0.0, -1.0), (1.0, 0.9), (-1.0, 0.9))
    if shape == "cross":
        a = 0.34
        return (
            (-a, -1),
            (a, -1),
            (a, -a),
            (1, -a),
            (1, a),
            (a, a),
            (a, 1),
            (-a, 1),
            (-a, a),
            (-1, a),
            (-1, -a),
            (-a, -a),
        )
    if shape == "star":
        radii = [1.08 if corner % 2 == 0 else 0.46 for corner in range(10)]
        angles = [math.pi * corner / 5 for corner in range(10)]
        return tuple((r * math.sin(t), 0.08 - r * math.cos(t)) for r, t in zip(radii, angles, strict=True))
    if shape == "heart":
        angles = [2 * math.pi * step / 48 for step in range(48)]
        return tuple(
            (math.sin(t) ** 3, -(13 * math.cos(t) - 5 * math.cos(2 * t) - 2 * math.cos(3 * t) - math.cos(4 * t)) / 16.5)
            for t in angles
        )
    raise ValueError(f"unknown shape {shape!r}")


@lru_cache
def _font(size: int) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def text_width(text: str) -> float:
    """Width of a sign's text, pixels."""
    return GLYPH_CELL[len(text)] * len(text)


def _draw_sign(canvas: Image.Image, sign: Sign, saturation: float) -> None:
    draw = ImageDraw.Draw(canvas)
    plate = LIGHT_PLATE if sign.color is None else tone(sign.color, saturation)
    ink: RGB = tone(sign.ink, max(saturation, 0.5))
    if sign.color is not None:
        ink = (16, 16, 16) if sign.color in ("yellow", "orange", "pink") else (252, 252, 252)
    edge: RGB = (90, 90, 90) if sign.color is None else plate
    cell = GLYPH_CELL[len(sign.text)] * OVERSAMPLE
    middle, width, height = CANVAS / 2, cell * len(sign.text), cell * PLATE_HEIGHT
    pad = 2.0 * OVERSAMPLE
    box = [middle - width / 2 - pad, middle - height / 2, middle + width / 2 + pad, middle + height / 2]
    draw.rounded_rectangle(box, radius=3 * OVERSAMPLE, fill=plate, outline=edge, width=OVERSAMPLE)
    font = _font(round(cell * FONT_SIZE))
    for index, glyph in enumerate(sign.text):
        place = (middle - width / 2 + cell * (index + 0.5), middle)
        # A stroke of a quarter pixel makes the regular face bold enough to survive 64 pixels.
        draw.text(place, glyph, font=font, fill=ink, anchor="mm", stroke_width=1, stroke_fill=ink)
