"""Options that several commands share. Imports typer only."""

from pathlib import Path
from typing import Annotated

import typer

RecipeArgument = Annotated[Path, typer.Argument(metavar="RECIPE", help="A YAML file such as deploy/recipes/tiny.yaml.")]
SetOption = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Change one value of the recipe; YAML, repeatable: --set learner.lr=1e-4 --set 'learner.betas[1]=0.99'. "
        "--set @FILE lays the values of a YAML file over it.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print data as JSON on standard output.")]
AddressOption = Annotated[
    str | None,
    typer.Option(metavar="HOST:PORT", help="Join a running Ray (or 'auto'); without it a local one is started."),
]
