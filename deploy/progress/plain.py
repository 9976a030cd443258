"""One line per event, for logs, pipes and `ray job submit`."""

import sys
import time
from pathlib import Path
from typing import TextIO

from actors.results import EvaluationResult, IterationResult
from actors.run_config import RunConfig
from deploy.progress.view import RunView, duration, number, total_seconds

STAGE_INTERVAL_S = 30.0
"""Seconds of silence after which a stage that moves on is told again, so that a log never looks dead."""


class PlainListener:
    """Prints a line per iteration, evaluation and checkpoint."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._view = RunView()
        self._stages: set[str] = set()
        self._last_line = time.monotonic()

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """Say what was started."""
        self._view.start(config, baseline)
        self._print(
            f"run {config.run.name}: {config.run.iterations} iterations of {config.num_samples} images, "
            f"rewards {', '.join(config.reward_names)}"
            + (f"; held out {', '.join(config.heldout_rewards)}" if config.heldout_rewards else "")
        )

    def on_stage(self, stage: str, detail: str) -> None:
        """Each stage when it is first seen, later only to break a long silence."""
        silent = time.monotonic() - self._last_line >= STAGE_INTERVAL_S
        if stage not in self._stages or silent:
            self._stages.add(stage)
            self._print(f"{stage}: {detail}" if detail else stage)

    def on_iteration(self, result: IterationResult) -> None:
        """Numbers of one iteration."""
        view = self._view
        view.iteration(result)
        parts = [
            f"iteration {result.done}/{result.num_iterations}",
            f"{total_seconds(result):.1f} s",
            f"{number(result.images_per_s, 1)} images/s",
            f"left {duration(view.seconds_left)}",
        ]
        for name, value in result.reward_means.items():
            change = number(value - view.trends[name].start, sign=True)
            failed = result.reward_counts[name].failed if name in result.reward_counts else 0
            parts.append(
                f"{name} {number(value)} ({change}) α {number(result.ema_alpha.get(name, 0.0), 2)}"
                + (f" FAILED {failed}" if failed else "")
            )
        if view.step is not None:
            parts += [
                f"step norm {number(view.step.grad_norm)}",
                f"worst cosine {number(view.worst_cosine, sign=True)}",
            ]
            if not view.step.applied:
                parts.append(f"no step: {view.step.skip_reason}")
        self._print(" | ".join(parts))

    def on_evaluation(self, result: EvaluationResult) -> None:
        """Held-out means, with the change since the base."""
        self._view.evaluated(result)
        before = self._view.baseline.means if self._view.baseline and result.which != "before" else {}
        parts = [
            f"{name} {number(value)}" + (f" ({number(value - before[name], sign=True)})" if name in before else "")
            for name, value in result.means.items()
        ]
        label = "of the base" if result.which == "before" else f"after {result.iteration} iterations"
        self._print(f"evaluation {label} ({duration(result.seconds)}): " + " | ".join(parts))

    def on_checkpoint(self, path: Path) -> None:
        """Where it lies."""
        self._print(f"checkpoint {path}")

    def on_warning(self, text: str) -> None:
        """As it is."""
        self._print(f"warning: {text}")

    def close(self) -> None:
        """Nothing to put away."""

    def _print(self, line: str) -> None:
        self._last_line = time.monotonic()
        # Looked up late: tests and rich put another stream in place of stdout.
        print(line, file=self._stream or sys.stdout, flush=True)
