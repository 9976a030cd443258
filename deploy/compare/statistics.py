"""The tables' arithmetic, each formula once, on plain numbers. NaN is a missing cell everywhere."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from harmonizer.diagnostics import AGAINST

Row = Mapping[str, float]
"""Column → value."""


@dataclass(frozen=True)
class Estimate:
    """A mean over seeds."""

    mean: float
    se: float
    """Standard error s/√n, s with n − 1; NaN below two."""
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Estimate":
        """Of those that are known."""
        known = [value for value in values if not math.isnan(value)]
        if not known:
            return UNKNOWN
        se = float(np.std(known, ddof=1) / math.sqrt(len(known))) if len(known) > 1 else math.nan
        return cls(float(np.mean(known)), se, len(known))


UNKNOWN = Estimate(math.nan, math.nan, 0)


@dataclass(frozen=True)
class Scale:
    """What a column's z-scores are measured with."""

    mean: float
    sigma: float


def scales(rows: Mapping[str, Row], fixed: Sequence[str], columns: Sequence[str]) -> dict[str, Scale]:
    """Mean and population σ of each column over the fixed rows that are there.

    Two kinds of column have none and count in nobody's composite, so that all composites are of the same columns: those
    of which a fixed row lacks its cell, and those in which all fixed rows are equal.
    """
    there = [name for name in fixed if name in rows]
    found: dict[str, Scale] = {}
    for column in columns:
        values = [rows[name].get(column, math.nan) for name in there]
        if len(values) > 1 and not any(map(math.isnan, values)):
            sigma = float(np.std(values))
            if sigma > 1e-12 * max(1.0, abs(float(np.mean(values)))):
                found[column] = Scale(float(np.mean(values)), sigma)
    return found


def composite(row: Row, measured: Mapping[str, Scale]) -> float:
    """Mean over columns of (value − mean)/σ (MARBLE, Table 1); missing where one of these cells is, or no column is."""
    cells = [(row.get(column, math.nan) - scale.mean) / scale.sigma for column, scale in measured.items()]
    return float(np.mean(cells)) if cells else math.nan


@dataclass(frozen=True)
class Conflicts:
    """How the windows of one run lie to the rewards."""

    windows: int
    opposing: float
    """Share of them whose vector has a negative cosine with some reward's gradient."""
    mean: float
    """Of all their cosines."""
    mean_worst: float
    """Mean over windows of the smallest."""
    worst: float
    """The smallest of all."""


def conflicts(windows: Iterable[Sequence[float]]) -> Conflicts:
    """Of each window's cosines with every reward; NaN ones are of rewards without signal there and count nowhere."""
    known = [[c for c in cosines if not math.isnan(c)] for cosines in windows]
    known = [cosines for cosines in known if cosines]
    if not known:
        return Conflicts(0, math.nan, math.nan, math.nan, math.nan)
    worst = [min(cosines) for cosines in known]
    opposing = sum(cosine < AGAINST for cosine in worst) / len(known)
    mean = float(np.mean([cosine for cosines in known for cosine in cosines]))
    return Conflicts(len(known), opposing, mean, float(np.mean(worst)), min(worst))


def all_steps(solving: Conflicts, amortised: Conflicts, solved_share: float) -> Conflicts:
    """Both kinds of steps together, each in the share that it has in the run: not all steps are measured, and those
    that are need not be a fair sample. Where only one kind was measured, it stands for all."""
    if not (solving.windows and amortised.windows):
        return solving if solving.windows else amortised
    shares = (solved_share, 1.0 - solved_share)
    opposing, mean, mean_worst = (
        sum(share * getattr(kind, what) for share, kind in zip(shares, (solving, amortised), strict=True))
        for what in ("opposing", "mean", "mean_worst")
    )
    windows = solving.windows + amortised.windows
    return Conflicts(windows, opposing, mean, mean_worst, min(solving.worst, amortised.worst))


def jitter(shares: Sequence[Sequence[float]]) -> float:
    """Mean over successive solves of Σ_k |Δα_k|, at most 2; a reward that is not known has no share."""
    moves = [
        sum(abs(_share(a) - _share(b)) for a, b in zip(before, after, strict=True))
        for before, after in pairwise(shares)
    ]
    return float(np.mean(moves)) if moves else math.nan


def _share(value: float) -> float:
    return 0.0 if math.isnan(value) else value


def whole_windows(num_iterations: int, steps_per_iteration: int, window: int) -> int:
    """How many of the last iterations hold whole windows of `window` steps, the first one left out: it warms up.

    Where not even one window fits, all after the first.
    """
    usable = max(1, num_iterations - 1)
    size = math.lcm(steps_per_iteration, window) // steps_per_iteration
    return usable // size * size or usable
