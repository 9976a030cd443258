"""Where the time of each iteration went, and how many cells failed in it."""

from collections.abc import Sequence

import numpy as np
from matplotlib.ticker import MaxNLocator, PercentFormatter

from deploy.report.drawing.style import label, legend_below, look, panel, styled
from deploy.report.drawing.svg import Drawing, to_svg
from deploy.report.numbers.failures import RewardFailures
from deploy.report.numbers.times import Times


def seconds(times: Times, prefix: str) -> Drawing:
    """Stages of every iteration, one on the other."""
    title = "Seconds per iteration"
    with styled():
        figure, axes = panel(list(times.stages))
        values = [np.nan_to_num(row) for row in times.stages.values()]
        colours = [look(index).colour for index in range(len(values))]
        axes.stackplot(
            times.iterations + 1, *values, labels=list(times.stages), colors=colours, step="mid", linewidth=0
        )
        axes.set_xlabel("iterations done")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=6))
        axes.margins(x=0.01)
        axes.set_ylim(bottom=0)
        legend_below(figure, axes)
        means = ", ".join(f"{name} {np.nanmean(row):.2f}" for name, row in times.stages.items())
        alt = f"{title} by stage, on average: {means}."
        return Drawing(title, alt, to_svg(figure, prefix, alt))


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
        axes.set_xlabel("iteration of the ledger")
        axes.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=None))
        axes.set_ylim(bottom=0)
        legend_below(figure, axes)
        alt = f"{title} per iteration: " + ", ".join(f"{r.name} {r.share:.1%} over the run" for r in rewards) + "."
        return Drawing(title, alt, to_svg(figure, prefix, alt))
