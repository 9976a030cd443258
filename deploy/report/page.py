"""The report as one HTML file: no script, no address, nothing that is not in the file."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from deploy.html import environment
from deploy.report import shared_blocks
from deploy.report.blocks import Block
from deploy.report.galleries import Galleries, galleries
from deploy.report.numbers.replicates import group
from deploy.report.numbers.run import RunNumbers
from deploy.report.reading import RunRecord
from deploy.report.run_blocks import run_blocks, tiles
from deploy.summary import CLEAR_SE

GENERATOR = "MARBLE report"
"""By which a page of ours is known, so that no other file is ever overwritten."""


@dataclass(frozen=True)
class RunPart:
    """The part of the page that is about one run alone."""

    id: str
    label: str
    path: str
    tiles: tuple[tuple[str, str], ...]
    blocks: tuple[Block, ...]


def html(records: Sequence[RunRecord], numbers: Sequence[RunNumbers]) -> str:
    """The whole page."""
    groups = group([record.label for record in records], [record.config for record in records])
    conflicts = shared_blocks.conflicts(numbers, groups)
    shared = (
        shared_blocks.overview(records, numbers, groups),
        shared_blocks.heldout(records, numbers, groups),
        shared_blocks.training(records, numbers, groups),
        *([conflicts] if conflicts is not None else []),
    )
    pictures: Galleries = galleries(records, groups)
    runs = [
        RunPart(f"run{i}", r.label, r.state.path, tiles(n, CLEAR_SE), _own(r, n, f"run{i}", alone=len(records) == 1))
        for i, (r, n) in enumerate(zip(records, numbers, strict=True))
    ]
    return (
        environment("report")
        .get_template("report.html.j2")
        .render(
            generator=GENERATOR,
            title=", ".join(record.label for record in records),
            made=time.strftime("%Y-%m-%d %H:%M"),
            shared=shared,
            pictures=pictures,
            runs=runs,
        )
    )


def _own(record: RunRecord, numbers: RunNumbers, prefix: str, *, alone: bool) -> tuple[Block, ...]:
    """A run's blocks. Alone on the page, its results stand above them."""
    blocks = run_blocks(record, numbers, prefix)
    return blocks if alone or not numbers.results else (shared_blocks.own_heldout(numbers, prefix), *blocks)


def is_ours(path: Path) -> bool:
    """Whether a file is a report that we wrote, and may write again."""
    with path.open("rb") as file:
        return f'name="generator" content="{GENERATOR}"'.encode() in file.read(2048)
