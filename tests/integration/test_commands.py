"""The commands as a user types them, each in a process of its own, on real Ray and a tiny random pipeline."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TIMEOUT_S = 600
"""Of one command, seconds: on a busy machine the imports of all actors take minutes."""

SCORERS = '''\
"""Scorers of no weight."""

import numpy as np

from rewards.contract import RewardResult


class Channel:
    """Mean of one colour channel."""

    def __init__(self, index: int) -> None:
        self.index = index

    def __call__(self, images_NHWC, prompts, metadata):
        scores = (images_NHWC[..., self.index].mean(axis=(1, 2)) / 255).astype(np.float32)
        return RewardResult(scores, np.zeros(len(scores), np.uint8), ("",) * len(scores))
'''

RECIPE = """\
run: {name: commands, iterations: 2, seed: 3}
policy:
  base: ./model
  resolution: 32
  max_sequence_length: 0
  lora: {rank: 4, alpha: 8}
sampling: {steps: 4}
eval_sampling: {steps: 3}
prompts:
  groups_per_iteration: 2
  group_size: 4
  sources:
    general: {train: ./train.txt, heldout: ./heldout.txt}
rewards:
  red: {scorer: "tiny_scorers:Channel", args: {index: 0}}
  blue: {scorer: "tiny_scorers:Channel", args: {index: 2}}
