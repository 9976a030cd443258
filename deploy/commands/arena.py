"""`marble arena`: blind comparison of two runs by people."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import JsonOption


def arena(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN [RUN] | VOTES...", help="Two runs, or one that is compared with its base; with --tally: votes."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Where page and key go; default: ./arena.")
    ] = None,
    draw: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="N",
            help="Draw N held-out prompts of each source anew, instead of the kept pictures.",
        ),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="With --draw: torch device; without it CUDA where there is one.")
    ] = None,
    tally: Annotated[bool, typer.Option("--tally", help="Count saved votes instead of writing a page.")] = False,
    key: Annotated[
        Path | None,
        typer.Option(metavar="key.json", help="With --tally; default: beside the votes, or in ./arena."),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Write a page of blind pairs from the same prompts and seeds, or count its votes."""
    from deploy.arena.command import count_votes, write_arena
    from learner.errors import UserError

    if tally:
        for name, value in (("--out", out), ("--draw", draw), ("--device", device)):
            if value is not None:
                raise UserError(f"{name} means nothing with --tally, which counts votes")
        count_votes(paths, key, as_json)
        return
    if key is not None or as_json:
        raise UserError(f"{'--key' if key is not None else '--json'} means nothing without --tally")
    if device is not None and draw is None:
        raise UserError("--device means nothing without --draw, as kept pictures need none")
    write_arena(paths, out, draw, device)
