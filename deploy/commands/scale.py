"""`marble scale`: another number of scorers for a running run."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import JsonOption


def scale(
    run: Annotated[Path, typer.Argument(help="Run directory, or its name below runs/ or $MARBLE_RUNS.")],
    sizes: Annotated[list[str], typer.Argument(metavar="reward.NAME=N...", help="Replicas for a reward's pool.")],
    as_json: JsonOption = False,
) -> None:
    """Resize reward pools of a running run; training goes on, and no score changes.

    Replicas that leave finish their call first; new ones take work as soon as their scorer is loaded.
    """
    from deploy.scaling import scale_run

    scale_run(run, sizes, as_json)
