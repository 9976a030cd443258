"""`marble status`: what runs there are and what they are doing."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import JsonOption


def status(
    run: Annotated[Path | None, typer.Argument(help="Run directory, or a folder of runs; without it all runs.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show iteration, rewards now and at start, the last checkpoint, and whether each run is alive."""
    from deploy.overview import print_status

    print_status(run, as_json)
