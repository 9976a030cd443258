"""Where the ledger's Parquet parts lie and how they are read. Imports no ray, so that reports stay quick."""

import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SAMPLES, STEPS, CONFLICTS = "samples", "steps", "conflicts"
PART_NAME = re.compile(r"(?P<table>[a-z]+)-(?P<iteration>[0-9]{6,})\.parquet")


def read_table(run_dir: Path, table: str) -> pa.Table:
    """All parts of one table, in the order of iterations; columns some parts lack are null there. Empty if none."""
    tables = [pq.read_table(path) for _, path in parts(run_dir, table)]
    if not tables:
        return pa.table({})
    return pa.concat_tables(tables, promote_options="permissive")


def parts(run_dir: Path, table: str) -> list[tuple[int, Path]]:
    """(iteration, path) of each part of a table, in order; files of other names are none."""
    found = ((PART_NAME.fullmatch(path.name), path) for path in (run_dir / "ledger").glob("*.parquet"))
    return sorted((int(name["iteration"]), path) for name, path in found if name and name["table"] == table)
