"""Draws a set of tasks and has every reward that applies score them, while other tasks are still being drawn.

Results are put in place by task index and row, never by arrival, so the number of actors does not show in them.
Images and latents stay where they are; only references, scores and states come here. Rollouts wait while too many
images are drawn and not yet scored.

Letters: K rewards, N samples.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from actors.crew import Crew, Outcome, Work
from actors.pool import RewardPool
from actors.prompts import Prompt
from actors.pump import Party, pump
from actors.remote import CallFailedError, Ref
from actors.results import CellCounts
from actors.rollout import RolloutMeta, Slot
from actors.slices import Cells
from actors.team import Team
from learner.config import SamplingConfig
from learner.errors import UserError
from learner.types import RolloutTask
from rewards.contract import State

DRAW_RETURNS = 3
"""What RolloutActor.sample gives: images, latents, the small part."""


@dataclass(frozen=True)
class Draw:
    """What is to be drawn."""

    tasks: tuple[RolloutTask, ...]
    """In the order of the samples, which they hold without gaps."""
    prompts: tuple[Prompt, ...]
    """[N]"""
    slot: Slot | None
    """Adapter that draws; None is the base model."""
    sampling: SamplingConfig
    evaluation: bool
    """Ask for the reported figures, and of the held-out rewards too."""
    keep: frozenset[int] = frozenset()
    """Samples whose images come back."""
    rewards: frozenset[str] | None = None
    """Names of those that score; None: all."""

    def scored_by(self, reward: str) -> bool:
        """Whether a reward scores these samples, as far as it applies to them."""
        return self.rewards is None or reward in self.rewards


@dataclass(frozen=True)
class Harvest:
    """N samples, drawn and scored."""

    scores_KN: NDArray[np.float32]
    """NaN unless scored."""
    states_KN: NDArray[np.uint8]
    reasons: Mapping[tuple[int, int], str]
    """(k, n) -> why a cell failed."""
    latents: tuple[Ref, ...]
    """One for each task."""
    metas: tuple[RolloutMeta, ...]
    """One for each task."""
    rollout_s: float
    """From the start to the last image."""
    rewards_s: float
    """From the last image to the last score."""

    def counts(self, k: int) -> CellCounts:
        """States of one reward's cells."""
        return CellCounts(*(int((self.states_KN[k] == state).sum()) for state in State))


@dataclass
class _Field:
    """A harvest in the making."""

    draw: Draw
    pools: Mapping[str, RewardPool]
    starts: list[int]
    """First sample of each task."""
    scores_KN: NDArray[np.float32]
    states_KN: NDArray[np.uint8]
    cells_left: int
    lacking: list[int]
    """Cells that each task is still without."""
    max_failed_share: float
    max_unscored: int
    applicable_K: list[int]
    """Cells that each reward applies to."""
    reasons: dict[tuple[int, int], str] = field(default_factory=dict)
    latents: dict[int, Ref] = field(default_factory=dict)
    metas: dict[int, RolloutMeta] = field(default_factory=dict)
    next_task: int = 0
    images_out: int = 0
    """Being drawn, or drawn and not yet scored by every reward."""

    @classmethod
    def fresh(cls, draw: Draw, pools: Mapping[str, RewardPool], max_failed_share: float, max_unscored: int) -> "_Field":
        shape = (len(pools), len(draw.prompts))
        starts = np.cumsum([0, *(len(task.sample_ids) for task in draw.tasks)]).tolist()
        assert starts[-1] == shape[1], f"tasks hold {starts[-1]} samples, there are {shape[1]} prompts"
        unknown = np.full(shape, np.nan, np.float32)
        states = np.zeros(shape, np.uint8)
        applicable = [
            sum(map(pool.applies, draw.prompts)) if draw.scored_by(name) else 0 for name, pool in pools.items()
        ]
        lacking = [len(pools) * len(task.sample_ids) for task in draw.tasks]
        bounds = (max_failed_share, max_unscored)
        return cls(draw, pools, starts, unknown, states, unknown.size, lacking, *bounds, applicable)

    def ready(self) -> Iterator[int]:
        """Tasks that may be drawn now, in their order: as many as the bound on unscored images lets through."""
        while self.next_task < len(self.draw.tasks):
            size = len(self.draw.tasks[self.next_task].sample_ids)
            if self.images_out and self.images_out + size > self.max_unscored:
                return
            self.images_out += size
            self.next_task += 1
            yield self.next_task - 1

    def put(self, k: int, cells: Cells) -> None:
        """Cells of one slice of one task.

        Raises:
            UserError: more of this reward has failed by now than may fail in all; with the scorer's own error.
        """
        first = self.starts[cells.task] + cells.start
        rows = slice(first, first + len(cells.result.states))
        self.scores_KN[k, rows], self.states_KN[k, rows] = cells.result.scores, cells.result.states
        for n in range(rows.start, rows.stop):
            if self.states_KN[k, n] == State.FAILED:
                self.reasons[k, n] = cells.result.reasons[n - first]
        self.cells_left -= len(cells.result.states)
        self.lacking[cells.task] -= len(cells.result.states)
        if self.lacking[cells.task] == 0:
            self.images_out -= len(self.draw.tasks[cells.task].sample_ids)
        failed = [reason for (reward, _), reason in self.reasons.items() if reward == k]
        if len(failed) > self.max_failed_share * self.applicable_K[k]:
            raise UserError(
                f"reward {tuple(self.pools)[k]}: {len(failed)} of {self.applicable_K[k]} cells failed so far "
                f"(max_failed_share is {self.max_failed_share:g}): {Counter(failed).most_common(1)[0][0]}"
            )

    def harvest(self, rollout_s: float, rewards_s: float) -> Harvest:
        """What came of it, tasks in their order."""
        indices = range(len(self.draw.tasks))
        latents = tuple(self.latents[i] for i in indices)
        metas = tuple(self.metas[i] for i in indices)
        return Harvest(self.scores_KN, self.states_KN, self.reasons, latents, metas, rollout_s, rewards_s)


