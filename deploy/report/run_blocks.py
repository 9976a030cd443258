"""The blocks of one run: weights, cosines, norms, KL, specialists, times, failures, recipe and versions."""

import math
from collections.abc import Sequence

import numpy as np

from deploy.progress.view import duration
from deploy.report.blocks import Block, Cell, Table, row, table
from deploy.report.drawing import lines, maps, stages
from deploy.report.drawing.svg import Drawing
from deploy.report.numbers.failures import Counts
from deploy.report.numbers.gradients import Conflict, mean_of
from deploy.report.numbers.run import GradientNumbers, RunNumbers, SampleNumbers
from deploy.report.numbers.specialists import HIGH
from deploy.report.numbers.times import Part
from deploy.report.reading import RunRecord

POSITIONS = {1: ("Only solve",), 2: ("First solve", "Last solve"), 3: ("First solve", "Middle solve", "Last solve")}
NO_STEPS = "The ledger holds no optimizer step of this run."
NO_SAMPLES = "The ledger holds no sample of this run."


def run_blocks(record: RunRecord, numbers: RunNumbers, prefix: str) -> tuple[Block, ...]:
    """Every block of a run; ids begin with `prefix`."""
    return (
        _weights(record.names, numbers.gradients, prefix),
        _conflict(record.names, numbers.gradients, prefix),
        _specialists(record.names, numbers.samples, prefix),
        _norms(record.names, numbers.gradients, prefix),
        _kl(numbers.gradients, prefix),
        _times(numbers, prefix),
        _failures(numbers, prefix),
        _recipe(record, prefix),
        _versions(record, prefix),
    )


# -- gradients --------------------------------------------------------------------------------------------------------


def _weights(names: Sequence[str], found: GradientNumbers | None, prefix: str) -> Block:
    title = "Weights"
    text = (
        "The share of each reward's unit gradient in the step. ᾱ is the moving average that steps between solves use; "
        "a hard reward gets much, one that the others serve anyway gets little."
    )
    if found is None:
        return Block(f"{prefix}-weights", title, missing=(NO_STEPS,))
    drawings = []
    if found.weights.values.size:
        which = "Smoothed weights ᾱ" if found.alpha_star.values.size else "Applied weights"
        drawings.append(lines.by_reward(which, names, found.weights, f"{prefix}-ema"))
    if found.alpha_star.values.size:
        drawings.append(lines.by_reward("Weights α* of single solves", names, found.alpha_star, f"{prefix}-star"))
    missing = () if drawings else ("No step of this run has weights.",)
    return Block(f"{prefix}-weights", title, text, tuple(drawings), missing=missing)


def _conflict(names: Sequence[str], found: GradientNumbers | None, prefix: str) -> Block:
    title = "Gradient cosines"
    if found is None:
        return Block(f"{prefix}-cosines", title, missing=(NO_STEPS,))
    drawings: list[Drawing] = []
    for position, one in zip(POSITIONS.get(len(found.snapshots), ()), found.snapshots, strict=True):
        name = f"{position}, step {one.step}"
        drawings.append(maps.cosines(name, names, one, f"{prefix}-cos{one.step}"))
    missing = [] if drawings else ["No step of this run solved, so no cosines between gradients are known."]
    worst = [("applied direction", found.worst_cosine), ("plain sum of gradients", found.sum_worst_cosine)]
    known = [(name, series) for name, series in worst if len(series.step)]
    if known:
        note = "Below 0, the step goes against some reward."
        drawings.append(lines.together("Worst cosine of any reward", known, f"{prefix}-worst", note=note, zero=True))
    if known and len(known) == 1:
        missing.append("The ledger holds no cosines of the plain sum of gradients.")
    text = (
        "Cosines between the rewards' gradients over the same batch: blue pairs pull together, red ones apart. The "
        "worst cosine is that of the reward which a step served least."
    )
    return Block(f"{prefix}-cosines", title, text, tuple(drawings), _conflict_table(found), tuple(missing))


def _conflict_table(found: GradientNumbers) -> tuple[Table, ...]:
    rows = [
        row(name, str(c.known), _percent(c.share), _number(c.mean), _number(c.worst))
        for name, c in (("applied direction", found.conflict), ("plain sum of gradients", found.sum_conflict))
        if c.known
    ]
    columns = ("direction", "solves", "against some reward", "mean worst cosine", "lowest")
    return (table(columns, rows),) if rows else ()


