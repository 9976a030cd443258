"""The paper's tables, from the records of finished runs (MARBLE, Tables 1 to 3 and S1)."""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from deploy.compare import statistics as stats
from deploy.compare.methods import ABLATIONS, MARBLE, SUITES
from deploy.compare.reading import RunRecord
from deploy.compare.statistics import Estimate
from learner.config import WEIGHTED_SUM
from learner.types import CONFLICT_VECTORS

BASE, COMPOSITE = "base", "composite"
FIXED_ROWS = (BASE, *SUITES["core"])
"""Composites are measured with these, whatever else is compared: they mean the same in both suites."""

Cell = Estimate | str


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns."""

    key: str
    title: str
    note: str
    columns: tuple[str, ...]
    rows: Mapping[str, tuple[Cell, ...]]


Records = Mapping[str, Sequence[RunRecord]]
"""Row → its runs, one per seed."""


def comparison(records: Records, memory: Mapping[str, float]) -> list[Table]:
    """All tables of a comparison of methods; those nothing is known of are left out.

    Args:
        records: in the order of the rows.
        memory: row → GiB of its learner.
    """
    fixed = [name for name in FIXED_ROWS if name == BASE or name in records]
    found = [
        rewards(records, fixed),
        gains(records),
        speeds(records, memory),
        ablation(records, fixed),
        steps(records),
        *(conflicts(records, vector) for vector in CONFLICT_VECTORS),
        *forgetting(records),
    ]
    return [table for table in found if table.rows]


def sweep(records: Records) -> list[Table]:
    """The table of a sweep, composites over the base and all combinations."""
    fixed = [BASE, *records]
    columns, body = _scores(records, fixed)
    body.pop(BASE)
    rows = {
        name: (
            _estimate(runs, lambda run: run.iteration_s),
            _estimate(runs, lambda run: run.learner_s),
            _estimate(runs, lambda run: stats.jitter(run.alpha_star)),
            _estimate(runs, lambda run: stats.jitter(run.alpha_ema)),
            *body[name],
        )
        for name, runs in records.items()
    }
    head = ("s/iteration", "learner s/iteration", "jitter of α*", "jitter of ᾱ", *columns)
    note = "Jitter is the mean of Σ_k |Δα_k| from one solve to the next. Composite: over the base and all rows here."
    return [Table("sweep", "Sweep", note, head, rows)]


def rewards(records: Records, fixed: Sequence[str]) -> Table:
    """Table 1: every reward on held-out prompts, and the composite."""
    columns, rows = _scores(records, fixed)
    note = (
        "Held-out prompts; mean ± standard error over seeds. Composite: mean over columns of z-scores, with mean and "
        f"σ of the rows {', '.join(fixed)}; a column that one of them lacks counts in no composite.{_ranking(rows)}"
    )
    return Table("rewards", "Rewards on held-out prompts", note, columns, rows)


def _ranking(rows: Mapping[str, tuple[Cell, ...]]) -> str:
    """The rows by their last cell, best first."""
    known = {row: cell.mean for row, cells in rows.items() if isinstance(cell := cells[-1], Estimate) and cell.n}
    ranked = sorted(known, key=lambda row: -known[row])
    return f" Ranking by composite: {', '.join(f'{row} {known[row]:+.3f}' for row in ranked)}." if ranked else ""


def gains(records: Records) -> Table:
    """What each method wins over the base, and in standard errors over seeds."""
    names = _reward_names(records)
    rows: dict[str, tuple[Cell, ...]] = {}
    for row, runs in records.items():
        found = [Estimate.of(_of(run.after, name) - _of(run.before, name) for run in runs) for name in names]
        rows[row] = tuple(cell for gain in found for cell in (gain, _in_errors(gain)))
    columns = tuple(column for name in names for column in (name, "/ s.e."))
    return Table("gains", "Gain over the base", "Mean ± standard error over seeds, and their ratio.", columns, rows)


def speeds(records: Records, memory: Mapping[str, float]) -> Table:
    """Table 2: cost beside the weighted sum's, seed by seed."""
    sums = {run.seed: run for run in records.get(WEIGHTED_SUM, ())}
    sum_memory = memory.get(WEIGHTED_SUM, math.nan)
    rows: dict[str, tuple[Cell, ...]] = {}
    for row, runs in records.items():
        gib = memory.get(row, math.nan)
        rows[row] = (
            _estimate(runs, lambda run: run.iteration_s),
            Estimate.of(_ratio(sums[run.seed].iteration_s, run.iteration_s) for run in runs if run.seed in sums),
            Estimate.of(_ratio(sums[run.seed].learner_s, run.learner_s) for run in runs if run.seed in sums),
            _one(gib),
            _one(_ratio(gib, sum_memory)),
            _estimate(runs, lambda run: float(run.iterations)),
            _one(runs[0].lr),
            _estimate(runs, lambda run: run.total_s / 60),
        )
    columns = (
        "s/iteration", "speed", "learner's speed", "learner GiB", "memory", "iterations", "lr", "minutes in all"
    )  # fmt: skip
    note = (
        "Speed and memory relative to weighted_sum. Measurements of conflicts are left out of the seconds, and peak "
        "memory is the tuning runs', which have none; minutes in all have evaluations and measurements in them. The "
        "learning rate is the one that tuning chose."
    )
    return Table("speed", "Training speed and peak memory", note, columns, rows)


