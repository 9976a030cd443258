"""How plots look: small panels that stand in a grid on a wide screen and one above the other on a phone."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.colors import Colormap
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

WIDTH, HEIGHT = 3.8, 2.4
"""Inches of a panel: text of 8.5 points is then read at 10.5 pixels on a phone and at 11.5 in a column of 370."""
LEGEND_ROW = 0.2
"""Inches that a row of the legend adds."""
LEGEND_CHARACTERS = 44
"""Characters that stand side by side in a legend, the lines' samples included."""
SAMPLE_CHARACTERS = 5
MAX_LABEL = 36
"""Characters of a label; what is longer is cut in its middle, as names of runs differ at their ends."""
INK, FAINT, MARK, GRID = "#1f2430", "#5c6370", "#a9b0ba", "#e3e6ea"
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#333333")
"""Okabe and Ito's palette for all kinds of colour vision, without the yellow that white paper swallows."""
STROKES: tuple[str | tuple[float, tuple[float, ...]], ...] = ("-", (0, (4, 1.6)), (0, (1.2, 1.4)))
"""With these, three times as many lines can be told apart as there are colours."""
UNKNOWN = "#d9dce1"
"""Cells of which nothing is known."""

_RC: dict[Any, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": 8.5,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": FAINT,
    "axes.labelsize": 8.5,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.8,
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "text.color": INK,
    "lines.linewidth": 1.6,
    "lines.solid_capstyle": "round",
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "legend.handlelength": 1.8,
    "legend.columnspacing": 1.4,
    "text.parse_math": False,
    # Text stays text: it can be searched and copied, and takes the page's font.
    "svg.fonttype": "none",
    "svg.hashsalt": "marble",
}


@dataclass(frozen=True)
class Look:
    """How one line of several is drawn."""

    colour: str
    stroke: str | tuple[float, tuple[float, ...]]


def look(index: int) -> Look:
    """Look of the line of this number; 21 differ."""
    return Look(COLOURS[index % len(COLOURS)], STROKES[index // len(COLOURS) % len(STROKES)])


@contextmanager
def styled() -> Iterator[None]:
    """The settings above, for drawing and for saving."""
    with matplotlib.rc_context(_RC):
        yield


def label(text: str) -> str:
    """A name as plots take it: XML has no control characters, and legends leave out what begins with an underscore."""
    text = "".join(one if one.isprintable() else "\N{REPLACEMENT CHARACTER}" for one in text)
    text = f"\N{ZERO WIDTH SPACE}{text}" if text.startswith("_") else text
    half = MAX_LABEL // 2
    return text if len(text) <= MAX_LABEL else f"{text[: half - 1]}…{text[-half:]}"


def legend_columns(labels: Sequence[str]) -> int:
    """As many as the longest label leaves room for, from 1 to 3."""
    longest = max((len(label(one)) for one in labels), default=0)
    return max(1, min(3, LEGEND_CHARACTERS // (longest + SAMPLE_CHARACTERS)))


def panel(labels: Sequence[str] = (), height: float = HEIGHT) -> tuple[Figure, Axes]:
    """An empty panel, higher where a legend with these labels is to stand beneath it."""
    rows = -(-len(labels) // legend_columns(labels))
    # The page's font may be wider than the one that room is made for.
    layout = ConstrainedLayoutEngine(w_pad=0.08)
    figure = Figure(figsize=(WIDTH, height + rows * LEGEND_ROW), layout=layout)
    return figure, figure.add_subplot()


def legend_below(figure: Figure, axes: Axes) -> None:
    """Names of the lines beneath the panel."""
    handles, labels = axes.get_legend_handles_labels()
    if handles:
        figure.legend(handles, labels, loc="outside lower left", ncols=legend_columns(labels))


def diverging() -> Colormap:
    """Blue above 0, orange-red below, white at 0, grey where nothing is known; no pair of red and green."""
    return matplotlib.colormaps["RdBu"].with_extremes(bad=UNKNOWN)
