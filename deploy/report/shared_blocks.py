"""The blocks that all runs share: what they are, held-out results, training scores, conflicts side by side."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from deploy.progress.view import duration, number
from deploy.report.blocks import Block, Cell, Table, percent, row, signed, table
from deploy.report.drawing import lines
from deploy.report.method import method
from deploy.report.numbers.curves import Curve, across_runs, mean_and_error
from deploy.report.numbers.heldout import HeldoutResult
from deploy.report.numbers.replicates import Replicates, differing, flat
from deploy.report.numbers.run import RunNumbers
from deploy.report.numbers.stages import changes
from deploy.report.reading import RunRecord
from deploy.summary import CLEAR_SE

MAX_VALUE = 60
"""Characters of a recipe's value in the table of differences."""
MAX_DIFFERENCES = 12
"""Rows up to which that table is open at first."""


def overview(records: Sequence[RunRecord], numbers: Sequence[RunNumbers], groups: Sequence[Replicates]) -> Block:
    """What the runs are, and what of each cannot be shown."""
    columns: tuple[str, ...] = ("run", "state", "iterations", "time", "seed", "method", "training rewards")
    rows = [_about(record, one) for record, one in zip(records, numbers, strict=True)]
    missing = tuple(
        f"{record.label}: {line}." if len(records) > 1 else f"{line[0].upper()}{line[1:]}."
        for record in records
        for line in record.missing
    )
    if len(rows) == 1:  # one under the other, as a phone is narrow
        columns, rows = ("", ""), [row(name, cell) for name, cell in zip(columns, rows[0], strict=True)]
    tables = [table(columns, rows, words=True)]
    known = [group for group in groups if records[group.indices[0]].config]
    changed = differing([records[group.indices[0]].config for group in known])
    if changed:
        lines_ = [row(key, *(_cut(value) for value in values)) for key, values in changed]
        many = len(lines_) > MAX_DIFFERENCES
        caption = f"Where the recipes differ{f', {len(lines_)} keys' if many else ''}"
        heads = ("key", *(group.label for group in known))
        tables.append(table(heads, lines_, caption, words=True, folded=many))
    return Block("runs", "Runs", tables=tuple(tables), missing=missing)


def _about(record: RunRecord, numbers: RunNumbers) -> tuple[Cell, ...]:
    state, config = record.state, flat(record.config)
    done = f"{state.done} of {state.iterations}" if state.iterations else "-"
    return row(
        record.label,
        Cell(_state(record), "bad" if state.state == "unreadable" else ""),
        done,
        duration(numbers.times.wall_s),
        _cut(config.get("run.seed")),
        method(record.config) or "-",
        ", ".join(record.names) or "-",
    )


def _state(record: RunRecord) -> str:
    """With why it ended before its last iteration, if it did."""
    return record.state.state + (f": {record.stopped_early}" if record.stopped_early else "")


def _cut(value: Any) -> str:
    text = "-" if value is None else str(value)
    return text if len(text) <= MAX_VALUE else f"{text[: MAX_VALUE - 1]}…"


# -- held-out results -------------------------------------------------------------------------------------------------


def heldout(records: Sequence[RunRecord], numbers: Sequence[RunNumbers], groups: Sequence[Replicates]) -> Block:
    """Before and after on the same prompts; several runs side by side in the paper's shape."""
    missing = tuple(
        f"{record.label} has no two evaluations to compare."
        for record, one in zip(records, numbers, strict=True)
        if not one.results
    )
    found = [one.results for one in numbers if one.results]
    text = (
        "Mean score on held-out prompts, none of which is trained on. The error is that of the paired difference per "
        f"prompt; a difference of {CLEAR_SE:g} standard errors or more is coloured."
    )
    if any(not one.trained for results in found for one in results):
        text += " * Held-out reward: it only judges, and is never trained on."
    warnings = tuple(
        f"Reward hacking? {f'{record.label}: ' if len(records) > 1 else ''}{alarm}."
        for record, one in zip(records, numbers, strict=True)
        for alarm in one.alarms
    )
    tables: list[Table] = []
    if len(records) > 1 and found:
        tables.append(_side_by_side([one.results for one in numbers], groups))
    elif found:
        tables.append(before_after(found[0]))
    text = text if found else ""
    return Block("heldout", "Held-out results", text, tables=tuple(tables), warnings=warnings, missing=missing)


def own_heldout(numbers: RunNumbers, prefix: str) -> Block:
    """One of several runs' results."""
    return Block(f"{prefix}-heldout", "Held-out results", tables=(before_after(numbers.results),))


def before_after(results: Sequence[HeldoutResult]) -> Table:
    """One run's results, a row per reward."""
    rows = [
        row(
            result.name if result.trained else f"{result.name} *",
            number(result.before, 4),
            number(result.after, 4),
            Cell(signed(result.difference, 4), tone(result.ratio)),
            number(result.se, 4),
            Cell(signed(result.ratio, 1), tone(result.ratio)),
            str(result.n),
            str(result.failed),
        )
        for result in results
    ]
    columns = (
        *("reward", "before", f"after {results[0].done}", "difference", "s.e.", "diff. / s.e."),
        *("prompts", "failed"),
    )
    return table(columns, rows)


