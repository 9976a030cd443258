"""Building a RewardResult cell by cell, so that every failure carries its reason and no number is invented."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from rewards.contract import RewardResult, State

_MAX_REASON_CHARS = 2000
"""A reason is stored once per failed sample in the ledger; runtimes and servers put whole tracebacks into theirs."""


@dataclass(frozen=True)
class Cell:
    """What one reward says of one sample."""

    state: State
    score: float
    """Finite where scored, NaN elsewhere."""
    reason: str

    @classmethod
    def scored(cls, score: float) -> "Cell":
        """A score; one that is not finite in float32 becomes a failure that says so."""
        value = float(score)
        if not math.isfinite(value) or abs(value) > float(np.finfo(np.float32).max):
            return cls.failed(f"the scorer gave {value}, which is not a finite float32")
        return cls(State.SCORED, value, "")

    @classmethod
    def not_applicable(cls, reason: str) -> "Cell":
        """The prompt carries no such signal."""
        return cls(State.NOT_APPLICABLE, math.nan, _storable(reason))

    @classmethod
    def failed(cls, reason: str) -> "Cell":
        """The sample could not be scored."""
        return cls(State.FAILED, math.nan, _storable(reason))


def describe(error: BaseException) -> str:
    """`Type: text` of an exception, as a ledger row can hold it."""
    return _storable(f"{type(error).__name__}: {error}")


def _storable(reason: object) -> str:
    """A reason cut to its beginning, and without halves of characters (file names that are not UTF-8 have them): no
    file, message or column takes those."""
    return str(reason)[:_MAX_REASON_CHARS].encode(errors="backslashreplace").decode()


def collect(cells: Sequence[Cell]) -> RewardResult:
    """N cells as one result: scores float32 [N] (NaN unless scored), states uint8 [N], reasons [N]."""
    return RewardResult(
        scores=np.array([cell.score for cell in cells], dtype=np.float32),
        states=np.array([cell.state for cell in cells], dtype=np.uint8),
        reasons=tuple(cell.reason for cell in cells),
    )


def from_scores(scores: Iterable[float]) -> RewardResult:
    """N scores as one result; those that are not finite become failures."""
    return collect([Cell.scored(score) for score in scores])


def to_cells(result: RewardResult) -> list[Cell]:
    """The N cells of a result.

    Raises:
        ValueError: a state is none of the three.
    """
    cells = []
    for score, state, reason in zip(result.scores, result.states, result.reasons, strict=True):
        match State(int(state)):
            case State.SCORED:
                cells.append(Cell.scored(float(score)))
            case State.NOT_APPLICABLE:
                cells.append(Cell.not_applicable(reason))
            case State.FAILED:
                cells.append(Cell.failed(reason or "failed without a reason"))
    return cells
