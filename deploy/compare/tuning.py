"""Every method gets the same number of tries at the learning rate, on prompts that no table is made of.

Each source's last training prompts are set aside: tuning runs train on the others and are held against each other on
these. Held-out prompts are not looked at, and the main runs train on all training prompts again.
"""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path

from actors.evaluation import gain, read_evaluation
from actors.prompt_files import read_rows
from actors.run_config import RunConfig
from deploy.files import write_text
from learner import json_text
from learner.errors import UserError

SPLITS = ("train", "heldout")


def split_prompts(config: RunConfig, folder: Path, aside: int) -> dict[str, dict[str, str]]:
    """Write both parts of each source's training file, which can be read (actors.preflight); source → their paths.

    Raises:
        UserError: a file with too few prompts to set so many aside.
    """
    folder.mkdir(parents=True, exist_ok=True)
    files: dict[str, dict[str, str]] = {}
    for name, source in config.prompts.sources.items():
        path = Path(source.train)
        files[name] = {split: str(folder / f"{name}_{split}{path.suffix}") for split in SPLITS}
        if source.format == "parquet":
            _split_table(path, name, files[name], source.tags, aside)
        else:
            lines = path.read_text(encoding="utf-8-sig").split("\n")
            # A source of some tags only has its share of each part set aside, not of the whole file.
            lines = [line for line in lines if line.strip() and _tagged(line, source.tags)]
            cut = _cut(name, len(lines), aside)
            for split, part in zip(SPLITS, (lines[:cut], lines[cut:]), strict=True):
                write_text(Path(files[name][split]), "\n".join(part) + "\n")
    return files


def _tagged(line: str, tags: Sequence[str] | None) -> bool:
    return tags is None or json_text.parse(line).get("tag") in tags


def _split_table(path: Path, name: str, files: Mapping[str, str], tags: Sequence[str] | None, aside: int) -> None:
    import pyarrow.parquet as pq

    table = pq.ParquetFile(path).read()
    if tags is not None:
        rows = read_rows(path, "parquet")
        table = table.take([index for index, (_, metadata) in enumerate(rows) if metadata.get("tag") in tags])
    cut = _cut(name, len(table), aside)
    pq.write_table(table.slice(0, cut), files["train"])
    pq.write_table(table.slice(cut), files["heldout"])


def _cut(name: str, num_prompts: int, aside: int) -> int:
    """Where the prompts that are set aside begin; of few prompts it is no more than a third."""
    aside = min(aside, num_prompts // 3)
    if not aside:
        raise UserError(f"prompt source {name} has {num_prompts} training prompts; tuning needs three at least")
    return num_prompts - aside


def tuned_gain(run_dir: Path, iterations: int, rewards: Sequence[str]) -> float:
    """How much a tuning run won on the prompts set aside, over these rewards: actors.evaluation.gain.

    Raises:
        UserError: an evaluation is missing or cannot be read.
    """
    before, after = (read_evaluation(run_dir, done, rewards) for done in (0, iterations))
    if before is None or after is None:
        raise UserError(f"{run_dir} has no evaluation before and after; remove it, and it is trained again")
    return gain(before, after)


def best_factor(gains: Mapping[float, float]) -> float:
    """The learning rate's factor of the largest gain; of equals the one nearest to the recipe's own."""
    known = {factor: value for factor, value in gains.items() if not math.isnan(value)}
    return min(known or gains, key=lambda factor: (-known.get(factor, 0.0), abs(math.log(factor))))