def _side_by_side(results: Sequence[Sequence[HeldoutResult]], groups: Sequence[Replicates]) -> Table:
    """A row per recipe, a column per reward, the base on top."""
    found = {result.name: result.trained for one in results for result in one}
    names = list(found)
    bases = [next((r.before for one in results for r in one if r.name == name), math.nan) for name in names]
    rows = [row("base", *(number(base, 4) for base in bases))]
    for group in groups:
        members = [{r.name: r for r in results[index]} for index in group.indices]
        if any(members):
            rows.append(row(group.label, *(_mean_cell([m[name] for m in members if name in m]) for name in names)))
    caption = "After training: mean ± standard error (over seeds if there are several, else of the paired difference)"
    return table(("", *(name if found[name] else f"{name} *" for name in names)), rows, caption)


def _mean_cell(results: Sequence[HeldoutResult]) -> Cell:
    if not results:
        return Cell("-", "faint")
    mean, error = mean_and_error(np.array([result.after for result in results]))
    difference, spread = mean_and_error(np.array([result.difference for result in results]))
    if len(results) == 1:
        error = spread = results[0].se
    ratio = difference / spread if spread > 0 else math.nan
    return Cell(number(mean, 4), tone(ratio), f"± {number(error, 4)}" if math.isfinite(error) else "")


def tone(ratio: float) -> str:
    """`good` or `bad` for a clear change, of so many standard errors."""
    return "good" if ratio >= CLEAR_SE else "bad" if ratio <= -CLEAR_SE else ""


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
            title = name if name in trained else f"{name} *"
            drawings.append(lines.scores(title, known, f"score{index}"))
    band = "standard error over prompt groups"
    if any(len(group.indices) > 1 for group in groups):
        band += ", or over seeds where one line stands for several"
    text = (
        f"Lines: mean training score of {_windows(numbers)}, whose prompts change each time; the band is its "
        f"{band}. Points: held-out means of the evaluation weights, with their standard error. A reward may train on a "
        "graded score and be reported by its strict rule, as GenEval is, so lines and points need not meet."
    )
    text += " * Held-out reward." if watched else ""
    if any(len(one.stages) > 1 for one in numbers):
        text += " Dashed: where a stage ends; a reward outside a stage is not scored in it."
    missing = () if drawings else ("No score of any run can be read.",)
    return Block("scores", "Scores", text if drawings else "", tuple(drawings), missing=missing)


def _windows(numbers: Sequence[RunNumbers]) -> str:
    """Over how many iterations lines are means."""
    found = {one.samples.window for one in numbers if one.samples is not None}
    return f"the last {' to '.join(map(str, sorted({min(found), max(found)})))} iterations" if found else "iterations"


def _line(group: Replicates, name: str, numbers: Sequence[RunNumbers]) -> lines.Line:
    members = [numbers[index] for index in group.indices]
    trained = [one.samples.training for one in members if one.samples is not None]
    heldout = _joined([one.heldout for one in members], name)
    return lines.Line(group.label, _joined(trained, name), heldout, changes(members[0].stages))


def _joined(curves: Sequence[Mapping[str, Curve]], name: str) -> Curve | None:
    found = [one[name] for one in curves if name in one]
    if len(found) > 1:
        joined = across_runs(found)
        return joined if len(joined.x) else None
    return found[0] if found else None


# -- conflicts --------------------------------------------------------------------------------------------------------


def conflicts(numbers: Sequence[RunNumbers], groups: Sequence[Replicates]) -> Block | None:
    """How often the steps of several runs oppose some reward, a row per recipe (MARBLE, Table S1); None of one run."""
    if len(numbers) < 2 or all(one.conflicts is None for one in numbers):
        return None
    rows = []
    for group in groups:
        members = [numbers[index].conflicts for index in group.indices]
        found = [one.rows[0] for one in members if one is not None and one.rows]
        if found:
            shares = [
                *([one.same.opposing for one in found], [one.next.opposing for one in found]),
                *([one.same.mean_worst for one in found], [one.next.mean_worst for one in found]),
            ]
            steps = sum(one.same.windows for one in found)
            rows.append(row(group.label, *map(_share, shares[:2]), *map(_cosine, shares[2:]), str(steps)))
    columns = (
        *("", "opposing, same batch", "opposing, next batch"),
        *("mean worst cosine, same batch", "mean worst cosine, next batch", "steps"),
    )
    text = (
        "Share of measured steps whose direction opposes some reward, against the step's own batch, whose noise any "
        "direction fits, and against the next iteration's; mean ± standard error over seeds."
    )
    return Block("conflicts", "Conflicts with the rewards", text, tables=(table(columns, rows),))


def _share(values: Sequence[float]) -> str:
    mean, error = mean_and_error(np.array(values))
    return percent(mean) + (f" ± {percent(error)}" if math.isfinite(error) else "")


def _cosine(values: Sequence[float]) -> str:
    mean, error = mean_and_error(np.array(values))
    return signed(mean) + (f" ± {number(error)}" if math.isfinite(error) else "")
