"""A matplotlib figure as SVG that stands inside an HTML page."""

import io
import re
import warnings
from dataclasses import dataclass
from xml.etree import ElementTree

from markupsafe import Markup
from matplotlib.figure import Figure

_NAMESPACE = re.compile(r"^\{[^}]*\}")
_REFERENCE = re.compile(r"url\(#")
_DROPPED = ("metadata", "style")
"""Metadata name addresses of vocabularies; the one style rule would apply to the whole page and stands in its CSS."""


@dataclass(frozen=True)
class Drawing:
    """One plot of the page."""

    title: str
    alt: str
    """What it shows, in words, for those who do not see it."""
    svg: Markup
    note: str = ""


def to_svg(figure: Figure, prefix: str, alt: str) -> Markup:
    """The figure as an element `svg` without any address, width or height.

    Its ids begin with `prefix`, so that no two figures share one.
    """
    buffer = io.StringIO()
    with warnings.catch_warnings():
        # Texts stay texts, so the browser's fonts draw them and not matplotlib's.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(buffer, format="svg", transparent=True)
    root = ElementTree.fromstring(buffer.getvalue())
    for parent in root.iter():
        for child in list(parent):
            if _NAMESPACE.sub("", child.tag) in _DROPPED:
                parent.remove(child)
    for element in root.iter():
        element.tag = _NAMESPACE.sub("", element.tag)
        element.attrib = {_NAMESPACE.sub("", key): _own(key, value, prefix) for key, value in element.attrib.items()}
    del root.attrib["width"], root.attrib["height"]
    root.attrib |= {"role": "img", "aria-label": alt}
    return Markup(ElementTree.tostring(root, encoding="unicode"))  # ElementTree escapes every text


def _own(key: str, value: str, prefix: str) -> str:
    """An attribute's value with ids, and references to them, made the figure's own."""
    if key == "id":
        return f"{prefix}-{value}"
    if _NAMESPACE.sub("", key) == "href" and value.startswith("#"):
        return f"#{prefix}-{value[1:]}"
    return _REFERENCE.sub(f"url(#{prefix}-", value)
