"""One run of a comparison: what it is made from, and how far it is."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from actors.lock import owner_of
from deploy import strict_yaml
from deploy.compare.methods import Data
from deploy.files import write_text
from deploy.recipe import Recipe, differences, load_recipe, load_resolved, show
from deploy.rundir import RunDir
from learner.errors import UserError

Standing = Literal["new", "stopped", "alive", "done"]


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
    """How far a run is. One that was ended before its first checkpoint is gone afterwards: it has nothing to keep."""
    run_dir = spec.run_dir
    if not run_dir.path.is_dir():
        return "new"
    owner = owner_of(run_dir.path)
    if owner is not None and owner.alive:
        return "alive"
    if summary(run_dir) is not None:
        return "done"
    if any(run_dir.checkpoints.glob("[0-9]*/manifest.json")):
        return "stopped"
    shutil.rmtree(run_dir.path)
    return "new"


def summary(run_dir: RunDir) -> dict[str, Any] | None:
    """What a finished run left; None where there is none, or half of one."""
    try:
        found = json.loads(run_dir.summary.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None
