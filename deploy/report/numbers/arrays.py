"""The ledger's tables as numpy arrays.

Letters: K rewards, J gradients trained (the rewards', or the one of their weighted sum), N samples, U optimizer steps,
W steps held against a batch. NaN: not known. One ledger part is one table; arrays of several parts are joined here, so
that a broken part is left out alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from learner.types import CONFLICT_VECTORS
from rewards.contract import State

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
Texts = NDArray[np.str_]

STEP_NUMBERS = (
    *("mean_norm", "loss", "kl", "kl_cosine", "kl_share", "grad_norm", "eta", "step_s"),
    *("worst_cosine", "sum_worst_cosine", "stale_cosine", "solve_cosine", "kkt_gap"),
    *("clip_fraction", "approx_kl"),
)
STEP_REWARD_NUMBERS = ("weight", "alpha_star", "alpha_ema", "norm", "cosine", "sum_cosine")
STEP_TEXTS = ("skip_reason", "solve_reason", "status", "left", "kl_status")
COSINES = ("pairwise_cosines", "cosine_matrix")
"""The column of pairwise cosines, newest name first."""
STAGE_SUFFIX = "_s"
WEIGHT = "weight_"
"""What the columns of applied weights begin with; every step has one for each gradient."""


@dataclass(frozen=True, eq=False)
class Samples:
    """One row per sample of the ledger."""

    names: tuple[str, ...]
    """[K]"""
    iteration_N: Ints
    source_N: Texts
    prompt_N: Texts
    """[N] prompt ids; a group is one (iteration, prompt id)."""
    scores_KN: Floats
    """NaN where not scored."""
    states_KN: Ints
    """Values of rewards.contract.State; -1 where the ledger has none."""
    advantages_KN: Floats
    """NaN where a cell carries no signal."""
    reasons: tuple[tuple[int, int, str], ...] = ()
    """(reward, sample, text) of failed cells."""


@dataclass(frozen=True, eq=False)
class Steps:
    """One row per optimizer step of the ledger."""

    names: tuple[str, ...]
    """[J]"""
    iteration_U: Ints
    step_U: Ints
    solved_U: Bools
    applied_U: Bools
    numbers: Mapping[str, Floats]
    """Name of STEP_NUMBERS -> [U]."""
    by_reward: Mapping[str, Floats]
    """Name of STEP_REWARD_NUMBERS -> [J, U]."""
    cosines_UJJ: Floats
    """[U, J, J] between the gradients; NaN on steps that did not solve."""
    texts: Mapping[str, Texts]
    """Name of STEP_TEXTS -> [U]."""
    stages: Mapping[str, Floats]
    """Stage -> [U] seconds of the step's whole iteration."""


@dataclass(frozen=True, eq=False)
class Measured:
    """One row per step and batch that it was held against (learner.probe)."""

    names: tuple[str, ...]
    """[K]"""
    step_W: Ints
    solved_W: Bools
    against_W: Texts
    """`same` or `next`: the step's own batch, or that of the iteration after."""
    cosines: Mapping[str, Floats]
    """Name of CONFLICT_VECTORS -> [K, W]; NaN where a reward had no signal."""


def gradient_names(columns: Sequence[str]) -> tuple[str, ...]:
    """[J] what a table of steps weighs, by its columns' names."""
    return tuple(column.removeprefix(WEIGHT) for column in columns if column.startswith(WEIGHT))


def samples_of(table: pa.Table, names: Sequence[str]) -> Samples:
    """One part of the table of samples.

    Raises:
        ValueError: a column is missing or of another type.
    """
    states_KN = np.stack([_ints(table, f"state_{name}", -1) for name in names])
    failed = ((k, i) for k, i in zip(*np.nonzero(states_KN == State.FAILED), strict=True))
    texts = [_texts(table, f"reason_{name}") for name in names]
    return Samples(
        names=tuple(names),
        iteration_N=_ints(table, "iteration"),
        source_N=_texts(table, "source", required=True),
        prompt_N=_texts(table, "prompt_id", required=True),
        scores_KN=np.stack([floats_of(table, f"score_{name}") for name in names]),
        states_KN=states_KN,
        advantages_KN=np.stack([floats_of(table, f"advantage_{name}") for name in names]),
        reasons=tuple((int(k), int(i), str(texts[k][i])) for k, i in failed),
    )


def steps_of(table: pa.Table, names: Sequence[str]) -> Steps:
    """One part of the table of steps.

    Raises:
        ValueError: a column is missing or of another type.
    """
    stages = [c.removesuffix(STAGE_SUFFIX) for c in table.column_names if c.endswith(STAGE_SUFFIX) and c != "step_s"]
    return Steps(
        names=tuple(names),
        iteration_U=_ints(table, "iteration"),
        step_U=_ints(table, "step"),
        solved_U=_ints(table, "solved") == 1,
        applied_U=_ints(table, "applied") == 1,
        numbers={name: floats_of(table, name) for name in STEP_NUMBERS},
        by_reward={what: np.stack([floats_of(table, f"{what}_{n}") for n in names]) for what in STEP_REWARD_NUMBERS},
        cosines_UJJ=_matrices(table, len(names)),
        texts={name: _texts(table, name) for name in STEP_TEXTS},
        stages={stage: floats_of(table, stage + STAGE_SUFFIX) for stage in stages},
    )