def ablation(records: Records, fixed: Sequence[str]) -> Table:
    """Table 3: MARBLE without one of its parts."""
    chosen = {name: records[name] for name in (MARBLE, *ABLATIONS) if name in records}
    if MARBLE not in chosen or len(chosen) < 2:
        return Table("ablation", "", "", (), {})
    columns, rows = _scores(records, fixed)
    note = "How the steps of each are: below."
    return Table("ablation", "Ablation", note, columns, {name: rows[name] for name in chosen})


def steps(records: Records) -> Table:
    """How each method's steps are: what Table 3 leaves out of "fails"."""
    columns = tuple(dict.fromkeys(key for runs in records.values() for run in runs for key in run.health))
    rows = {
        name: tuple(Estimate.of(_of(run.health, key) for run in runs) for key in columns)
        for name, runs in records.items()
    }
    note = (
        "Norms, largest to smallest, are of the rewards' gradients on solving steps; largest share is the largest "
        "weight of a unit gradient in the step. KL to the base, before its weight: mean over the last tenth of the "
        "steps; not of Flow-GRPO, whose KL is of a sampler's step. Its share of the gradient's length: on solving "
        "steps, where there are any. The rest is over all steps."
    )
    return Table("steps", "Steps", note, columns, rows if columns else {})


def conflicts(records: Records, vector: str) -> Table:
    """Table S1: how often a step goes against some reward, each method along its own run."""
    kinds = ((True, "solving"), (False, "amortised"), (None, "all"))
    rows: dict[str, tuple[Cell, ...]] = {}
    for row, runs in records.items():
        both = len({window.solved for run in runs for window in run.windows}) > 1
        for solved, kind in kinds if both else kinds[-1:]:
            for against in ("same", "next"):
                cells = _conflict_cells(runs, vector, solved, against)
                if cells is not None:
                    rows[f"{row}, {kind} steps, {against} batch"] = cells
    titles = {
        "direction": "Conflicts of the rewards' direction",
        "gradient": "Conflicts of the whole gradient, KL in it",
        "update": "Conflicts of the parameters' move under AdamW",
    }
    columns = ("windows", "opposing some reward", "mean cosine", "mean of the worst", "worst")
    note = (
        "A window is one measured step; all steps: both kinds, each in its share of the run's steps. Opposing: its "
        "cosine with some reward's gradient is negative. Next batch: the gradients of the next iteration's batch, at "
        "the parameters as they are by then. Worst: over all seeds."
    )
    return Table(f"conflicts_{vector}", titles[vector], note, columns, rows)


