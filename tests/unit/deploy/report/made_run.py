"""A run directory as a run leaves it, written by the run's own writers, with numbers made up by hand."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from actors.evaluation import write_evaluation
from actors.harvest import Harvest
from actors.ledger import Ledger, LedgerEntry
from actors.metrics import MetricsLog
from actors.prompts import Prompt
from actors.results import Alarm, CellCounts, Change, EvalSample, EvaluationResult, IterationResult, Which
from actors.rollout import RolloutMeta
from deploy.progress.pictures import write_samples
from harmonizer.report import Solution, SolveReport
from learner.config import WEIGHTED_SUM
from learner.types import CONFLICT_VECTORS, Conflict, IterationReport, StepRecord

NAN = float("nan")
NAMES = ("align", "text")
"""`text` applies to signs only."""
PROMPTS = (
    *(Prompt("plain/0", "plain", "a red circle"),) * 4,
    *(Prompt("signs/0", "signs", 'a sign that says "HI"'),) * 4,
)
EVAL_PROMPTS = {"plain/0": "a <b>bold</b> circle & more", "plain/1": "a blue square", "signs/0": 'a sign "OK"'}
TIMES = {"rollout": 2.0, "rewards": 0.5, "learner": 1.0, "sync": 0.1, "other": 0.4, "total": 4.0, "learner_wait": 3.0}


@dataclass(frozen=True)
class Kind:
    """What a run differs in from plain MARBLE."""

    summed: bool = False
    """One gradient, of the rewards' weighted sum."""
    stages: tuple[tuple[str, int], ...] = ()
    """(the one reward trained, iterations) of each; other rewards are not scored then."""
    measured: bool = False
    """First steps of iterations are held against all rewards."""
    flow_grpo: bool = False
    alarmed: bool = False
    """A held-out reward, `taste`, falls."""


PLAIN = Kind()


def write_run(
    folder: Path,
    *,
    seed: int = 1,
    iterations: int = 3,
    shift: float = 0.0,
    changes: Mapping[str, Any] | None = None,
    kind: Kind = PLAIN,
) -> Path:
    """A finished run. `shift` moves its scores and the colour of its pictures."""
    folder.mkdir(parents=True)
    write_config(folder, seed=seed, iterations=iterations, changes={**_changes(kind), **(changes or {})})
    ledger = Ledger(folder, NAMES, (WEIGHTED_SUM,) if kind.summed else None)
    log, times = MetricsLog(folder), TIMES | ({"probe": 0.5, "total": 4.5} if kind.measured else {})
    ended = [5.0 + times["total"] * done for done in range(iterations + 1)]
    write_heldout(folder, log, evaluation(0, "before", kind=kind), ended[0])
    ends = {sum(n for _, n in kind.stages[: i + 1]) for i in range(len(kind.stages))} - {iterations}
    for index in range(iterations):
        entry = LedgerEntry(PROMPTS, _harvest(index, shift, kind), _report(index, kind), times)
        ledger.append(index, entry)
        log.iteration(_result(index, iterations, entry), ended[index + 1])
        if index + 1 in ends:
            write_heldout(folder, log, evaluation(index + 1, "ema", 0.02 * index, kind=kind), ended[index + 1])
    write_heldout(folder, log, evaluation(iterations, "ema", 0.1 + shift, kind=kind), 5.0 + ended[-1])
    if kind.alarmed:
        log.hacking(Alarm("taste", iterations, 0, Change(-0.4, 0.05, 3), Change(0.7, 0.1, 3)), 5.0 + ended[-1])
    (folder / "launches.jsonl").write_text('{"time": 1.0, "python": "3.11.7", "packages": {"torch": "2.13.0"}}\n')
    (folder / "summary.json").write_text("{}")
    return folder


def _changes(kind: Kind) -> dict[str, Any]:
    stages = [{"rewards": [name], "iterations": n} for name, n in kind.stages]
    return {
        **({"learner.objective": "weighted_sum", "harmonizer.method": "weighted_gradients"} if kind.summed else {}),
        **({"learner.stages": stages} if stages else {}),
        **({"learner.algorithm": "flow_grpo"} if kind.flow_grpo else {}),
        **({"learner.probe_every": 1} if kind.measured else {}),
        **({"heldout_rewards.taste": {"scorer": "some.module:Scorer"}} if kind.alarmed else {}),
    }


def write_config(folder: Path, *, seed: int, iterations: int, changes: Mapping[str, Any]) -> None:
    data: dict[str, Any] = {
        "run": {"name": folder.name, "seed": seed, "iterations": iterations},
        "policy": {"base": "tiny", "resolution": 16},
        "rewards": {name: {"scorer": "some.module:Scorer"} for name in NAMES},
        "harmonizer": {"method": "min_norm"},
        "eval": {"seed": 7},
    }
    for key, value in changes.items():
        section, name = key.split(".")
        data.setdefault(section, {})[name] = value
    (folder / "config.yaml").write_text(yaml.safe_dump(data, sort_keys=False))


def write_heldout(folder: Path, log: MetricsLog, result: EvaluationResult, elapsed_s: float) -> None:
    write_evaluation(folder, result)
    write_samples(folder / "samples", result)
    log.evaluation(result, elapsed_s)


