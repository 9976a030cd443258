"""Several listeners as one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from actors.results import EvaluationResult, IterationResult, Listener
from actors.run_config import RunConfig


class ClosableListener(Listener, Protocol):
    """A listener with something to put away at the end, also of a run that failed."""

    def close(self) -> None: ...


class Fanout:
    """Passes every event on, in order."""

    def __init__(self, listeners: Sequence[ClosableListener]) -> None:
        self._listeners = tuple(listeners)

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        for listener in self._listeners:
            listener.on_start(config, baseline)

    def on_stage(self, stage: str, detail: str) -> None:
        for listener in self._listeners:
            listener.on_stage(stage, detail)

    def on_iteration(self, result: IterationResult) -> None:
        for listener in self._listeners:
            listener.on_iteration(result)

    def on_evaluation(self, result: EvaluationResult) -> None:
        for listener in self._listeners:
            listener.on_evaluation(result)

    def on_checkpoint(self, path: Path) -> None:
        for listener in self._listeners:
            listener.on_checkpoint(path)

    def on_warning(self, text: str) -> None:
        for listener in self._listeners:
            listener.on_warning(text)

    def close(self) -> None:
        """Close all, the last first."""
        for listener in reversed(self._listeners):
            listener.close()
