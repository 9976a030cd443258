"""`marble compare`: methods against each other on one recipe."""

from pathlib import Path
from typing import Annotated

import typer

from deploy.commands.options import JsonOption, SetOption


def compare(
    recipe: Annotated[Path, typer.Argument(metavar="RECIPE", help="The recipe that every method is a change of.")],
    more: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=A,B...]", help="Further axes of --sweep.", show_default=False)
    ] = None,
    methods: Annotated[
        str | None, typer.Option(help="Methods, with commas: marble,weighted_sum,single_ocr; without it the suite's.")
    ] = None,
    suite: Annotated[
        str, typer.Option(help="core: marble, weighted_sum, uniform, sequential; paper: every method.")
    ] = "core",
    seeds: Annotated[
        str | None, typer.Option(help="Run seeds, with commas; without it the recipe's and the two after it.")
    ] = None,
    minutes: Annotated[
        float | None, typer.Option(min=0.01, help="Training time of each run, evaluations aside; 10 without a budget.")
    ] = None,
    iterations: Annotated[
        int | None, typer.Option(min=1, help="Iterations of each run, in place of --minutes.")
    ] = None,
    sweep: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=A,B", help="Compare values of keys, as refresh.n=1,5,10, in place of methods."),
    ] = None,
    sets: SetOption = None,
    tuning_iterations: Annotated[
        int | None, typer.Option(min=0, help="Iterations of each tuning run, 6 without it; 0 tunes nothing.")
    ] = None,
    lr_factors: Annotated[
        str, typer.Option(help="Learning rates that each method tries, as multiples of the recipe's.")
    ] = "0.5,1,2",
    probe_every: Annotated[
        int, typer.Option(min=0, help="Steps between measurements of conflicts between step and rewards; 0: none.")
    ] = 11,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="Directory of the comparison; without it runs/compare-<recipe>.")
    ] = None,
    address: Annotated[
        str | None, typer.Option(metavar="URL", help="Make the runs jobs of the Ray cluster with this dashboard.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Jobs at once, with --address.")] = 1,
    tables_only: Annotated[bool, typer.Option("--tables-only", help="Only read what is there; train nothing.")] = False,
    as_json: JsonOption = False,
) -> int:
    """Train methods on the same prompts, seeds and budget, and print the paper's tables.

    Every method first tries the same learning rates on prompts apart from the held-out ones. Ended at any point, the
    same command goes on and loses one iteration at most.
    """
    from deploy.compare import command

    asked = command.asked(
        recipe,
        methods=methods,
        suite=suite,
        seeds=seeds,
        minutes=minutes,
        iterations=iterations,
        sweep=(*(sweep or ()), *(more or ())),
        more=tuple(more or ()) if not sweep else (),
        sets=tuple(sets or ()),
        tuning_iterations=tuning_iterations,
        lr_factors=lr_factors,
        probe_every=probe_every,
    )
    return command.run(asked, directory, address, jobs, tables_only, as_json)
