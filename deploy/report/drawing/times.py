"""Where the time of each iteration went, and how many cells failed in it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import PercentFormatter

from deploy.report.drawing.axes import over
from deploy.report.drawing.style import label, legend_below, look, panel, styled
from deploy.report.drawing.svg import Drawing, to_svg
from deploy.report.numbers.arrays import Floats, Ints
from deploy.report.numbers.failures import RewardFailures
from deploy.report.numbers.times import Times

MAX_BARS = 90
"""Bars that a panel shows apart; iterations beyond are put together."""


def seconds(times: Times, prefix: str) -> Drawing:
    """Stages of every iteration, one on the other; of long runs means of several iterations."""
    title = "Seconds per iteration"
    size = -(-len(times.iterations) // MAX_BARS)
    with styled():
        figure, axes = panel(list(times.stages))
        edges, values = blocks(times.iterations, list(times.stages.values()), size)
        bottom = np.zeros(len(edges) - 1)
        for index, (name, heights) in enumerate(zip(times.stages, values, strict=True)):
            axes.stairs(bottom + heights, edges, baseline=bottom, fill=True, color=look(index).colour, label=name)
            bottom = bottom + heights
        over(axes, "iterations done", "seconds")
        axes.margins(x=0.01)
        axes.set_ylim(bottom=0)
        legend_below(figure, axes)
        means = ", ".join(f"{name} {np.nanmean(row):.2f}" for name, row in times.stages.items() if len(row))
        alt = f"{title} by stage, on average: {means}."
        note = f"Each bar is the mean of {size} iterations." if size > 1 else ""
        return Drawing(title, alt, to_svg(figure, prefix, alt), note)


def blocks(iterations: Ints, rows: Sequence[Floats], size: int) -> tuple[Floats, list[Floats]]:
    """([B+1] edges in iterations done, [B] of each row its means over `size` iterations). NaN counts as 0."""
    starts = np.arange(0, len(iterations), size)
    counts = np.diff(np.append(starts, len(iterations)))
    means = [np.add.reduceat(np.nan_to_num(row), starts) / counts for row in rows]
    return np.append(iterations[starts], iterations[-1] + 1).astype(np.float64), means


def failed(rewards: Sequence[RewardFailures], prefix: str) -> Drawing:
    """Share of cells that failed, of the rewards in which any did."""
    title = "Share of failed cells"
    with styled():
        figure, axes = panel([reward.name for reward in rewards])
        for index, reward in enumerate(rewards):
            style = look(index)
            x = np.arange(len(reward.share_by_iteration)) + 1
            axes.plot(
                x, reward.share_by_iteration, color=style.colour, linestyle=style.stroke, label=label(reward.name)
            )
        over(axes, "iterations done", "failed cells")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set_ylim(bottom=0)
        legend_below(figure, axes)
        alt = f"{title} per iteration: " + ", ".join(f"{r.name} {r.share:.1%} over the run" for r in rewards) + "."
        return Drawing(title, alt, to_svg(figure, prefix, alt))
