"""Held-out rewards in whole runs: they judge and leave no trace in training; runs stop, keep and warn by them.

Without processes; the images are real ones of a random pipeline. Rows 5, 6, 8 and 26 of the faults table.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from actors import watch
from actors.results import IterationResult, RunSummary
from learner.errors import UserError
from tests.integration.fake_scorers import Falling, Rising
from tests.integration.small_run import SCORERS, Recorder, contents, run, samples, small_config

JUDGES = {
    "green": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 1}},
    "signs_only": {"scorer": f"{SCORERS}:Contrast", "applies": ["signs"], "when": "quoted"},
}


def rigged(model: Path, folder: Path, **sections: Any) -> Any:
    """A run whose training reward rises and whose held-out one falls, as far as evaluations see."""
    Falling.calls = Rising.calls = 0
    return small_config(
        model,
        folder,
        **{
            "run": {"iterations": 8},
            "rewards": {"up": {"scorer": f"{SCORERS}:Rising"}},
            "heldout_rewards": {"down": {"scorer": f"{SCORERS}:Falling"}},
            "eval": {"every": 2},
            "checkpoint": {"every": 2, "keep_last": 9},
            **sections,
        },
    )


def events(run_dir: Path, kind: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    return [line for line in lines if line["event"] == kind]


@pytest.fixture(scope="module")
def judged(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunSummary, Recorder]:
    """Three iterations with two held-out rewards."""
    folder = tmp_path_factory.mktemp("judged")
    config = small_config(model, folder, run={"iterations": 3}, heldout_rewards=JUDGES, eval={"every": 1})
    summary, recorder, _ = run(config, folder / "run")
    return folder / "run", summary, recorder


def test_they_score_every_evaluation_and_have_a_place_of_their_own(
    judged: tuple[Path, RunSummary, Recorder],
) -> None:
    run_dir, summary, recorder = judged
    assert tuple(summary.rewards) == ("red", "dark", "contrast")
    assert {name: reward.n for name, reward in summary.heldout_rewards.items()} == {"green": 5, "signs_only": 2}
    assert summary.stopped_early == ""
    for evaluation in recorder.evaluations:
        assert tuple(evaluation.per_prompt) == ("red", "dark", "contrast", "green", "signs_only")
        assert evaluation.n["signs_only"] == 2, "what does not apply is no 0"
    assert [event["n"]["green"] for event in events(run_dir, "evaluation")] == [5] * 4
    assert {path.name for path in (run_dir / "evaluations").iterdir()} == {f"{d:06d}.parquet" for d in range(4)}


def test_training_neither_asks_them_nor_is_changed_by_them(
    judged: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    """Bit for bit the run without them: their scorer sees no image of training."""
    seen = tmp_path / "seen"
    keeps = {"spy": {"scorer": f"{SCORERS}:Keeps", "args": {"file": str(seen)}}}
    config = small_config(model, tmp_path, run={"iterations": 3}, eval={"every": 1}, heldout_rewards=keeps)
    _, recorder, _ = run(config, tmp_path / "spied")
    assert len(seen.read_text().splitlines()) == 1, "the self-test's; evaluations ask for another figure"
    assert recorder.evaluations[-1].n["spy"] == 5
    assert all(tuple(result.reward_means) == ("red", "dark", "contrast") for result in recorder.iterations)
    plain = small_config(model, tmp_path, run={"iterations": 3})
    run(plain, tmp_path / "plain")
    for other in (tmp_path / "spied", judged[0]):
        assert contents(other / "checkpoints/000003") == contents(tmp_path / "plain/checkpoints/000003")
        assert samples(other) == samples(tmp_path / "plain")


def test_row_8_its_failures_stop_the_run_with_its_own_error(model: Path, tmp_path: Path) -> None:
    picky = {"picky": {"scorer": f"{SCORERS}:FailsOn", "args": {"word": "oak"}}}
    config = small_config(model, tmp_path, run={"iterations": 1}, heldout_rewards=picky)
    with pytest.raises(UserError, match=r"reward picky: 3 of 5 cells failed so far .* cannot bear oak"):
        run(config, tmp_path / "run")


def test_the_best_checkpoint_follows_what_the_recipe_says(model: Path, tmp_path: Path) -> None:
    """What rises is best at the end, what falls at its first evaluation."""
    for best_by, kept in (("rewards", {"000006", "000008"}), ("heldout_rewards", {"000002", "000008"})):
        Falling.calls = Rising.calls = 0
        config = rigged(
            model,
            tmp_path,
            eval={"every": 2, "best_by": best_by},
            checkpoint={"every": 2, "keep_last": 1 if best_by == "heldout_rewards" else 2, "keep_best": 1},
        )
        run(config, tmp_path / best_by)
        assert {path.name for path in (tmp_path / best_by / "checkpoints").iterdir()} == kept


def test_a_run_stops_early_and_says_why(model: Path, tmp_path: Path) -> None:
    config = rigged(model, tmp_path, eval={"every": 2, "early_stop": {"patience": 2}}, checkpoint={"every": 3})
    summary, recorder, _ = run(config, tmp_path / "run")
    assert summary.iterations == 4
    assert summary.stopped_early.startswith("heldout_rewards has not got better in 2 evaluations in a row; the best ")
    assert [path.name for path in recorder.checkpoints] == ["000003", "000004"], "where it stopped there is one"
    assert [evaluation.iteration for evaluation in recorder.evaluations] == [0, 2, 4]
    again, recorder, _ = run(config, tmp_path / "run", resume=True)
    assert recorder.iterations == [], "it knows that it was over"
    assert (again.iterations, again.stopped_early) == (4, summary.stopped_early)


def test_an_alarm_is_told_once(model: Path, tmp_path: Path) -> None:
    _, recorder, _ = run(rigged(model, tmp_path), tmp_path / "run")
    (warning,) = recorder.warnings
    assert warning.startswith("reward hacking? After 2 iterations down, held out, is 1 (s.e. ")
    (event,) = events(tmp_path / "run", "reward_hacking")
    assert (event["done"], event["reward"], event["since"]) == (2, "down", 0)
    assert event["fall"]["mean"] == pytest.approx(-1.0)
    assert event["rise"]["n"] == event["fall"]["n"] == 5


def test_without_evaluations_in_between_the_last_one_is_looked_at(model: Path, tmp_path: Path) -> None:
    config = rigged(model, tmp_path, run={"iterations": 1}, eval={"every": 0}, checkpoint={"keep_best": 0})
    _, recorder, _ = run(config, tmp_path / "run")
    assert len(recorder.warnings) == 1


class Crash(BaseException):
    """kill -9, as far as one process can have it."""


class CrashAfter(Recorder):
    """Ends the process after an iteration, or when an evaluation begins."""

    def __init__(self, done: int, stage: str = "") -> None:
        super().__init__()
        self._done, self._stage, self._now = done, stage, 0

    def on_iteration(self, result: IterationResult) -> None:
        super().on_iteration(result)
        self._now = result.done
        if result.done == self._done and not self._stage:
            raise Crash

    def on_stage(self, stage: str, detail: str) -> None:
        if self._now == self._done and stage == self._stage:
            raise Crash


@pytest.mark.parametrize(("done", "stage"), [(3, ""), (5, ""), (4, "evaluation")])
def test_row_5_a_resumed_run_stops_keeps_and_warns_as_if_nothing_had_happened(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, done: int, stage: str
) -> None:
    """Also where the crash came between a checkpoint and the evaluation that was due with it."""
    monkeypatch.setattr(watch, "ALARM_SE", 0.0)
    settings: dict[str, Any] = {
        "run": {"iterations": 9},
        "heldout_rewards": {"bright": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 2}}},
        "eval": {"every": 2, "early_stop": {"by": "bright", "patience": 3, "min_delta": 0.5}, "best_by": "bright"},
        "checkpoint": {"every": 2, "keep_last": 1, "keep_best": 1},
    }
    config = small_config(model, tmp_path, **settings)
    whole, recorder, _ = run(config, tmp_path / "straight")
    with pytest.raises(Crash):
        run(config, tmp_path / "run", recorder=CrashAfter(done, stage))
    resumed, _, _ = run(config, tmp_path / "run", resume=True)
    assert recorder.warnings, "there is something to tell"
    assert whole.stopped_early, "and something to stop for"
    assert (resumed.iterations, resumed.stopped_early) == (whole.iterations, whole.stopped_early)
    assert resumed.rewards == whole.rewards
    assert resumed.heldout_rewards == whole.heldout_rewards
    folders = [sorted(p.name for p in (tmp_path / n / "checkpoints").iterdir()) for n in ("straight", "run")]
    assert folders[0] == folders[1]
    told = [
        [{k: v for k, v in e.items() if k not in ("time", "elapsed_s")} for e in events(tmp_path / n, "reward_hacking")]
        for n in ("straight", "run")
    ]
    assert told[0] == told[1]
    last = f"checkpoints/{whole.iterations:06d}"
    assert contents(tmp_path / "run" / last) == contents(tmp_path / "straight" / last)
