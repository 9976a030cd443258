"""One slice of a rollout task on its way through a reward's pool, from the first call to the last cell.

A call that raises is the scorer's own matter (rewards.safe): it comes back with the samples at fault as failed cells. A
call that never comes back, because its process died or hung, says nothing of who was at fault. Halving would cost a
process for every half that holds the culprit; so after the first loss each sample goes alone, and each culprit costs
one more process, whatever the size of the batch. The healthy ones are then scored once more in a batch of the first
call's shape, with one of them in place of each that failed: their scores are to the bit what they would have been.

Letters: N samples of one call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from actors.prompts import Prompt
from actors.remote import Ref
from rewards.contract import Metadata, RewardResult, State
from rewards.results import Cell, collect, to_cells
from rewards.safe import NOT_APPLICABLE_REASON


@dataclass(frozen=True)
class ScoreRequest:
    """Samples of one rollout task for one reward, which applies to all of them."""

    rows_N: NDArray[np.intp]
    """Of the task's images."""
    prompts: tuple[str, ...]
    """[N]"""
    metadata: tuple[Metadata, ...]
    """[N]"""
    evaluation: bool
    """Ask for the reported figure in place of the training score."""


@dataclass(frozen=True)
class Cells:
    """Finished cells: rows `start` to `start + N` of one task."""

    task: int
    start: int
    result: RewardResult


@dataclass(frozen=True)
class Ask:
    """One call on samples of a slice, counted from its start."""

    members: tuple[int, ...]
    tries: int
    """How often its members have been asked for, this time included."""
    stand_ins: Mapping[int, int] = field(default_factory=dict)
    """Member -> who is shown in its place; its own cell is not asked for."""
    confirms: bool = False
    """The members' cells are known from calls of another shape."""


class Slice:
    """Cells of one slice in the making. Each of its methods that takes an answer returns what to ask next."""

    def __init__(self, task: int, start: int, images: Ref, prompts: Sequence[Prompt], applies: Sequence[bool]) -> None:
        """
        Args:
            start: the slice's first row within the task.
            images: of the whole task.
            prompts, applies: one for each sample of the slice.
        """
        self.images = images
        self._task, self._start, self._prompts = task, start, tuple(prompts)
        self._cells: list[Cell | None] = [None if it else Cell.not_applicable(NOT_APPLICABLE_REASON) for it in applies]
        self._members = tuple(i for i, it in enumerate(applies) if it)
        self._num_out = 0
        self._unconfirmed = False

    @property
    def done(self) -> bool:
        """Whether no answer is outstanding."""
        return self._num_out == 0

    @property
    def cells(self) -> Cells:
        """Once it is done."""
        return Cells(self._task, self._start, collect([cell for cell in self._cells if cell is not None]))

    def request(self, ask: Ask, evaluation: bool) -> ScoreRequest:
        """What the scorer is given."""
        shown = [ask.stand_ins.get(i, i) for i in ask.members]
        return ScoreRequest(
            np.array(shown, dtype=np.intp) + self._start,
            tuple(self._prompts[i].text for i in shown),
            tuple(self._prompts[i].metadata for i in shown),
            evaluation,
        )

    def begin(self) -> list[Ask]:
        """The whole slice, as far as the reward applies; nothing where it applies to none of it."""
        return self._out([Ask(self._members, 1)] if self._members else [])

    def answered(self, ask: Ask, result: RewardResult, retries: int) -> list[Ask]:
        """The call came back; failed cells are tried again, without the others."""
        cells = dict(zip(ask.members, to_cells(result), strict=True))
        if ask.confirms:
            cells = {i: cell for i, cell in cells.items() if i not in ask.stand_ins and cell.state == State.SCORED}
        for i, cell in cells.items():
            self._cells[i] = cell
        failed = tuple(i for i, cell in cells.items() if cell.state == State.FAILED)
        return self._next([Ask(failed, ask.tries + 1)] if failed and ask.tries <= retries else [])

    def lost(self, ask: Ask, reason: str, retries: int) -> list[Ask]:
        """Its process died or hung: each sample is asked for alone; one that was alone already is the culprit."""
        if ask.confirms:
            return self._next([])  # its cells are known
        if len(ask.members) > 1:
            self._unconfirmed |= ask.members == self._members
            return self._next([Ask((i,), ask.tries + 1) for i in ask.members])
        return self._again_or_failed(ask, reason, retries)

    def raised(self, ask: Ask, reason: str, retries: int) -> list[Ask]:
        """The call could not be made, e.g. because its images are gone: no sample's fault."""
        return self._next([]) if ask.confirms else self._again_or_failed(ask, reason, retries)

    def _again_or_failed(self, ask: Ask, reason: str, retries: int) -> list[Ask]:
        if ask.tries <= retries:
            return self._next([Ask(ask.members, ask.tries + 1)])
        for i in ask.members:
            self._cells[i] = Cell.failed(reason)
        return self._next([])

    def _next(self, asks: list[Ask]) -> list[Ask]:
        """One answer is in; these calls follow, or the last one, which confirms the healthy cells."""
        self._num_out -= 1
        if not asks and self._num_out == 0 and self._unconfirmed:
            self._unconfirmed = False
            healthy = [i for i in self._members if self._state(i) == State.SCORED]
            if healthy:
                stand_ins = {i: healthy[0] for i in self._members if i not in healthy}
                asks = [Ask(self._members, 1, stand_ins, confirms=True)]
        return self._out(asks)

    def _out(self, asks: list[Ask]) -> list[Ask]:
        self._num_out += len(asks)
        return asks

    def _state(self, i: int) -> State | None:
        cell = self._cells[i]
        return None if cell is None else cell.state
