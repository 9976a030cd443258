"""Samples that are good at one reward and bad at another (MARBLE, Figure 2): advantages, samples × rewards, by source.

Letters: K rewards, N samples. The advantage of a cell is its z-score within the prompt's group.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deploy.report.numbers.arrays import Floats, Samples

HIGH = 1.0
"""Standard deviations above its group from which a sample counts as good at a reward."""


@dataclass(frozen=True, eq=False)
class SourceMap:
    """Samples of one prompt source in one iteration."""

    source: str
    iteration: int
    names: tuple[str, ...]
    """[K] rewards that have a signal for any sample of the source, in this iteration or another."""
    advantages: Floats
    """[K, N] columns in the order of :func:`best_first`; NaN where a cell carries no signal."""


@dataclass(frozen=True, eq=False)
class Shares:
    """How samples divide, over those that carry a signal for at least two rewards."""

    source: str
    samples: int
    specialists: float
    """At least HIGH for some reward and below 0 for another."""
    all_positive: float
    """Above 0 for every reward that has a signal for them."""


def ends(samples: Samples) -> tuple[int, int]:
    """The first and the last iteration in which as many rewards carry a signal as in any.

    In a run of stages those outside a stage are not scored, and an iteration of one reward shows no specialist.
    """
    iterations, index_N = np.unique(samples.iteration_N, return_inverse=True)
    known_KI = [np.bincount(index_N, weights=known_N) > 0 for known_N in np.isfinite(samples.advantages_KN)]
    num_I = np.sum(known_KI, axis=0)
    full = iterations[num_I == num_I.max()]
    return int(full[0]), int(full[-1])


def source_maps(samples: Samples, iteration: int) -> tuple[SourceMap, ...]:
    """One map per prompt source of an iteration, in the order in which sources appear; without any signal, none."""
    in_iteration_N = samples.iteration_N == iteration
    maps = []
    for source in sources_in_order(samples.source_N[in_iteration_N].tolist()):
        of_source_N = samples.source_N == source
        known_K = np.isfinite(samples.advantages_KN[:, of_source_N]).any(axis=1)
        advantages_KN = samples.advantages_KN[known_K][:, in_iteration_N & of_source_N]
        if np.isfinite(advantages_KN).any():
            names = tuple(samples.names[i] for i in np.flatnonzero(known_K))
            maps.append(SourceMap(source, iteration, names, advantages_KN[:, best_first(advantages_KN)]))
    return tuple(maps)


def best_first(advantages_KN: Floats) -> list[int]:
    """Order of samples in which each stands with the reward it is best at, the best of each first.

    Samples without any signal come last.
    """
    filled_KN = np.where(np.isfinite(advantages_KN), advantages_KN, -np.inf)
    best_N, top_N = filled_KN.argmax(axis=0), filled_KN.max(axis=0)
    best_N = np.where(np.isfinite(top_N), best_N, len(advantages_KN))
    return [int(i) for i in np.lexsort((-top_N, best_N))]


def shares(samples: Samples) -> tuple[Shares, ...]:
    """Of the whole run, for each source; the last row is of all sources."""
    rows = [_shares(source, samples.advantages_KN[:, samples.source_N == source]) for source in sources(samples)]
    return (*rows, _shares("all", samples.advantages_KN))


def sources(samples: Samples) -> list[str]:
    """Prompt sources in the order in which they appear."""
    return sources_in_order(samples.source_N.tolist())


def _shares(source: str, advantages_KN: Floats) -> Shares:
    known_KN = np.isfinite(advantages_KN)
    advantages_KN = advantages_KN[:, known_KN.sum(axis=0) >= 2]
    if not advantages_KN.shape[1]:
        return Shares(source, 0, float("nan"), float("nan"))
    low_N, high_N = np.nanmin(advantages_KN, axis=0), np.nanmax(advantages_KN, axis=0)
    specialists_N = (high_N >= HIGH) & (low_N < 0)
    return Shares(source, len(low_N), float(specialists_N.mean()), float((low_N > 0).mean()))


def sources_in_order(values: Sequence[str]) -> list[str]:
    """Each source once, in the order in which they appear."""
    return list(dict.fromkeys(values))
