"""Baselines as whole runs without processes: weighted sum, stages, and conflicts measured on the way."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.evaluation import evaluated
from actors.ledger_parts import CONFLICTS, STEPS, read_table
from actors.results import IterationResult
from tests.integration.small_run import Recorder, contents, run, samples, small_config

PLAIN = {"method": "weighted_gradients", "refresh": {"policy": "never"}}
STAGES = [{"rewards": ["red", "dark"], "iterations": 2}, {"rewards": ["contrast"], "iterations": 2}]
SEQUENTIAL = {"objective": "weighted_sum", "stages": STAGES}


class Crash(BaseException):
    """kill -9, as far as one process can have it."""


class CrashAfter(Recorder):
    """Ends the process after an iteration, before anything else is written."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self._done = done

    def on_iteration(self, result: IterationResult) -> None:
        super().on_iteration(result)
        if result.done == self._done:
            raise Crash


def sequential(model: Path, folder: Path, **learner: Any) -> Any:
    numbers = {"lr": 1e-2, "timesteps": 2, "updates_per_iteration": 1, "micro_batch_size": 8}
    return small_config(
        model,
        folder,
        run={"iterations": 4},
        learner={**numbers, **SEQUENTIAL, **learner},
        harmonizer=PLAIN,
        checkpoint={"every": 1, "keep_best": 0},
    )


@pytest.fixture(scope="module")
def straight(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Recorder]:
    folder = tmp_path_factory.mktemp("sequential")
    _, recorder, _ = run(sequential(model, folder, probe_every=3), folder / "run")
    return folder / "run", recorder


def test_every_reward_is_evaluated_after_every_stage(straight: tuple[Path, Recorder]) -> None:
    run_dir, recorder = straight
    assert evaluated(run_dir) == [0, 2, 4]
    assert [(e.iteration, e.which) for e in recorder.evaluations] == [(0, "before"), (2, "ema"), (4, "ema")]
    assert all(set(e.per_prompt) == {"red", "dark", "contrast"} for e in recorder.evaluations)


def test_the_ledger_carries_the_weighted_sum(straight: tuple[Path, Recorder]) -> None:
    """The mean of the stage's rewards, its state and advantage, beside each reward's own."""
    for row in samples(straight[0]):
        names = ("red", "dark") if row["iteration"] < 2 else ("contrast",)
        known = [row[f"score_{name}"] for name in names if row[f"state_{name}"] == 0]
        if known:
            assert row["score_weighted_sum"] == pytest.approx(np.mean(known), rel=1e-6)
        assert row["state_weighted_sum"] == (0 if known else 1)
    steps = read_table(straight[0], STEPS).to_pylist()
    assert [step["weight_weighted_sum"] for step in steps] == [1.0] * 4
    assert not any(step["solved"] for step in steps)
    assert "weight_red" not in steps[0]


def test_rewards_of_other_stages_score_only_where_conflicts_are_measured(straight: tuple[Path, Recorder]) -> None:
    """Steps 0 and 3 are measured, step 0 against iteration 1's batch too: iteration 2 alone measures nothing."""
    scored = {
        name: {row["iteration"] for row in samples(straight[0]) if row[f"state_{name}"] == 0}
        for name in ("red", "contrast")
    }
    assert scored == {"red": {0, 1, 3}, "contrast": {0, 1, 2, 3}}
    rows = read_table(straight[0], CONFLICTS).to_pylist()
    assert [(row["step"], row["against"]) for row in rows] == [(0, "same"), (0, "next"), (3, "same")]
    for row in rows:
        assert all(-1 <= row[f"direction_{name}"] <= 1 for name in ("red", "dark", "contrast"))


def test_row_5_a_crash_at_a_stages_border_changes_nothing(
    straight: tuple[Path, Recorder], model: Path, tmp_path: Path
) -> None:
    """Before the border's checkpoint and evaluation are written, and after the first step beyond it."""
    for done in (2, 3):
        config, run_dir = sequential(model, tmp_path, probe_every=3), tmp_path / f"run{done}"
        with pytest.raises(Crash):
            run(config, run_dir, recorder=CrashAfter(done))
        (run_dir / "run.lock").unlink(missing_ok=True)
        _, recorder, _ = run(config, run_dir, resume=True)
        assert recorder.iterations[0].done == done, "one iteration is done again, not more"
        last = "000004"
        assert contents(run_dir / "checkpoints" / last) == contents(straight[0] / "checkpoints" / last)
        assert samples(run_dir) == samples(straight[0])
        assert read_table(run_dir, CONFLICTS).to_pylist() == read_table(straight[0], CONFLICTS).to_pylist()
        assert evaluated(run_dir) == [0, 2, 4]


def test_measuring_conflicts_changes_no_bit_of_a_run(model: Path, tmp_path: Path) -> None:
    """MARBLE's own run, with it on at every step and off: policies, scores, weights and evaluations are the same."""
    taken = {}
    for every in (0, 1):
        learner = {"lr": 1e-2, "timesteps": 1, "updates_per_iteration": 2, "micro_batch_size": 8, "probe_every": every}
        config = small_config(model, tmp_path, run={"iterations": 3}, learner=learner)
        _, recorder, _ = run(config, tmp_path / f"run{every}")
        hashes = [result.report.default_hash for result in recorder.iterations]
        after = {name: scores.tolist() for name, scores in recorder.evaluations[-1].per_prompt.items()}
        taken[every] = (hashes, samples(tmp_path / f"run{every}"), after)
        assert ("probe" in recorder.iterations[0].timings_s) == bool(every)
    np.testing.assert_equal(taken[0], taken[1])


def test_measuring_changes_no_bit_of_stages_with_a_gradient_per_reward(model: Path, tmp_path: Path) -> None:
    """A measured iteration scores the next stage's rewards too; their running spread must not move by it."""
    stages = [{"rewards": ["red"], "iterations": 2}, {"rewards": ["dark", "contrast"], "iterations": 2}]
    hashes = {}
    for every in (0, 1):
        learner = {"lr": 1e-2, "timesteps": 1, "micro_batch_size": 8, "probe_every": every, "stages": stages}
        config = small_config(model, tmp_path, run={"iterations": 4}, learner=learner)
        _, recorder, _ = run(config, tmp_path / f"run{every}")
        hashes[every] = [result.report.default_hash for result in recorder.iterations]
    assert hashes[0] == hashes[1]


def test_the_actors_vitals_are_on_record(straight: tuple[Path, Recorder]) -> None:
    events = [json.loads(line) for line in (straight[0] / "metrics.jsonl").read_text().splitlines()]
    [vitals] = [event for event in events if event["event"] == "vitals"]
    roles = [actor["role"] for actor in vitals["actors"]]
    assert "learner rank 0" in roles
    assert all(actor["peak_memory_gib"] > 0 for actor in vitals["actors"])
