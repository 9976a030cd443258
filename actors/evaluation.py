"""Held-out evaluation: every prompt scored exactly once, with noise of its own that is the same in every evaluation.

Letters: N held-out prompts.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from actors.config import EvalConfig
from actors.files import write_atomically
from actors.harvest import Draw, Harvest, draw_and_score
from actors.prompts import Prompt
from actors.results import EvalSample, EvaluationResult, RewardSummary, Which, paired
from actors.rollout import Slot
from actors.tasks import make_tasks
from actors.team import Team
from learner.config import SamplingConfig
from learner.errors import UserError

EVALUATION_NAME = re.compile(r"[0-9]{6,}\.parquet")
KEPT_PER_SOURCE = 6
"""Images of each source that are kept for the picture grid: always the first prompts."""


def heldout(sources: Mapping[str, Sequence[Prompt]], per_source: int | None) -> tuple[Prompt, ...]:
    """[N] the prompts of an evaluation, source after source."""
    return tuple(prompt for prompts in sources.values() for prompt in prompts[:per_source])


def make_draw(prompts: Sequence[Prompt], config: EvalConfig, sampling: SamplingConfig, slot: Slot | None) -> Draw:
    """One image for each prompt. A prompt's noise depends on the evaluation seed and its place, nothing else."""
    return Draw(
        tasks=make_tasks("eval", 0, config.seed, prompts, config.batch_size),
        prompts=tuple(prompts),
        slot=slot,
        sampling=sampling,
        evaluation=True,
        keep=frozenset(_kept(prompts)),
    )


def _kept(prompts: Sequence[Prompt]) -> list[int]:
    """Indices of the first few prompts of each source."""
    seen: dict[str, int] = {}
    kept = []
    for index, prompt in enumerate(prompts):
        seen[prompt.source] = seen.get(prompt.source, 0) + 1
        if seen[prompt.source] <= KEPT_PER_SOURCE:
            kept.append(index)
    return kept


def evaluate(
    team: Team,
    draw: Draw,
    iterations_done: int,
    which: Which,
    max_failed_share: float,
    check: Callable[[], None],
    progress: Callable[[int, int], None],
) -> EvaluationResult:
    """Draws and scores all prompts of a :func:`make_draw`.

    Raises:
        UserError: above `max_failed_share` of one reward's cells failed; or a task could not be drawn.
    """
    began_s = team.remote.now_s()
    harvest = draw_and_score(team, draw, max_failed_share, check, progress)
    names = tuple(team.pools)
    return EvaluationResult(
        iteration=iterations_done,
        which=which,
        prompt_ids=tuple(prompt.prompt_id for prompt in draw.prompts),
        per_prompt={name: harvest.scores_KN[k].astype(np.float64) for k, name in enumerate(names)},
        states={name: harvest.states_KN[k] for k, name in enumerate(names)},
        samples=_samples(draw, harvest),
        seconds=team.remote.now_s() - began_s,
    )


def _samples(draw: Draw, harvest: Harvest) -> tuple[EvalSample, ...]:
    images = [image for meta in harvest.metas for image in meta.kept]
    prompts = [draw.prompts[index] for index in sorted(draw.keep)]
    return tuple(
        EvalSample(prompt.prompt_id, prompt.source, prompt.text, image)
        for prompt, image in zip(prompts, images, strict=True)
    )


# -- comparing --------------------------------------------------------------------------------------------------------


def summarise(before: EvaluationResult, after: EvaluationResult) -> dict[str, RewardSummary]:
    """Each reward on the prompts scored both times, with the standard error of the paired difference."""
    if before.prompt_ids != after.prompt_ids:
        raise UserError("the two evaluations are of different prompts and cannot be paired")
    return {name: paired(before.per_prompt[name], after.per_prompt[name]) for name in after.per_prompt}


def gain(before: EvaluationResult, now: EvaluationResult) -> float:
    """How much better than the base: the mean over rewards of the paired gain in units of the base's own spread.

    Rewards of unlike scale count alike, cells that are not scored count in neither term, and rewards without any
    scored prompt not at all.
    """
    gains = []
    for name, summary in summarise(before, now).items():
        if summary.n:
            spread = float(np.nanstd(before.per_prompt[name]))
            gains.append((summary.after - summary.before) / max(spread, 1e-12))
    return float(np.mean(gains)) if gains else 0.0


# -- keeping ----------------------------------------------------------------------------------------------------------


def evaluation_path(run_dir: Path, iterations_done: int) -> Path:
    """Per-prompt scores of one evaluation."""
    return run_dir / "evaluations" / f"{iterations_done:06d}.parquet"


def write_evaluation(run_dir: Path, result: EvaluationResult) -> Path:
    """One row per prompt; images are not in it."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    columns: dict[str, object] = {"prompt_id": list(result.prompt_ids)}
    for name, scores in result.per_prompt.items():
        columns[f"score_{name}"] = pa.array(scores, from_pandas=True)
        columns[f"state_{name}"] = result.states[name]
    table = pa.table(columns).replace_schema_metadata({"which": result.which, "seconds": str(result.seconds)})
    path = evaluation_path(run_dir, result.iteration)
    path.parent.mkdir(parents=True, exist_ok=True)
    return write_atomically(path, lambda temporary: pq.write_table(table, temporary))


def evaluated(run_dir: Path) -> list[int]:
    """Iterations done at each stored evaluation, the base's 0 included; files of other names are none."""
    names = (path.name for path in evaluation_path(run_dir, 0).parent.glob("*.parquet"))
    return sorted(int(name.removesuffix(".parquet")) for name in names if EVALUATION_NAME.fullmatch(name))


def read_evaluation(run_dir: Path, iterations_done: int, reward_names: Sequence[str]) -> EvaluationResult | None:
    """What :func:`write_evaluation` wrote, without images; None where there is none.

    Raises:
        UserError: the file is broken, or of other rewards.
    """
    import pyarrow as pa

    path = evaluation_path(run_dir, iterations_done)
    if not path.is_file():
        return None
    try:
        return _parsed(path, iterations_done, reward_names)
    except (pa.ArrowException, OSError, LookupError, TypeError, ValueError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{path} is no readable evaluation of this run: {reason}") from error


def _parsed(path: Path, iterations_done: int, reward_names: Sequence[str]) -> EvaluationResult:
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    notes = table.schema.metadata or {}
    which: Which = "before" if notes[b"which"] == b"before" else "ema"

    def scores(name: str) -> NDArray[np.float64]:
        values = [np.nan if x is None else x for x in table.column(f"score_{name}").to_pylist()]
        return np.array(values, dtype=np.float64)

    return EvaluationResult(
        iteration=iterations_done,
        which=which,
        prompt_ids=tuple(table.column("prompt_id").to_pylist()),
        per_prompt={name: scores(name) for name in reward_names},
        states={name: table.column(f"state_{name}").to_numpy().astype(np.uint8) for name in reward_names},
        seconds=float(notes[b"seconds"]),
    )
