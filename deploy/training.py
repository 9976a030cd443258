"""A training run as a command: its directory, its displays, and what is said at its end.

The controller trains; here is everything around it that a person or a script sees.
"""

import json
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from rich.console import Console

from actors.controller import Controller
from actors.preflight import check_files
from actors.results import EvaluationResult, IterationResult, RunSummary
from actors.run_config import RunConfig
from actors.stop import RunStopped
from deploy import summary as summaries
from deploy.errors import EXIT_INTERRUPTED, EXIT_TERMINATED
from deploy.files import to_json, write_json
from deploy.progress.fanout import ClosableListener, Fanout
from deploy.progress.live import LiveListener
from deploy.progress.pictures import GRID, PictureListener
from deploy.progress.plain import PlainListener
from deploy.progress.tensorboard import TensorBoardListener
from deploy.recipe import Recipe
from deploy.record import launch_record
from deploy.rundir import RunDir, Started, created, resumed

SIGNAL_BASE = 128
"""A process ended by signal n has exit code 128 + n, as shells count it."""


@dataclass(frozen=True)
class Order:
    """What the command line asked for, checked."""

    recipe: Recipe
    run_dir: RunDir
    checkpoint: Path | None
    """What a resumed run starts from; None for a new run."""
    address: str | None
    as_json: bool
    resume_command: str
    """What to type to go on after a stop."""


def train_run(order: Order) -> int:
    """Train, and print the table of before and after; returns the exit code."""
    # The controller looks again; here a broken prompt file is told before anything is written or ray is started.
    check_files(order.recipe.config)
    say = sys.stderr if order.as_json else sys.stdout
    print(f"run directory {order.run_dir.path}", file=say, flush=True)
    try:
        with _sigterm_unwinds(), _directory(order) as started:
            summary = _controlled(order, started)
            write_json(order.run_dir.summary, summaries.to_data(summary))
    except RunStopped as stopped:
        _print_stopped(order, str(stopped).split(";")[0], stopped.checkpoint is not None)
        return SIGNAL_BASE + stopped.signal_number
    except KeyboardInterrupt:
        # Before the controller took over the signals, or the second Ctrl-C.
        _print_stopped(order, "interrupted", _has_checkpoint(order.run_dir))
        return EXIT_INTERRUPTED
    _print_end(order, summary)
    return 0


def _controlled(order: Order, started: Started) -> RunSummary:
    config, run_dir = order.recipe.config, order.run_dir
    listener = Fanout(_listeners(order, started))
    try:
        resume = order.checkpoint is not None
        with Controller(config, run_dir.path, listener, resume=resume, address=order.address) as controller:
            return controller.run()
    finally:
        listener.close()


def _directory(order: Order) -> AbstractContextManager[Started]:
    keep = created if order.checkpoint is None else resumed
    return keep(order.run_dir, order.recipe)


def _listeners(order: Order, started: Started) -> list[ClosableListener]:
    """Files first: they are written even when the terminal goes away."""
    run_dir = order.run_dir
    listeners: list[ClosableListener] = [_Starter(order, started), PictureListener(run_dir.samples)]
    if order.recipe.config.run.tensorboard:
        resumed_at = int(order.checkpoint.name) if order.checkpoint else None
        listeners.append(TensorBoardListener(run_dir.tensorboard, resumed_at))
    console = Console()
    if order.as_json:
        listeners.append(PlainListener(sys.stderr))
    elif console.is_terminal and not console.is_dumb_terminal:
        listeners.append(LiveListener(console, run_dir.path))
    else:
        listeners.append(PlainListener())
    return listeners


class _Starter:
    """Records each start, and notes when there is something worth keeping: until the first iteration there is not."""

    def __init__(self, order: Order, started: Started) -> None:
        self._order, self._started = order, started

    def on_start(self, config: RunConfig, baseline: EvaluationResult | None) -> None:
        """Actors are up: what they run on goes on record."""
        checkpoint = self._order.checkpoint
        record = launch_record(config, int(checkpoint.name) if checkpoint else None)
        with self._order.run_dir.launches.open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")

    def on_stage(self, stage: str, detail: str) -> None:
        """Nothing to note."""

    def on_iteration(self, result: IterationResult) -> None:
        """There is a ledger now."""
        self._started.value = True

    def on_evaluation(self, result: EvaluationResult) -> None:
        """Of the base: cheap to do again."""

    def on_checkpoint(self, path: Path) -> None:
        """There is something to resume from."""
        self._started.value = True

    def on_warning(self, text: str) -> None:
        """Nothing to note."""

    def close(self) -> None:
        """Nothing to put away."""


@contextmanager
def _sigterm_unwinds() -> Iterator[None]:
    """SIGTERM before the controller handles it (ray is slow to load) cleans up as any exception does."""

    def leave(number: int, frame: FrameType | None) -> None:
        sys.exit(EXIT_TERMINATED)

    former = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, former)


def _has_checkpoint(run_dir: RunDir) -> bool:
    return any(run_dir.checkpoints.glob("[0-9]*/manifest.json"))


def _print_stopped(order: Order, what: str, resumable: bool) -> None:
    path = order.run_dir.path
    if resumable:
        hint = f"go on with: {order.resume_command}"
    elif path.exists():
        hint = f"no checkpoint yet; remove {path} to start it anew"
    else:
        hint = "nothing was trained, nothing is left behind"
    print(f"{what}; {hint}", file=sys.stderr)


def _print_end(order: Order, summary: RunSummary) -> None:
    if order.as_json:
        print(to_json({**summaries.to_data(summary), "run_dir": str(order.run_dir.path)}))
        return
    run_dir = order.run_dir
    console = Console()
    if summary.stopped_early:
        console.print(f"\nstopped early: {summary.stopped_early}")
    console.print(f"\n{summary.iterations} iterations in {summary.seconds / 60:.1f} minutes; held-out prompts:")
    console.print(summaries.table(summary.rewards, heldout=summary.heldout_rewards))
    # Paths are printed whole: rich would break them, and they are there to be copied.
    for name, path in (
        ("pictures", run_dir.samples / GRID),
        ("LoRA", run_dir.checkpoints / f"{summary.iterations:06d}" / "lora"),
        ("curves", run_dir.tensorboard),
    ):
        if path.exists():
            print(f"{name:<9} {path}")
