"""What the tests of this room share: the outcome of a command, and assertions on it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from actors.results import CellCounts, EvalSample, EvaluationResult, IterationResult, Which
from harmonizer.report import Solution, SolveReport
from learner.types import IterationReport, StepRecord

GENEVAL_LINE = '{"prompt": "a red circle", "tag": "single_object", "include": [{"class": "circle", "count": 1}]}\n'


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines on standard error."""
        return self.err.splitlines()


Marble = Callable[..., Ran]


def tree(folder: Path) -> dict[str, bytes]:
    """Every file below a folder with its bytes, and every folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else b"" for p in sorted(folder.rglob("*"))}


def edited(path: Path, *replacements: tuple[str, str]) -> Path:
    """Replace parts of a text file; each must be there."""
    text = path.read_text()
    for old, new in replacements:
        assert old in text, old
        text = text.replace(old, new)
    path.write_text(text)
    return path


def problem(ran: Ran, *parts: str, count: int = 1) -> Sequence[str]:
    """Assert that a command refused its input: exit code 2, so many lines, all parts said, no traceback."""
    assert ran.code == 2, ran
    assert len(ran.lines) == count, ran.err
    assert all(line.startswith("error: ") for line in ran.lines), ran.err
    for part in parts:
        assert part in ran.err, (part, ran.err)
    return ran.lines


NAMES = ("align", "geneval")


def step(number: int = 0, *, solved: bool = True, applied: bool = True) -> StepRecord:
    """One optimizer step of two rewards."""
    nan_KK = np.full((2, 2), np.nan)
    report = SolveReport("optimal", "CLARABEL", 0.0, np.ones(2), np.array([0.6, 0.2]), nan_KK, 0.2, {})
    solution = Solution(
        np.array([0.3, 0.7]), np.array([0.4, 0.6]), np.ones(2), 0.05, np.array([0.04, 0.06]), np.ones(2, bool), report
    )
    return StepRecord(
        step=number,
        iteration=number,
        solved=solved,
        applied=applied,
        skip_reason="" if applied else "no reward has signal",
        active_K=np.ones(2, bool),
        weights_K=np.array([0.4, 0.6]),
        coefficients_K=np.ones(2),
        solution=solution if solved else None,
        mean_norm=0.05,
        loss=float("nan"),
        kl=1e-5,
        kl_cosine=0.0,
        kl_share=0.01,
        grad_norm=0.25,
        seconds=1.0,
    )


def iteration(index: int, total: int = 4, *, failed: int = 0, **step_arguments: Any) -> IterationResult:
    """Iteration `index` of a made-up run whose scores grow."""
    report = IterationReport(
        iteration=index,
        steps=(step(index, **step_arguments),),
        advantages_KN=np.zeros((2, 8)),
        signal_KN=np.ones((2, 8), bool),
        applied=True,
        default_hash="a",
        old_hash="b",
        policy_version=index + 1,
        eta=0.001 * index,
    )
    return IterationResult(
        iteration=index,
        num_iterations=total,
        reward_means={"align": 0.5 + 0.01 * index, "geneval": 0.4 + 0.02 * index},
        reward_counts={"align": CellCounts(8 - failed, 0, failed), "geneval": CellCounts(4, 4, 0)},
        ema_alpha={"align": 0.4, "geneval": 0.6},
        report=report,
        timings_s={"rollout": 1.0, "rewards": 0.5, "learner": 2.0, "sync": 0.1, "other": 0.1, "total": 3.7},
        images_per_s=2.2,
        controller_bytes=2048,
    )


def evaluation(iterations: int, which: Which, shift: float = 0.0) -> EvaluationResult:
    """Four held-out prompts, two of them of GenEval's source; the pictures of two."""
    nan = float("nan")
    ids = ("general/0", "general/1", "geneval/0", "geneval/1")
    samples = tuple(
        EvalSample(i, i.split("/")[0], f"a prompt called {i}", np.full((16, 16, 3), 40 + 20 * n, np.uint8))
        for n, i in enumerate(ids[::2])
    )
    return EvaluationResult(
        iteration=iterations,
        which=which,
        prompt_ids=ids,
        per_prompt={
            "align": np.array([0.5, 0.6, 0.7, 0.8]) + shift,
            "geneval": np.array([nan, nan, 0.0, 1.0]),
        },
        states={"align": np.zeros(4, np.uint8), "geneval": np.array([1, 1, 0, 0], np.uint8)},
        samples=samples,
        seconds=12.0,
    )
