"""What `marble report` does: run directories in, one HTML file or the numbers out."""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.errors import loading
from deploy.files import to_json, write_text
from deploy.report.naming import labels, named_runs
from deploy.report.numbers.replicates import group
from deploy.report.numbers.run import RunNumbers, numbers_of, plain
from deploy.report.page import html, is_ours
from deploy.report.reading import RunRecord, read_record
from deploy.rundir import RunDir, expanded, require_writable
from learner.errors import UserError

FILE = "report.html"


def write_report(runs: Sequence[Path], out: Path | None, as_json: bool) -> None:
    """Write the page of these runs, or print their numbers.

    Raises:
        UserError: one of them is no run, or the page cannot be written where it should be.
    """
    if as_json and out is not None:
        raise UserError("--json prints the numbers and writes no page; leave out one of --json and --out")
    with loading():
        run_dirs = named_runs(runs)
        path = None if as_json else page_path(run_dirs, out)
    records = [
        read_record(run_dir, label) for run_dir, label in zip(run_dirs, labels([r.path for r in run_dirs]), strict=True)
    ]
    numbers = [numbers_of(record) for record in records]
    if path is None:
        print(to_json(as_data(records, numbers)))
        return
    # Halves of characters, which JSON texts may hold, have no place in a file.
    text = html(records, numbers).encode("utf-8", "backslashreplace").decode()
    with loading(str(path)):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, text)
    print(path)


def page_path(runs: Sequence[RunDir], out: Path | None) -> Path:
    """Where the page goes: into a single run, else into the working directory.

    Raises:
        UserError: it cannot be written there, or something else than a report lies there.
    """
    if out is None:
        path = runs[0].path / FILE if len(runs) == 1 else Path.cwd() / FILE
    else:
        path = expanded(out, "--out").absolute()
        path = path / FILE if path.is_dir() else path
    if path.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--out {out}: a report is an .html file")
    if os.path.lexists(path):
        if not path.is_file() or not is_ours(path):
            raise UserError(f"{path} exists and is no report of ours; choose another place with --out FILE.html")
        if not os.access(path.parent, os.W_OK):
            raise UserError(f"{path.parent} cannot be written to; choose another place with --out FILE.html")
    else:
        require_writable(path)
    return path


def as_data(records: Sequence[RunRecord], numbers: Sequence[RunNumbers]) -> dict[str, Any]:
    """All numbers of the page."""
    groups = group([record.label for record in records], [record.config for record in records])
    return {
        "runs": [_run_data(record, one) for record, one in zip(records, numbers, strict=True)],
        "recipes": [{"label": one.label, "runs": [records[i].label for i in one.indices]} for one in groups],
    }


def _run_data(record: RunRecord, numbers: RunNumbers) -> dict[str, Any]:
    state = record.state
    return {
        "run": record.label,
        "path": state.path,
        "state": state.state,
        "done": state.done,
        "iterations": state.iterations,
        "rewards": list(record.names),
        "missing": list(record.missing),
        **plain(numbers),
        "recipe": plain(record.config),
        "launches": plain(record.launches),
    }
