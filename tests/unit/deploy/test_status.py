"""`marble status`: run directories as they are found, also broken and half-written ones."""

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from deploy_helpers import Marble, edited, evaluation, iteration, problem

from actors.lock import RunLock
from actors.metrics import MetricsLog
from actors.pool_stats import PoolState, write_pools
from deploy.paths import ROOT
from deploy.recipe import load_recipe, to_yaml
from deploy.rundir import RunDir


@pytest.fixture
def run(recipe_file: Path, workdir: Path) -> RunDir:
    """A run after three of its four iterations, with one whole and one torn checkpoint."""
    run_dir = RunDir(workdir / "runs" / "small")
    run_dir.path.mkdir(parents=True)
    run_dir.config.write_text(to_yaml(load_recipe(recipe_file)))
    log = MetricsLog(run_dir.path)
    log.evaluation(evaluation(0, "before"), 10.0)
    for index in range(3):
        log.iteration(iteration(index), 20.0 + index)
    for name in ("000002", "000003"):
        (run_dir.checkpoints / name).mkdir(parents=True)
    (run_dir.checkpoints / "000002" / "manifest.json").write_text("{}")
    return run_dir


def status(marble: Marble, *args: object) -> list[dict[str, object]]:
    ran = marble("status", *args, "--json")
    assert ran.code == 0, ran
    found: list[dict[str, object]] = json.loads(ran.out)
    return found


def test_a_stopped_run(run: RunDir, marble: Marble) -> None:
    (state,) = status(marble)
    assert (state["name"], state["state"], state["done"], state["iterations"]) == ("small", "stopped", 3, 4)
    assert state["last_checkpoint"] == str(run.checkpoints / "000002"), "the torn one is no checkpoint"
    rewards = state["rewards"]
    assert isinstance(rewards, dict)
    assert rewards["align"]["start"] == pytest.approx(0.51)
    assert rewards["align"]["heldout_before"] == pytest.approx(0.65)
    assert rewards["align"]["heldout_last"] is None
    assert rewards["geneval"]["alpha"] == 0.6


def test_a_running_run_is_alive_by_its_lock(run: RunDir, marble: Marble) -> None:
    lock = RunLock(run.path)
    lock.acquire()
    (state,) = status(marble, run.path)
    assert (state["state"], state["detail"]) == ("running", f"process {os.getpid()}")
    lock.release()
    assert status(marble, run.path)[0]["state"] == "stopped"


def test_a_killed_run_is_not_alive(run: RunDir, marble: Marble) -> None:
    code = f"from pathlib import Path; from actors.lock import RunLock; RunLock(Path({str(run.path)!r})).acquire()"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)
    (state,) = status(marble, run.path)
    assert state["state"] == "stopped"
    assert "died" in str(state["detail"])


def test_a_run_of_another_machine_is_unknown(run: RunDir, marble: Marble) -> None:
    lock = {"pid": 1, "host": socket.gethostname() + "-other", "started": "1"}
    (run.path / "run.lock").write_text(json.dumps(lock))
    assert status(marble, run.path)[0]["state"] == "unknown"


def test_a_finished_run(run: RunDir, marble: Marble) -> None:
    log = MetricsLog(run.path)
    log.iteration(iteration(3), 30.0)
    log.evaluation(evaluation(4, "ema", shift=0.1), 40.0)
    run.summary.write_text("{}")
    (state,) = status(marble, "small")
    assert (state["state"], state["done"]) == ("finished", 4)
    assert state["rewards"]["align"]["heldout_last"] == pytest.approx(0.75)  # type: ignore[index]


def test_a_run_that_stopped_early_is_finished_until_it_goes_on(run: RunDir, marble: Marble) -> None:
    run.summary.write_text(json.dumps({"iterations": 3, "stopped_early": "no better"}))
    assert status(marble, "small")[0]["state"] == "finished"
    run.summary.write_text(json.dumps({"iterations": 2, "stopped_early": "no better"}))
    assert status(marble, "small")[0]["state"] == "stopped"
    run.summary.write_text("[broken")
    assert status(marble, "small")[0]["state"] == "stopped"


