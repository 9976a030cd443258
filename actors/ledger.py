"""The ledger: one row per sample and one per optimizer step, in Parquet parts, one of each per iteration; and one row
per conflict measured (learner.probe), where the recipe asks for it.

Letters: K rewards, N samples. NaN and null mean: not known. Columns of one reward are `<what>_<its name>`. No other
column begins with a <what> and _, and no <what> with another one and _, so that no reward's name gives two columns one
name.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from actors.files import write_atomically
from actors.harvest import Harvest
from actors.ledger_parts import CONFLICTS, SAMPLES, STEPS, parts
from actors.prompts import Prompt
from harmonizer.report import Solution
from learner.config import WEIGHTED_SUM
from learner.types import Conflict, IterationReport, StepRecord

REPORT_NUMBERS = (
    "kkt_gap",
    "worst_cosine",
    "negative_fraction",
    "sum_worst_cosine",
    "sum_negative_fraction",
    "scale",
    "kl_growth",
)
"""Fields of harmonizer.report.SolveReport that are one number each; `sum_` is of the plain sum Σ g_k."""


@dataclass(frozen=True)
class LedgerEntry:
    """What one iteration leaves behind."""

    prompts: tuple[Prompt, ...]
    """[N]"""
    harvest: Harvest
    report: IterationReport
    timings_s: Mapping[str, float]


class Ledger:
    """Parts under `<run>/ledger/`; a part is there as a whole or not at all."""

    def __init__(self, run_dir: Path, reward_names: Sequence[str], gradient_names: Sequence[str] | None = None) -> None:
        """
        Args:
            gradient_names: what a step weighs, where it is not the rewards.
        """
        self._run_dir, self._folder = run_dir, run_dir / "ledger"
        self._names = tuple(reward_names)
        self._gradients = self._names if gradient_names is None else tuple(gradient_names)

    def append(self, iteration: int, entry: LedgerEntry) -> None:
        """Writes an iteration's parts, steps last: a steps part says that the others are there too."""
        self._folder.mkdir(parents=True, exist_ok=True)
        self._write(SAMPLES, iteration, sample_columns(iteration, entry, self._names))
        if entry.report.conflicts:
            self._write(CONFLICTS, iteration, conflict_columns(entry.report.conflicts, self._names))
        self._write(STEPS, iteration, step_columns(entry, self._gradients))

    def truncate_after(self, iterations_done: int) -> None:
        """Drops the parts of iterations that a resumed run will do again."""
        for table in (SAMPLES, STEPS, CONFLICTS):
            for iteration, path in parts(self._run_dir, table):
                if iteration >= iterations_done:
                    path.unlink()
        for path in self._folder.glob(".*.tmp"):
            path.unlink()

    def path(self, table: str, iteration: int) -> Path:
        """Where one iteration's part of a table lies."""
        return self._folder / f"{table}-{iteration:06d}.parquet"

    def _write(self, table: str, iteration: int, columns: Mapping[str, Any]) -> None:
        part = pa.table(dict(columns)).replace_schema_metadata({"rewards": "\n".join(self._names)})
        write_atomically(self.path(table, iteration), lambda temporary: pq.write_table(part, temporary))


# -- samples ----------------------------------------------------------------------------------------------------------


def sample_columns(iteration: int, entry: LedgerEntry, names: Sequence[str]) -> dict[str, pa.Array]:
    """[N] rows: where each sample comes from, and per reward its score, state, reason and advantage."""
    harvest, n = entry.harvest, len(entry.prompts)
    metas = [meta for meta in harvest.metas for _ in meta.seeds_N]
    columns: dict[str, pa.Array] = {
        "iteration": pa.array(np.full(n, iteration, dtype=np.int64)),
        "sample": pa.array(np.arange(n, dtype=np.int64)),
        "prompt_id": pa.array([prompt.prompt_id for prompt in entry.prompts]),
        "source": pa.array([prompt.source for prompt in entry.prompts]),
        "seed": pa.array(np.concatenate([meta.seeds_N for meta in harvest.metas])),
        "policy_version": pa.array([meta.policy_version for meta in metas], pa.int64()),
        "policy_hash": pa.array([meta.policy_hash for meta in metas]),
    }
    for k, name in enumerate(names):
        columns[f"score_{name}"] = pa.array(harvest.scores_KN[k], from_pandas=True)
        columns[f"state_{name}"] = pa.array(harvest.states_KN[k])
        columns[f"reason_{name}"] = pa.array([harvest.reasons.get((k, i)) for i in range(n)], pa.string())
        columns[f"advantage_{name}"] = pa.array(entry.report.advantages_KN[k], from_pandas=True)
    mean = entry.report.weighted_mean
    if mean is not None:
        columns[f"score_{WEIGHTED_SUM}"] = pa.array(mean.scores_N, from_pandas=True)
        columns[f"state_{WEIGHTED_SUM}"] = pa.array(mean.states_N)
        columns[f"advantage_{WEIGHTED_SUM}"] = pa.array(mean.advantages_N, from_pandas=True)
    return columns


