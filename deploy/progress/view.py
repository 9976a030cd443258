"""What the displays know of a run: the controller's events folded into numbers ready to show."""

import math
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

from actors.results import EvaluationResult, IterationResult
from actors.run_config import RunConfig
from learner.types import StepRecord

WINDOW = 5
"""Iterations behind "at start" and "now": the prompts change each time, so single iterations say little."""


@dataclass
class Trend:
    """Training score of one reward at the start of this process and now."""

    first: list[float] = field(default_factory=list)
    last: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def add(self, value: float) -> None:
        """Take the mean of one iteration; NaN (nothing scored) is passed over."""
        if math.isfinite(value):
            if len(self.first) < WINDOW:
                self.first.append(value)
            self.last.append(value)

    @property
    def start(self) -> float:
        """Mean of the first iterations."""
        return mean(self.first)

    @property
    def now(self) -> float:
        """Mean of the last iterations."""
        return mean(list(self.last))


@dataclass
class RunView:
    """Everything a display shows."""

    config: RunConfig | None = None
    started: float = field(default_factory=time.monotonic)
    stage: str = ""
    stage_detail: str = ""
    done: int = 0
    num_iterations: int = 0
    trends: dict[str, Trend] = field(default_factory=dict)
    failed: dict[str, int] = field(default_factory=dict)
    """Reward -> failed cells so far."""
    ema_alpha: Mapping[str, float] = field(default_factory=dict)
    baseline: EvaluationResult | None = None
    evaluation: EvaluationResult | None = None
    step: StepRecord | None = None
    """The last step of the last iteration."""
    worst_cosine: float = math.nan
    """Of the last solve."""
    images_per_s: float = math.nan
    seconds: deque[float] = field(default_factory=lambda: deque(maxlen=WINDOW))

    def start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """The run began (or was taken up again)."""
        self.config, self.baseline = config, baseline
        self.num_iterations = config.run.iterations
        self.trends = {name: Trend() for name in config.reward_names}
        self.failed = dict.fromkeys(config.reward_names, 0)

    def iteration(self, result: IterationResult) -> None:
        """Take one iteration in."""
        self.done, self.num_iterations = result.done, result.num_iterations
        for name, value in result.reward_means.items():
            self.trends.setdefault(name, Trend()).add(value)
        for name, counts in result.reward_counts.items():
            self.failed[name] = self.failed.get(name, 0) + counts.failed
        self.ema_alpha = result.ema_alpha
        self.images_per_s = result.images_per_s
        self.seconds.append(total_seconds(result))
        if result.report.steps:
            self.step = result.report.steps[-1]
        self.worst_cosine = last_worst_cosine(result, self.worst_cosine)

    def evaluated(self, result: EvaluationResult) -> None:
        """Take an evaluation in."""
        if result.which == "before":
            self.baseline = result
        else:
            self.evaluation = result

    @property
    def seconds_left(self) -> float:
        """Expected time to the end, the last evaluation with it; NaN before the first iteration."""
        if not self.seconds:
            return math.nan
        known = self.evaluation or self.baseline
        return (self.num_iterations - self.done) * mean(list(self.seconds)) + (known.seconds if known else 0.0)


def total_seconds(result: IterationResult) -> float:
    """Wall time of one iteration."""
    parts = ("rollout", "rewards", "learner", "sync", "other")
    return float(result.timings_s.get("total", sum(result.timings_s.get(part, 0.0) for part in parts)))


def last_worst_cosine(result: IterationResult, otherwise: float = math.nan) -> float:
    """Smallest cosine of a reward with the applied direction at the iteration's last solve."""
    solved = [step.solution for step in result.report.steps if step.solution is not None]
    return float(solved[-1].report.worst_cosine) if solved else otherwise


def mean(values: list[float]) -> float:
    """Mean, NaN of nothing."""
    return sum(values) / len(values) if values else math.nan


def number(value: float, digits: int = 3, sign: bool = False) -> str:
    """A number for people; a dash where there is none."""
    return f"{value:{'+' if sign else ''}.{digits}f}" if math.isfinite(value) else "-"


def duration(seconds: float) -> str:
    """`1h02m`, `3m05s` or `7s`; a dash where it is not known."""
    if not math.isfinite(seconds):
        return "-"
    whole = max(0, round(seconds))
    if whole >= 3600:
        return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
    return f"{whole // 60}m{whole % 60:02d}s" if whole >= 60 else f"{whole}s"