def _conflict_cells(
    runs: Sequence[RunRecord], vector: str, solved: bool | None, against: str
) -> tuple[Cell, ...] | None:
    found = [_conflicts_of(run, vector, solved, against) for run in runs]
    found = [one for one in found if one.windows]
    if not found:
        return None
    return (
        _one(float(sum(one.windows for one in found))),
        Estimate.of(one.opposing for one in found),
        Estimate.of(one.mean for one in found),
        Estimate.of(one.mean_worst for one in found),
        _one(min(one.worst for one in found)),
    )


def _conflicts_of(run: RunRecord, vector: str, solved: bool | None, against: str) -> stats.Conflicts:
    solving, amortised = (
        stats.conflicts(w.cosines[vector] for w in run.windows if w.against == against and w.solved == kind)
        for kind in (True, False)
    )
    if solved is None:
        return stats.all_steps(solving, amortised, run.solved_share)
    return solving if solved else amortised


def forgetting(records: Records) -> list[Table]:
    """For each method with several stages: every reward after each of them."""
    tables = []
    for row, runs in records.items():
        if not runs or len(runs[0].stages) < 2:
            continue
        names = _reward_names({row: runs})
        rows: dict[str, tuple[Cell, ...]] = {BASE: _base(runs, names)}
        # By place: seeds may differ in how long a stage was, never in how many there are.
        for index, label in enumerate(runs[0].stages):
            after = [list(run.stages.values())[index] for run in runs if len(run.stages) == len(runs[0].stages)]
            rows[label] = tuple(Estimate.of(_of(means, name) for means in after) for name in names)
        note = "Held-out prompts, after each stage (its rewards, its iterations); mean ± standard error over seeds."
        tables.append(Table(f"forgetting_{row}", f"Forgetting: {row}", note, tuple(names), rows))
    return tables


# -- cells ------------------------------------------------------------------------------------------------------------


def _scores(records: Records, fixed: Sequence[str]) -> tuple[tuple[str, ...], dict[str, tuple[Cell, ...]]]:
    """Columns and rows of every reward with the composite behind it, the base first."""
    names = _reward_names(records)
    everyone = [run for runs in records.values() for run in runs]
    means = {row: {name: _after(runs, name).mean for name in names} for row, runs in records.items()}
    base = {name: Estimate.of(_of(run.before, name) for run in everyone).mean for name in names}
    scales = stats.scales({BASE: base, **means}, fixed, names)
    rows: dict[str, tuple[Cell, ...]] = {BASE: (*_base(everyone, names), _one(stats.composite(base, scales)))}
    for row, runs in records.items():
        cells = [_after(runs, name) for name in names]
        rows[row] = (*cells, _estimate(runs, lambda run: stats.composite(run.after, scales)))
    return (*names, COMPOSITE), rows


def _base(runs: Iterable[RunRecord], names: Sequence[str]) -> tuple[Cell, ...]:
    """The base is the same for every seed: what differs in the last bit is no spread."""
    found = list(runs)
    return tuple(_one(Estimate.of(_of(run.before, name) for run in found).mean) for name in names)


def _reward_names(records: Records) -> list[str]:
    return list(dict.fromkeys(name for runs in records.values() for run in runs for name in run.after))


def _estimate(runs: Iterable[RunRecord], value: Callable[[RunRecord], float]) -> Estimate:
    return Estimate.of(value(run) for run in runs)


def _after(runs: Iterable[RunRecord], name: str) -> Estimate:
    return Estimate.of(_of(run.after, name) for run in runs)


def _one(value: float) -> Estimate:
    """A number that no seeds stand behind."""
    return stats.UNKNOWN if math.isnan(value) else Estimate(value, math.nan, 1)


def _in_errors(gain: Estimate) -> Cell:
    return f"{gain.mean / gain.se:+.1f}" if gain.se > 0 else "-"


def _ratio(one: float, other: float) -> float:
    return one / other if other > 0 else math.nan


def _of(values: Mapping[str, float], name: str) -> float:
    return values.get(name, math.nan)
