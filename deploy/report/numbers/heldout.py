"""Scores on held-out prompts: means over the run, and the paired difference to the base.

Letters: M held-out prompts.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from actors.results import RewardSummary, paired
from deploy.report.numbers.arrays import Floats
from deploy.report.numbers.curves import Curve, mean_and_error


@dataclass(frozen=True, eq=False)
class Evaluation:
    """One evaluation's scores per prompt."""

    done: int
    """Iterations done; 0 is the base."""
    prompt_ids: tuple[str, ...]
    """[M]"""
    scores: Mapping[str, Floats]
    """Reward -> [M]; NaN where it does not apply or failed."""
    failed: Mapping[str, int]
    """Reward -> failed cells."""


@dataclass(frozen=True)
class HeldoutResult:
    """One reward before and after."""

    name: str
    trained: bool
    """Whether it is a training reward; the others only watch."""
    done: int
    """Iterations done at the evaluation that `after` is of."""
    before: float
    after: float
    difference: float
    se: float
    """Of the paired difference per prompt; NaN below two prompts."""
    ratio: float
    """Difference in standard errors; NaN where there is none."""
    n: int
    """Prompts scored both times."""
    failed: int
    """Failed cells of the last evaluation."""


def reward_names(evaluations: Sequence[Evaluation], trained: Sequence[str]) -> list[str]:
    """Training rewards first, then those that only evaluations score."""
    return list(dict.fromkeys([*trained, *(name for one in evaluations for name in one.scores)]))


def results(evaluations: Sequence[Evaluation], trained: Sequence[str]) -> tuple[HeldoutResult, ...]:
    """Every reward of the base's evaluation and the last one; nothing without both of them."""
    base = next((one for one in evaluations if one.done == 0), None)
    if base is None or evaluations[-1] is base:
        return ()
    last = evaluations[-1]
    names = [name for name in reward_names(evaluations, trained) if name in base.scores and name in last.scores]
    return tuple(_result(name, name in trained, base, last) for name in names)


def _result(name: str, trained: bool, base: Evaluation, last: Evaluation) -> HeldoutResult:
    summary: RewardSummary = paired(*shared_scores(base, last, name))
    difference = summary.after - summary.before
    return HeldoutResult(
        name=name,
        trained=trained,
        done=last.done,
        before=summary.before,
        after=summary.after,
        difference=difference,
        se=summary.se,
        ratio=difference / summary.se if summary.se > 0 else float("nan"),
        n=summary.n,
        failed=last.failed.get(name, 0),
    )


def shared_scores(base: Evaluation, last: Evaluation, name: str) -> tuple[Floats, Floats]:
    """Both evaluations' scores of the prompts that stand in both, in the base's order."""
    later = dict(zip(last.prompt_ids, last.scores[name].tolist(), strict=True))
    both = [(a, later[i]) for i, a in zip(base.prompt_ids, base.scores[name].tolist(), strict=True) if i in later]
    before, after = np.array(both, dtype=np.float64).reshape(-1, 2).T
    return before, after


def heldout_curve(evaluations: Sequence[Evaluation], name: str) -> Curve:
    """Mean over held-out prompts at every evaluation, with the standard error of that mean."""
    points = [(one.done, *mean_and_error(one.scores[name])) for one in evaluations if name in one.scores]
    x, mean, se = np.array(points, dtype=np.float64).reshape(-1, 3).T
    known = np.isfinite(mean)
    return Curve(x[known], mean[known], se[known])
