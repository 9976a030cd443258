"""The training loop every stage shares: a checkpoint each minute, exact resume, a progress line."""

import os
import time
from pathlib import Path
from typing import Any, Final, Protocol

import numpy as np
import torch
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

WORK: Final = Path(__file__).parent / "work"
"""Pools, cached latents and checkpoints; not part of the repository."""
CHECKPOINT_SECONDS: Final = 60.0
LINE_SECONDS: Final = 20.0
"""Time between plain progress lines where the output is no terminal."""


class Stage(Protocol):
    """One trained thing. A step may draw randomness only from the generator it is given."""

    name: str
    steps: int

    def step(self, index: int, rng: np.random.Generator) -> float:
        """Do optimizer step ``index`` and return its loss."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything a later step depends on."""
        ...

    def load(self, state: dict[str, Any]) -> None:
        """Restore what ``state`` gave."""
        ...

    def finish(self) -> None:
        """Write the final weights."""
        ...


def train(stage: Stage, seed: int, work: Path) -> None:
    """Run a stage from its last checkpoint to its end and write its weights.

    Randomness of a step comes from (seed, stage, step), so a resumed run repeats an uninterrupted one.

    Raises:
        ValueError: no steps are asked for, or fewer than the checkpoint has; nothing is written.
        FloatingPointError: the loss is not finite; the last checkpoint stays.
    """
    if stage.steps < 1:
        raise ValueError(f"stage {stage.name}: steps must be at least 1, got {stage.steps}")
    work.mkdir(parents=True, exist_ok=True)
    path = work / f"{stage.name}.pt"
    start = _resume(stage, path)
    if start > stage.steps:
        raise ValueError(f"stage {stage.name}: {path} is at step {start} already, beyond the {stage.steps} asked for")
    saved = time.monotonic()
    with _Reporter(stage.name, start, stage.steps) as reporter:
        for index in range(start, stage.steps):
            rng = np.random.default_rng((seed, *stage.name.encode(), index))
            torch.manual_seed(int(rng.integers(2**62)))
            loss = stage.step(index, rng)
            if not np.isfinite(loss):
                raise FloatingPointError(f"stage {stage.name}: loss is {loss} at step {index}")
            reporter.update(index + 1, loss)
            if time.monotonic() - saved > CHECKPOINT_SECONDS or index + 1 == stage.steps:
                save_atomic({"step": index + 1, "stage": stage.state()}, path)
                saved = time.monotonic()
    stage.finish()


def save_atomic(state: dict[str, Any], path: Path) -> None:
    """Write a checkpoint beside the old one, then put it in its place."""
    partial = path.with_suffix(".partial")
    torch.save(state, partial)
    os.replace(partial, path)


def _resume(stage: Stage, path: Path) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    stage.load(state["stage"])
    return int(state["step"])


def warmup_cosine(index: int, steps: int, warmup: int = 100, floor: float = 0.03) -> float:
    """Learning-rate factor: linear rise over ``warmup`` steps, then half a cosine down to ``floor``."""
    if index < warmup:
        return (index + 1) / warmup
    progress = (index - warmup) / max(1, steps - warmup)
    return floor + (1 - floor) * 0.5 * (1 + float(np.cos(np.pi * min(1.0, progress))))


def set_lr(optimizer: torch.optim.Optimizer, lr: float) -> None:
    """Give every parameter group the same learning rate."""
    for group in optimizer.param_groups:
        group["lr"] = lr


class _Reporter:
    """A bar on a terminal, a plain line every few seconds elsewhere. Shows a running mean of the loss."""

    def __init__(self, name: str, start: int, steps: int) -> None:
        self.name, self.start, self.steps = name, start, steps
        self.console = Console()
        self.loss: float | None = None
        self.began = self.printed = time.monotonic()
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self.bar = Progress(*columns, console=self.console, disable=not self.console.is_terminal)
        self.task = self.bar.add_task(name, total=steps, completed=start)

    def __enter__(self) -> "_Reporter":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, done: int, loss: float) -> None:
        self.loss = loss if self.loss is None else 0.98 * self.loss + 0.02 * loss
        self.bar.update(self.task, completed=done, description=f"{self.name} loss {self.loss:.4f}")
        now = time.monotonic()
        if not self.console.is_terminal and (now - self.printed > LINE_SECONDS or done == self.steps):
            per_step = (now - self.began) / (done - self.start)
            left = per_step * (self.steps - done) / 60
            line = f"{self.name} {done}/{self.steps} loss {self.loss:.4f} {per_step:.3f} s/step {left:.1f} min left"
            print(line, flush=True)
            self.printed = now
