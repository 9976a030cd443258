"""A recipe under several seeds: ``python benchmarks/seeds.py RECIPE [--seeds 42 43 44] [--markdown FILE]``.

Trains each seed as a user would, in a run directory of its own, and prints every run's table as it came out. A run that
is finished already is read, if it is a run of this very recipe and seed; one that was stopped goes on.
"""

import argparse
import os
import platform
import subprocess
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from deploy.errors import one_line, report
from deploy.recipe import Recipe, differences, load_recipe, load_resolved, show
from deploy.rundir import RunDir
from learner.errors import UserError

NAME_KEY = "run.name"
"""The one key of a recipe that says nothing about what comes out."""


class Row(BaseModel):
    """One reward of a summary; a mean that could not be taken is null there."""

    model_config = ConfigDict(strict=True)

    before: float | None
    after: float | None
    se: float | None
    n: int


class Summary(BaseModel):
    """What a run's summary.json says."""

    model_config = ConfigDict(strict=True)

    rewards: dict[str, Row]
    heldout_rewards: dict[str, Row] = {}
    iterations: int
    seconds: float
    seed: int
    stopped_early: str = ""


def run_name(recipe: Path, seed: int) -> str:
    """Name of one run and of its directory."""
    return f"{recipe.stem}-seed{seed}"


def sets(recipe: Path, seed: int) -> tuple[str, ...]:
    """What is changed in the recipe."""
    return (f"run.seed={seed}", f"run.name={run_name(recipe, seed)}")


def command(recipe: Path, seed: int) -> list[str]:
    """What is run, and shown beside the table."""
    return ["train", str(recipe), *(part for text in sets(recipe, seed) for part in ("--set", text))]


def trained(recipe: Path, seed: int, runs: Path) -> Summary:
    """The summary of one run, after training what is missing of it.

    Raises:
        UserError: the recipe does not load, or what lies in the run's place is no run of it.
        subprocess.CalledProcessError: the run failed; its own message stands above.
    """
    loaded = load_recipe(recipe, sets(recipe, seed))
    run_dir = RunDir(runs / run_name(recipe, seed))
    if not run_dir.summary.exists():
        resume = ["--resume"] if run_dir.checkpoints.is_dir() else []
        line = [sys.executable, "-m", "deploy.cli", *command(recipe, seed), "--run-dir", str(run_dir.path)]
        subprocess.run([*line, *resume], check=True)
    return finished(run_dir, loaded)


def finished(run_dir: RunDir, recipe: Recipe) -> Summary:
    """The summary of a run that is over.

    Raises:
        UserError: it is another recipe's or seed's, or damaged.
    """
    changed = [
        f"{key} was {show(old)}, the recipe says {show(new)}"
        for key, old, new in differences(load_resolved(run_dir.config).resolved, recipe.resolved)
        if key != NAME_KEY
    ]
    if changed:
        raise UserError(f"{run_dir.path} holds a run of another recipe: {'; '.join(changed)}; remove it or set --runs")
    try:
        found = Summary.model_validate_json(run_dir.summary.read_text(encoding="utf-8"))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        at = ".".join(map(str, first["loc"]))
        raise UserError(f"{run_dir.summary}: {at + ': ' if at else ''}{one_line(first['msg'])}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{run_dir.summary}: {error}") from error
    run = recipe.config.run
    if found.seed != run.seed or (found.iterations != run.iterations and not found.stopped_early):
        raise UserError(
            f"{run_dir.summary} is of seed {found.seed} after {found.iterations} iterations, "
            f"asked for is seed {run.seed} after {run.iterations}"
        )
    return found


def table(recipe: Path, found: Summary) -> str:
    """Markdown of one run."""
    lines = [
        f"`marble {' '.join(command(recipe, found.seed))}`: {found.iterations} iterations, "
        f"{found.seconds / 60:.1f} minutes",
        "",
        "| reward | prompts | before | after | difference | s.e. | difference / s.e. |",
        "|---|---|---|---|---|---|---|",
    ]
    heldout = {f"{name} (held out)": row for name, row in found.heldout_rewards.items()}
    for reward, row in (found.rewards | heldout).items():
        change = None if row.before is None or row.after is None else row.after - row.before
        ratio = change / row.se if change is not None and row.se else None
        figures = (_said(row.before), _said(row.after), _said(change, "+.4f"), _said(row.se), _said(ratio, "+.1f"))
        lines.append(f"| {reward} | {row.n} | {' | '.join(figures)} |")
    return "\n".join(lines)


def _said(value: float | None, form: str = ".4f") -> str:
    return "-" if value is None else format(value, form)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("recipe", type=Path)
    parser.add_argument("--seeds", type=int, nargs="+", default=[42, 43, 44])
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--markdown", type=Path, help="also write the tables here")
    options = parser.parse_args()
    parts = []
    for seed in options.seeds:
        try:
            found = trained(options.recipe, seed, options.runs)
        except subprocess.CalledProcessError as error:
            sys.exit(error.returncode)
        except UserError as error:
            sys.exit(report(error))
        parts.append(table(options.recipe, found))
        print(parts[-1], flush=True)
    if options.markdown:
        line = f"python benchmarks/seeds.py {options.recipe} --seeds {' '.join(map(str, options.seeds))}"
        head = [
            f"# {options.recipe.stem}: {len(parts)} seeds, all as they came out",
            "GenEval is *correct*, OCR is strict; s.e. is of the paired difference per prompt.",
            f"{platform.machine()}, {os.cpu_count()} cores. Command: `{line} --markdown {options.markdown}`",
        ]
        options.markdown.write_text("\n\n".join([*head, *parts]) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