# -- conflicts --------------------------------------------------------------------------------------------------------


def conflict_columns(conflicts: Sequence[Conflict], names: Sequence[str]) -> dict[str, pa.Array]:
    """One row per step and batch it is held against: cosines with each reward's gradient, `<vector>_<its name>`."""
    rows = [_conflict_row(conflict, names) for conflict in conflicts]
    return {key: _column([row[key] for row in rows]) for key in rows[0]}


def _conflict_row(conflict: Conflict, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "step": conflict.step,
        "iteration": conflict.iteration,
        "solved": conflict.solved,
        "against": conflict.against,
    }
    for vector, cosines_K in conflict.cosines.items():
        row.update(_per_reward(vector, cosines_K, names))
    return row


# -- steps ------------------------------------------------------------------------------------------------------------


def step_columns(entry: LedgerEntry, names: Sequence[str]) -> dict[str, pa.Array]:
    """One row per optimizer step of the iteration."""
    rows = [_step_row(step, entry, names) for step in entry.report.steps]
    return {key: _column([row[key] for row in rows]) for key in (rows[0] if rows else ())}


def _column(values: list[Any]) -> pa.Array:
    """A column in which a NaN is a null; text, numbers, booleans or matrices as flat lists."""
    if isinstance(values[0], list):
        return pa.array([[_known(x) for x in value] for value in values], pa.list_(pa.float64()))
    known = [_known(value) for value in values]
    return pa.array(known, pa.float64()) if all(value is None for value in known) else pa.array(known)


def _known(value: Any) -> Any:
    return None if isinstance(value, float) and math.isnan(value) else value


def _step_row(step: StepRecord, entry: LedgerEntry, names: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "iteration": step.iteration,
        "step": step.step,
        "solved": step.solved,
        "applied": step.applied,
        "skip_reason": step.skip_reason,
        "mean_norm": step.mean_norm,
        "loss": step.loss,
        "kl": step.kl,
        "kl_cosine": step.kl_cosine,
        "kl_share": step.kl_share,
        "grad_norm": step.grad_norm,
        "solve_reason": step.solve_reason,
        "steps_since_solve": None if step.steps_since_solve < 0 else step.steps_since_solve,
        "solve_cosine": step.solve_cosine,
        "solve_norm_ratio": step.solve_norm_ratio,
        "stale_cosine": step.stale_cosine,
        "stale_norm_ratio": step.stale_norm_ratio,
        "clip_fraction": step.clip_fraction,
        "approx_kl": step.approx_kl,
        "policy_version": entry.report.policy_version,
        "eta": entry.report.eta,
        "step_s": step.seconds,
        **_times(entry),
    }
    row.update(_per_reward("active", step.active_K, names))
    row.update(_per_reward("weight", step.weights_K, names))
    row.update(_per_reward("coefficient", step.coefficients_K, names))
    row.update(_solution_row(step.solution, names))
    return row


def _times(entry: LedgerEntry) -> dict[str, float]:
    return {f"{stage}_s": seconds for stage, seconds in entry.timings_s.items()}


def _per_reward(what: str, values_K: NDArray[Any], names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    return ((f"{what}_{name}", value.item()) for name, value in zip(names, values_K, strict=True))


def _solution_row(solution: Solution | None, names: Sequence[str]) -> dict[str, Any]:
    """What only a solve knows; null or empty on the steps in between. The cosine matrix is [K, K], row by row."""
    row: dict[str, Any] = {}
    unknown_K = np.full(len(names), math.nan)
    report = solution.report if solution else None
    row.update(_per_reward("alpha_star", solution.alpha_K if solution else unknown_K, names))
    row.update(_per_reward("alpha_ema", solution.ema_K if solution else unknown_K, names))
    row.update(_per_reward("norm", solution.norms_K if solution else unknown_K, names))
    row.update(_per_reward("cosine", report.cosines_K if report else unknown_K, names))
    row.update(_per_reward("inner_product", report.inner_products_K if report else unknown_K, names))
    row.update(_per_reward("sum_cosine", report.sum_cosines_K if report else unknown_K, names))
    row["pairwise_cosines"] = report.cosine_KK.ravel().tolist() if report else []
    row["solver"], row["status"] = (report.solver, report.status) if report else ("", "")
    row["left"] = "; ".join(f"{name}: {why}" for name, why in report.left.items()) if report else ""
    row["kl_status"] = report.kl_status if report else ""
    for key in REPORT_NUMBERS:
        row[key] = getattr(report, key) if report else math.nan
    return row
