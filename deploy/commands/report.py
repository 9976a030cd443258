"""`marble report`: runs as one HTML page."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import JsonOption


def report(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Run directories; a folder of runs stands for all of them.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="FILE.html",
            help="Where the page goes; default: into a single run, else ./report.html.",
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write scores, weights, cosines, specialists, times, failures and pictures of runs into one HTML file."""
    from deploy.report.command import write_report

    write_report(runs, out, as_json)
