"""A run directory: where it is, whether a new or a resumed run may use it, and the files this room keeps in it."""

import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import ProblemsError, one_line
from deploy.files import write_text
from deploy.invocation import option
from deploy.recipe import Recipe, differences, load_resolved, show, to_yaml
from learner.errors import UserError

log = logging.getLogger(__name__)

RUNS_VARIABLE = "MARBLE_RUNS"
"""Environment variable that names the folder of all runs."""
# A job's copy of the working directory is Ray's to throw away, and has another name after every change of the code.
_RAY_PACKAGE_MARK = "runtime_resources/working_dir_files"
JOB_RUNS = Path("~/marble/runs")
GROWING_KEY = "run.iterations"
"""The one number of a recipe that a resumed run may change, upwards."""
LIFTED_KEY = "eval.early_stop"
"""What a resumed run may do without, to go on where it had stopped."""


@dataclass(frozen=True)
class RunDir:
    """Names of what lies in a run directory."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved recipe."""
        return self.path / "config.yaml"

    @property
    def checkpoints(self) -> Path:
        """One folder per checkpoint, named by iterations done."""
        return self.path / "checkpoints"

    @property
    def samples(self) -> Path:
        """Held-out pictures."""
        return self.path / "samples"

    @property
    def summary(self) -> Path:
        """Written at the end."""
        return self.path / "summary.json"

    @property
    def metrics(self) -> Path:
        """One JSON line per iteration and evaluation."""
        return self.path / "metrics.jsonl"

    @property
    def launches(self) -> Path:
        """One JSON line per start of the run: settings and versions."""
        return self.path / "launches.jsonl"

    @property
    def tensorboard(self) -> Path:
        """Event files."""
        return self.path / "tensorboard"


def runs_root() -> Path:
    """Folder in which runs lie unless --run-dir says otherwise."""
    named = os.environ.get(RUNS_VARIABLE)
    if named:
        return expanded(Path(named), RUNS_VARIABLE).absolute()
    here = Path.cwd()
    return JOB_RUNS.expanduser() if _RAY_PACKAGE_MARK in here.as_posix() else here / "runs"


def run_dir_for(recipe: Recipe, given: Path | None) -> RunDir:
    """The directory of a run."""
    return RunDir((expanded(given, "--run-dir") if given else runs_root() / recipe.config.run.name).absolute())


def expanded(path: Path, what: str) -> Path:
    """The path with ~ replaced.

    Raises:
        UserError: ~name of a user this machine does not know; `what` says where it was given.
    """
    try:
        return path.expanduser()
    except RuntimeError as error:
        raise UserError(f"{what} {path}: {one_line(str(error)).rstrip('.').lower()}") from error


def require_new(run_dir: RunDir) -> None:
    """Refuse a directory that is there.

    Raises:
        UserError: there is something; nothing was touched.
    """
    if os.path.lexists(run_dir.path):
        go_on, elsewhere = option("--resume"), option("--run-dir FOLDER")
        raise UserError(f"{run_dir.path} exists; continue it with {go_on}, or choose another place with {elsewhere}")
    require_writable(run_dir.path)


def require_writable(path: Path) -> None:
    """Refuse a place where nothing can be made.

    Raises:
        UserError: what is there of its parents is no folder, or one that cannot be written to.
        OSError: a name is too long.
    """
    parent = next(p for p in path.absolute().parents if p.exists())
    if not parent.is_dir() or not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(f"{path}: {parent} is not a folder that can be written to")
    path.exists()  # raises where a name is too long


def require_resumable(run_dir: RunDir, recipe: Recipe) -> Path:
    """The checkpoint that a resumed run starts from.

    Raises:
        UserError: no such run, no whole checkpoint, or a recipe other than the one it was started with.
    """
    if not run_dir.path.is_dir():
        raise UserError(f"nothing to resume: {run_dir.path} does not exist")
    if not run_dir.config.is_file():
        raise UserError(f"nothing to resume: {run_dir.path} has no config.yaml, so it is not a run directory")
    changed = changes(load_resolved(run_dir.config), recipe)
    if changed:
        raise ProblemsError([f"{run_dir.path} was started with another recipe: {line}" for line in changed])
    # The torn ones that are passed over are the controller's to tell: it looks again.
    return _newest_checkpoint(run_dir, "nothing to resume: ")[0]


