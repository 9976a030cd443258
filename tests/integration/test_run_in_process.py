"""Whole runs with the real rooms but without processes: what must be equal is equal, whatever happens on the way."""

import json
import shutil
import socket
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from actors.controller import Controller
from actors.ledger_parts import STEPS, read_table
from actors.lock import NAME as LOCK
from actors.lock import RunLock
from actors.results import IterationResult, RunSummary
from actors.stop import RunStopped
from actors.team import StartError
from learner.errors import CheckpointError, UserError
from tests.integration.small_run import SCORERS, SHIPPED_LEARNER, Recorder, contents, run, samples, small_config
from tests.unit.actors.in_process import InProcess


class Crash(BaseException):
    """kill -9, as far as one process can have it: nobody cleans up."""


class CrashAfter(Recorder):
    """Ends the process in the middle of nowhere."""

    def __init__(self, done: int) -> None:
        super().__init__()
        self._done = done

    def on_iteration(self, result: IterationResult) -> None:
        super().on_iteration(result)
        if result.done == self._done:
            raise Crash


@pytest.fixture(scope="module")
def straight(model: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, RunSummary, Recorder]:
    """Six iterations in one go."""
    folder = tmp_path_factory.mktemp("straight")
    summary, recorder, _ = run(small_config(model, folder, run={"iterations": 6}), folder / "run")
    return folder / "run", summary, recorder


def test_a_run_trains_and_says_what_it_did(straight: tuple[Path, RunSummary, Recorder]) -> None:
    _, summary, recorder = straight
    assert [result.done for result in recorder.iterations] == [1, 2, 3, 4, 5, 6]
    assert {name: reward.n for name, reward in summary.rewards.items()} == {"red": 5, "dark": 5, "contrast": 2}
    assert summary.iterations == 6
    assert [evaluation.which for evaluation in recorder.evaluations] == ["before", "ema"]
    assert [path.name for path in recorder.checkpoints] == ["000003", "000006"]
    assert recorder.warnings == []
    last = recorder.iterations[-1]
    assert sum(last.ema_alpha.values()) == pytest.approx(1.0)
    assert last.reward_counts["contrast"].not_applicable == 8
    versions = [result.report.policy_version for result in recorder.iterations]
    assert versions == [1, 2, 3, 4, 5, 6]


def test_the_ledger_has_every_sample_and_step(straight: tuple[Path, RunSummary, Recorder]) -> None:
    run_dir, _, recorder = straight
    rows = samples(run_dir)
    assert [(row["iteration"], row["sample"]) for row in rows] == [(i, n) for i in range(6) for n in range(16)]
    hashes = {row["iteration"]: row["policy_hash"] for row in rows}
    reports = [result.report for result in recorder.iterations]
    assert [hashes[i + 1] for i in range(5)] == [report.old_hash for report in reports[:5]]
    steps = read_table(run_dir, STEPS).to_pylist()
    assert [row["step"] for row in steps] == list(range(6))
    solved = [row for row in steps if row["solved"]]
    assert [row["step"] for row in solved] == [0, 3]
    assert all(row["cosine_red"] is not None and len(row["pairwise_cosines"]) == 9 for row in solved)


def test_row_20_every_sample_has_noise_of_its_own(straight: tuple[Path, RunSummary, Recorder]) -> None:
    seeds = [row["seed"] for row in samples(straight[0])]
    assert len(set(seeds)) == len(seeds) == 96


def test_only_references_and_scores_pass_through_the_controller(straight: tuple[Path, RunSummary, Recorder]) -> None:
    assert max(result.controller_bytes for result in straight[2].iterations) < 40_000


