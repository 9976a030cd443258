"""What an iteration was, in numbers.

Letters: K rewards, N samples.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from actors.harvest import Harvest
from actors.remote import Remote
from actors.results import IterationResult
from actors.run_config import RunConfig
from learner.types import IterationReport
from rewards.contract import State


class Stopwatch:
    """Times the stages of one iteration, and counts the bytes through this process."""

    def __init__(self, remote: Remote, already_s: float) -> None:
        """`already_s` was spent on this iteration's account before it began."""
        self.bytes_moved = 0
        self._remote = remote
        self._began_s = remote.now_s() - already_s
        self._bytes_before = remote.bytes_moved
        self._stages: dict[str, float] = {}

    def add(self, stage: str, seconds: float) -> None:
        """A stage that was timed elsewhere."""
        self._stages[stage] = self._stages.get(stage, 0.0) + seconds

    @contextmanager
    def stage(self, stage: str) -> Iterator[None]:
        """Times a block."""
        began_s = self._remote.now_s()
        yield
        self.add(stage, self._remote.now_s() - began_s)

    def move(self, stage: str, other: str, seconds: float) -> None:
        """Counts a part of a stage under a name of its own, if there is any."""
        if seconds:
            self.add(stage, -seconds)
            self.add(other, seconds)

    def finish(self) -> dict[str, float]:
        """All stages in seconds, with `other`, `total` and `learner_wait`: what the learner spent without work."""
        total = self._remote.now_s() - self._began_s
        self.bytes_moved = self._remote.bytes_moved - self._bytes_before
        other = max(0.0, total - sum(self._stages.values()))
        wait = total - self._stages.get("learner", 0.0) - self._stages.get("probe", 0.0)
        return {**self._stages, "other": other, "total": total, "learner_wait": wait}


def ema_alpha(report: IterationReport, before: Mapping[str, float]) -> dict[str, float]:
    """Smoothed weights after an iteration: the last solve's, or those of before where none was solved."""
    solutions = [step.solution for step in report.steps if step.solution is not None]
    if not solutions:
        return dict(before)
    return {name: float(share) for name, share in zip(before, solutions[-1].ema_K, strict=True)}


def reward_means(harvest: Harvest, names: tuple[str, ...]) -> dict[str, float]:
    """Mean over each reward's scored cells; NaN where there is none."""
    means = {}
    for k, name in enumerate(names):
        scored = harvest.scores_KN[k][harvest.states_KN[k] == State.SCORED]
        means[name] = float(np.mean(scored, dtype=np.float64)) if len(scored) else float("nan")
    return means


def result(
    config: RunConfig,
    harvest: Harvest,
    report: IterationReport,
    alpha: Mapping[str, float],
    timings_s: Mapping[str, float],
    controller_bytes: int,
) -> IterationResult:
    """What listeners see of an iteration."""
    names = config.reward_names
    return IterationResult(
        iteration=report.iteration,
        num_iterations=config.run.iterations,
        reward_means=reward_means(harvest, names),
        reward_counts={name: harvest.counts(k) for k, name in enumerate(names)},
        ema_alpha=dict(alpha),
        report=report,
        timings_s=dict(timings_s),
        images_per_s=config.num_samples / max(timings_s["total"], 1e-9),
        controller_bytes=controller_bytes,
    )