def changes(started: Recipe, now: Recipe) -> list[str]:
    """One line for each key in which a resumed run's recipe differs from the one it was started with."""
    lines = []
    for key, old, new in differences(started.resolved, now.resolved):
        if key == GROWING_KEY:
            if new < old:
                lines.append(f"{key} may only grow, was {old}, got {new}")
        elif key != LIFTED_KEY or new is not None:
            lines.append(f"{key} was {show(old)}, got {show(new)}")
    return lines


def last_checkpoint(run_dir: RunDir) -> Path:
    """The newest whole checkpoint; torn ones are passed over with a warning each.

    Raises:
        UserError: there is none; one line, which says what is wrong with the newest where there is one.
    """
    path, torn = _newest_checkpoint(run_dir)
    for problem in torn:
        log.warning("%s; it is passed over", problem)
    return path


def _newest_checkpoint(run_dir: RunDir, refusal: str = "") -> tuple[Path, tuple[str, ...]]:
    """The newest whole checkpoint and what is wrong with newer ones; `refusal` goes before the error's text."""
    # Not at the top: it loads torch.
    from learner import checkpoint

    path, torn = checkpoint.find(run_dir.checkpoints)
    if path is not None:
        return path, torn
    if not torn:
        raise UserError(f"{refusal}{run_dir.path} has no checkpoint yet")
    raise UserError(f"{refusal}no whole checkpoint in {run_dir.checkpoints}: {torn[0]}")


class Started:
    """Whether a run got as far as its first step; until then nothing of it is worth keeping."""

    def __init__(self) -> None:
        self.value = False


@contextmanager
def created(run_dir: RunDir, recipe: Recipe) -> Iterator[Started]:
    """A new run directory with its config.yaml, gone again if the run fails before it really started.

    Raises:
        UserError: somebody made the directory in the meantime, or it cannot be made.
    """
    made = _missing_parents(run_dir.path)
    try:
        run_dir.path.parent.mkdir(parents=True, exist_ok=True)
        run_dir.path.mkdir()
    except FileExistsError:
        raise UserError(f"{run_dir.path} exists; another run was started there at this moment") from None
    except OSError as error:
        raise UserError(f"{run_dir.path}: {(error.strerror or str(error)).lower()}") from error
    started = Started()
    try:
        write_text(run_dir.config, to_yaml(recipe))
        yield started
    except BaseException:
        if not started.value:
            shutil.rmtree(run_dir.path, ignore_errors=True)
            for folder in made:
                _remove_if_empty(folder)
        raise


def _missing_parents(path: Path) -> list[Path]:
    """Parents that are not there yet, the deepest first."""
    return [parent for parent in path.parents if not parent.exists()]


def _remove_if_empty(folder: Path) -> None:
    try:
        folder.rmdir()
    except OSError:
        return  # somebody else's by now


@contextmanager
def resumed(run_dir: RunDir, recipe: Recipe) -> Iterator[Started]:
    """A run directory taken up again; config.yaml takes the grown number of iterations once the run has started."""
    started = Started()
    try:
        yield started
    finally:
        if started.value and run_dir.config.read_text(encoding="utf-8") != to_yaml(recipe):
            write_text(run_dir.config, to_yaml(recipe))


def load_run(path: Path) -> tuple[RunDir, Recipe]:
    """A run directory that exists, with its recipe.

    Raises:
        UserError: it is none.
    """
    run_dir = RunDir(path.absolute())
    if not run_dir.config.is_file():
        raise UserError(f"{path} is not a run directory (no config.yaml)")
    return run_dir, load_resolved(run_dir.config)
