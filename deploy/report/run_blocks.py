"""The blocks of one run: gradients, stages, specialists, times, failures, recipe and versions."""

import math
from collections.abc import Sequence

import numpy as np

from deploy.progress.view import duration, number
from deploy.report.blocks import Block, Cell, Table, percent, row, table
from deploy.report.drawing import maps, times
from deploy.report.gradient_blocks import NO_STEPS, gradient_blocks
from deploy.report.numbers.failures import Counts, StepFailures
from deploy.report.numbers.run import RunNumbers, SampleNumbers
from deploy.report.numbers.specialists import HIGH
from deploy.report.numbers.stages import Stage, at
from deploy.report.numbers.times import Part
from deploy.report.reading import RunRecord

NO_SAMPLES = "The ledger holds no sample of this run."


def run_blocks(record: RunRecord, numbers: RunNumbers, prefix: str) -> tuple[Block, ...]:
    """Every block of a run; ids begin with `prefix`."""
    return (
        *([_stages(numbers, prefix)] if len(numbers.stages) > 1 else []),
        *gradient_blocks(record, numbers.gradients, numbers.conflicts, prefix),
        _specialists(numbers.samples, prefix),
        _times(numbers, prefix),
        _failures(numbers, prefix),
        _recipe(record, prefix),
        _versions(record, prefix),
    )


# -- samples ----------------------------------------------------------------------------------------------------------


def _stages(numbers: RunNumbers, prefix: str) -> Block:
    """What each stage left of every reward on the held-out prompts: what it trained in bold, so what is forgotten."""
    names = list(numbers.heldout)
    rows = [row("base", "", *(number(at(numbers.heldout[name], 0), 4) for name in names))]
    for index, stage in enumerate(numbers.stages, start=1):
        cells = [
            Cell(number(at(numbers.heldout[name], stage.end), 4), "trained" if name in stage.rewards else "")
            for name in names
        ]
        rows.append(row(f"{index}. {' + '.join(stage.rewards)}", _span(stage), *cells))
    text = "Means on the held-out prompts after each stage; what the stage trained is bold."
    tables = (table(("stage", "iterations", *names), rows),) if names else ()
    missing = () if names else ("No evaluation at the end of a stage can be read.",)
    return Block(f"{prefix}-stages", "Stages", text if names else "", tables=tables, missing=missing)


def _span(stage: Stage) -> str:
    first = stage.begin + 1
    return str(first) if first == stage.end else f"{first} to {stage.end}"


def _specialists(found: SampleNumbers | None, prefix: str) -> Block:
    title = "Specialist samples"
    if found is None:
        return Block(f"{prefix}-specialists", title, missing=(NO_SAMPLES,))
    drawings = []
    for when, group in (("first", found.first_maps), ("last", found.last_maps)):
        for index, one in enumerate(group):
            name = f"{one.source}, iteration {one.iteration + 1}"
            drawings.append(maps.advantages(name, one, f"{prefix}-{when}{index}"))
    rows = [row(s.source, str(s.samples), percent(s.specialists), percent(s.all_positive)) for s in found.shares]
    columns = ("source", "samples", "specialists", "above average for every reward")
    text = (
        "Each column is one image, each row a reward: its score against the other images of its prompt, in standard "
        "deviations (blue better, red worse, grey no signal). Images stand with the reward they are best at. Few are "
        "good at everything, which is what a weighted sum averages away. Shown are the first and the last iteration "
        "with a signal from the most rewards."
    )
    caption = (
        f"Over the whole run, images with a signal from at least two rewards. A specialist is {HIGH:g} σ or more above "
        "its group for one reward and below average for another."
    )
    missing = () if drawings else ("No sample carries a signal.",)
    shown = (table(columns, rows, caption),) if any(one.samples for one in found.shares) else ()
    return Block(f"{prefix}-specialists", title, text if drawings else "", tuple(drawings), shown, missing=missing)


# -- times and failures -----------------------------------------------------------------------------------------------


