"""metrics.jsonl: one JSON line per event of a run, in order, without gaps and without falling numbers.

Events: `iteration`, `evaluation`, `checkpoint`, `resized` (a pool), `reward_hacking` (an alarm), `vitals` (after the
last iteration), and `resume`, which marks a restart. A resumed run first drops the lines of what it will do again. What
is not known is null.
"""

import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from actors.files import write_atomically
from actors.results import ActorVitals, Alarm, EvaluationResult, IterationResult
from actors.scaling import Resized
from learner import json_text
from learner.errors import UserError
from learner.types import StepRecord

HACKING = "reward_hacking"
COSINES = ("worst_cosine", "negative_fraction", "sum_worst_cosine", "sum_negative_fraction")
"""Of the applied direction, and of the plain sum of gradients (harmonizer.report.SolveReport)."""


class MetricsLog:
    """Appends to `<run>/metrics.jsonl`."""

    def __init__(self, run_dir: Path) -> None:
        self._path = run_dir / "metrics.jsonl"

    def iteration(self, result: IterationResult, elapsed_s: float) -> None:
        """One line per iteration; `iteration` counts from 0, `done` from 1."""
        last = result.report.steps[-1] if result.report.steps else None
        self._append(
            {
                "event": "iteration",
                "iteration": result.iteration,
                "done": result.done,
                "rewards": dict(result.reward_means),
                "counts": {name: vars(counts) for name, counts in result.reward_counts.items()},
                "alpha": dict(result.ema_alpha),
                "applied": result.report.applied,
                "policy_version": result.report.policy_version,
                "eta": result.report.eta,
                "step": None if last is None else _step(last),
                "timings_s": dict(result.timings_s),
                "learner_timings_s": dict(result.report.timings_s),
                "images_per_s": result.images_per_s,
                "controller_bytes": result.controller_bytes,
                "elapsed_s": elapsed_s,
            }
        )

    def evaluation(self, result: EvaluationResult, elapsed_s: float) -> None:
        """One line per evaluation."""
        self._append(
            {
                "event": "evaluation",
                "done": result.iteration,
                "which": result.which,
                "means": result.means,
                "n": result.n,
                "failed": result.failed,
                "seconds": result.seconds,
                "elapsed_s": elapsed_s,
            }
        )

    def checkpoint(self, iterations_done: int, name: str, elapsed_s: float) -> None:
        """One line per checkpoint."""
        self._append({"event": "checkpoint", "done": iterations_done, "name": name, "elapsed_s": elapsed_s})

    def vitals(self, actors: Sequence[ActorVitals], iterations_done: int, elapsed_s: float) -> None:
        """What every actor says of itself once training is over, peak memory above all; of this life of the run."""
        said = [vars(vitals) for vitals in actors]
        self._append({"event": "vitals", "done": iterations_done, "actors": said, "elapsed_s": elapsed_s})

    def hacking(self, alarm: Alarm, elapsed_s: float) -> None:
        """One line per alarm; `fall` in the reward's own units, `rise` in standard deviations of the base's scores."""
        self._append(
            {
                "event": HACKING,
                "done": alarm.done,
                "reward": alarm.reward,
                "since": alarm.since,
                "fall": vars(alarm.fall),
                "rise": vars(alarm.rise),
                "elapsed_s": elapsed_s,
            }
        )

    def resized(self, change: Resized, why: str, iterations_done: int, elapsed_s: float) -> None:
        """One line per change of a pool's size; `why` is request or autoscale."""
        event = {"event": "resized", "done": iterations_done, **vars(change), "why": why, "elapsed_s": elapsed_s}
        self._append(event)

    def resume(self, iterations_done: int) -> float:
        """Drops what comes after the checkpoint, marks the restart, returns the seconds the run had taken so far.

        Raises:
            UserError: as :meth:`read`; nothing is rewritten then.
        """
        lines = [line for line in self.read() if line["done"] <= iterations_done]
        elapsed_s = max((float(line["elapsed_s"]) for line in lines), default=0.0)
        text = "".join(_dumps(line) for line in lines)
        write_atomically(self._path, lambda temporary: temporary.write_text(text, encoding="utf-8"))
        self._append({"event": "resume", "done": iterations_done, "elapsed_s": elapsed_s})
        return elapsed_s

    def read(self) -> list[dict[str, Any]]:
        """Lines of an earlier life. The last one may be half written, as a crash leaves it; it is then no line.

        Raises:
            UserError: any other line is no event of a run; names it.
        """
        if not self._path.is_file():
            return []
        # str.splitlines would also break within texts (U+2028).
        lines = [(n, line) for n, line in enumerate(self._path.read_bytes().split(b"\n"), start=1) if line.strip()]
        events: list[dict[str, Any]] = []
        for number, line in lines:
            try:
                event = json_text.parse(line)
            except ValueError as error:
                if number == lines[-1][0]:
                    break
                problem = f"not JSON ({error})"
            else:
                problem = _problem(event)
                events.append(event)
            if problem:
                raise UserError(
                    f"{self._path}, line {number}: {problem}; resuming keeps what an earlier life of the run has "
                    "noted, so mend or remove that line first"
                )
        return events

    def _append(self, event: Mapping[str, Any]) -> None:
        with self._path.open("a", encoding="utf-8") as file:
            file.write(_dumps({**event, "time": time.time()} if "time" not in event else event))


def _problem(event: Any) -> str:
    """Why a JSON value is no event of a run; empty where it is one."""
    if not isinstance(event, dict):
        return f"expected a JSON object, got {type(event).__name__}"
    done, elapsed_s = event.get("done"), event.get("elapsed_s")
    if type(done) is not int:
        return f"`done` must be a count of iterations, got {done!r}"
    if isinstance(elapsed_s, bool) or not isinstance(elapsed_s, int | float) or not math.isfinite(elapsed_s):
        return f"`elapsed_s` must be seconds, got {elapsed_s!r}"
    return ""


def _step(step: StepRecord) -> dict[str, Any]:
    """The last step's numbers, as far as they are one each."""
    return {
        "step": step.step,
        "solved": step.solved,
        "applied": step.applied,
        "skip_reason": step.skip_reason,
        "loss": step.loss,
        "kl": step.kl,
        "kl_cosine": step.kl_cosine,
        "kl_share": step.kl_share,
        "grad_norm": step.grad_norm,
        "mean_norm": step.mean_norm,
        "solve_reason": step.solve_reason,
        **{name: getattr(step.solution.report, name) if step.solution else math.nan for name in COSINES},
    }


def _dumps(event: Mapping[str, Any]) -> str:
    return json.dumps(_finite(event), ensure_ascii=False, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for both."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    return value
