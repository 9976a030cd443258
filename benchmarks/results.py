"""docs/results.md from comparisons: ``python benchmarks/results.py DIR... [--markdown docs/results.md]``.

Every number comes out of a file in the directories that `marble compare` made; the paper's stand beside them as the
paper has them.
"""

import argparse
import shlex
import sys
from pathlib import Path

from deploy.compare import render
from deploy.compare.order import Asked
from deploy.compare.runners import Processes
from deploy.compare.runs import summary
from deploy.compare.session import ASKED, Session
from deploy.compare.tables import Table
from deploy.errors import loading, report
from deploy.rundir import RunDir
from learner import json_text
from learner.errors import UserError

PAPER = """## The paper's numbers

MARBLE, arXiv 2605.06507: SD3.5 Medium, five rewards, 16 H200. Other models, rewards and prompts than above: only signs
and the order of rows can be held against each other.

| | GenEval | OCR | PickScore | CLIPScore | HPSv2.1 | composite |
|---|---|---|---|---|---|---|
| MARBLE | 0.94 | 0.96 | 22.83 | 0.286 | 0.355 | +1.116 |
| DiffusionNFT weighted sum | 0.92 | 0.91 | 21.53 | 0.267 | 0.300 | +0.184 |
| DiffusionNFT sequential | | | 23.80 | 0.293 | | +1.015 |

Speed relative to the weighted sum: 0.97 amortised, 0.56 with every step solved. Without normalisation training fails;
with equal weights GenEval is 0.86; with every step solved PickScore is 21.32. The weighted sum goes against its worst
reward in 80% of mini-batches; MARBLE's worst cosine stays positive.
"""


def section(folder: Path) -> str:
    """One comparison: its command, what it took, its tables.

    Raises:
        UserError: no comparison, or none of its runs is over.
    """
    try:
        asked = Asked.model_validate_json((folder / ASKED).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{folder} holds no comparison: {' '.join(str(error).split())[:160]}") from error
    tables = Session(asked, folder.absolute(), Processes(print), print).tables_of()
    if not tables:
        raise UserError(f"{folder} has no finished run yet")
    hours = sum(_seconds(path) for path in folder.glob("*/*/summary.json")) / 3600
    where = f"{hours:.1f} hours of runs, tuning with them, on {machines(folder)}"
    head = f"# {folder.name}\n\n`{command_line(asked)}`: {where}.\n\n"
    return head + render.markdown(_shown(tables))


def _shown(tables: list[Table]) -> list[Table]:
    """Without the conflicts of the whole gradient, which lie between the other two; tables.json has them."""
    return [table for table in tables if table.key != "conflicts_gradient"]


def _seconds(path: Path) -> float:
    done = summary(RunDir(path.parent))
    if done is None or not isinstance(done.get("seconds"), int | float):
        raise UserError(f"{path} is damaged; remove it and start the comparison again")
    return float(done["seconds"])


def command_line(asked: Asked) -> str:
    """What makes the comparison again."""
    words = ["marble", "compare", asked.recipe, *(word for text in asked.sets for word in ("--set", text))]
    words += ["--sweep", *asked.sweep] if asked.sweep else ["--methods", ",".join(asked.methods)]
    words += ["--seeds", ",".join(map(str, asked.seeds))]
    words += ["--minutes", f"{asked.minutes:g}"] if asked.minutes else []
    words += ["--iterations", str(asked.iterations)] if asked.iterations else []
    defaults = Asked.model_fields
    if asked.tuning_iterations or not asked.sweep:
        words += ["--tuning-iterations", str(asked.tuning_iterations)]
    if asked.lr_factors != defaults["lr_factors"].default:
        words += ["--lr-factors", ",".join(f"{factor:g}" for factor in asked.lr_factors)]
    if not asked.sweep and asked.probe_every != defaults["probe_every"].default:
        words += ["--probe-every", str(asked.probe_every)]
    return shlex.join(words)


def machines(folder: Path) -> str:
    """What the runs of a comparison were started on, by their own record.

    Raises:
        UserError: a record is damaged.
    """
    found: dict[str, None] = {}
    for path in sorted(folder.glob("*/*/launches.jsonl")):
        with loading(str(path)):
            lines = path.read_text(encoding="utf-8").splitlines()
            records = [json_text.parse(line) for line in lines if line.strip()]
        for record in records:
            machine = record.get("machine") if isinstance(record, dict) else None
            known = isinstance(machine, dict) and {"platform", "cores"} <= set(machine)
            found[f"{machine['platform']}, {machine['cores']} cores" if known else "a machine not on record"] = None
    return "; ".join(found) or "a machine not on record"


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directories", type=Path, nargs="+")
    parser.add_argument("--markdown", type=Path, default=Path("docs/results.md"))
    options = parser.parse_args()
    try:
        parts = [section(folder) for folder in options.directories]
    except UserError as error:
        sys.exit(report(error))
    line = shlex.join(["python", "benchmarks/results.py", *map(str, options.directories)])
    said = f"Written by `{line}`; every number but the paper's is of a run's file.\n"
    options.markdown.write_text("\n".join([*parts, PAPER, said]), encoding="utf-8")


if __name__ == "__main__":
    main()
