"""What a picture of the tiny world contains, as plain data. Lengths are pixels of the 64x64 image."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

SIZE: Final = 64
"""Image width and height, pixels."""

Source = Literal["general", "ocr", "geneval"]
SOURCES: Final[tuple[Source, ...]] = ("general", "ocr", "geneval")

Background = Literal["plain", "solid", "gradient", "stripes", "dots", "checks"]
BACKGROUNDS: Final[tuple[Background, ...]] = ("plain", "solid", "gradient", "stripes", "dots", "checks")


@dataclass(frozen=True)
class Item:
    """One coloured shape."""

    shape: str
    color: str
    x: float
    y: float
    radius: float
    """Half of the shape's box, pixels."""


@dataclass(frozen=True)
class Sign:
    """A plate with text in the middle of the picture."""

    text: str
    color: str | None
    """Plate colour; None is a light plate with dark ink."""
    ink: str
    """Colour of the letters on a light plate; coloured plates take black or white by contrast."""


@dataclass(frozen=True)
class Style:
    """What a caption leaves open. All numbers but the hues and the phase lie in [0, 1]."""

    saturation: float
    """0 muted, 1 vivid objects."""
    background: Background
    strength: float
    """0 near-white, 1 the strongest tint."""
    hue: float
    second_hue: float
    phase: float
    """Offset and direction of the pattern."""
    scale: float
    """0 small, 1 large objects or letters."""


@dataclass(frozen=True)
class Scene:
    """One picture with its caption and its truth."""

    source: Source
    caption: str
    style: Style
    items: tuple[Item, ...] = ()
    sign: Sign | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """GenEval's tag, include, exclude and prompt; empty for the other sources."""