def test_row_5_three_and_a_crash_and_three_are_six_straight(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    """Row 32 too: metrics.jsonl has no gap and marks the restart."""
    config, run_dir = small_config(model, tmp_path, run={"iterations": 6}), tmp_path / "run"
    with pytest.raises(Crash):
        run(config, run_dir, recorder=CrashAfter(5))
    assert len(samples(run_dir)) == 5 * 16
    summary, recorder, _ = run(config, run_dir, resume=True)
    assert [result.done for result in recorder.iterations] == [4, 5, 6]
    assert [evaluation.which for evaluation in recorder.evaluations] == ["ema"], "the base's scores are kept"
    for name in ("000003", "000006"):
        assert contents(run_dir / "checkpoints" / name) == contents(straight[0] / "checkpoints" / name)
    assert samples(run_dir) == samples(straight[0])
    assert dict(summary.rewards) == dict(straight[1].rewards)
    events = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert [e["iteration"] for e in events if e["event"] == "iteration"] == list(range(6))
    assert [e["done"] for e in events if e["event"] == "resume"] == [3]


def test_row_5_two_and_a_crash_and_two_are_four_straight_under_the_shipped_settings(
    model: Path, tmp_path: Path
) -> None:
    """Two updates on each batch and KL on a share of the cells; the slow tier has it with two ranks and kill -9."""
    whole: dict[str, Any] = {"run": {"iterations": 4}, "checkpoint": {"every": 2}, "learner": SHIPPED_LEARNER}
    config = small_config(model, tmp_path, **whole)
    run(config, tmp_path / "straight")
    with pytest.raises(Crash):
        run(config, tmp_path / "run", recorder=CrashAfter(3))
    run(config, tmp_path / "run", resume=True)
    for name in ("000002", "000004"):
        assert contents(tmp_path / "run/checkpoints" / name) == contents(tmp_path / "straight/checkpoints" / name)
    assert samples(tmp_path / "run") == samples(tmp_path / "straight")
    steps = read_table(tmp_path / "run", STEPS).to_pylist()
    assert [row["step"] for row in steps] == list(range(8))
    assert all(row["kl"] > 0 for row in steps[1:])


def test_a_run_directory_that_is_in_use_is_left_alone_by_a_second_learner(model: Path, tmp_path: Path) -> None:
    """Neither a fresh nor a resumed run starts an actor in it, or writes."""
    config, run_dir = small_config(model, tmp_path), tmp_path / "run"
    run_dir.mkdir()
    first = RunLock(run_dir)
    first.acquire()
    before = (run_dir / LOCK).read_bytes()
    for resume in (False, True):
        remote = InProcess()
        with pytest.raises(UserError, match="run is in use by process"):
            run(config, run_dir, remote, resume=resume)
        assert remote.handles == []
    assert [path.name for path in run_dir.iterdir()] == [LOCK]
    assert (run_dir / LOCK).read_bytes() == before


def test_a_bad_line_of_metrics_stops_a_resume_before_anything_is_dropped(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    """Rows 5 and 32: ledger, evaluations and later events stay."""
    run_dir = Path(shutil.copytree(straight[0], tmp_path / "run"))
    metrics = run_dir / "metrics.jsonl"
    first, *others = metrics.read_text().splitlines(keepends=True)
    metrics.write_text("".join([first, "#garbage\n", *others]))
    before = contents(run_dir)
    with pytest.raises(UserError, match=r"metrics\.jsonl, line 2: not JSON"):
        run(small_config(model, tmp_path, run={"iterations": 7}), run_dir, InProcess(), resume=True)
    assert contents(run_dir) == before


def test_a_broken_evaluation_of_the_base_is_drawn_again(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    run_dir = Path(shutil.copytree(straight[0], tmp_path / "run"))
    stored = run_dir / "evaluations" / "000000.parquet"
    whole = stored.read_bytes()
    stored.write_bytes(whole[:-30])
    (stored.parent / "notes.parquet").write_text("mine")
    (run_dir / "ledger" / "samples-backup.parquet").write_text("mine")
    summary, recorder, _ = run(small_config(model, tmp_path, run={"iterations": 6}), run_dir, resume=True)
    assert len(recorder.warnings) == 1
    assert "it is now 000000.parquet.unreadable" in recorder.warnings[0]
    assert [evaluation.which for evaluation in recorder.evaluations] == ["before"], "the last one could be read"
    assert dict(summary.rewards) == dict(straight[1].rewards)
    done = [json.loads(line)["done"] for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    assert done == sorted(done)


def test_more_actors_other_arrivals_lost_and_hung_ones_change_nothing(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    """Rows 1, 11, 14 and 20: bit-equal with two rollout actors and two scorers, of which some die or hang."""
    more = {"rollout": {"replicas": 2}, "pools": {"red": {"replicas": 2, "timeout_s": 20}}}
    config = small_config(model, tmp_path, run={"iterations": 3}, actors=more)
    remote = InProcess(order=5)
    remote.faults["rollout-0", "sample"] = [None, None, None, "die"]
    remote.faults["reward.red-1", "score"] = [None, "hang"]
    _, recorder, _ = run(config, tmp_path / "run", remote)
    assert sorted(warning.split(":")[0] for warning in recorder.warnings) == ["reward.red-1", "rollout-0"]
    ran = {name for name, method in remote.log if method == "sample"}
    assert ran >= {"rollout-0", "rollout-1", "rollout-0.1"}
    name = "000003"
    assert contents(tmp_path / "run/checkpoints" / name) == contents(straight[0] / "checkpoints" / name)
    assert samples(tmp_path / "run") == samples(straight[0])[: 3 * 16]


def test_row_6_evaluating_changes_nothing_and_the_best_are_kept(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    config = small_config(
        model,
        tmp_path,
        run={"iterations": 3},
        eval={"every": 1},
        checkpoint={"every": 3, "keep_last": 1, "keep_best": 1},
    )
    _, recorder, _ = run(config, tmp_path / "run")
    assert [e.iteration for e in recorder.evaluations] == [0, 1, 2, 3]
    name = "000003"
    assert contents(tmp_path / "run/checkpoints" / name) == contents(straight[0] / "checkpoints" / name)
    gains = {e.iteration: _gain(recorder, e.iteration) for e in recorder.evaluations[1:]}
    best = max(gains, key=lambda done: (gains[done], -done))
    kept = {path.name for path in (tmp_path / "run/checkpoints").iterdir()}
    assert kept == {"000003", f"{best:06d}"}


def _gain(recorder: Recorder, done: int) -> float:
    from actors.evaluation import gain

    return gain(recorder.evaluations[0], next(e for e in recorder.evaluations if e.iteration == done))


class StopsAt(Recorder):
    """Asks its run to stop, as SIGTERM would, when a stage begins."""

    controller: Controller

    def __init__(self, stage: str, detail: str) -> None:
        super().__init__()
        self._at = (stage, detail)

    def on_stage(self, stage: str, detail: str) -> None:
        if (stage, detail) == self._at:
            self.controller.stop.request(15)


@pytest.mark.parametrize(
    ("stage", "detail", "done"),
    [
        ("rollout", "1/4 tasks", 0),
        ("learner", "iteration 1", 0),
        ("learner", "iteration 3", 2),
        ("sync", "policy 2", 2),
        ("checkpoint", "3 iterations", 3),
    ],
)
def test_a_stop_keeps_every_finished_iteration_and_resuming_goes_on(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path, stage: str, detail: str, done: int
) -> None:
    """In the middle of a step learner and harmonizer are ahead of the ledger; the checkpoint is not."""
    config, run_dir = small_config(model, tmp_path, run={"iterations": 4}), tmp_path / "run"
    run_dir.mkdir()
    remote, recorder = InProcess(), StopsAt(stage, detail)
    recorder.controller = Controller(config, run_dir, recorder, remote=remote, spawn=remote.spawn)
    kept = f"checkpoint {done:06d}; go on with --resume" if done else "no checkpoint yet"
    with pytest.raises(RunStopped, match=f"stopped by SIGTERM after {done} iterations; {kept}"):
        recorder.controller.run()
    assert remote.alive() == []
    assert not (run_dir / "run.lock").exists()
    if done:
        run(config, run_dir, resume=True)
        name = "000003"
        assert contents(run_dir / "checkpoints" / name) == contents(straight[0] / "checkpoints" / name)
        assert samples(run_dir) == samples(straight[0])[: 4 * 16]


def test_row_7_a_torn_checkpoint_is_passed_over_on_resume(
    model: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = small_config(model, tmp_path, run={"iterations": 2}, checkpoint={"every": 1})
    run(config, tmp_path / "run")
    before = contents(tmp_path / "run/checkpoints/000002")
    (tmp_path / "run/checkpoints/000002/optimizer.safetensors").unlink()
    _, recorder, _ = run(config, tmp_path / "run", resume=True)
    assert [result.done for result in recorder.iterations] == [2]
    assert "000002 is torn: optimizer.safetensors is missing" in caplog.text
    assert contents(tmp_path / "run/checkpoints/000002") == before


def test_rows_8_and_9_a_failed_cell_leaves_every_other_bit_alone(model: Path, tmp_path: Path) -> None:
    scored = []
    for name, scorer in (("good", "Channel"), ("bad", "FailsOn")):
        args = {"channel": 1} | ({"word": "cat"} if name == "bad" else {})
        rewards = {
            "red": {"scorer": f"{SCORERS}:Channel", "args": {"channel": 0}},
            "green": {"scorer": f"{SCORERS}:{scorer}", "args": args},
        }
        config = small_config(model, tmp_path, run={"iterations": 1}, rewards=rewards, actors={"max_failed_share": 1.0})
        run(config, tmp_path / name)
        scored.append(samples(tmp_path / name))
    good, bad = scored
    texts = {row["prompt_id"]: row["source"] for row in bad if row["state_green"] == 2}
    assert texts, "some prompt has a cat"
    for one, other in zip(good, bad, strict=True):
        assert one["score_red"] == other["score_red"]
        assert one["advantage_red"] == other["advantage_red"]
        if other["state_green"] == 2:
            assert (other["score_green"], other["advantage_green"]) == (None, None)
            assert other["reason_green"] == "cannot bear cat"
        else:
            assert one["score_green"] == other["score_green"]


def test_row_8_too_many_failed_cells_stop_the_run_with_the_scorers_own_error(model: Path, tmp_path: Path) -> None:
    rewards = {
        "red": {"scorer": f"{SCORERS}:Channel"},
        "picky": {"scorer": f"{SCORERS}:FailsOn", "args": {"word": "oak"}},
    }
    config = small_config(model, tmp_path, run={"iterations": 1}, rewards=rewards)
    with pytest.raises(UserError, match=r"reward picky: 3 of 5 cells failed so far .* is 0\.2\): cannot bear oak"):
        run(config, tmp_path / "run")


def test_row_14_a_scorer_that_cannot_start_stops_the_run_before_any_step(model: Path, tmp_path: Path) -> None:
    rewards = {"red": {"scorer": f"{SCORERS}:Channel"}, "broken": {"scorer": f"{SCORERS}:Broken"}}
    config = small_config(model, tmp_path, rewards=rewards)
    remote = InProcess()
    with pytest.raises(StartError) as caught:
        run(config, tmp_path / "run", remote)
    assert caught.value.lines == ("reward.broken: FileNotFoundError: checkpoint weights.bin is not there",)
    assert remote.alive() == []
    assert not (tmp_path / "run/ledger").exists()


def test_row_14_a_reward_server_that_is_down_stops_the_run_before_any_step(model: Path, tmp_path: Path) -> None:
    """By reward and address, within a minute."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))  # taken, and nobody listens
        url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        rewards = {"red": {"scorer": f"{SCORERS}:Channel"}, "remote": {"scorer": "http", "args": {"url": url}}}
        remote = InProcess()
        began = time.monotonic()
        with pytest.raises(StartError) as caught:
            run(small_config(model, tmp_path, rewards=rewards), tmp_path / "run", remote)
    assert time.monotonic() - began < 60
    [line] = caught.value.lines
    assert line.startswith(f"reward.remote: ConnectionError: {url}/v1/info: 4 tries, the last: ConnectError")
    assert remote.alive() == []
    assert not (tmp_path / "run/ledger").exists()


def test_row_30_every_scorer_is_loaded_as_often_as_it_has_replicas(model: Path, tmp_path: Path) -> None:
    loads = tmp_path / "loads"
    rewards = {
        "red": {"scorer": f"{SCORERS}:Channel", "args": {"loads": str(loads)}},
        "contrast": {"scorer": f"{SCORERS}:Contrast", "args": {"loads": str(loads)}},
    }
    pools = {"pools": {"red": {"replicas": 2}, "contrast": {"replicas": 3}}}
    run(small_config(model, tmp_path, run={"iterations": 1}, rewards=rewards, actors=pools), tmp_path / "run")
    assert len(loads.read_text().splitlines()) == 5


def test_a_learning_rate_of_zero_publishes_nothing_and_is_no_error(model: Path, tmp_path: Path) -> None:
    config = small_config(model, tmp_path, run={"iterations": 2}, learner={"lr": 0.0})
    summary, recorder, remote = run(config, tmp_path / "run")
    assert [result.report.policy_version for result in recorder.iterations] == [0, 0]
    assert all(reward.before == reward.after for reward in summary.rewards.values())
    pushes = [name for name, method in remote.log if method == "load_adapter"]
    assert len(pushes) == 2, "`old` once at the start, the EMA once for the last evaluation"


def test_chunks_of_a_group_are_tasks_of_their_own(model: Path, tmp_path: Path) -> None:
    _, _, remote = run(
        small_config(model, tmp_path, run={"iterations": 1}, prompts={"chunk_size": 2}), tmp_path / "run"
    )
    drawn = [name for name, method in remote.log if method == "sample"]
    assert len(drawn) == 2 * 2 + 8, "two batches for each evaluation, two chunks for each of four groups"
    rows = samples(tmp_path / "run")
    assert [row["prompt_id"] for row in rows[:4]] == [rows[0]["prompt_id"]] * 4


def test_tasks_of_whole_groups_hold_the_same_samples(model: Path, tmp_path: Path) -> None:
    """A chunk larger than a group: fewer tasks, the same prompts, seeds and cells in the same places."""
    for chunk, num_tasks in ((4, 4), (8, 2), (16, 1)):
        config = small_config(model, tmp_path, run={"iterations": 1}, prompts={"chunk_size": chunk})
        _, _, remote = run(config, tmp_path / f"run{chunk}")
        assert sum(method == "sample" for _, method in remote.log) == 2 * 2 + num_tasks
    whole, *others = (samples(tmp_path / f"run{chunk}") for chunk in (4, 8, 16))
    for rows in others:
        for mine, theirs in zip(rows, whole, strict=True):
            for column in ("sample", "prompt_id", "seed"):
                assert mine[column] == theirs[column]
            assert mine["score_red"] == pytest.approx(theirs["score_red"], abs=1 / 255)


def test_resuming_from_nothing_and_starting_over_a_run_are_refused(model: Path, tmp_path: Path) -> None:
    config, run_dir = small_config(model, tmp_path), tmp_path / "run"
    with pytest.raises(CheckpointError, match="nothing to resume"):
        run(config, run_dir, resume=True)
    (run_dir / "ledger").mkdir()
    with pytest.raises(UserError, match="holds a run already"):
        run(config, run_dir)
    with pytest.raises(UserError, match="is not a folder"):
        Controller(config, tmp_path / "none", Recorder(), remote=InProcess(), spawn=InProcess().spawn).run()


def test_a_run_that_starts_from_a_lora_is_compared_with_the_base(
    straight: tuple[Path, RunSummary, Recorder], model: Path, tmp_path: Path
) -> None:
    """As `marble eval` compares it. The LoRA draws its first batch; it may be of a lower rank than the run's."""
    lora = straight[0] / "checkpoints/000006/lora"
    config = small_config(model, tmp_path, run={"iterations": 1})
    policy = config.policy.model_copy(
        update={"init_lora": str(lora), "lora": config.policy.lora.model_copy(update={"rank": 6})}
    )
    summary, recorder, _ = run(config.model_copy(update={"policy": policy}), tmp_path / "run")
    base = straight[2].evaluations[0]
    for name, scores in recorder.evaluations[0].per_prompt.items():
        np.testing.assert_array_equal(scores, base.per_prompt[name])
    first, fresh = ([row["score_red"] for row in samples(folder)[:16]] for folder in (tmp_path / "run", straight[0]))
    assert first != fresh, "drawn by the LoRA, not by the base"
    assert summary.iterations == 1
