"""Weights, cosines, norms and KL over training.

Letters: J gradients trained, U optimizer steps, V steps that solved. NaN: not known.
"""

from dataclasses import dataclass

import numpy as np

from deploy.report.numbers.arrays import Floats, Ints, Steps
from harmonizer.diagnostics import AGAINST


@dataclass(frozen=True, eq=False)
class Series:
    """Numbers at some steps."""

    step: Ints
    """[V] optimizer steps done before."""
    values: Floats
    """[V], or [J, V] of one row per gradient."""


@dataclass(frozen=True, eq=False)
class Snapshot:
    """Cosines between the gradients at one solve."""

    step: int
    iteration: int
    cosines: Floats
    """[J, J]"""


@dataclass(frozen=True, eq=False)
class Conflict:
    """How often a direction went against a reward, over the solves in which that is known."""

    known: int
    share: float
    """Of these, how many had a negative worst cosine."""
    mean: float
    """Mean of the worst cosine."""
    worst: float
    """Smallest worst cosine."""


def smoothed_weights(steps: Steps) -> Series:
    """ᾱ after every solve; the applied weights of every step where no step ever solved."""
    smoothed = by_reward(steps, "alpha_ema")
    return smoothed if len(smoothed.step) else Series(steps.step_U, steps.by_reward["weight"])


def by_reward(steps: Steps, what: str) -> Series:
    """One of STEP_REWARD_NUMBERS, at the steps where it is known for any reward."""
    return where_known(steps.step_U, steps.by_reward[what])


def where_known(step_U: Ints, values_JU: Floats) -> Series:
    """Without the steps at which no row has a value."""
    known_U = np.isfinite(values_JU).any(axis=0)
    return Series(step_U[known_U], values_JU[:, known_U])


def number(steps: Steps, what: str) -> Series:
    """One of STEP_NUMBERS, at the steps where it is known."""
    known_U = np.isfinite(steps.numbers[what])
    return Series(steps.step_U[known_U], steps.numbers[what][known_U])


def later_updates(steps: Steps, what: str) -> Series:
    """One of STEP_NUMBERS, without the first step of each iteration unless there are no others."""
    series_U = np.isfinite(steps.numbers[what])
    later_U = np.concatenate([[False], np.diff(steps.iteration_U) == 0])
    known_U = series_U & later_U if (series_U & later_U).any() else series_U
    return Series(steps.step_U[known_U], steps.numbers[what][known_U])


def snapshots(steps: Steps) -> tuple[Snapshot, ...]:
    """The cosine matrices of the first, the middle and the last solve; fewer where fewer are known."""
    known = np.nonzero(np.isfinite(steps.cosines_UJJ).any(axis=(1, 2)))[0]
    chosen = sorted({0, len(known) // 2, len(known) - 1}) if len(known) else []
    rows = [known[i] for i in chosen]
    return tuple(Snapshot(int(steps.step_U[u]), int(steps.iteration_U[u]), steps.cosines_UJJ[u]) for u in rows)


def conflict(worst_cosines: Floats) -> Conflict:
    """Of the smallest cosine of any reward's gradient with a direction, one per solve."""
    known = worst_cosines[np.isfinite(worst_cosines)]
    if not len(known):
        return Conflict(0, float("nan"), float("nan"), float("nan"))
    return Conflict(len(known), float((known < AGAINST).mean()), float(known.mean()), float(known.min()))


def mean_of(series: Series) -> float:
    """Mean over the steps; NaN where nothing is known."""
    return float(np.nanmean(series.values)) if np.isfinite(series.values).any() else float("nan")