def _norms(names: Sequence[str], found: GradientNumbers | None, prefix: str) -> Block:
    title = "Gradient norms"
    if found is None:
        return Block(f"{prefix}-norms", title, missing=(NO_STEPS,))
    drawings = []
    if found.norms.values.size:
        drawings.append(
            lines.by_reward("Norm of each reward's gradient", names, found.norms, f"{prefix}-norm", log=True)
        )
    if len(found.grad_norm.step):
        whole = [("whole step", found.grad_norm)]
        drawings.append(lines.together("Norm of the whole step, before clipping", whole, f"{prefix}-gradnorm"))
    missing = () if drawings else ("No norm is known.",)
    text = "Adding gradients up lets the longest one win; MARBLE solves on unit gradients."
    return Block(f"{prefix}-norms", title, text, tuple(drawings), missing=missing)


def _kl(found: GradientNumbers | None, prefix: str) -> Block:
    title = "KL to the base"
    if found is None:
        return Block(f"{prefix}-kl", title, missing=(NO_STEPS,))
    drawings, missing = [], []
    shown = (
        ("Cosine of KL's gradient with the rewards' direction", "kl_cosine", found.kl_cosine),
        ("Share of KL in the step's norm", "kl_share", found.kl_share),
        ("Mean squared velocity difference", "kl", found.kl),
    )
    for name, key, series in shown:
        if len(series.step):
            plot = lines.together(name, [(name, series)], f"{prefix}-{key}", zero=key == "kl_cosine")
            drawings.append(plot)
        else:
            missing.append(f"{name}: not in the ledger.")
    means = [f"mean cosine {_number(mean_of(found.kl_cosine))}", f"mean share {_percent(mean_of(found.kl_share))}"]
    text = "KL stands outside the balance; a negative cosine means that it pulls against the rewards: " + ", ".join(
        means
    )
    return Block(f"{prefix}-kl", title, f"{text}.", tuple(drawings), missing=tuple(missing))


# -- samples ----------------------------------------------------------------------------------------------------------


def _specialists(names: Sequence[str], found: SampleNumbers | None, prefix: str) -> Block:
    title = "Specialist samples"
    if found is None:
        return Block(f"{prefix}-specialists", title, missing=(NO_SAMPLES,))
    drawings = []
    for when, group in (("first", found.first_maps), ("last", found.last_maps)):
        for index, one in enumerate(group):
            name = f"{one.source}, iteration {one.iteration + 1}"
            drawings.append(maps.advantages(name, names, one, f"{prefix}-map-{when}{index}"))
    rows = [row(s.source, str(s.samples), _percent(s.specialists), _percent(s.all_positive)) for s in found.shares]
    columns = ("source", "samples", "specialists", "above average for every reward")
    text = (
        "Each column is one image, each row a reward: its score against the other images of its prompt, in standard "
        "deviations (blue better, red worse, grey no signal). Images stand with the reward they are best at. Few are "
        "good at everything, which is what a weighted sum averages away."
    )
    caption = (
        f"Over the whole run, images with a signal from at least two rewards. A specialist is {HIGH:g} σ or more above "
        "its group for one reward and below average for another."
    )
    return Block(f"{prefix}-specialists", title, text, tuple(drawings), (table(columns, rows, caption),))


# -- times and failures -----------------------------------------------------------------------------------------------


def _times(numbers: RunNumbers, prefix: str) -> Block:
    times = numbers.times
    drawings = (stages.seconds(times, f"{prefix}-stages"),) if times.stages else ()
    tables = (
        _parts_table("Where the time went", times.went),
        _parts_table("Where time was lost", times.lost),
    )
    missing = () if times.stages else ("The ledger holds no stage times.",)
    text = f"Wall time {duration(times.wall_s)}." if math.isfinite(times.wall_s) else ""
    shown = tuple(one for one in tables if one.rows)
    return Block(f"{prefix}-times", "Time", text, drawings, shown, missing)


def _parts_table(title: str, parts: Sequence[Part]) -> Table:
    rows = [row(part.what, duration(part.seconds), _percent(part.share), Cell(part.note, "faint")) for part in parts]
    return table((title, "time", "share", ""), rows)