def draw_and_score(
    team: Team,
    draw: Draw,
    max_failed_share: float,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> Harvest:
    """Draws all tasks and scores all samples.

    Args:
        max_failed_share: of the cells that one reward applies to.
        progress: gets the tasks drawn and cells left whenever either changed.

    Raises:
        UserError: a task could not be drawn by any actor, or too much of one reward failed.
        RuntimeError: drawing raised what is no user's error.
    """
    pools = team.pools_of(draw.evaluation)
    growing = _Field.fresh(draw, pools, max_failed_share, team.max_unscored)
    order = {id(pool.crew): k for k, pool in enumerate(pools.values())}
    began_s = team.remote.now_s()
    drawn_s = began_s

    def on_outcome(party: Party, outcome: Outcome) -> None:
        nonlocal drawn_s
        if party is team.rollouts:
            _take_drawn(growing, outcome)
            drawn_s = team.remote.now_s()
        else:
            k = order[id(party)]
            cells = tuple(pools.values())[k].accept(outcome)
            if cells is not None:
                growing.put(k, cells)
        _submit(team.rollouts, growing)
        progress(len(growing.metas), growing.cells_left)

    _submit(team.rollouts, growing)
    pump(team.remote, team.parties, lambda: growing.cells_left == 0, on_outcome, check)
    return growing.harvest(rollout_s=drawn_s - began_s, rewards_s=team.remote.now_s() - drawn_s)


def _submit(rollouts: Crew, growing: _Field) -> None:
    """Has the tasks drawn for which there is room."""
    draw = growing.draw
    for index in growing.ready():
        task = draw.tasks[index]
        keep = tuple(row for row, sample in enumerate(task.sample_ids) if int(sample) in draw.keep)
        rollouts.submit(Work(index, "sample", (task, draw.sampling, draw.slot, keep), DRAW_RETURNS))


def _take_drawn(growing: _Field, outcome: Outcome) -> None:
    """A task is drawn: its images go to every reward that applies."""
    index = outcome.key
    assert isinstance(index, int)
    if outcome.error:
        task = growing.draw.tasks[index]
        text = f"rollout task {index} ({task.prompts[0]!r}): {outcome.error}"
        ours = isinstance(outcome.cause, CallFailedError) and not outcome.cause.for_user
        raise RuntimeError(text) if ours else RolloutError(text) from outcome.cause
    images, growing.latents[index] = outcome.refs
    growing.metas[index] = outcome.value
    prompts = growing.draw.prompts[growing.starts[index] : growing.starts[index + 1]]
    for k, (name, pool) in enumerate(growing.pools.items()):
        asked = growing.draw.scored_by(name)
        for cells in pool.submit(index, images, prompts, growing.draw.evaluation, asked):
            growing.put(k, cells)


class RolloutError(UserError):
    """A task that no rollout actor could draw."""
