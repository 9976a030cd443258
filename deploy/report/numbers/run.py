"""Every number of one run, and all of it as plain data."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from deploy.report.numbers import curves, failures, gradients, heldout, specialists
from deploy.report.numbers.conflicts import ConflictNumbers, measured_conflicts
from deploy.report.numbers.curves import Curve
from deploy.report.numbers.failures import RewardFailures, StepFailures
from deploy.report.numbers.gradients import Conflict, Series, Snapshot
from deploy.report.numbers.heldout import HeldoutResult
from deploy.report.numbers.specialists import Shares, SourceMap
from deploy.report.numbers.stages import Stage, stages_of
from deploy.report.numbers.times import Times, times
from deploy.report.reading import RunRecord


@dataclass(frozen=True, eq=False)
class GradientNumbers:
    """What the table of steps says."""

    names: tuple[str, ...]
    """[J] what has a gradient of its own: the rewards, or their weighted sum alone."""
    weights: Series
    """[J, V] ᾱ"""
    alpha_star: Series
    """[J, V] of single solves"""
    snapshots: tuple[Snapshot, ...]
    worst_cosine: Series
    """Of the applied direction."""
    sum_worst_cosine: Series
    """Of the plain sum of gradients."""
    conflict: Conflict
    sum_conflict: Conflict
    norms: Series
    """[J, V]"""
    grad_norm: Series
    kl: Series
    kl_cosine: Series
    kl_share: Series
    clip_fraction: Series
    """Flow-GRPO's share of cells outside the clipped range, and how far the policy is from the one that drew; at later
    updates of an iteration, as both are 0 at its first."""
    approx_kl: Series
    failures: StepFailures


@dataclass(frozen=True, eq=False)
class SampleNumbers:
    """What the table of samples says."""

    training: Mapping[str, Curve]
    """Reward -> its curve; a reward that nothing was scored by has none."""
    window: int
    """Iterations that each of its points is the mean of."""
    first_maps: tuple[SourceMap, ...]
    last_maps: tuple[SourceMap, ...]
    shares: tuple[Shares, ...]
    failures: tuple[RewardFailures, ...]


@dataclass(frozen=True, eq=False)
class RunNumbers:
    """Every number the report shows of one run; None where the ledger lacks the table."""

    heldout: Mapping[str, Curve]
    results: tuple[HeldoutResult, ...]
    samples: SampleNumbers | None
    gradients: GradientNumbers | None
    conflicts: ConflictNumbers | None
    """Where the run measured any."""
    stages: tuple[Stage, ...]
    times: Times
    restarts: int
    alarms: tuple[str, ...]


def numbers_of(record: RunRecord) -> RunNumbers:
    """Every number of a run."""
    steps = record.steps
    heldout_names = heldout.reward_names(record.evaluations, record.names)
    heldout_curves = {name: heldout.heldout_curve(record.evaluations, name) for name in heldout_names}
    return RunNumbers(
        heldout={name: curve for name, curve in heldout_curves.items() if len(curve.x)},
        results=heldout.results(record.evaluations, record.names),
        samples=_of_samples(record),
        gradients=_of_steps(record),
        conflicts=measured_conflicts(record.measured) if record.measured is not None else None,
        stages=stages_of(record.config),
        times=times(steps, record.events),
        restarts=failures.restarts(record.events),
        alarms=failures.alarms(record.events),
    )


def _of_samples(record: RunRecord) -> SampleNumbers | None:
    samples = record.samples
    if samples is None:
        return None
    window = curves.window_of(len(np.unique(samples.iteration_N)))
    training = {name: curves.training_curve(samples, k, window) for k, name in enumerate(samples.names)}
    first, last = specialists.ends(samples)
    return SampleNumbers(
        training={name: curve for name, curve in training.items() if len(curve.x)},
        window=window,
        first_maps=specialists.source_maps(samples, first),
        last_maps=specialists.source_maps(samples, last) if last > first else (),
        shares=specialists.shares(samples),
        failures=failures.reward_failures(samples),
    )


def _of_steps(record: RunRecord) -> GradientNumbers | None:
    steps = record.steps
    if steps is None:
        return None
    return GradientNumbers(
        names=steps.names,
        weights=gradients.smoothed_weights(steps),
        alpha_star=gradients.by_reward(steps, "alpha_star"),
        snapshots=gradients.snapshots(steps),
        worst_cosine=gradients.number(steps, "worst_cosine"),
        sum_worst_cosine=gradients.number(steps, "sum_worst_cosine"),
        conflict=gradients.conflict(steps.numbers["worst_cosine"]),
        sum_conflict=gradients.conflict(steps.numbers["sum_worst_cosine"]),
        norms=gradients.by_reward(steps, "norm"),
        grad_norm=gradients.number(steps, "grad_norm"),
        kl=gradients.number(steps, "kl"),
        kl_cosine=gradients.number(steps, "kl_cosine"),
        kl_share=gradients.number(steps, "kl_share"),
        clip_fraction=gradients.later_updates(steps, "clip_fraction"),
        approx_kl=gradients.later_updates(steps, "approx_kl"),
        failures=failures.step_failures(steps),
    )


def plain(value: Any) -> Any:
    """Dataclasses and arrays as objects and lists that JSON has a form for."""
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in fields(value)}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return value