def _failures(numbers: RunNumbers, prefix: str) -> Block:
    samples, gradients = numbers.samples, numbers.gradients
    missing = [*([] if samples else [NO_SAMPLES]), *([] if gradients else [NO_STEPS])]
    tables, drawings = [], []
    if samples is not None:
        rows = [
            row(f.name, f"{f.failed} of {f.applicable}", _percent(f.share), Cell(_counts(f.reasons), "faint"))
            for f in samples.failures
        ]
        tables.append(table(("reward", "failed cells", "share", "commonest reasons"), rows))
        broken = [one for one in samples.failures if one.failed]
        drawings += [stages.failed(broken, f"{prefix}-failed")] if broken else []
    if gradients is not None:
        steps = gradients.failures
        skipped, odd = sum(n for _, n in steps.skipped), sum(n for _, n in steps.statuses)
        rows = [
            row("steps not applied", f"{skipped} of {steps.steps}", Cell(_counts(steps.skipped), "faint")),
            row("solves not optimal", f"{odd} of {steps.solves}", Cell(_counts(steps.statuses), "faint")),
            row("rewards left out of a solve", str(sum(n for _, n in steps.left)), Cell(_counts(steps.left), "faint")),
            row("restarts", str(numbers.restarts), ""),
            row("alarms of reward hacking", str(len(numbers.alarms)), Cell("; ".join(numbers.alarms), "faint")),
        ]
        tables.append(table(("steps", "number", "why"), rows))
    return Block(f"{prefix}-failures", "Failures", "", tuple(drawings), tuple(tables), tuple(missing))


def _counts(counts: Counts) -> str:
    return "; ".join(f"{number} × {text[:200]}" for text, number in counts)


# -- recipe -----------------------------------------------------------------------------------------------------------


def _recipe(record: RunRecord, prefix: str) -> Block:
    missing = () if record.config_text else ("config.yaml cannot be read.",)
    text = "The recipe with every default filled in, as config.yaml holds it."
    return Block(f"{prefix}-recipe", "Recipe", text, missing=missing, code=record.config_text)


def _versions(record: RunRecord, prefix: str) -> Block:
    starts = [launch for launch in record.launches if isinstance(launch.get("packages"), dict)]
    if not starts:
        return Block(f"{prefix}-versions", "Versions", missing=("launches.jsonl holds no start of this run.",))
    packages = list(dict.fromkeys(name for launch in starts for name in launch["packages"]))
    rows = [row("python", *(str(launch.get("python", "-")) for launch in starts))]
    rows += [row(str(name), *(str(launch["packages"].get(name, "-")) for launch in starts)) for name in packages]
    heads = [f"start {n}" if len(starts) > 1 else "version" for n, _ in enumerate(starts, start=1)]
    return Block(f"{prefix}-versions", "Versions", tables=(table(("package", *heads), rows),))


# -- numbers as text --------------------------------------------------------------------------------------------------


def _percent(share: float) -> str:
    return f"{share:.1%}" if math.isfinite(share) else "-"


def _number(value: float) -> str:
    return f"{value:+.3f}".replace("-", "\N{MINUS SIGN}") if math.isfinite(value) else "-"


def tiles(numbers: RunNumbers, clear_se: float) -> tuple[tuple[str, str], ...]:
    """(number, what it is) of what one wants to know of a run first."""
    found = []
    trained = [result for result in numbers.results if result.trained]
    if trained:
        up = sum(result.ratio >= clear_se for result in trained)
        found.append((f"{up} of {len(trained)}", f"training rewards up by {clear_se:g} s.e. or more"))
    if numbers.gradients is not None and numbers.gradients.conflict.known:
        conflict: Conflict = numbers.gradients.conflict
        found.append((_percent(conflict.share), f"of {conflict.known} solved steps went against some reward"))
    if numbers.samples is not None:
        failed = sum(one.failed for one in numbers.samples.failures)
        cells = sum(one.applicable for one in numbers.samples.failures)
        found.append((f"{failed}", f"of {cells} cells failed"))
    if math.isfinite(numbers.times.wall_s):
        found.append((duration(numbers.times.wall_s), "wall time"))
    totals = sum(float(np.nansum(row)) for row in numbers.times.stages.values())
    if len(numbers.times.iterations) and totals > 0:
        found.append((f"{totals / len(numbers.times.iterations):.1f} s", "per iteration"))
    return tuple(found)