def test_held_out_rewards_have_evaluations_and_no_training_scores(
    recipe_file: Path, run: RunDir, marble: Marble
) -> None:
    recipe = load_recipe(recipe_file, ["heldout_rewards.judge={scorer: 'some.module:Judge'}"])
    run.config.write_text(to_yaml(recipe))
    scores = evaluation(0, "before")
    judged = dataclasses.replace(scores, per_prompt={**scores.per_prompt, "judge": np.full(4, 0.25)})
    MetricsLog(run.path).evaluation(judged, 30.0)
    (state,) = status(marble)
    assert state["rewards"]["judge"] == {  # type: ignore[index]
        "start": None,
        "now": None,
        "heldout_before": 0.25,
        "heldout_last": None,
        "alpha": None,
    }
    assert marble("status").code == 0


def test_a_half_written_line_and_a_broken_neighbour(run: RunDir, marble: Marble) -> None:
    """One unreadable run hides no other."""
    with run.metrics.open("a") as file:
        file.write('{"event": "iteration", "done": 4, "rew')
    broken = run.path.parent / "broken"
    broken.mkdir()
    (broken / "config.yaml").write_text("run: [")
    states = {str(state["name"]): state for state in status(marble, run.path.parent)}
    assert states["small"]["done"] == 3
    assert states["broken"]["state"] == "unreadable"
    assert "config.yaml" in str(states["broken"]["detail"])


ITERATION = {"event": "iteration", "done": 3, "time": 1.0, "rewards": {"align": 0.5}, "alpha": {"align": 0.5}}
HELD_OUT = {"event": "evaluation", "which": "before", "means": {"align": 0.5}}
BROKEN_EVENTS: dict[str, dict[str, object]] = {
    "no done": {k: v for k, v in ITERATION.items() if k != "done"},
    "null done": ITERATION | {"done": None},
    "null rewards": ITERATION | {"rewards": None},
    "rewards are a list": ITERATION | {"rewards": ["align"]},
    "a score is text": ITERATION | {"rewards": {"align": "high"}},
    "a score is a list": ITERATION | {"rewards": {"align": [1]}},
    "null alpha": ITERATION | {"alpha": None},
    "alpha is text": ITERATION | {"alpha": {"align": "much"}},
    "speed is text": ITERATION | {"images_per_s": "fast"},
    "time is text": ITERATION | {"time": "noon"},
    "no means": {k: v for k, v in HELD_OUT.items() if k != "means"},
    "null means": HELD_OUT | {"means": None},
    "a mean is text": HELD_OUT | {"means": {"align": "x"}},
}


@pytest.mark.parametrize("event", BROKEN_EVENTS.values(), ids=BROKEN_EVENTS)
def test_a_run_with_a_broken_event_hides_no_other(run: RunDir, marble: Marble, event: dict[str, object]) -> None:
    broken = copied(run, "broken")
    with broken.metrics.open("a") as file:
        file.write(json.dumps(event) + "\n")
    assert_unreadable_beside_a_good_one(marble, "metrics.jsonl: ")


@pytest.mark.parametrize(
    ("old", "new"),
    [("iterations: 4", "iterations: .inf"), ("iterations: 4", "iterations: [4]"), ("rewards:", "rewads:")],
)
def test_a_run_with_a_broken_recipe_hides_no_other(run: RunDir, marble: Marble, old: str, new: str) -> None:
    edited(copied(run, "broken").config, (old, new))
    assert_unreadable_beside_a_good_one(marble, "config.yaml: ")


LOCKS = [
    "{",
    "[]",
    "null",
    '{"pid": null, "host": "HOST", "started": "1"}',
    '{"pid": 1e30, "host": "HOST", "started": "1"}',
]
LOCKS += ['{"pid": 0, "host": "HOST", "started": "1"}', f'{{"pid": {10**30}, "host": "HOST", "started": "1"}}']
LOCKS += ['{"pid": 1, "host": null, "started": "1"}', "[" * 20000]


