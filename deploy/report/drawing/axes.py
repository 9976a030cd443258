"""Axes of plots over training, and how long noisy series are shown."""

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from deploy.report.drawing.style import MARK
from deploy.report.numbers.arrays import Floats

MAX_X_TICKS = 6
NOISY = 240
"""Points above which a series is drawn faintly, with its running mean over it."""
PARTS = 40
"""A running mean is over this part of the series."""


def over(axes: Axes, x: str, y: str) -> None:
    """Names both axes; counts of iterations and steps are whole numbers."""
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    low, high = axes.get_xlim()
    if high - low < 1:  # one point only: ticks between whole numbers would be none
        middle = round((low + high) / 2)
        axes.set_xlim(middle - 1, middle + 1)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=MAX_X_TICKS))


def logarithmic(axes: Axes) -> None:
    """A logarithmic y axis with plain numbers; in less than two decades, 1, 2 and 5 of each are named."""
    axes.set_yscale("log")
    low, high = axes.get_ylim()
    narrow = np.log10(high / low) < 2
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())


def stage_changes(axes: Axes, x: tuple[int, ...]) -> None:
    """Where one stage ends and another begins."""
    for one in x:
        axes.axvline(one, color=MARK, linewidth=0.8, linestyle=(0, (3, 3)), zorder=0.5)


def running_mean(values: Floats) -> Floats:
    """Of the known values around each point; as long as the series."""
    half = max(1, len(values) // PARTS // 2)
    known = np.isfinite(values)
    sums = np.concatenate([[0.0], np.cumsum(np.where(known, values, 0.0))])
    counts = np.concatenate([[0], np.cumsum(known)])
    begin = np.maximum(np.arange(len(values)) - half, 0)
    end = np.minimum(np.arange(len(values)) + half + 1, len(values))
    num = counts[end] - counts[begin]
    return np.where(num > 0, (sums[end] - sums[begin]) / np.maximum(num, 1), np.nan)