def measured_of(table: pa.Table, names: Sequence[str]) -> Measured:
    """One part of the table of conflicts.

    Raises:
        ValueError: a column is missing or of another type.
    """
    return Measured(
        names=tuple(names),
        step_W=_ints(table, "step"),
        solved_W=_ints(table, "solved") == 1,
        against_W=_texts(table, "against", required=True),
        cosines={v: np.stack([floats_of(table, f"{v}_{name}") for name in names]) for v in CONFLICT_VECTORS},
    )


def join_measured(parts: Sequence[Measured]) -> Measured:
    """Parts of the same rewards, one after the other; at least one."""
    return Measured(
        names=parts[0].names,
        step_W=np.concatenate([part.step_W for part in parts]),
        solved_W=np.concatenate([part.solved_W for part in parts]),
        against_W=np.concatenate([part.against_W for part in parts]),
        cosines={v: np.concatenate([part.cosines[v] for part in parts], axis=1) for v in CONFLICT_VECTORS},
    )


def join_samples(parts: Sequence[Samples]) -> Samples:
    """Parts of the same rewards, one after the other; at least one."""
    starts = np.cumsum([0, *(len(part.iteration_N) for part in parts)])
    return Samples(
        names=parts[0].names,
        iteration_N=np.concatenate([part.iteration_N for part in parts]),
        source_N=np.concatenate([part.source_N for part in parts]),
        prompt_N=np.concatenate([part.prompt_N for part in parts]),
        scores_KN=np.concatenate([part.scores_KN for part in parts], axis=1),
        states_KN=np.concatenate([part.states_KN for part in parts], axis=1),
        advantages_KN=np.concatenate([part.advantages_KN for part in parts], axis=1),
        reasons=tuple(
            (k, i + int(start), why)
            for part, start in zip(parts, starts[:-1], strict=True)
            for k, i, why in part.reasons
        ),
    )


def join_steps(parts: Sequence[Steps]) -> Steps:
    """Parts of the same rewards, one after the other; at least one. A stage that a part lacks is NaN there."""
    stages = dict.fromkeys(stage for part in parts for stage in part.stages)

    def seconds(part: Steps, stage: str) -> Floats:
        return part.stages.get(stage, np.full(len(part.step_U), np.nan))

    return Steps(
        names=parts[0].names,
        iteration_U=np.concatenate([part.iteration_U for part in parts]),
        step_U=np.concatenate([part.step_U for part in parts]),
        solved_U=np.concatenate([part.solved_U for part in parts]),
        applied_U=np.concatenate([part.applied_U for part in parts]),
        numbers={name: np.concatenate([part.numbers[name] for part in parts]) for name in STEP_NUMBERS},
        by_reward={w: np.concatenate([part.by_reward[w] for part in parts], axis=1) for w in STEP_REWARD_NUMBERS},
        cosines_UJJ=np.concatenate([part.cosines_UJJ for part in parts]),
        texts={name: np.concatenate([part.texts[name] for part in parts]) for name in STEP_TEXTS},
        stages={stage: np.concatenate([seconds(part, stage) for part in parts]) for stage in stages},
    )


# -- columns ----------------------------------------------------------------------------------------------------------


def _column(table: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    column = table.column(name)
    try:
        return column.combine_chunks().cast(kind)
    except pa.ArrowException as error:
        raise ValueError(f"column {name} has type {column.type}") from error


def floats_of(table: pa.Table, name: str) -> Floats:
    """A column of numbers; NaN where it is null or not finite, and throughout where there is no such column."""
    if name not in table.column_names:
        return np.full(table.num_rows, np.nan)
    if pa.types.is_string(table.schema.field(name).type):
        raise ValueError(f"column {name} holds text, not numbers")
    values: Floats = _column(table, name, pa.float64()).to_numpy(zero_copy_only=False)
    return np.where(np.isfinite(values), values, np.nan)


def _ints(table: pa.Table, name: str, absent: int | None = None) -> Ints:
    """A column of whole numbers or booleans; `absent` where there is none, which is an error if it is None."""
    if name not in table.column_names:
        if absent is None:
            raise ValueError(f"no column {name}")
        return np.full(table.num_rows, absent, dtype=np.int64)
    values = floats_of(table, name)
    if not np.isfinite(values).all():
        raise ValueError(f"column {name} has empty cells")
    return values.astype(np.int64)


def _texts(table: pa.Table, name: str, required: bool = False) -> Texts:
    if name not in table.column_names:
        if required:
            raise ValueError(f"no column {name}")
        return np.full(table.num_rows, "", dtype=np.str_)
    return np.array([text or "" for text in _column(table, name, pa.string()).to_pylist()], dtype=np.str_)


def _matrices(table: pa.Table, num_gradients: int) -> Floats:
    """[U, J, J] of a column of flat lists; NaN where a list is empty or of another length."""
    found = np.full((table.num_rows, num_gradients, num_gradients), np.nan)
    for name in COSINES:
        if name in table.column_names and pa.types.is_list(table.schema.field(name).type):
            for row, values in enumerate(_column(table, name, pa.list_(pa.float64())).to_pylist()):
                if values and len(values) == num_gradients**2:
                    found[row] = np.array(values, dtype=np.float64).reshape(num_gradients, num_gradients)
            break
    return found
