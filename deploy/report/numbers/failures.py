"""What went wrong in a run: cells that failed, steps that were not applied, solves that were not optimal.

Letters: K rewards, N samples, U optimizer steps, I iterations.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from actors.metrics import HACKING
from deploy.report.numbers.arrays import Floats, Samples, Steps
from rewards.contract import State

NUM_REASONS = 5
"""The commonest ones are told."""
TROUBLE = ("optimal_inaccurate", "stationary", "fallback", "no_active")
"""Solver states to be told (harmonizer.report.SolveReport); others are an optimum, or the name of a method without a
solver."""
INFEASIBLE = "infeasible"
"""State of a bound on KL that no allowed mix keeps."""

Counts = tuple[tuple[str, int], ...]
"""(text, how often), the commonest first."""


@dataclass(frozen=True, eq=False)
class RewardFailures:
    """One reward's cells."""

    name: str
    failed: int
    applicable: int
    """Scored and failed ones."""
    share_by_iteration: Floats
    """[I] failed among applicable; 0 where it applied to none."""
    reasons: Counts

    @property
    def share(self) -> float:
        """Failed among applicable; 0 where there is none."""
        return self.failed / self.applicable if self.applicable else 0.0


@dataclass(frozen=True)
class StepFailures:
    """Optimizer steps."""

    steps: int
    skipped: Counts
    """Why steps were not applied."""
    solves: int
    statuses: Counts
    """Solver states in TROUBLE."""
    unbounded: int
    """Solves whose bound on KL could not be kept."""
    left: Counts
    """Rewards that left a solve, with the reason."""


def reward_failures(samples: Samples) -> tuple[RewardFailures, ...]:
    """One entry per reward."""
    iterations, index_N = np.unique(samples.iteration_N, return_inverse=True)
    found = []
    for k, name in enumerate(samples.names):
        failed_N = samples.states_KN[k] == State.FAILED
        applicable_N = failed_N | (samples.states_KN[k] == State.SCORED)
        failed_I = np.bincount(index_N, weights=failed_N, minlength=len(iterations))
        applicable_I = np.bincount(index_N, weights=applicable_N, minlength=len(iterations))
        reasons = commonest(why for reward, _, why in samples.reasons if reward == k)
        share_I = failed_I / np.maximum(applicable_I, 1)
        found.append(RewardFailures(name, int(failed_N.sum()), int(applicable_N.sum()), share_I, reasons))
    return tuple(found)


def step_failures(steps: Steps) -> StepFailures:
    """Over all steps of a run."""
    skipped = steps.texts["skip_reason"][~steps.applied_U].tolist()
    statuses = [status for status in steps.texts["status"][steps.solved_U].tolist() if status in TROUBLE]
    left = [one for text in steps.texts["left"].tolist() if text for one in text.split("; ")]
    return StepFailures(
        steps=len(steps.step_U),
        skipped=commonest(reason or "no reason given" for reason in skipped),
        solves=int(steps.solved_U.sum()),
        statuses=commonest(statuses),
        unbounded=int(np.count_nonzero(steps.texts["kl_status"] == INFEASIBLE)),
        left=commonest(left),
    )


def restarts(events: Sequence[Mapping[str, Any]]) -> int:
    """How often a run was taken up again."""
    return sum(event.get("event") == "resume" for event in events)


def alarms(events: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Held-out rewards that fell while the training rewards rose, as the run noted them."""
    return tuple(_alarm(event) for event in events if event.get("event") == HACKING)


def _alarm(event: Mapping[str, Any]) -> str:
    """With its numbers, as far as they are there."""
    since, fall, rise = event.get("since"), _change(event, "fall"), _change(event, "rise")
    best = "" if type(since) is not int else f" since {f'its best after {since} iterations' if since else 'the base'}"
    return (
        f"After {event.get('done')} iterations {event.get('reward')}, held out, had fallen{fall}{best} "
        f"while the training rewards rose{rise and rise + ' standard deviations of the base'}"
    )


def _change(event: Mapping[str, Any], name: str) -> str:
    """` by 0.12 (s.e. 0.03)`; empty where it is not known."""
    found = event.get(name)
    numbers: list[Any] = [found.get("mean"), found.get("se")] if isinstance(found, Mapping) else []
    if len(numbers) < 2 or any(isinstance(x, bool) or not isinstance(x, int | float) for x in numbers):
        return ""
    return f" by {abs(numbers[0]):.3g} (s.e. {numbers[1]:.2g})"


def commonest(texts: Iterable[str]) -> Counts:
    """The NUM_REASONS commonest texts; equally common ones by the alphabet."""
    return tuple(sorted(Counter(texts).items(), key=lambda item: (-item[1], item[0]))[:NUM_REASONS])