@pytest.mark.parametrize("text", LOCKS, ids=range(len(LOCKS)))
def test_a_run_with_a_broken_lock_is_held_by_nobody(run: RunDir, marble: Marble, text: str) -> None:
    (copied(run, "broken").path / "run.lock").write_text(text.replace("HOST", socket.gethostname()))
    assert [state["state"] for state in status(marble)] == ["stopped", "stopped"]


def test_a_line_nobody_can_parse_ends_the_events(run: RunDir, marble: Marble) -> None:
    for line in ("9" * 5000, "[" * 100_000):
        with copied(run, f"broken{len(line)}").metrics.open("a") as file:
            file.write(line + "\n")
    assert [state["done"] for state in status(marble)] == [3, 3, 3]


def test_a_name_too_long_for_the_file_system(run: RunDir, marble: Marble) -> None:
    problem(marble("status", "x" * 5000), "file name too long")


def copied(run: RunDir, name: str) -> RunDir:
    return RunDir(Path(shutil.copytree(run.path, run.path.with_name(name))))


def assert_unreadable_beside_a_good_one(marble: Marble, says: str) -> None:
    states = {Path(str(state["path"])).name: state for state in status(marble)}
    assert states["broken"]["state"] == "unreadable"
    assert str(states["broken"]["detail"]).startswith(says), states["broken"]
    assert (states["small"]["state"], states["small"]["done"]) == ("stopped", 3)
    ran = marble("status")
    assert (ran.code, "unreadable" in ran.out, "iteration 3/4" in ran.out) == (0, True, True)


def test_text_for_people(run: RunDir, marble: Marble) -> None:
    ran = marble("status")
    assert ran.code == 0
    for part in ("small", "stopped", "iteration 3/4", "last checkpoint 000002", "align", "0.650"):
        assert part in ran.out


POOLS = {
    "align": PoolState(3, 4, 7, 3, 640, 12.54, 5, 2, 0.0512, 0.0907),
    "geneval": PoolState(1, 1, 0, 0, 0, 0.0, 0, 0, None, None),
}


def test_pools_of_a_running_run(run: RunDir, marble: Marble) -> None:
    write_pools(run.path, POOLS)
    lock = RunLock(run.path)
    lock.acquire()
    (state,) = status(marble, run.path)
    assert state["pools"] == {name: vars(pool) for name, pool in POOLS.items()}
    lines = marble("status", run.path).out.splitlines()
    first = next(i for i, line in enumerate(lines) if line.strip().startswith("pool"))
    assert [" ".join(line.split()) for line in lines[first : first + 3]] == [
        "pool replicas queue running images/s failed lost p50 s p95 s",
        "align 3 of 4 7 3 12.5 5/640 2 0.051 0.091",
        "geneval 1 0 0 0.0 0/0 0 - -",
    ]
    lock.release()


def test_a_stopped_runs_pools_are_data_only(run: RunDir, marble: Marble) -> None:
    write_pools(run.path, POOLS)
    assert "replicas" not in marble("status", run.path).out
    assert set(status(marble, run.path)[0]["pools"]) == {"align", "geneval"}  # type: ignore[call-overload]


def test_nothing_there(workdir: Path, marble: Marble) -> None:
    ran = marble("status")
    assert (ran.code, ran.out) == (0, f"no runs in {workdir / 'runs'}\n")
    assert status(marble) == []
    problem(marble("status", "nope"), "nope is neither a run directory nor a folder of runs")


def test_runs_root_follows_the_environment(
    run: RunDir, marble: Marble, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("MARBLE_RUNS", str(run.path.parent))
    monkeypatch.chdir(tmp_path)
    assert [state["name"] for state in status(marble)] == ["small"]


def test_status_needs_neither_torch_nor_ray(run: RunDir) -> None:
    code = (
        "import sys\nfrom deploy.cli import run\n"
        f"run(['status', {str(run.path)!r}])\n"
        "print([m for m in ('torch', 'ray', 'transformers') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
