"""Tables as Markdown and as JSON."""

import math
from collections.abc import Iterable, Sequence
from typing import Any

from deploy.compare.statistics import Estimate
from deploy.compare.tables import BASE, Cell, Table


def markdown(tables: Iterable[Table]) -> str:
    """One section a table."""
    return "\n".join(_section(table) for table in tables)


def _section(table: Table) -> str:
    head = ["", *table.columns]
    lines = [f"## {table.title}", "", table.note, "", _line(head), _line(["---"] * len(head))]
    seeds = _seeds(table)
    lines += [_line([name + seeds.get(name, ""), *map(_said, cells)]) for name, cells in table.rows.items()]
    return "\n".join(lines) + "\n"


def _seeds(table: Table) -> dict[str, str]:
    """How many seeds stand behind a row, where rows differ in it; the base has none."""
    counts = {
        name: max((cell.n for cell in cells if isinstance(cell, Estimate)), default=0)
        for name, cells in table.rows.items()
        if name != BASE
    }
    return {name: f" (n = {n})" for name, n in counts.items()} if len(set(counts.values())) > 1 else {}


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cell.replace('|', '&#124;') for cell in cells)} |"


def _said(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if math.isnan(cell.mean):
        return "-"
    if cell.n == 1 and cell.mean.is_integer():
        return f"{cell.mean:.0f}"
    digits = 2 if abs(cell.mean) >= 10 else 4
    error = "" if math.isnan(cell.se) else f" ± {cell.se:.{digits}f}"
    return f"{cell.mean:.{digits}f}{error}"


def data(tables: Iterable[Table]) -> list[dict[str, Any]]:
    """The same for programs; a cell is text, or its mean, standard error and number of seeds."""
    return [
        {
            "key": table.key,
            "title": table.title,
            "note": table.note,
            "columns": list(table.columns),
            "rows": [{"name": name, "cells": list(map(_cell, cells))} for name, cells in table.rows.items()],
        }
        for table in tables
    ]


def _cell(cell: Cell) -> Any:
    return {"mean": cell.mean, "se": cell.se, "n": cell.n} if isinstance(cell, Estimate) else cell
