"""The blocks that all runs share: what they are, held-out results, training scores."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploy.progress.view import duration, number
from deploy.report.blocks import Block, Cell, Table, row, table
from deploy.report.drawing import lines
from deploy.report.numbers.curves import Curve, across_runs, mean_and_error
from deploy.report.numbers.heldout import HeldoutResult
from deploy.report.numbers.replicates import Replicates, differing, flat
from deploy.report.numbers.run import RunNumbers
from deploy.report.reading import RunRecord
from deploy.summary import CLEAR_SE

MAX_VALUE = 60
"""Characters of a recipe's value in the table of differences."""


def overview(records: Sequence[RunRecord], numbers: Sequence[RunNumbers]) -> Block:
    """What the runs are, and what of each cannot be shown."""
    columns = ("run", "state", "iterations", "time", "seed", "harmonizer", "training rewards")
    rows = [_about(record, one) for record, one in zip(records, numbers, strict=True)]
    missing = tuple(
        f"{record.label}: {line}." if len(records) > 1 else f"{line[0].upper()}{line[1:]}."
        for record in records
        for line in record.missing
    )
    tables = [table(columns, rows, words=True)]
    changed = differing([record.config for record in records if record.config])
    if changed:
        heads = [record.label for record in records if record.config]
        lines_ = [row(key, *(_cut(value) for value in values)) for key, values in changed]
        tables.append(table(("key", *heads), lines_, "Where the recipes differ", words=True))
    return Block("runs", "Runs", tables=tuple(tables), missing=missing)


def _about(record: RunRecord, numbers: RunNumbers) -> tuple[Cell, ...]:
    state, config = record.state, flat(record.config)
    done = f"{state.done} of {state.iterations}" if state.iterations else "-"
    return row(
        record.label,
        Cell(state.state, "bad" if state.state == "unreadable" else ""),
        done,
        duration(numbers.times.wall_s),
        _cut(config.get("run.seed")),
        _cut(config.get("harmonizer.method")),
        ", ".join(record.names) or "-",
    )


def _cut(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


# -- held-out results -------------------------------------------------------------------------------------------------


def heldout(records: Sequence[RunRecord], numbers: Sequence[RunNumbers], groups: Sequence[Replicates]) -> Block:
    """Before and after on the same prompts; several runs side by side in the paper's shape."""
    shown = [(record, one.results) for record, one in zip(records, numbers, strict=True)]
    missing = tuple(f"{record.label} has no two evaluations to compare." for record, results in shown if not results)
    found = [(record, results) for record, results in shown if results]
    text = (
        "Mean score on held-out prompts, none of which is trained on. The error is that of the paired difference per "
        f"prompt; a difference of {CLEAR_SE:g} standard errors or more is coloured."
    )
    tables: list[Table] = []
    if len(records) > 1 and found:
        tables.append(_side_by_side([one.results for one in numbers], groups))
    if len(found) == 1:
        tables.append(_before_after(found[0][1], ""))
    else:
        tables += [_before_after(results, record.label) for record, results in found]
    return Block("heldout", "Held-out results", text if found else "", tables=tuple(tables), missing=missing)


def _before_after(results: Sequence[HeldoutResult], caption: str) -> Table:
    rows = [
        row(
            result.name if result.trained else f"{result.name} (not trained on)",
            str(result.n),
            number(result.before, 4),
            number(result.after, 4),
            Cell(_signed(result.difference, 4), tone(result.ratio)),
            number(result.se, 4),
            Cell(_signed(result.ratio, 1), tone(result.ratio)),
            str(result.failed),
        )
        for result in results
    ]
    columns = (
        "reward",
        "prompts",
        "before",
        f"after {results[0].done}",
        "difference",
        "s.e.",
        "diff. / s.e.",
        "failed",
    )
    return table(columns, rows, caption)


def _side_by_side(results: Sequence[Sequence[HeldoutResult]], groups: Sequence[Replicates]) -> Table:
    """A row per recipe, a column per reward, the base on top."""
    names = list(dict.fromkeys(result.name for one in results for result in one))
    bases = [next((r.before for one in results for r in one if r.name == name), math.nan) for name in names]
    rows = [row("base", *(number(base, 3) for base in bases))]
    for group in groups:
        members = [{r.name: r for r in results[index]} for index in group.indices]
        if any(members):
            rows.append(row(group.label, *(_mean_cell([m[name] for m in members if name in m]) for name in names)))
    caption = "After training: mean ± standard error (over seeds if there are several, else of the paired difference)"
    return table(("", *names), rows, caption)


def _mean_cell(results: Sequence[HeldoutResult]) -> Cell:
    if not results:
        return Cell("-", "faint")
    mean, error = mean_and_error(np.array([result.after for result in results]))
    difference, spread = mean_and_error(np.array([result.difference for result in results]))
    if len(results) == 1:
        error = spread = results[0].se
    ratio = difference / spread if spread > 0 else math.nan
    return Cell(f"{number(mean, 3)} ± {number(error, 3)}", tone(ratio))


def tone(ratio: float) -> str:
    """`good` or `bad` for a clear change, of so many standard errors."""
    return "good" if ratio >= CLEAR_SE else "bad" if ratio <= -CLEAR_SE else ""


def _signed(value: float, digits: int) -> str:
    return number(value, digits, sign=True).replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "-"


# -- curves -----------------------------------------------------------------------------------------------------------


def training(records: Sequence[RunRecord], numbers: Sequence[RunNumbers], groups: Sequence[Replicates]) -> Block:
    """A panel per reward, a line per recipe."""
    trained = list(dict.fromkeys(name for record in records for name in record.names))
    watched = list(dict.fromkeys(name for one in numbers for name in one.heldout if name not in trained))
    drawings = []
    for index, name in enumerate([*trained, *watched]):
        curves = [_line(group, name, numbers) for group in groups]
        known = [line for line in curves if line.training is not None or line.heldout is not None]
        if known:
            title = name if name in trained else f"{name} (not trained on)"
            drawings.append(lines.scores(title, known, f"score{index}"))
    band = "standard error over prompt groups"
    if any(len(group.indices) > 1 for group in groups):
        band += ", or over seeds where one line stands for several"
    text = (
        "Lines: mean training score of the last five iterations, whose prompts change each time; the band is its "
        f"{band}. Points: held-out means of the evaluation weights, with their standard error. A reward may train on a "
        "graded score and be reported by its strict rule, as GenEval is, so lines and points need not meet."
    )
    missing = () if drawings else ("No score of any run can be read.",)
    return Block("scores", "Scores", text if drawings else "", tuple(drawings), missing=missing)


def _line(group: Replicates, name: str, numbers: Sequence[RunNumbers]) -> lines.Line:
    members = [numbers[index] for index in group.indices]
    trained = [one.samples.training for one in members if one.samples is not None]
    return lines.Line(group.label, _joined(trained, name), _joined([one.heldout for one in members], name))


def _joined(curves: Sequence[Mapping[str, Curve]], name: str) -> Curve | None:
    found = [one[name] for one in curves if name in one]
    if len(found) > 1:
        joined = across_runs(found)
        return joined if len(joined.x) else None
    return found[0] if found else None
