"""`marble train`: a run from recipe to LoRA."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import AddressOption, JsonOption, RecipeArgument, SetOption


def train(
    recipe: RecipeArgument,
    sets: SetOption = None,
    run_dir: Annotated[
        Path | None, typer.Option(help="Run directory; without it runs/<run.name>, or below $MARBLE_RUNS.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the run's last whole checkpoint.")] = False,
    address: AddressOption = None,
    as_json: JsonOption = False,
) -> int:
    """Train a LoRA on all rewards of a recipe.

    Ends with a table of every reward on the same held-out prompts before and after. Ctrl-C stops cleanly; --resume goes
    on from the last checkpoint, bit for bit.
    """
    from deploy.recipe import load_recipe
    from deploy.rundir import require_new, require_resumable, run_dir_for

    loaded = load_recipe(recipe, sets or ())
    directory = run_dir_for(loaded, run_dir)
    checkpoint = None
    if resume:
        checkpoint = require_resumable(directory, loaded)
    else:
        require_new(directory)
    # Not at the top: it loads ray.
    from deploy.training import Order, train_run

    command = _resume_command(recipe, sets or [], run_dir, address)
    return train_run(Order(loaded, directory, checkpoint, address, as_json, command))


def _resume_command(recipe: Path, sets: list[str], run_dir: Path | None, address: str | None) -> str:
    """What to type to go on with this run."""
    from deploy.invocation import train_command

    options = [part for text in sets for part in ("--set", text)]
    options += ["--run-dir", str(run_dir)] if run_dir else []
    options += ["--address", address] if address else []
    return train_command(recipe, [*options, "--resume"])