learner: {lr: 1e-2, timesteps: 1, updates_per_iteration: 2, micro_batch_size: 8}
actors: {start_timeout_s: 500}
eval: {every: 0}
checkpoint: {every: 1, keep_best: 0}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with a recipe, its files, and a module of scorers."""
    sys.path.insert(0, str(ROOT / "tests" / "unit" / "learner"))
    import tiny_sd3

    folder = tmp_path_factory.mktemp("place")
    tiny_sd3.save_tiny_sd3(folder / "model")
    for split in ("train", "heldout"):
        (folder / f"{split}.txt").write_text("".join(f"{split} number {i}\n" for i in range(4)))
    (folder / "tiny_scorers.py").write_text(SCORERS)
    (folder / "recipe.yaml").write_text(RECIPE)
    return folder


def environment(place: Path) -> dict[str, str]:
    """The clone and the scorers on the path, as an installed package would be."""
    path = os.pathsep.join([str(ROOT), str(place)])
    # Ray's workers otherwise wait for everything else that runs on the machine.
    return {**os.environ, "PYTHONPATH": path, "RAY_worker_niceness": "0"}


def command(*args: object) -> list[str]:
    return [sys.executable, "-m", "deploy.cli", *map(str, args)]


def marble(place: Path, *args: object) -> subprocess.CompletedProcess[str]:
    return ran(place, command(*args))


def ran(place: Path, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        words,
        cwd=place,
        env=environment(place),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def orphans(place: Path) -> list[str]:
    """Processes of ours that outlived their command."""
    found = []
    for status in Path("/proc").glob("[0-9]*/environ"):
        try:
            if str(place) in status.read_bytes().decode(errors="replace"):
                found.append((status.parent / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def wait_for_no_orphans(place: Path) -> None:
    deadline_s = time.monotonic() + 30
    while orphans(place) and time.monotonic() < deadline_s:
        time.sleep(0.5)
    assert orphans(place) == []


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """A finished run."""
    done = marble(place, "train", "recipe.yaml", "--json")
    assert done.returncode == 0, done.stderr
    summary = json.loads(done.stdout)
    assert set(summary["rewards"]) == {"red", "blue"}
    assert summary["rewards"]["red"]["n"] == 4
    assert "iteration 2/2" in done.stderr
    wait_for_no_orphans(place)
    return Path(summary["run_dir"])


def test_a_run_leaves_what_the_design_lists(trained: Path, place: Path) -> None:
    assert trained == place / "runs" / "commands"
    for name in (
        "config.yaml",
        "metrics.jsonl",
        "summary.json",
        "samples/before_after.png",
        "samples/000002/samples.json",
    ):
        assert (trained / name).is_file(), name
    for name in ("ledger", "tensorboard", "checkpoints/000001", "checkpoints/000002/lora"):
        assert any((trained / name).iterdir()), name
    assert not (trained / "run.lock").exists()


def test_a_finished_run_has_its_status(trained: Path, place: Path) -> None:
    (state,) = json.loads(marble(place, "status", "--json").stdout)
    assert (state["state"], state["done"], state["last_checkpoint"]) == (
        "finished",
        2,
        str(trained / "checkpoints/000002"),
    )
    assert state["rewards"]["red"]["heldout_last"] is not None


def test_it_is_neither_overwritten_nor_resumed_with_another_recipe(trained: Path, place: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in trained.rglob("*")}
    again = marble(place, "train", "recipe.yaml")
    assert (again.returncode, again.stderr.count("\n")) == (2, 1)
    assert "exists" in again.stderr
    other = marble(place, "train", "recipe.yaml", "--resume", "--set", "learner.lr=1e-4")
    assert (other.returncode, other.stderr.count("\n")) == (2, 1)
    assert "learner.lr was 0.01, got 0.0001" in other.stderr
    assert {path: path.stat().st_mtime_ns for path in trained.rglob("*")} == before


def test_generate_draws_with_the_runs_lora(trained: Path, place: Path) -> None:
    for name, args in (("with.png", ("--run", trained)), ("without.png", ("--recipe", "recipe.yaml"))):
        done = marble(place, "generate", "a cat", *args, "--seed", 3, "-o", name)
        assert (done.returncode, done.stderr) == (0, ""), "libraries keep their advice to themselves"
    assert (place / "with.png").read_bytes() != (place / "without.png").read_bytes()


def test_an_impossible_placement_is_an_error(place: Path) -> None:
    """Row 23, on a real Ray: asked against available, nothing left behind."""
    done = marble(place, "train", "recipe.yaml", "--run-dir", "never", "--set", "actors.rollout.num_gpus=3")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "not enough GPU: rollout 1 x 3 ask for 3, available is 0" in done.stderr
    assert not (place / "never").exists()
    wait_for_no_orphans(place)


@pytest.mark.slow
def test_check_finds_nothing_wrong_or_everything(place: Path) -> None:
    good = marble(place, "check", "recipe.yaml", "--json")
    assert good.returncode == 0, good.stderr
    data = json.loads(good.stdout)
    assert data["ok"]
    assert {actor["name"] for actor in data["actors"]} == {"rollout-0", "reward.red-0", "reward.blue-0"}
    sets = ("--set", "rewards.red.args={index: 9}", "--set", "rewards.blue.args={x: 1}")
    broken = marble(place, "check", "recipe.yaml", *sets, "--json")
    assert broken.returncode == 2
    problems = json.loads(broken.stdout)["problems"]
    assert [problem["code"] for problem in problems] == ["rewards.start"] * 2
    assert any("red" in problem["text"] for problem in problems)
    assert any("blue" in problem["text"] for problem in problems)
    # What is left of a recipe that does not load is held against the cluster too.
    sets = ("--set", "eval.evry=1", "--set", "actors.rollout.num_gpus=99")
    impossible = marble(place, "check", "recipe.yaml", *sets, "--json")
    assert impossible.returncode == 2
    codes = [problem["code"] for problem in json.loads(impossible.stdout)["problems"]]
    assert codes == ["recipe.unknown_key", "cluster.resources"]
    wait_for_no_orphans(place)


@pytest.mark.slow
def test_eval_gives_the_runs_own_numbers(trained: Path, place: Path) -> None:
    """Row 27: the same prompts, seeds and weights give the same scores, from the run and from its LoRA file."""
    summary = json.loads((trained / "summary.json").read_text())["rewards"]
    for what in (trained, trained / "checkpoints" / "000002" / "lora"):
        done = marble(place, "eval", what, "--json")
        assert done.returncode == 0, done.stderr
        data = json.loads(done.stdout)
        for name, reward in summary.items():
            assert data["rewards"][name]["base"] == pytest.approx(reward["before"], abs=1e-7)
            assert data["rewards"][name]["lora"] == pytest.approx(reward["after"], abs=1e-7)
        assert data["record"]["sampling"]["steps"] == 3
        assert data["record"]["packages"]["torch"]
    (place / "others.txt").write_text("one\ntwo\nthree\n")
    other = marble(place, "eval", trained, "--prompts", "others.txt", "--json")
    assert json.loads(other.stdout)["rewards"]["red"]["n"] == 3


def stopped_after(place: Path, args: Sequence[object], line: str, number: signal.Signals) -> tuple[int, str]:
    """Start a command, send it a signal when it has printed a line; its exit code and standard error."""
    process = subprocess.Popen(
        command(*args), cwd=place, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    for shown in process.stdout:
        if line in shown:
            process.send_signal(number)
            break
    _, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_is_resumed(place: Path, number: signal.Signals, code: int) -> None:
    """Ctrl-C, and what `ray job stop` sends: exit code, one line with the command to go on, no orphans."""
    args = ("train", "recipe.yaml", "--set", "run.iterations=6", "--run-dir", f"runs/stopped-{code}")
    got, err = stopped_after(place, args, "iteration 2/6", number)
    assert got == code, err
    hint = shlex.split(err.splitlines()[-1].partition("go on with: ")[2])
    assert hint == command(*args, "--resume")
    wait_for_no_orphans(place)
    done = ran(place, hint)
    assert done.returncode == 0, done.stderr
    assert "iteration 1/6" not in done.stdout
    assert "iteration 6/6" in done.stdout
    metrics = (place / f"runs/stopped-{code}" / "metrics.jsonl").read_text().splitlines()
    iterations = [json.loads(line)["done"] for line in metrics if '"event": "iteration"' in line]
    assert iterations == [1, 2, 3, 4, 5, 6]


@pytest.mark.slow
def test_a_pool_is_resized_while_its_run_trains(place: Path) -> None:
    """The answer comes while iterations go on; status shows the replicas; bad input is one line and exit code 2."""
    args = ("train", "recipe.yaml", "--set", "run.iterations=400", "--run-dir", "runs/scaled")
    process = subprocess.Popen(
        command(*args), cwd=place, env=environment(place), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    try:
        assert any("iteration 2/400" in line for line in process.stdout)
        wrong = marble(place, "scale", "scaled", "reward.rde=2")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1)
        assert "did you mean red?" in wrong.stderr
        done = marble(place, "scale", "scaled", "reward.red=2")
        assert (done.returncode, done.stdout) == (0, "reward.red: 1 -> 2 replicas\n"), done.stderr
        deadline_s = time.monotonic() + TIMEOUT_S
        while (pools := json.loads(marble(place, "status", "scaled", "--json").stdout)[0]["pools"])["red"][
            "replicas"
        ] < 2:
            assert time.monotonic() < deadline_s
        assert (pools["red"]["wanted"], pools["blue"]["replicas"]) == (2, 1)
        assert marble(place, "scale", "scaled", "reward.red=1").returncode == 0
    finally:
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 130, err
    events = [json.loads(line) for line in (place / "runs/scaled/metrics.jsonl").read_text().splitlines()]
    assert [(e["before"], e["after"]) for e in events if e["event"] == "resized"] == [(1, 2), (2, 1)]
    wait_for_no_orphans(place)