def _times(numbers: RunNumbers, prefix: str) -> Block:
    found = numbers.times
    drawings = (times.seconds(found, f"{prefix}-stages"),) if found.stages else ()
    tables = (
        _parts_table("Where the time went", found.went),
        _parts_table("Where time was lost", found.lost),
    )
    missing = () if found.stages else ("The ledger holds no stage times.",)
    text = f"Wall time {duration(found.wall_s)}." if math.isfinite(found.wall_s) else ""
    shown = tuple(one for one in tables if one.rows)
    return Block(f"{prefix}-times", "Time", text, drawings, shown, missing=missing)


def _parts_table(title: str, parts: Sequence[Part]) -> Table:
    rows = [row(part.what, duration(part.seconds), percent(part.share), Cell(part.note, "faint")) for part in parts]
    return table(("", "time", "share", ""), rows, title)


def _failures(numbers: RunNumbers, prefix: str) -> Block:
    samples, gradients = numbers.samples, numbers.gradients
    missing = [*([] if samples else [NO_SAMPLES]), *([] if gradients else [NO_STEPS])]
    tables, drawings = [], []
    if samples is not None:
        rows = [
            row(f.name, f"{f.failed} of {f.applicable}", percent(f.share), Cell(_counts(f.reasons), "faint"))
            for f in samples.failures
        ]
        broken = [one for one in samples.failures if one.failed]
        columns = ("reward", "failed cells", "share", *(["commonest reasons"] if broken else []))
        tables.append(table(columns, [cells[: len(columns)] for cells in rows]))
        drawings += [times.failed(broken, f"{prefix}-failed")] if broken else []
    if gradients is not None:
        tables.append(_steps_table(gradients.failures, numbers))
    return Block(f"{prefix}-failures", "Failures", "", tuple(drawings), tuple(tables), missing=tuple(missing))


def _steps_table(steps: StepFailures, numbers: RunNumbers) -> Table:
    skipped, odd = sum(n for _, n in steps.skipped), sum(n for _, n in steps.statuses)
    found = [
        ("steps not applied", f"{skipped} of {steps.steps}", _counts(steps.skipped)),
        ("solves not optimal", f"{odd} of {steps.solves}", _counts(steps.statuses)),
        ("rewards left out of a solve", str(sum(n for _, n in steps.left)), _counts(steps.left)),
        ("restarts", str(numbers.restarts), ""),
        ("alarms of reward hacking", str(len(numbers.alarms)), "; ".join(numbers.alarms)),
    ]
    if steps.unbounded:
        found.append(("bounds on KL that could not be kept", f"{steps.unbounded} of {steps.solves}", ""))
    rows = [row(what, count, Cell(why, "faint")) for what, count, why in found]
    columns = ("steps", "number", *(["why"] if any(why for _, _, why in found) else []))
    return table(columns, [cells[: len(columns)] for cells in rows])


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


# -- what one wants to know first -------------------------------------------------------------------------------------


def tiles(numbers: RunNumbers, clear_se: float) -> tuple[tuple[str, str], ...]:
    """(number, what it is) of what one wants to know of a run first."""
    found = []
    trained = [result for result in numbers.results if result.trained]
    if trained:
        up = sum(result.ratio >= clear_se for result in trained)
        found.append((f"{up} of {len(trained)}", f"training rewards up by {clear_se:g} s.e. or more"))
    if numbers.alarms:
        found.append((str(len(numbers.alarms)), "alarms of reward hacking"))
    found += _conflict_tiles(numbers)
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


def _conflict_tiles(numbers: RunNumbers) -> list[tuple[str, str]]:
    """Of measured steps where there are any, else of the solves, which know their own batch only."""
    if numbers.conflicts is not None and numbers.conflicts.rows:
        one = numbers.conflicts.rows[0]
        what = f"of {one.same.windows} measured steps opposed some reward, on the same and on the next batch"
        return [(f"{percent(one.same.opposing)}, {percent(one.next.opposing)}", what)]
    if numbers.gradients is not None and numbers.gradients.conflict.known and len(numbers.gradients.names) > 1:
        conflict = numbers.gradients.conflict
        return [(percent(conflict.share), f"of {conflict.known} solved steps went against some reward")]
    return []
