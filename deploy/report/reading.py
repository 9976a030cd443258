"""A run directory as the report needs it. What is damaged or absent is left out alone, and said in one line each.

Files of a run are anyone's to write, so nothing in them is believed to have the right type.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from actors.ledger_parts import CONFLICTS, SAMPLES, STEPS, parts
from deploy import strict_yaml
from deploy.errors import one_line
from deploy.overview import RunState, read_run
from deploy.report.numbers import arrays
from deploy.report.numbers.arrays import Measured, Samples, Steps
from deploy.report.numbers.heldout import Evaluation
from deploy.report.pictures import PictureSet, read_pictures
from deploy.rundir import RunDir
from learner import json_text
from learner.errors import UserError
from rewards.contract import State

MAX_TOLD = 5
"""Damaged parts of one kind that are named; the rest is counted."""
Event = Mapping[str, Any]
Part = TypeVar("Part")


@dataclass(frozen=True, eq=False)
class RunRecord:
    """All that a run directory says."""

    label: str
    state: RunState
    config: Mapping[str, Any]
    """The resolved recipe as plain data; empty where it cannot be read."""
    config_text: str
    names: tuple[str, ...]
    """[K] training rewards."""
    samples: Samples | None
    steps: Steps | None
    measured: Measured | None
    """Steps held against every reward's gradient, where the recipe asked for it."""
    evaluations: tuple[Evaluation, ...]
    """In order; the base's is of 0 iterations."""
    events: tuple[Event, ...]
    launches: tuple[Event, ...]
    pictures: tuple[PictureSet, ...]
    stopped_early: str
    """Why the run ended before its last iteration; empty where it did not."""
    missing: tuple[str, ...]
    """What is damaged or absent, a line each."""


def read_record(run_dir: RunDir, label: str) -> RunRecord:
    """Everything readable in a run directory; never raises for what its files hold."""
    missing: list[str] = []
    config, text = _config(run_dir, missing)
    names = _reward_names(run_dir, config)
    if not names:
        missing.append("no rewards are known: neither config.yaml nor the ledger names any")
    samples = _ledger(run_dir, SAMPLES, names, arrays.samples_of, missing)
    steps = _ledger(run_dir, STEPS, _gradient_names(run_dir) or names, arrays.steps_of, missing)
    measured = _ledger(run_dir, CONFLICTS, names, arrays.measured_of, missing)
    for table, found in ((SAMPLES, samples), (STEPS, steps)):
        if names and not found and not parts(run_dir.path, table):
            missing.append(f"the ledger has no {table} yet")
    pictures, problems = read_pictures(run_dir.samples)
    return RunRecord(
        label=label,
        state=read_run(run_dir),
        config=config,
        config_text=text,
        names=names,
        samples=arrays.join_samples(samples) if samples else None,
        steps=arrays.join_steps(steps) if steps else None,
        measured=arrays.join_measured(measured) if measured else None,
        evaluations=read_evaluations(run_dir, missing),
        events=_lines(run_dir.metrics, missing),
        launches=_lines(run_dir.launches, missing),
        pictures=pictures,
        stopped_early=_stopped_early(run_dir),
        missing=(*missing, *_cut(problems, "pictures")),
    )


