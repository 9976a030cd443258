"""What actors' tests share: a recipe in memory, and rooms' results made up by hand. Imports no torch."""

from typing import Any

import numpy as np

from actors.harvest import Harvest
from actors.prompts import Prompt
from actors.results import EvaluationResult, Which
from actors.rollout import RolloutMeta
from actors.run_config import RunConfig
from harmonizer.report import Solution, SolveReport
from learner.types import IterationReport, StepRecord

NAN = float("nan")


def recipe(**sections: Any) -> RunConfig:
    """Two sources, three rewards of which one applies to signs only."""
    data: dict[str, Any] = {
        "run": {"name": "stand-in", "seed": 3, "iterations": 4},
        "policy": {"base": "./nowhere"},
        "prompts": {
            "groups_per_iteration": 2,
            "group_size": 2,
            "sources": {
                "plain": {"train": "plain.txt", "heldout": "plain.txt"},
                "signs": {"train": "signs.txt", "heldout": "signs.txt"},
            },
        },
        "rewards": {
            "a": {"scorer": "module:A"},
            "b": {"scorer": "module:B"},
            "text": {"scorer": "module:C", "applies": ["signs"], "when": "quoted"},
        },
    }
    for name, value in sections.items():
        data[name] = {**data.get(name, {}), **value} if name != "rewards" else value
    return RunConfig.model_validate(data)


def prompts(*texts: str, source: str = "plain") -> tuple[Prompt, ...]:
    """One prompt for each text."""
    return tuple(Prompt(f"{source}/{i}", source, text) for i, text in enumerate(texts))


def evaluation(scores: dict[str, list[float]], done: int = 0, which: Which = "before") -> EvaluationResult:
    """NaN is not applicable."""
    arrays = {name: np.array(values, dtype=np.float64) for name, values in scores.items()}
    return EvaluationResult(
        iteration=done,
        which=which,
        prompt_ids=tuple(f"s/{i}" for i in range(len(next(iter(arrays.values()))))),
        per_prompt=arrays,
        states={name: np.isnan(values).astype(np.uint8) for name, values in arrays.items()},
        seconds=1.5,
    )


def harvest(num_rewards: int = 2, num_samples: int = 4) -> Harvest:
    """Two tasks; the last cell of the last reward failed, the first of it does not apply."""
    scores = np.arange(num_rewards * num_samples, dtype=np.float32).reshape(num_rewards, num_samples)
    states = np.zeros((num_rewards, num_samples), dtype=np.uint8)
    states[-1, 0], states[-1, -1] = 1, 2
    scores[states > 0] = np.nan
    half = num_samples // 2
    metas = tuple(
        RolloutMeta(5, "hash", np.arange(start, start + half, dtype=np.int64) + 100, 0.1) for start in (0, half)
    )
    return Harvest(scores, states, {(num_rewards - 1, num_samples - 1): "out of ink"}, (), metas, 2.0, 0.5)


def solution(num_rewards: int = 2) -> Solution:
    """A solve with distinct numbers."""
    ks = np.arange(1.0, num_rewards + 1)
    report = SolveReport(
        status="optimal",
        solver="CLARABEL",
        kkt_gap=1e-12,
        inner_products_K=ks / 10,
        cosines_K=np.array([NAN, *ks[1:] / 5]),
        cosine_KK=np.eye(num_rewards),
        worst_cosine=0.4,
        left={"b": "zero gradient"},
        scale=1.5,
        sum_cosines_K=np.array([NAN, *-ks[1:] / 10]),
        sum_worst_cosine=-0.2,
        negative_fraction=0.25,
        sum_negative_fraction=0.75,
        kl_growth=0.125,
        kl_status="slack",
    )
    return Solution(ks / ks.sum(), ks[::-1] / ks.sum(), ks * 2, 0.7, ks * 3, np.ones(num_rewards, np.bool_), report)


def step(number: int, solved: bool, iteration: int = 0, num_rewards: int = 2) -> StepRecord:
    """One optimizer step."""
    ks = np.arange(1.0, num_rewards + 1)
    return StepRecord(
        step=number,
        iteration=iteration,
        solved=solved,
        applied=True,
        skip_reason="",
        active_K=np.ones(num_rewards, np.bool_),
        weights_K=ks / ks.sum(),
        coefficients_K=ks,
        solution=solution(num_rewards) if solved else None,
        mean_norm=0.7,
        loss=NAN if solved else 1.25,
        kl=0.01,
        kl_cosine=NAN,
        kl_share=0.02,
        grad_norm=0.3,
        seconds=0.4,
        steps_since_solve=-1 if solved else 1,
        solve_cosine=NAN if solved else 0.6,
        solve_norm_ratio=NAN if solved else 1.1,
        stale_cosine=0.9 if solved else NAN,
        stale_norm_ratio=0.8 if solved else NAN,
        solve_reason="every_n" if solved else "",
    )


def report(*steps: StepRecord, iteration: int = 0, num_samples: int = 4, **changes: Any) -> IterationReport:
    """Steps with two rewards."""
    advantages = np.full((2, num_samples), 0.5)
    advantages[1, 0] = NAN
    values: dict[str, Any] = {
        "iteration": iteration,
        "steps": steps,
        "advantages_KN": advantages,
        "signal_KN": ~np.isnan(advantages),
        "applied": True,
        "default_hash": "d1",
        "old_hash": "o1",
        "policy_version": 1,
        "eta": 0.5,
        "timings_s": {"steps": 0.8},
    }
    return IterationReport(**{**values, **changes})
