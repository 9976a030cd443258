"""The end of a run: summary.json and the table of every reward before and after."""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from rich.table import Table
from rich.text import Text

from actors.results import RewardSummary, RunSummary
from deploy.progress.view import number

CLEAR_SE = 3.0
"""Standard errors from which a change is called clear, and coloured."""


def to_data(summary: RunSummary) -> dict[str, Any]:
    """What summary.json holds."""
    sections = {"rewards": summary.rewards, "heldout_rewards": summary.heldout_rewards}
    return {
        **{
            section: {
                name: {"before": reward.before, "after": reward.after, "se": reward.se, "n": reward.n}
                for name, reward in rewards.items()
            }
            for section, rewards in sections.items()
        },
        "iterations": summary.iterations,
        "seconds": summary.seconds,
        "seed": summary.seed,
        "stopped_early": summary.stopped_early,
    }


def in_se(reward: RewardSummary) -> float:
    """Difference in standard errors; NaN where there is no error to measure with."""
    return (reward.after - reward.before) / reward.se if reward.se > 0 else math.nan


def table(
    rewards: Mapping[str, RewardSummary],
    before: str = "before",
    after: str = "after",
    heldout: Mapping[str, RewardSummary] = MappingProxyType({}),
) -> Table:
    """One row per reward: both means on the same prompts, their difference and its standard error.

    Args:
        heldout: rewards that only judge; they come last and carry a star.
    """
    # Plain output is eighty columns wide, and a wider table loses the end of its headings.
    shown = Table(box=None, padding=(0, 1), header_style="bold")
    for title in ("reward", "n", before, after, "difference", "s.e.", "difference/s.e."):
        shown.add_column(title, justify="left" if title == "reward" else "right")
    for name, reward in (*rewards.items(), *heldout.items()):
        ratio = in_se(reward)
        style = "green" if ratio >= CLEAR_SE else "red" if ratio <= -CLEAR_SE else ""
        shown.add_row(
            f"{name} *" if name in heldout else name,
            str(reward.n),
            number(reward.before, 4),
            number(reward.after, 4),
            Text(number(reward.after - reward.before, 4, sign=True), style=style),
            number(reward.se, 4),
            Text(number(ratio, 1, sign=True), style=style),
        )
    if heldout:
        shown.caption, shown.caption_justify = "* held out: judges only, never trained on", "left"
    return shown