def _config(run_dir: RunDir, missing: list[str]) -> tuple[Mapping[str, Any], str]:
    """The recipe as data and as text. Not checked: it may be of another version, or its files elsewhere."""
    try:
        text = run_dir.config.read_text(encoding="utf-8")
        return strict_yaml.load(run_dir.config), text
    except (UserError, OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        missing.append(f"config.yaml cannot be read ({one_line(str(error))[:200]})")
        return {}, ""


def _stopped_early(run_dir: RunDir) -> str:
    """As summary.json says, which only finished runs have; what is wrong with it is the run state's to tell."""
    try:
        found = json_text.parse(run_dir.summary.read_bytes())
    except (OSError, ValueError):
        return ""
    return one_line(str(found.get("stopped_early") or ""))[:200] if isinstance(found, dict) else ""


def _reward_names(run_dir: RunDir, config: Mapping[str, Any]) -> tuple[str, ...]:
    """Names from the recipe, or else from the newest ledger part that can be read."""
    rewards = config.get("rewards")
    if isinstance(rewards, Mapping) and rewards:
        return tuple(str(name) for name in rewards)
    for _, path in reversed(parts(run_dir.path, SAMPLES)):
        try:
            noted = (pq.read_schema(path).metadata or {}).get(b"rewards", b"").decode()
        except (pa.ArrowException, OSError, UnicodeDecodeError):
            continue
        if noted:
            return tuple(noted.split("\n"))
    return ()


def _gradient_names(run_dir: RunDir) -> tuple[str, ...]:
    """What the run's steps weigh: its rewards, or their sum alone; from the newest part that says so."""
    for _, path in reversed(parts(run_dir.path, STEPS)):
        try:
            found = arrays.gradient_names(pq.read_schema(path).names)
        except (pa.ArrowException, OSError):
            continue
        if found:
            return found
    return ()


def _ledger(
    run_dir: RunDir,
    table: str,
    names: Sequence[str],
    convert: Callable[[pa.Table, Sequence[str]], Part],
    missing: list[str],
) -> list[Part]:
    """The readable parts of one table."""
    found: list[Part] = []
    broken: list[str] = []
    for _, path in parts(run_dir.path, table) if names else []:
        try:
            part = pq.read_table(path)
            if part.num_rows:
                found.append(convert(part, names))
        except (pa.ArrowException, OSError, ValueError, TypeError, OverflowError) as error:
            broken.append(f"ledger/{path.name} cannot be read ({one_line(str(error))[:160]})")
    missing += _cut(broken, f"parts of ledger/{table}")
    return found


def read_evaluations(run_dir: RunDir, missing: list[str]) -> tuple[Evaluation, ...]:
    """Every readable evaluation in order; what cannot be read is added to `missing`."""
    found: list[Evaluation] = []
    broken: list[str] = []
    paths = [path for path in (run_dir.path / "evaluations").glob("*.parquet") if path.stem.isascii()]
    for path in sorted((p for p in paths if p.stem.isdecimal()), key=lambda p: int(p.stem)):
        try:
            found.append(_evaluation(path))
        except (pa.ArrowException, OSError, LookupError, ValueError, TypeError) as error:
            broken.append(f"evaluations/{path.name} cannot be read ({one_line(str(error))[:160]})")
    missing += _cut(broken, "evaluations")
    if not found:
        missing.append("no evaluation on held-out prompts can be read")
    return tuple(found)


def _evaluation(path: Path) -> Evaluation:
    table = pq.read_table(path)
    rewards = [column.removeprefix("score_") for column in table.column_names if column.startswith("score_")]
    states = {name: arrays.floats_of(table, f"state_{name}") for name in rewards}
    return Evaluation(
        done=int(path.stem),
        prompt_ids=tuple(str(text) for text in table.column("prompt_id").to_pylist()),
        scores={name: arrays.floats_of(table, f"score_{name}") for name in rewards},
        failed={name: int(np.count_nonzero(state == State.FAILED)) for name, state in states.items()},
    )


def _lines(path: Path, missing: list[str]) -> tuple[Event, ...]:
    """JSON objects, a line each; of the last line a crash may have left only half, which nobody needs to be told."""
    try:
        lines = [(n, line) for n, line in enumerate(path.read_bytes().split(b"\n"), start=1) if line.strip()]
    except OSError as error:
        missing.append(f"{path.name} cannot be read ({(error.strerror or str(error)).lower()})")
        return ()
    found: list[Event] = []
    broken: list[str] = []
    for number, line in lines:
        try:
            event = json_text.parse(line)
            problem = "" if isinstance(event, dict) else f"expected a JSON object, got {type(event).__name__}"
        except ValueError as error:
            problem = "" if number == lines[-1][0] else f"not JSON: {error}"
            event = None
        if problem:
            broken.append(f"{path.name}, line {number} is left out ({problem})")
        elif event is not None:
            found.append(event)
    missing += _cut(broken, f"lines of {path.name}")
    return tuple(found)


def _cut(lines: Sequence[str], what: str) -> list[str]:
    """The first few lines, and how many more there are."""
    rest = len(lines) - MAX_TOLD
    return [*lines[:MAX_TOLD], *([f"and {rest} more {what}"] if rest > 0 else [])]
