"""Lines over training: scores with bands, weights, norms, cosines."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes

from deploy.progress.view import number as shown
from deploy.report.drawing.axes import NOISY, logarithmic, over, running_mean, stage_changes
from deploy.report.drawing.style import FAINT, Look, label, legend_below, look, panel, styled
from deploy.report.drawing.svg import Drawing, to_svg
from deploy.report.numbers.arrays import Bools, Floats, Ints
from deploy.report.numbers.curves import Curve
from deploy.report.numbers.gradients import Series

DOTS_UP_TO = 60
"""Points up to which each of them is marked."""
DODGE = 0.015
"""Share of the axis by which points of several runs stand apart."""
ALPHA, SEVERAL_ALPHA = 0.18, 0.1
"""Opacity of a band, alone and over others."""
ITERATIONS, STEPS = "iterations done", "optimizer step"


@dataclass(frozen=True, eq=False)
class Line:
    """One line of a panel."""

    label: str
    training: Curve | None
    heldout: Curve | None
    changes: tuple[int, ...] = ()
    """Iterations done where one stage ends and another begins."""


def scores(title: str, lines: Sequence[Line], prefix: str) -> Drawing:
    """Training score with its band, and held-out means as points with error bars, of one reward."""
    several = len(lines) > 1
    with styled():
        figure, axes = panel([line.label for line in lines] if several else ["training", "held out"])
        for index, line in enumerate(lines):
            _scores(axes, line, look(index), several, (index - (len(lines) - 1) / 2) * _dodge(lines))
        over(axes, ITERATIONS, "score")
        if len({line.changes for line in lines}) == 1:
            stage_changes(axes, lines[0].changes)
        legend_below(figure, axes)
        alt = f"{title} over training. " + " ".join(_told(line, several) for line in lines)
        return Drawing(title, alt, to_svg(figure, prefix, alt))


def _dodge(lines: Sequence[Line]) -> float:
    """By how many iterations points of two lines stand apart, so that their errors can be told apart."""
    xs = [curve.x for line in lines for curve in (line.training, line.heldout) if curve is not None]
    return DODGE * float(np.concatenate([*xs, [0]]).max())


def _scores(axes: Axes, line: Line, style: Look, several: bool, aside: float) -> None:
    """Of several runs a line and its points are one entry of the legend; of one run they are two."""
    name = label(line.label)
    if line.training is not None:
        _band(axes, line.training, style, name if several else "training", SEVERAL_ALPHA if several else ALPHA)
    if line.heldout is not None:
        named = name if line.training is None or not several else None
        points_style, said = (style, named) if several else (look(1), "held out")
        _points(axes, line.heldout, points_style, said, several, aside)


def _points(axes: Axes, curve: Curve, style: Look, name: str | None, several: bool, aside: float) -> None:
    axes.errorbar(
        curve.x + aside,
        curve.mean,
        yerr=np.nan_to_num(curve.se),
        fmt="o" if several else "D",
        color=style.colour,
        markersize=4,
        capsize=2.5,
        elinewidth=1.2,
        linestyle="none",
        label=name,
    )


def _band(axes: Axes, curve: Curve, style: Look, name: str, alpha: float) -> None:
    """A stretch without a score is a gap, and a point between two gaps a dot."""
    (x, mean, se), alone = _with_gaps(curve)
    axes.plot(x, mean, color=style.colour, linestyle=style.stroke, label=name)
    axes.fill_between(x, mean - se, mean + se, color=style.colour, alpha=alpha, linewidth=0)
    axes.plot(curve.x[alone], curve.mean[alone], linestyle="none", marker="o", markersize=3.6, color=style.colour)


def _with_gaps(curve: Curve) -> tuple[Floats, Bools]:
    """([3, I'] x, mean and error with NaN where an iteration is missing, [I] points with no neighbour)."""
    rows = np.stack([curve.x, curve.mean, np.nan_to_num(curve.se)])
    breaks = np.diff(curve.x) > 1
    alone = np.concatenate([[True], breaks]) & np.concatenate([breaks, [True]])
    return np.insert(rows, np.nonzero(breaks)[0] + 1, np.nan, axis=1), alone


def _told(line: Line, several: bool) -> str:
    parts = []
    if line.training is not None:
        parts.append(f"training {shown(line.training.start)} at first, {shown(line.training.end)} at last")
    if line.heldout is not None:
        parts.append(f"held out {shown(line.heldout.start)} at first, {shown(line.heldout.end)} at last")
    return (f"{line.label}: " if several else "") + "; ".join(parts) + "."


def by_reward(
    title: str,
    names: Sequence[str],
    series: Series,
    prefix: str,
    *,
    unit: str,
    note: str = "",
    log: bool = False,
    dots: bool = False,
    zero: bool = False,
) -> Drawing:
    """One line per reward, over optimizer steps; `dots` leaves single values unjoined, `zero` draws the line of 0."""
    with styled():
        figure, axes = panel(names)
        if zero:
            axes.axhline(0, color=FAINT, linewidth=1)
        for k, name in enumerate(names):
            _line(axes, series.step, series.values[k], look(k), label(name), dots)
        over(axes, STEPS, unit)
        if log and np.nanmin(series.values, initial=np.inf) > 0:
            logarithmic(axes)
        legend_below(figure, axes)
        ends = ", ".join(f"{n} {_first_last(row)}" for n, row in zip(names, series.values, strict=True))
        alt = f"{title}, first and last value: {ends}."
        return Drawing(title, alt, to_svg(figure, prefix, alt), note)


def together(
    title: str, lines: Sequence[tuple[str, Series]], prefix: str, *, unit: str, note: str = "", zero: bool = False
) -> Drawing:
    """A few series of one number each, over optimizer steps; `zero` draws where the sign changes."""
    with styled():
        figure, axes = panel([name for name, _ in lines] if len(lines) > 1 else ())
        if zero:
            axes.axhline(0, color=FAINT, linewidth=1)
        for index, (name, series) in enumerate(lines):
            _line(axes, series.step, series.values, look(index), label(name))
        over(axes, STEPS, unit)
        if len(lines) > 1:
            legend_below(figure, axes)
        alt = f"{title}, first and last value: " + ", ".join(f"{n} {_first_last(s.values)}" for n, s in lines) + "."
        return Drawing(title, alt, to_svg(figure, prefix, alt), note)


def _line(axes: Axes, step: Ints, values: Floats, style: Look, name: str, dots: bool = False) -> None:
    """Long series are faint, with their running mean over them."""
    known = int(np.isfinite(values).sum())
    if known > NOISY:
        axes.plot(step, values, color=style.colour, linewidth=0.6, alpha=0.35)
        values = running_mean(values)
    marker = "o" if dots or known <= DOTS_UP_TO else None
    stroke = "none" if dots else style.stroke
    axes.plot(step, values, color=style.colour, linestyle=stroke, marker=marker, markersize=2.6, label=name)


def _first_last(values: Floats) -> str:
    known = values[np.isfinite(values)]
    return f"{known[0]:.3g} to {known[-1]:.3g}" if len(known) else "unknown"
