"""What a run tells those who watch it: plain frozen data, and the protocol of a listener.

Letters: K rewards, N samples, H, W pixels. An iteration's number counts from 0; "iterations done" is one more.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from actors.run_config import RunConfig
from learner.types import IterationReport
from rewards.contract import State

Which = Literal["before", "ema"]


@dataclass(frozen=True)
class CellCounts:
    """States of one reward's cells in one iteration or evaluation."""

    scored: int
    not_applicable: int
    failed: int

    @property
    def failed_share(self) -> float:
        """Failed cells among those the reward applies to; 0 where it applies to none."""
        applicable = self.scored + self.failed
        return self.failed / applicable if applicable else 0.0


@dataclass(frozen=True)
class IterationResult:
    """One training iteration, after its ledger part is written."""

    iteration: int
    """From 0."""
    num_iterations: int
    reward_means: Mapping[str, float]
    """Mean training score over scored cells; NaN where none was scored."""
    reward_counts: Mapping[str, CellCounts]
    ema_alpha: Mapping[str, float]
    """Smoothed weights after the iteration; 0 for a reward never yet solved."""
    report: IterationReport
    timings_s: Mapping[str, float]
    """rollout, rewards (what is left of scoring after the last rollout), learner, sync, other, total; and
    learner_wait: the time in which the learner had nothing to do."""
    images_per_s: float
    """Over the whole iteration."""
    controller_bytes: int
    """Bytes that passed through the controller, both ways."""

    @property
    def done(self) -> int:
        """Iterations done."""
        return self.iteration + 1


@dataclass(frozen=True)
class EvalSample:
    """One image kept for the picture grid."""

    prompt_id: str
    source: str
    prompt: str
    image_HWC: NDArray[np.uint8]


@dataclass(frozen=True)
class EvaluationResult:
    """Scores of every held-out prompt, each once; prompt i has the same noise in every evaluation."""

    iteration: int
    """Iterations done; 0 is the base model."""
    which: Which
    prompt_ids: tuple[str, ...]
    """[N]"""
    per_prompt: Mapping[str, NDArray[np.float64]]
    """Reward -> [N] reported score, NaN where it does not apply or failed."""
    states: Mapping[str, NDArray[np.uint8]]
    """Reward -> [N] values of rewards.contract.State."""
    samples: tuple[EvalSample, ...] = ()
    """Images of the same few prompts of each source."""
    seconds: float = 0.0

    @property
    def n(self) -> dict[str, int]:
        """Scored prompts per reward."""
        return {name: int(np.isfinite(scores).sum()) for name, scores in self.per_prompt.items()}

    @property
    def failed(self) -> dict[str, int]:
        """Failed cells per reward."""
        return {name: int((states == State.FAILED).sum()) for name, states in self.states.items()}

    @property
    def means(self) -> dict[str, float]:
        """Mean over scored prompts; NaN where there is none."""
        return {name: float(np.nanmean(x)) if self.n[name] else float("nan") for name, x in self.per_prompt.items()}


@dataclass(frozen=True)
class RewardSummary:
    """One reward before and after training, on the prompts scored both times."""

    before: float
    after: float
    se: float
    """Standard error of the mean paired per-prompt difference; NaN below two prompts."""
    n: int


def paired(before_N: NDArray[np.float64], after_N: NDArray[np.float64]) -> RewardSummary:
    """Means of [N] scores of the same prompts, NaN where there is none, with the standard error of their difference."""
    both_N = np.isfinite(before_N) & np.isfinite(after_N)
    n = int(both_N.sum())
    if n == 0:
        return RewardSummary(float("nan"), float("nan"), float("nan"), 0)
    old, new = before_N[both_N], after_N[both_N]
    se = float(np.std(new - old, ddof=1) / np.sqrt(n)) if n > 1 else float("nan")
    return RewardSummary(float(old.mean()), float(new.mean()), se, n)


@dataclass(frozen=True)
class RunSummary:
    """What summary.json holds."""

    rewards: Mapping[str, RewardSummary]
    iterations: int
    seconds: float
    """Wall time of the run, over all its restarts."""
    seed: int


@dataclass(frozen=True)
class ActorVitals:
    """What one process says of itself."""

    role: str
    name: str
    pid: int
    threads: int
    peak_memory_gib: float
    start_s: float
    """Seconds its start took: imports and models."""


class Listener(Protocol):
    """Whoever shows a run's progress. The controller calls it; it never calls back."""

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """All actors are up. `baseline` is there only on resume, where the base was evaluated before."""

    def on_stage(self, stage: str, detail: str) -> None:
        """A stage began or moved on, e.g. ("rollout", "5/12")."""

    def on_iteration(self, result: IterationResult) -> None:
        """An iteration is done and in the ledger."""

    def on_evaluation(self, result: EvaluationResult) -> None:
        """An evaluation is done."""

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint is complete on disk."""

    def on_warning(self, text: str) -> None:
        """Something the user should know of, though the run goes on."""


@dataclass
class SilentListener:
    """A listener that shows nothing."""

    warnings: list[str] = field(default_factory=list)

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None: ...

    def on_stage(self, stage: str, detail: str) -> None: ...

    def on_iteration(self, result: IterationResult) -> None: ...

    def on_evaluation(self, result: EvaluationResult) -> None: ...

    def on_checkpoint(self, path: Path) -> None: ...

    def on_warning(self, text: str) -> None:
        self.warnings.append(text)