def evaluation(done: int, which: Which, shift: float = 0.0, kind: Kind = PLAIN) -> EvaluationResult:
    ids = tuple(EVAL_PROMPTS)
    watched = {"taste": np.array([5.0, 5.5, 6.0]) - shift} if kind.alarmed else {}
    colour = int(60 + 400 * shift)
    return EvaluationResult(
        iteration=done,
        which=which,
        prompt_ids=ids,
        per_prompt={
            "align": np.array([0.5, 0.6, 0.7]) + shift * np.array([1, 2, 3]),
            "text": np.array([NAN, NAN, 0.5]),
            **watched,
        },
        states={
            "align": np.zeros(3, np.uint8),
            "text": np.array([1, 1, 0], np.uint8),
            **dict.fromkeys(watched, np.zeros(3, np.uint8)),
        },
        samples=tuple(
            EvalSample(i, i.split("/")[0], text, np.full((16, 16, 3), (colour, 40 * n, 90), np.uint8))
            for n, (i, text) in enumerate(EVAL_PROMPTS.items())
        ),
        seconds=5.0,
    )


def _left_out(index: int, kind: Kind) -> list[int]:
    """Rewards that are not scored in an iteration."""
    trained = [name for name, n in kind.stages for _ in range(n)]
    return [k for k, name in enumerate(NAMES) if trained and name != trained[index]]


def _harvest(index: int, shift: float, kind: Kind) -> Harvest:
    scores = np.array([[0.1, 0.2, 0.3, 0.4] * 2, [NAN] * 4 + [0.0, 1.0, 0.5, NAN]], np.float32)
    scores[0] += 0.1 * index + shift
    states = np.array([[0] * 8, [1] * 4 + [0, 0, 0, 2]], np.uint8)
    for k in _left_out(index, kind):
        scores[k], states[k] = NAN, 1
    meta = RolloutMeta(index, "hash", np.arange(8, dtype=np.int64), 0.1)
    reasons = {(1, 7): "out of <ink>"} if states[1, 7] == 2 else {}
    return Harvest(scores, states, reasons, (), (meta,), 2.0, 0.5)


def _report(index: int, kind: Kind) -> IterationReport:
    advantages = np.array([[-1.5, -0.5, 0.5, 1.5] * 2, [NAN] * 4 + [-1.2, 1.2, 0.1, NAN]])
    advantages[_left_out(index, kind)] = NAN
    make = _summed_step if kind.summed else _step
    steps = (make(2 * index, index, solved=True), make(2 * index + 1, index, solved=False))
    if kind.flow_grpo:
        steps = tuple(replace(s, clip_fraction=0.3 * (s.step % 2), approx_kl=1e-7 * (s.step % 2)) for s in steps)
    return IterationReport(
        iteration=index,
        steps=steps,
        advantages_KN=advantages,
        signal_KN=np.isfinite(advantages),
        applied=True,
        default_hash="d",
        old_hash="o",
        policy_version=index,
        eta=0.0,
        conflicts=_conflicts(index) if kind.measured else (),
    )


def _conflicts(index: int) -> tuple[Conflict, ...]:
    """The last iteration's first step on this one's batch, then this one's on its own: 0.5 and −0.1, 0.3 and 0.2."""
    rows = [] if index == 0 else [("next", 2 * index - 2, index - 1, [0.5, -0.1])]
    rows.append(("same", 2 * index, index, [0.3, 0.2 if index else NAN]))
    return tuple(
        Conflict(step, iteration, step % 4 == 0, against, {v: np.array(cosines) for v in CONFLICT_VECTORS})
        for against, step, iteration, cosines in rows
    )


def _summed_step(number: int, index: int, *, solved: bool) -> StepRecord:
    """Of one gradient, which nothing balances."""
    one = np.ones(1)
    step = _step(number, index, solved=False)
    return replace(step, active_K=one > 0, weights_K=one, coefficients_K=one)


def _step(number: int, index: int, *, solved: bool) -> StepRecord:
    cosine_KK = np.array([[1.0, -0.25], [-0.25, 1.0]])
    report = SolveReport(
        status="optimal",
        solver="CLARABEL",
        kkt_gap=0.0,
        inner_products_K=np.ones(2),
        cosines_K=np.array([0.6, 0.2]),
        cosine_KK=cosine_KK,
        worst_cosine=0.2,
        left={},
        sum_cosines_K=np.array([0.9, -0.1]),
        sum_worst_cosine=-0.1,
    )
    alpha = np.array([0.25, 0.75])
    solution = Solution(alpha, alpha[::-1], np.ones(2), 0.05, np.array([0.04, 0.4]), np.ones(2, bool), report)
    return StepRecord(
        step=number,
        iteration=index,
        solved=solved,
        applied=number != 1,
        skip_reason="" if number != 1 else "no reward has signal",
        active_K=np.ones(2, bool),
        weights_K=alpha,
        coefficients_K=np.ones(2),
        solution=solution if solved else None,
        mean_norm=0.05,
        loss=NAN,
        kl=1e-5,
        kl_cosine=-0.5 if solved else NAN,
        kl_share=0.1 if solved else NAN,
        grad_norm=0.25,
        seconds=0.5,
    )


def _result(index: int, total: int, entry: LedgerEntry) -> IterationResult:
    return IterationResult(
        iteration=index,
        num_iterations=total,
        reward_means={"align": 0.25, "text": 0.5},
        reward_counts={"align": CellCounts(8, 0, 0), "text": CellCounts(3, 4, 1)},
        ema_alpha={"align": 0.75, "text": 0.25},
        report=entry.report,
        timings_s=TIMES,
        images_per_s=2.0,
        controller_bytes=1,
    )
