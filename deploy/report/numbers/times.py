"""Where a run's time went, and which of it was lost.

Letters: I iterations, U optimizer steps. Seconds throughout; NaN: not known.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from deploy.report.numbers.arrays import Floats, Ints, Steps

STAGES = ("rollout", "rewards", "learner", "probe", "sync", "other")
"""Stages of an iteration, in their order; together they are its `total`."""
MAX_SECONDS = 1e12
"""More is no time of a run."""
SLOW = 1.5
"""Times the median from which an iteration counts as slow."""


@dataclass(frozen=True)
class Part:
    """Some of the run's time."""

    what: str
    seconds: float
    share: float
    """Of the whole run's wall time."""
    note: str = ""


@dataclass(frozen=True, eq=False)
class Times:
    """A run's time."""

    wall_s: float
    iterations: Ints
    """[I] numbers from 0."""
    stages: Mapping[str, Floats]
    """Stage -> [I]"""
    went: tuple[Part, ...]
    """Disjoint parts that add up to the wall time."""
    lost: tuple[Part, ...]
    """What could be won; parts of the above, which may overlap."""


def times(steps: Steps | None, events: Sequence[Mapping[str, Any]]) -> Times:
    """From the ledger's stage times and the events of metrics.jsonl."""
    iterations, stages = iteration_stages(steps) if steps is not None else (np.zeros(0, np.int64), {})
    wall_s = max((_seconds(event, "elapsed_s") for event in events), default=float("nan"))
    if not np.isfinite(wall_s):
        wall_s = float(np.nansum(stages["total"])) if "total" in stages else float("nan")
    return Times(
        wall_s=wall_s,
        iterations=iterations,
        stages={stage: stages[stage] for stage in STAGES if stage in stages},
        went=_went(stages, events, wall_s),
        lost=_lost(iterations, stages, events, wall_s),
    )


def iteration_stages(steps: Steps) -> tuple[Ints, dict[str, Floats]]:
    """([I], stage -> [I]): every step of an iteration carries the iteration's times; each is taken once."""
    iterations, first = np.unique(steps.iteration_U, return_index=True)
    return iterations, {stage: seconds[first] for stage, seconds in steps.stages.items()}


def _went(stages: Mapping[str, Floats], events: Sequence[Mapping[str, Any]], wall_s: float) -> tuple[Part, ...]:
    found = [("start-up", _start_s(events), "actors, models and checks before the first evaluation or iteration")]
    notes = {
        "rollout": "drawing images; scoring runs beside it",
        "rewards": "scoring that was left after the last image was drawn",
        "learner": "gradients, solves and optimizer steps",
        "probe": "measuring conflicts, learner.probe_every",
        "sync": "new weights to the rollout actors",
        "other": "ledger, metrics and bookkeeping",
    }
    found += [(stage, float(np.nansum(stages[stage])), notes[stage]) for stage in STAGES if stage in stages]
    evaluations = [_seconds(event, "seconds") for event in events if event.get("event") == "evaluation"]
    found.append(("evaluation", float(np.nansum(evaluations)), f"{len(evaluations)} on held-out prompts"))
    rest = wall_s - sum(seconds for _, seconds, _ in found)
    found.append(("rest", max(rest, 0.0), "checkpoints, and what no stage counts"))
    return tuple(_part(what, seconds, wall_s, note) for what, seconds, note in found)


def _lost(
    iterations: Ints, stages: Mapping[str, Floats], events: Sequence[Mapping[str, Any]], wall_s: float
) -> tuple[Part, ...]:
    found = []
    if "learner_wait" in stages:
        idle = float(np.nansum(stages["learner_wait"]))
        note = "it had nothing to do; controller.max_staleness: 1 lets it work while images are drawn"
        found.append(_part("learner idle", idle, wall_s, note))
    if "rewards" in stages:
        late, note = float(np.nansum(stages["rewards"])), "images drawn, scores missing: more replicas of a pool"
        found.append(_part("waiting for scores", late, wall_s, note))
    if "total" in stages and np.isfinite(stages["total"]).any():
        measuring = np.nan_to_num(stages.get("probe", np.zeros(len(iterations))))
        seconds, slow = slow_iterations(stages["total"] - measuring)
        names = ", ".join(str(number + 1) for number in iterations[slow][:6]) + (", …" if slow.sum() > 6 else "")
        note = f"time beyond the median in iterations {names}" if slow.any() else f"none above {SLOW} times the median"
        found.append(_part("slow iterations", seconds, wall_s, note))
    down, restarts = downtime(events)
    if restarts:
        note = f"between {restarts} stops and restarts; not part of the wall time"
        found.append(_part("stopped", down, wall_s, note))
    return tuple(found)


def slow_iterations(total_I: Floats) -> tuple[float, "np.ndarray[Any, np.dtype[np.bool_]]"]:
    """Seconds beyond the median in iterations that took more than SLOW times as long, and which these are."""
    median = float(np.nanmedian(total_I))
    slow = np.nan_to_num(total_I, nan=0.0) > SLOW * median
    return float((total_I[slow] - median).sum()), slow


def downtime(events: Sequence[Mapping[str, Any]]) -> tuple[float, int]:
    """Clock time between the last event before each restart and the restart, and the number of restarts."""
    gaps = [
        _seconds(event, "time") - _seconds(previous, "time")
        for previous, event in pairwise(events)
        if event.get("event") == "resume"
    ]
    return float(np.nansum([max(gap, 0.0) for gap in gaps])), len(gaps)


def _start_s(events: Sequence[Mapping[str, Any]]) -> float:
    """Time before the first event began; 0 where it is not known."""
    if not events:
        return 0.0
    first = events[0]
    own = _seconds(first, "seconds") if first.get("event") == "evaluation" else _total(first)
    start = _seconds(first, "elapsed_s") - own
    return max(start, 0.0) if np.isfinite(start) else 0.0


def _total(event: Mapping[str, Any]) -> float:
    timings = event.get("timings_s")
    return _seconds(timings, "total") if isinstance(timings, Mapping) else float("nan")


def _seconds(data: Mapping[str, Any], key: str) -> float:
    """A number of a file that anyone may have written; NaN where it is none."""
    value = data.get(key)
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MAX_SECONDS:
        return float("nan")
    return float(value)


def _part(what: str, seconds: float, wall_s: float, note: str) -> Part:
    return Part(what, seconds, seconds / wall_s if wall_s > 0 else float("nan"), note)
