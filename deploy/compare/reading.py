"""What the files of one run say: the only source of the tables' numbers.

Letters: K rewards or whatever else has a gradient.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from actors.evaluation import evaluated, evaluation_path
from actors.ledger_parts import CONFLICTS, STEPS, read_table
from actors.metrics import MetricsLog
from actors.run_config import RunConfig
from deploy.compare.runs import summary
from deploy.compare.statistics import whole_windows
from deploy.recipe import load_resolved
from deploy.rundir import RunDir
from learner.config import FLOW_GRPO
from learner.errors import UserError
from learner.stages import ends, measures
from learner.types import CONFLICT_VECTORS

SCORE = "score_"
"""What an evaluation's columns of scores begin with."""
LEARNER_ROLE = "learner rank"


@dataclass(frozen=True)
class Window:
    """A step held against the rewards' gradients of one batch."""

    solved: bool
    against: str
    cosines: Mapping[str, tuple[float, ...]]
    """[K] by vector (learner.types.CONFLICT_VECTORS); NaN where not known."""


@dataclass(frozen=True)
class RunRecord:
    """One finished run."""

    row: str
    seed: int
    iterations: int
    before: Mapping[str, float]
    """Mean of each reward on the held-out prompts, of the base."""
    after: Mapping[str, float]
    stages: Mapping[str, Mapping[str, float]]
    """The same after each stage, by what it trained."""
    total_s: float
    """Wall time of the whole run, evaluations and measurements in it."""
    iteration_s: float
    """Mean of an iteration, measurements left out."""
    learner_s: float
    """Its part in the learner."""
    windows: Sequence[Window] = ()
    solved_share: float = 0.0
    """Of its optimizer steps."""
    lr: float = math.nan
    alpha_star: Sequence[Sequence[float]] = ()
    """[K] of each solve."""
    alpha_ema: Sequence[Sequence[float]] = ()
    health: Mapping[str, float] = field(default_factory=dict)
    """How its steps were: :func:`step_health`."""


def read_run(run_dir: RunDir, row: str) -> RunRecord:
    """
    Raises:
        UserError: the run is not over, or a file of it is missing or damaged.
    """
    config = load_resolved(run_dir.config).config
    done = summary(run_dir)
    if done is None:
        raise UserError(f"{run_dir.path} is not over, or its summary.json is damaged")
    try:
        return _record(run_dir, row, config, done)
    except (OSError, LookupError, ValueError, TypeError) as error:
        raise UserError(f"{run_dir.path} cannot be read: {type(error).__name__}: {error}") from error


def _record(run_dir: RunDir, row: str, config: RunConfig, done: Mapping[str, Any]) -> RunRecord:
    steps = read_table(run_dir.path, STEPS).to_pylist()
    solves, names = [step for step in steps if step["solved"]], config.gradient_names
    iteration_s, learner_s = speed(MetricsLog(run_dir.path).read(), config)
    return RunRecord(
        row=row,
        seed=config.run.seed,
        iterations=int(done["iterations"]),
        before=evaluation_means(evaluation_path(run_dir.path, 0)),
        after=evaluation_means(evaluation_path(run_dir.path, int(done["iterations"]))),
        stages=_stages(run_dir.path, config),
        total_s=float(done["seconds"]),
        iteration_s=iteration_s,
        learner_s=learner_s,
        windows=windows(read_table(run_dir.path, CONFLICTS).to_pylist(), config.reward_names),
        solved_share=len(solves) / len(steps) if steps else 0.0,
        lr=config.learner.lr,
        alpha_star=[_axis(step, "alpha_star", names) for step in solves],
        alpha_ema=[_axis(step, "alpha_ema", names) for step in solves],
        health=step_health(steps, config),
    )


def evaluation_means(path: Path) -> dict[str, float]:
    """Mean score of every reward in an evaluation's file, held-out ones too; NaN where none was scored."""
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    columns = [name for name in table.column_names if name.startswith(SCORE)]
    return {name.removeprefix(SCORE): _mean(table.column(name).to_pylist()) for name in columns}


