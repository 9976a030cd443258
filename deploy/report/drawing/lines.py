"""Lines over training: scores with bands, weights, norms, cosines."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from deploy.progress.view import number as shown
from deploy.report.drawing.style import FAINT, Look, label, legend_below, look, panel, styled
from deploy.report.drawing.svg import Drawing, to_svg
from deploy.report.numbers.arrays import Floats, Ints
from deploy.report.numbers.curves import Curve
from deploy.report.numbers.gradients import Series

DOTS_UP_TO = 60
"""Points up to which each of them is marked."""


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a panel."""

    label: str
    training: Curve | None
    heldout: Curve | None


def scores(title: str, lines: Sequence[Line], prefix: str) -> Drawing:
    """Training score with its band, and held-out means as points with error bars, of one reward."""
    with styled():
        several = len(lines) > 1
        figure, axes = panel([line.label for line in lines] if several else ["training", "held out"])
        for index, line in enumerate(lines):
            _scores(axes, line, look(index), several)
        axes.set_xlabel("iterations done")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        legend_below(figure, axes)
        alt = f"{title} over training. " + " ".join(_told(line, several) for line in lines)
        return Drawing(title, alt, to_svg(figure, prefix, alt))


def _scores(axes: Axes, line: Line, style: Look, several: bool) -> None:
    name = label(line.label) if several else "training"
    if line.training is not None:
        _band(axes, line.training, style, name)
        name = "" if several else "held out"
    if line.heldout is not None:
        heldout = line.heldout
        axes.errorbar(
            heldout.x,
            heldout.mean,
            yerr=np.nan_to_num(heldout.se),
            fmt="o" if several else "D",
            color=style.colour if several else look(1).colour,
            markersize=4.5,
            capsize=2.5,
            elinewidth=1.2,
            linestyle="none",
            label=name or None,
        )


def _band(axes: Axes, curve: Curve, style: Look, name: str) -> None:
    axes.plot(curve.x, curve.mean, color=style.colour, linestyle=style.stroke, label=name)
    se = np.nan_to_num(curve.se)
    axes.fill_between(curve.x, curve.mean - se, curve.mean + se, color=style.colour, alpha=0.18, linewidth=0)


def _told(line: Line, several: bool) -> str:
    parts = []
    if line.training is not None:
        parts.append(f"training {shown(line.training.start)} at first, {shown(line.training.end)} at last")
    if line.heldout is not None:
        parts.append(f"held out {shown(line.heldout.start)} at first, {shown(line.heldout.end)} at last")
    return (f"{line.label}: " if several else "") + "; ".join(parts) + "."


def by_reward(
    title: str, names: Sequence[str], series: Series, prefix: str, *, note: str = "", log: bool = False
) -> Drawing:
    """One line per reward, over optimizer steps."""
    with styled():
        figure, axes = panel(names)
        for k, name in enumerate(names):
            _line(axes, series.step, series.values[k], look(k), label(name))
        _steps_axis(axes, log and bool(np.nanmin(series.values) > 0))
        legend_below(figure, axes)
        ends = ", ".join(f"{n} {_first_last(row)}" for n, row in zip(names, series.values, strict=True))
        alt = f"{title}, first and last value: {ends}."
        return Drawing(title, alt, to_svg(figure, prefix, alt), note)


def together(
    title: str, lines: Sequence[tuple[str, Series]], prefix: str, *, note: str = "", zero: bool = False
) -> Drawing:
    """A few series of one number each, over optimizer steps; `zero` draws where the sign changes."""
    with styled():
        figure, axes = panel([name for name, _ in lines] if len(lines) > 1 else ())
        if zero:
            axes.axhline(0, color=FAINT, linewidth=1)
        for index, (name, series) in enumerate(lines):
            _line(axes, series.step, series.values, look(index), label(name))
        _steps_axis(axes, log=False)
        if len(lines) > 1:
            legend_below(figure, axes)
        alt = f"{title}, first and last value: " + ", ".join(f"{n} {_first_last(s.values)}" for n, s in lines) + "."
        return Drawing(title, alt, to_svg(figure, prefix, alt), note)


def _line(axes: Axes, step: Ints, values: Floats, style: Look, name: str) -> None:
    marker = "o" if np.isfinite(values).sum() <= DOTS_UP_TO else None
    axes.plot(step, values, color=style.colour, linestyle=style.stroke, marker=marker, markersize=2.6, label=name)


def _steps_axis(axes: Axes, log: bool) -> None:
    axes.set_xlabel("optimizer step")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
    if log:
        axes.set_yscale("log")
        plain = FuncFormatter(lambda value, _: f"{value:g}")
        axes.yaxis.set_major_formatter(plain)
        axes.yaxis.set_minor_formatter(plain if _decades(axes) < 1 else NullFormatter())


def _decades(axes: Axes) -> float:
    """Powers of ten that a logarithmic axis spans; in less than one, only the ticks in between say anything."""
    low, high = axes.get_ylim()
    return float(np.log10(high / low))


def _first_last(values: Floats) -> str:
    known = values[np.isfinite(values)]
    return f"{known[0]:.3g} to {known[-1]:.3g}" if len(known) else "unknown"
