"""Scalars for TensorBoard. Uses tensorboard's own event writer: the driver has no need of torch."""

import math
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from actors.results import EvaluationResult, IterationResult
from actors.run_config import RunConfig
from deploy.progress.view import last_worst_cosine


class TensorBoardListener:
    """Writes event files under a run directory."""

    def __init__(self, folder: Path, resumed_at: int | None = None) -> None:
        """Nothing is written before the run is up.

        Args:
            folder: where the event files lie.
            resumed_at: iterations done at the checkpoint a run is taken up from; what was written beyond it is
                dropped from the curves, as it happens again.
        """
        self._folder, self._resumed_at = folder, resumed_at
        # By name: tensorboard ships without types.
        self._events = import_module("tensorboard.compat.proto.event_pb2")
        self._summaries = import_module("tensorboard.compat.proto.summary_pb2")
        self._writer: Any = None

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """Open an event file. Not earlier: until then the run directory may be another process's."""
        writer = import_module("tensorboard.summary.writer.event_file_writer")
        self._writer = writer.EventFileWriter(str(self._folder))
        if self._resumed_at is not None:
            session = self._events.SessionLog
            start = session(status=session.START)
            step = self._resumed_at + 1
            self._writer.add_event(self._events.Event(wall_time=time.time(), step=step, session_log=start))

    def on_stage(self, stage: str, detail: str) -> None:
        """Not drawn."""

    def on_iteration(self, result: IterationResult) -> None:
        """One point on every curve, at iterations done."""
        self._add(iteration_scalars(result), result.done)

    def on_evaluation(self, result: EvaluationResult) -> None:
        """Held-out means; a point that an earlier life of the run has drawn stays as it is."""
        if result.iteration < (self._resumed_at or 0):
            return
        self._add(((f"heldout/{name}", value) for name, value in result.means.items()), result.iteration)
        self._writer.flush()

    def on_checkpoint(self, path: Path) -> None:
        """A checkpoint's curves are on disk with it."""
        self._writer.flush()

    def on_warning(self, text: str) -> None:
        """Not drawn."""

    def close(self) -> None:
        """Write out what is left."""
        if self._writer is not None:
            self._writer.close()

    def _add(self, scalars: Iterator[tuple[str, float]], step: int) -> None:
        summary = self._summaries.Summary
        values = [summary.Value(tag=tag, simple_value=value) for tag, value in scalars if math.isfinite(value)]
        if values:
            event = self._events.Event(wall_time=time.time(), step=step, summary=summary(value=values))
            self._writer.add_event(event)


def iteration_scalars(result: IterationResult) -> Iterator[tuple[str, float]]:
    """(tag, value) of one iteration; NaN where nothing is known."""
    for name, value in result.reward_means.items():
        yield f"train/{name}", value
    for name, counts in result.reward_counts.items():
        yield f"failed_share/{name}", counts.failed_share
    for name, value in result.ema_alpha.items():
        yield f"alpha/{name}", value
    steps = result.report.steps
    if steps:
        yield "step/grad_norm", _mean([step.grad_norm for step in steps])
        yield "step/mean_reward_norm", _mean([step.mean_norm for step in steps])
        yield "step/kl", _mean([step.kl for step in steps])
        yield "step/kl_share", _mean([step.kl_share for step in steps])
        yield "step/loss", _mean([step.loss for step in steps])
        yield "step/skipped", float(sum(not step.applied for step in steps))
    yield "step/worst_cosine", last_worst_cosine(result)
    yield from _solve_scalars(result)
    yield "step/eta", result.report.eta
    for stage, seconds in result.timings_s.items():
        yield f"seconds/{stage}", seconds
    yield "speed/images_per_s", result.images_per_s
    yield "speed/controller_kib", result.controller_bytes / 1024


def _solve_scalars(result: IterationResult) -> Iterator[tuple[str, float]]:
    """Gradient norm and cosine with the applied direction per reward, at the iteration's last solve."""
    solved = [step.solution for step in result.report.steps if step.solution is not None]
    if solved:
        for k, name in enumerate(result.reward_means):
            yield f"gradient_norm/{name}", float(solved[-1].norms_K[k])
            yield f"cosine/{name}", float(solved[-1].report.cosines_K[k])


def _mean(values: list[float]) -> float:
    known = [value for value in values if math.isfinite(value)]
    return sum(known) / len(known) if known else math.nan