def _stages(run_dir: Path, config: RunConfig) -> dict[str, dict[str, float]]:
    stages, there = config.learner.stages, set(evaluated(run_dir))
    return {
        f"{index}. {' + '.join(stage.rewards)} ({stage.iterations})": evaluation_means(evaluation_path(run_dir, end))
        for index, (stage, end) in enumerate(zip(stages, ends(stages), strict=True), start=1)
        if end in there
    }


def speed(events: Sequence[Mapping[str, Any]], config: RunConfig) -> tuple[float, float]:
    """Mean seconds of an iteration and of its part in the learner, over whole windows between solves.

    Left out: measurements of conflicts; what an iteration scored for them and would not have without; and the first
    iteration of each life of a run, which fills caches.
    """
    iterations, warming = [], True
    for event in events:
        if event["event"] == "resume":
            warming = True
        elif event["event"] == "iteration":
            scored_more = config.learner.stages and measures(config.learner, event["iteration"])
            if not warming and not scored_more:
                iterations.append(event["timings_s"])
            warming = False
    refresh, per_iteration = config.harmonizer.refresh, config.learner.updates_per_iteration
    window = refresh.n if refresh.policy in ("every_n", "adaptive") else 1
    counted = iterations[-whole_windows(len(iterations) + 1, per_iteration, window) :]
    whole = [float(timings["total"]) - float(timings.get("probe", 0.0)) for timings in counted]
    return _mean(whole), _mean([float(timings["learner"]) for timings in counted])


def windows(rows: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Window]:
    """Rows of the ledger's conflicts."""
    return [
        Window(
            bool(row["solved"]), str(row["against"]), {vector: _axis(row, vector, names) for vector in CONFLICT_VECTORS}
        )
        for row in rows
    ]


def step_health(steps: Sequence[Mapping[str, Any]], config: RunConfig) -> dict[str, float]:
    """What happens to the steps: how far norms lie apart, how far one reward has all the weight, how long steps are,
    and how far from the base they lead."""
    names = config.gradient_names
    norms = [[norm for norm in _axis(step, "norm", names) if norm > 0] for step in steps if step["solved"]]
    shares = [np.nan_to_num(_axis(step, "weight", names)) for step in steps]
    lengths = [_number(step["grad_norm"]) for step in steps]
    clip, last = config.learner.max_grad_norm, steps[-math.ceil(len(steps) / 10) :]
    of_steps = config.learner.algorithm == FLOW_GRPO  # its KL is of a sampler's step, in other units
    return {
        "norms, largest/smallest": _mean([max(n) / min(n) for n in norms if n]),
        "largest share": _mean([float(np.max(np.abs(share))) for share in shares]),
        "gradient norm": _mean(lengths),
        "steps clipped": _mean([float(x > clip) for x in lengths if not math.isnan(x)]),
        "steps not applied": _mean([float(not step["applied"]) for step in steps]),
        "KL to the base": math.nan if of_steps else _mean([_number(step["kl"]) for step in last]),
        "KL's share": _mean([_number(step["kl_share"]) for step in steps if step["solved"]]),
    }


def peak_memory(run_dir: RunDir) -> float:
    """GiB of all learner ranks together at the end of a run: of their GPUs, or of their processes without any."""
    found = math.nan
    for event in MetricsLog(run_dir.path).read():
        if event["event"] == "vitals":
            ranks = [actor for actor in event["actors"] if actor["role"].startswith(LEARNER_ROLE)]
            gpu = sum(float(actor["peak_gpu_gib"]) for actor in ranks)
            found = gpu or sum(float(actor["peak_memory_gib"]) for actor in ranks)
    return found


def _axis(row: Mapping[str, Any], what: str, names: Sequence[str]) -> tuple[float, ...]:
    return tuple(_number(row.get(f"{what}_{name}")) for name in names)


def _number(value: Any) -> float:
    return math.nan if value is None else float(value)


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan
