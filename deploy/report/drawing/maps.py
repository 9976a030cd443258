"""Matrices in colour: cosines between gradients, and advantages of samples."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure

from deploy.report.drawing.style import INK, WIDTH, diverging, label, panel, styled
from deploy.report.drawing.svg import Drawing, to_svg
from deploy.report.numbers.arrays import Floats
from deploy.report.numbers.gradients import Snapshot
from deploy.report.numbers.specialists import SourceMap

MAX_NUMBERED = 8
"""Rewards up to which every cell carries its number; beyond, they would not be legible and a scale stands for them."""
LARGE = 6
"""Rewards from which on the numbers are smaller."""
Z_LIMIT = 2.5
"""Standard deviations at which colours saturate."""
ROW_HEIGHT = 0.24
"""Inches of a reward's row."""


def cosines(title: str, names: Sequence[str], snapshot: Snapshot, prefix: str) -> Drawing:
    """Cosines between the rewards' gradients, each with its number."""
    values_KK, size = snapshot.cosines, len(names)
    with styled():
        figure, axes = panel(height=WIDTH * 0.82)
        axes.grid(False)
        axes.spines[:].set_visible(False)
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(values_KK), cmap=diverging(), norm=Normalize(-1, 1), edgecolors="white", linewidth=1.5
        )
        axes.invert_yaxis()
        axes.set_aspect("equal")
        ticks = np.arange(size) + 0.5
        many = size > MAX_NUMBERED
        names = [label(name) for name in names]
        axes.set_xticks(ticks, names, rotation=90 if many else 30, ha="center" if many else "right")
        axes.set_yticks(ticks, names)
        axes.tick_params(length=0)
        if many:
            _scale(figure, mesh, "cosine", [-1, 0, 1])
        else:
            _numbers(axes, values_KK)
        alt = f"{title}: cosines between the rewards' gradients. " + _pairs(names, values_KK)
        return Drawing(title, alt, to_svg(figure, prefix, alt))


def _numbers(axes: Axes, values_KK: Floats) -> None:
    size = 7.0 if len(values_KK) > LARGE else 8.5
    for (row, column), value in np.ndenumerate(values_KK):
        if np.isfinite(value):
            ink = "white" if abs(value) > 0.65 else INK
            text = f"{round(value, 2) + 0.0:.2f}".replace("-", "\N{MINUS SIGN}")
            axes.text(column + 0.5, row + 0.5, text, ha="center", va="center", color=ink, fontsize=size)


def _scale(figure: Figure, mesh: ScalarMappable, unit: str, ticks: list[float], beyond: bool = False) -> None:
    """What the colours mean; `beyond` says that there are values off both ends."""
    extend = "both" if beyond else "neither"
    bar = figure.colorbar(mesh, ax=figure.axes[0], pad=0.02, fraction=0.05, extend=extend, ticks=ticks)
    bar.outline.set_visible(False)
    bar.set_label(unit)


def _pairs(names: Sequence[str], values_KK: Floats) -> str:
    """The most opposed and the most aligned pair in words."""
    rows, columns = np.triu_indices(len(names), k=1)
    known = [
        (float(values_KK[i, j]), f"{names[i]} and {names[j]}")
        for i, j in zip(rows.tolist(), columns.tolist(), strict=True)
    ]
    known = [pair for pair in known if np.isfinite(pair[0])]
    if not known:
        return "No pair is known."
    low, high = min(known), max(known)
    return f"Lowest {low[0]:.2f} ({low[1]}), highest {high[0]:.2f} ({high[1]})."


def advantages(title: str, source: SourceMap, prefix: str) -> Drawing:
    """Samples of one source as columns, rewards as rows; blue is better than the prompt's other images."""
    values_KN, names = source.advantages, source.names
    with styled():
        figure, axes = panel(height=0.85 + ROW_HEIGHT * len(names))
        axes.grid(False)
        axes.spines[:].set_visible(False)
        mesh = axes.pcolormesh(
            np.ma.masked_invalid(values_KN),
            cmap=diverging(),
            norm=Normalize(-Z_LIMIT, Z_LIMIT),
            edgecolors="white",
            linewidth=0.5 if values_KN.shape[1] <= 64 else 0,
        )
        axes.invert_yaxis()
        axes.set_yticks(np.arange(len(names)) + 0.5, [label(name) for name in names])
        axes.set_xticks([])
        axes.set_xlabel(f"{values_KN.shape[1]} samples")
        axes.tick_params(length=0)
        _scale(figure, mesh, "z-score", [-2, 0, 2], beyond=True)
        alt = f"{title}: advantages of {values_KN.shape[1]} samples of {source.source}. " + _means(names, values_KN)
        return Drawing(title, alt, to_svg(figure, prefix, alt))


def _means(names: Sequence[str], values_KN: Floats) -> str:
    known = [n for n, row in zip(names, values_KN, strict=True) if np.isfinite(row).any()]
    unknown = [n for n in names if n not in known]
    return f"Signal from {', '.join(known) or 'no reward'}" + (f"; none from {', '.join(unknown)}." if unknown else ".")
