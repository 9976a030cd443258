"""A recipe under several seeds: ``python benchmarks/seeds.py RECIPE [--seeds 42 43 44] [--markdown FILE]``.

Trains each seed as a user would, in a run directory of its own, and prints every run's table as it came out. A run that
is finished already is read, one that was stopped goes on.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any


def run_name(recipe: Path, seed: int) -> str:
    """Name of one run and of its directory."""
    return f"{recipe.stem}-seed{seed}"


def command(recipe: Path, seed: int) -> list[str]:
    """What is run, and shown beside the table."""
    return ["train", str(recipe), "--set", f"run.seed={seed}", "--set", f"run.name={run_name(recipe, seed)}"]


def trained(recipe: Path, seed: int, runs: Path) -> dict[str, Any]:
    """The summary of one run, after training what is missing of it.

    Raises:
        subprocess.CalledProcessError: the run failed; its own message stands above.
    """
    name = run_name(recipe, seed)
    summary = runs / name / "summary.json"
    if not summary.exists():
        resume = ["--resume"] if (runs / name / "checkpoints").is_dir() else []
        line = [sys.executable, "-m", "deploy.cli", *command(recipe, seed), "--run-dir", str(runs / name)]
        subprocess.run([*line, *resume], check=True)
    found: dict[str, Any] = json.loads(summary.read_text())
    return found


def table(recipe: Path, found: dict[str, Any]) -> str:
    """Markdown of one run."""
    lines = [
        f"`marble {' '.join(command(recipe, found['seed']))}`: {found['iterations']} iterations, "
        f"{found['seconds'] / 60:.1f} minutes",
        "",
        "| reward | prompts | before | after | difference | s.e. | difference / s.e. |",
        "|---|---|---|---|---|---|---|",
    ]
    for reward, row in found["rewards"].items():
        change = row["after"] - row["before"]
        ratio = f"{change / row['se']:+.1f}" if row["se"] else "-"
        figures = (f"{row['before']:.4f}", f"{row['after']:.4f}", f"{change:+.4f}", f"{row['se']:.4f}", ratio)
        lines.append(f"| {reward} | {row['n']} | {' | '.join(figures)} |")
    return "\n".join(lines)


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
