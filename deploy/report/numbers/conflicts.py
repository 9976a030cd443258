"""Steps held against every reward's gradient (learner.probe): how often they oppose one, against which batch.

Letters: K rewards, W measured steps. NaN: not known.
"""

from dataclasses import dataclass

import numpy as np

from deploy.compare.statistics import Conflicts, conflicts
from deploy.report.numbers.arrays import Bools, Floats, Measured
from deploy.report.numbers.gradients import Series, where_known
from learner.types import CONFLICT_VECTORS

BATCHES = ("same", "next")
"""What steps are held against: their own batch, and that of the iteration after."""
DIRECTION = "direction"
"""Of CONFLICT_VECTORS, the one that the plots are of."""


@dataclass(frozen=True)
class Windows:
    """Some of a run's measured steps."""

    vector: str
    """Of CONFLICT_VECTORS."""
    steps: str
    """`all`, `solving` or `between solves`."""
    same: Conflicts
    next: Conflicts


@dataclass(frozen=True)
class Opposed:
    """One reward, against the measured directions."""

    name: str
    same: Conflicts
    next: Conflicts


@dataclass(frozen=True, eq=False)
class ConflictNumbers:
    """What the table of conflicts says."""

    rows: tuple[Windows, ...]
    rewards: tuple[Opposed, ...]
    worst_same: Series
    """[W] smallest cosine of the direction with any reward's gradient."""
    worst_next: Series
    cosines_next: Series
    """[K, W] of the direction with each reward's gradient on the next batch."""


def measured_conflicts(found: Measured) -> ConflictNumbers:
    """Every number of a run's measured steps."""
    kinds = {"all": np.ones_like(found.solved_W), "solving": found.solved_W, "between solves": ~found.solved_W}
    # Without a solve, or with nothing but solves, all of them are said once.
    names = list(kinds) if found.solved_W.any() and not found.solved_W.all() else ["all"]
    rows = tuple(
        Windows(vector, name, *(_conflicts(found, vector, batch, kinds[name]) for batch in BATCHES))
        for vector in CONFLICT_VECTORS
        for name in names
    )
    same, next_ = (_series(found, batch) for batch in BATCHES)
    return ConflictNumbers(
        rows=rows,
        rewards=tuple(_opposed(name, same.values[k], next_.values[k]) for k, name in enumerate(found.names)),
        worst_same=_worst(same),
        worst_next=_worst(next_),
        cosines_next=next_,
    )


def _conflicts(found: Measured, vector: str, batch: str, chosen_W: Bools) -> Conflicts:
    return conflicts(found.cosines[vector][:, chosen_W & (found.against_W == batch)].T.tolist())


def _opposed(name: str, same_W: Floats, next_W: Floats) -> Opposed:
    """A single reward's cosines are windows of one."""
    same, next_ = conflicts(same_W[:, None].tolist()), conflicts(next_W[:, None].tolist())
    return Opposed(name, same, next_)


def _series(found: Measured, batch: str) -> Series:
    """[K, W] cosines of the direction, at the steps where any is known."""
    chosen_W = found.against_W == batch
    return where_known(found.step_W[chosen_W], found.cosines[DIRECTION][:, chosen_W])


def _worst(series: Series) -> Series:
    values = np.nanmin(series.values, axis=0) if len(series.step) else np.zeros(0)
    return Series(series.step, values)
