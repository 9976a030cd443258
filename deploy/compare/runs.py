"""One run of a comparison: what it is made from, and how far it is."""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from actors.lock import NAME, owner_of
from deploy import strict_yaml
from deploy.compare.methods import Data
from deploy.files import write_text
from deploy.recipe import Recipe, differences, load_recipe, load_resolved, show
from deploy.rundir import RunDir
from learner.errors import UserError

Standing = Literal["new", "stopped", "alive", "done"]
YOUNG_S = 60.0
"""A run's folder is there before its lock is: one without a lock that is younger belongs to a run that just starts."""


@dataclass(frozen=True)
class RunSpec:
    """A training run to be made."""

    name: str
    recipe_file: Path
    run_dir: RunDir
    recipe: Recipe

    @property
    def arguments(self) -> list[str]:
        """Of `marble`, for a new run."""
        return ["train", str(self.recipe_file), "--run-dir", str(self.run_dir.path)]


def make_spec(folder: Path, name: str, data: Data) -> RunSpec:
    """A run below a folder; its recipe is written beside it.

    Raises:
        UserError: the recipe is wrong, or another run lies in the place.
    """
    path = folder / "recipes" / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, strict_yaml.dump(data))
    spec = RunSpec(name, path, RunDir(folder / name), load_recipe(path))
    if spec.run_dir.config.is_file():
        changed = differences(load_resolved(spec.run_dir.config).resolved, spec.recipe.resolved)
        told = [f"{key} was {show(old)}, is now {show(new)}" for key, old, new in changed]
        if told:
            raise UserError(f"{spec.run_dir.path} holds a run of another recipe: {'; '.join(told)}; remove it")
    return spec


def standing(spec: RunSpec) -> Standing:
    """How far a run is. Only looks: a run that may be somebody else's, on this machine or another, is alive."""
    run_dir = spec.run_dir
    if not run_dir.path.is_dir():
        return "new"
    owner = owner_of(run_dir.path)
    if owner is not None and owner.alive is not False:
        return "alive"
    if summary(run_dir) is not None:
        return "done"
    if any(run_dir.checkpoints.glob("[0-9]*/manifest.json")):
        return "stopped"
    return "alive" if owner is None and _age_s(run_dir.path) < YOUNG_S else "new"


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return float("inf")  # gone at this moment


def holder(spec: RunSpec) -> str:
    """Who has a run that is alive, in words."""
    owner = owner_of(spec.run_dir.path)
    if owner is None:
        return "another process"
    if owner.alive is None:
        return f"process {owner.pid} on {owner.host} (if that is over, remove {spec.run_dir.path / NAME})"
    return f"process {owner.pid}"


def opening(spec: RunSpec) -> list[str]:
    """Arguments of `marble` that start a run, or go on with one that was stopped.

    For the moment before it is started: what a run left that ended before its first checkpoint is taken away.
    """
    if standing(spec) == "stopped":
        return [*spec.arguments, "--resume"]
    if standing(spec) == "new" and spec.run_dir.path.is_dir():
        shutil.rmtree(spec.run_dir.path)
    return spec.arguments


def summary(run_dir: RunDir) -> dict[str, Any] | None:
    """What a finished run left; None where there is none, or half of one."""
    try:
        found = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
