"""Scores over training: smoothed curves with their error, held-out means, and runs of one recipe as one curve.

Letters: K rewards, N samples, J prompt groups, I iterations.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploy.progress.view import WINDOW
from deploy.report.numbers.arrays import Floats, Ints, Samples

WINDOWS = 20
"""Windows in a long run."""


@dataclass(frozen=True, eq=False)
class Curve:
    """One line with a band."""

    x: Floats
    """[I] iterations done."""
    mean: Floats
    """[I]"""
    se: Floats
    """[I] standard error of the mean; NaN where there is one observation only."""

    @property
    def start(self) -> float:
        """First known value."""
        return float(self.mean[0]) if len(self.mean) else float("nan")

    @property
    def end(self) -> float:
        """Last known value."""
        return float(self.mean[-1]) if len(self.mean) else float("nan")


def group_means(samples: Samples, k: int) -> tuple[Ints, Floats]:
    """([J], [J]) iteration, in order, and mean score of each (iteration, prompt) group, over its scored cells.

    Groups without a scored cell are none.
    """
    scored_N = np.isfinite(samples.scores_KN[k])
    if not scored_N.any():
        return np.zeros(0, np.int64), np.zeros(0)
    _, prompt_N = np.unique(samples.prompt_N[scored_N], return_inverse=True)
    pairs = np.stack([samples.iteration_N[scored_N], prompt_N])
    groups, index_N = np.unique(pairs, axis=1, return_inverse=True)
    index_N = index_N.ravel()
    sums_J = np.bincount(index_N, weights=samples.scores_KN[k, scored_N])
    return groups[0], sums_J / np.bincount(index_N)


def window_of(num_iterations: int) -> int:
    """Iterations that a point of a training curve is the mean of: a twentieth of the run, as single ones say little."""
    return max(WINDOW, round(num_iterations / WINDOWS))


def training_curve(samples: Samples, k: int, window: int = WINDOW) -> Curve:
    """Mean over the prompt groups of the last `window` iterations, and its standard error over these groups.

    Groups, not images, are the observations: images of one prompt are alike, and prompts change every iteration.
    Iterations in which nothing was scored have no point: a reward that is not trained in a stage is not scored then.
    """
    iteration_J, mean_J = group_means(samples, k)
    known = np.unique(iteration_J)
    begins, ends = (np.searchsorted(iteration_J, x, side="right") for x in (known - window, known))
    windows = zip(known.tolist(), begins.tolist(), ends.tolist(), strict=True)
    return _curve([(iteration + 1, *mean_and_error(mean_J[begin:end])) for iteration, begin, end in windows])


def across_runs(curves: Sequence[Curve]) -> Curve:
    """Runs of one recipe as one curve: the mean over runs and its standard error, where every run has a point."""
    shared = sorted(set.intersection(*(set(curve.x.tolist()) for curve in curves)))
    rows = [[curve.mean[curve.x.tolist().index(x)] for curve in curves] for x in shared]
    return _curve([(x, *mean_and_error(np.array(row))) for x, row in zip(shared, rows, strict=True)])


def mean_and_error(values: Floats) -> tuple[float, float]:
    """Mean of the known values and its standard error, std/√n with n − 1 in the variance; NaN where unknown."""
    known = values[np.isfinite(values)]
    if not len(known):
        return float("nan"), float("nan")
    error = float(np.std(known, ddof=1) / np.sqrt(len(known))) if len(known) > 1 else float("nan")
    return float(known.mean()), error


def _curve(points: Sequence[tuple[float, float, float]]) -> Curve:
    columns = np.array(points, dtype=np.float64).reshape(-1, 3).T
    return Curve(columns[0], columns[1], columns[2])
