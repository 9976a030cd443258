"""`marble train` around a stand-in controller: run directories, refusals, signals, and what is left behind."""

import json
import os
import platform
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import pytest
import torch
from deploy_helpers import Marble, edited, evaluation, iteration, problem, tree

from actors import keeper, lock, preflight
from actors.controller import Controller
from actors.results import Listener, RewardSummary, RunSummary
from actors.run_config import RunConfig
from actors.stop import RunStopped
from deploy import rundir, strict_yaml, training
from deploy.paths import ROOT
from deploy.recipe import load_recipe
from harmonizer.config import HarmonizerConfig
from harmonizer.harmonizer import Harmonizer
from learner import checkpoint
from learner.errors import UserError

Play = Callable[["FakeController"], None]
HARMONIZER = Harmonizer(("align", "geneval"), HarmonizerConfig()).state_dict()
"""A harmonizer's state in a checkpoint."""


class FakeController:
    """Plays the events of a short run; `act` may raise at its place."""

    act: dict[str, Play]
    made: list["FakeController"]

    def __init__(
        self, config: RunConfig, run_dir: Path, listener: Listener, resume: bool = False, address: str | None = None
    ) -> None:
        self.config, self.run_dir, self.listener = config, run_dir, listener
        self.resume, self.address = resume, address
        type(self).made.append(self)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        (self.run_dir / "closed").touch()

    def _moment(self, name: str) -> None:
        type(self).act.get(name, lambda _: None)(self)

    def run(self) -> RunSummary:
        self._moment("set_up")
        self.listener.on_start(self.config, None)
        self._moment("started")
        self.listener.on_evaluation(evaluation(0, "before"))
        done = 2 if self.resume else 0
        for index in range(done, self.config.run.iterations):
            self.listener.on_iteration(iteration(index, self.config.run.iterations))
            if index == 1:
                self.listener.on_checkpoint(save(self.run_dir, 2))
            self._moment(f"iteration {index + 1}")
        self.listener.on_checkpoint(save(self.run_dir, self.config.run.iterations))
        self.listener.on_evaluation(evaluation(self.config.run.iterations, "ema", shift=0.1))
        rewards = {"align": RewardSummary(0.65, 0.75, 0.02, 4), "geneval": RewardSummary(0.5, 0.5, 0.0, 2)}
        heldout = {name: RewardSummary(0.5, 0.25, 0.05, 4) for name in self.config.heldout_rewards}
        early = "judge has not got better" if self.config.eval.early_stop else ""
        return RunSummary(rewards, self.config.run.iterations, 90.0, self.config.run.seed, heldout, early)


def save(run_dir: Path, done: int) -> Path:
    """A whole checkpoint."""
    return checkpoint.save(run_dir / "checkpoints", done, {"default": {"a": torch.zeros(2)}}, {"iterations_done": done})


@pytest.fixture(autouse=True)
def controller(monkeypatch: pytest.MonkeyPatch) -> type[FakeController]:
    FakeController.act, FakeController.made = {}, []
    monkeypatch.setattr(training, "Controller", FakeController)
    return FakeController


def raising(error: BaseException) -> Play:
    def play(_: FakeController) -> None:
        raise error

    return play


@pytest.fixture
def run(recipe_file: Path, workdir: Path, marble: Marble) -> Path:
    """A run that was stopped after its checkpoint at two of four iterations."""
    FakeController.act = {"iteration 2": raising(RunStopped(signal.SIGINT, 2, Path("x/000002")))}
    assert marble("train", recipe_file).code == 130
    FakeController.act, FakeController.made = {}, []
    return workdir / "runs" / "small"


def test_a_whole_run(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    ran = marble("train", recipe_file, "--set", "run.seed=7")
    assert ran.code == 0, ran.err
    run = workdir / "runs" / "small"
    summary = json.loads((run / "summary.json").read_text())
    assert summary == {
        "rewards": {
            "align": {"before": 0.65, "after": 0.75, "se": 0.02, "n": 4},
            "geneval": {"before": 0.5, "after": 0.5, "se": 0.0, "n": 2},
        },
        "heldout_rewards": {},
        "iterations": 4,
        "seconds": 90.0,
        "seed": 7,
        "stopped_early": "",
    }
    assert strict_yaml.load(run / "config.yaml")["run"]["seed"] == 7
    for part in ("samples/before_after.png", "samples/000000/samples.json", "samples/000004/samples.json"):
        assert (run / part).is_file()
    assert list((run / "tensorboard").iterdir())
    assert FakeController.made[0].run_dir == run
    lines = ran.out.splitlines()
    assert lines[0] == f"run directory {run}"
    header = next(line for line in lines if "difference/s.e." in line)
    assert header.split() == ["reward", "n", "before", "after", "difference", "s.e.", "difference/s.e."]
    row = next(line for line in lines if line.split()[:2] == ["align", "4"])
    assert row.split() == ["align", "4", "0.6500", "0.7500", "+0.1000", "0.0200", "+5.0"]
    assert next(line for line in lines if line.split()[:2] == ["geneval", "2"]).split()[-1] == "-"


def test_a_method_whose_extra_is_not_installed(
    recipe_file: Path, workdir: Path, marble: Marble, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line, exit code 2, and nothing written."""
    monkeypatch.setattr("harmonizer.config.find_spec", lambda name: None if name == "torchjd" else "there")
    ran = marble("train", recipe_file, "--set", "harmonizer.method=upgrad")
    problem(ran, "harmonizer.method upgrad needs torchjd, which this environment lacks: pip install")
    assert not (workdir / "runs").exists()


def test_json_is_alone_on_standard_output(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    ran = marble("train", recipe_file, "--json", "--run-dir", "r", "--address", "auto")
    assert ran.code == 0
    data = json.loads(ran.out)
    assert data["iterations"] == 4
    assert data["run_dir"] == str(workdir / "r")
    assert "iteration 4/4" in ran.err
    assert FakeController.made[0].address == "auto"


def test_tensorboard_can_be_left_out(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    assert marble("train", recipe_file, "--set", "run.tensorboard=false").code == 0
    assert not (workdir / "runs" / "small" / "tensorboard").exists()


@pytest.mark.parametrize("kind", ["run", "empty folder", "file", "dangling link"])
def test_a_run_directory_that_exists(recipe_file: Path, workdir: Path, marble: Marble, kind: str) -> None:
    """Nothing in it is touched."""
    run = workdir / "runs" / "small"
    if kind == "run":
        run.mkdir(parents=True)
        (run / "config.yaml").write_text("run: {}\n")
    elif kind == "empty folder":
        run.mkdir(parents=True)
    else:
        run.parent.mkdir()
        run.symlink_to("nowhere") if kind == "dangling link" else run.write_text("x")
    before = tree(workdir)
    problem(marble("train", recipe_file), str(run), "exists", "--resume", "--run-dir")
    assert tree(workdir) == before
    assert not FakeController.made


def test_a_run_directory_that_cannot_be_made(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    (workdir / "file").write_text("x")
    problem(marble("train", recipe_file, "--run-dir", "file/run"), "file", "not a folder that can be written to")


def test_a_run_directory_that_no_file_system_takes(
    recipe_file: Path, workdir: Path, marble: Marble, monkeypatch: pytest.MonkeyPatch
) -> None:
    problem(marble("train", recipe_file, "--run-dir", "~nosuchuser/x"), "--run-dir ~nosuchuser/x: ", "home directory")
    for flags in ((), ("--resume",)):
        problem(marble("train", recipe_file, "--run-dir", "x" * 300, *flags), "xxx...: file name too long")
        problem(marble("train", recipe_file, "--run-dir", "x/" * 3000, *flags), "...: file name too long")
    monkeypatch.setenv("MARBLE_RUNS", "~nosuchuser/x")
    problem(marble("train", recipe_file), "MARBLE_RUNS ~nosuchuser/x: ", "home directory")
    problem(marble("status"), "MARBLE_RUNS ~nosuchuser/x: ")
    assert not list(workdir.iterdir())


def test_resume_goes_on(recipe_file: Path, run: Path, marble: Marble) -> None:
    ran = marble("train", recipe_file, "--resume")
    assert ran.code == 0, ran.err
    assert FakeController.made[0].resume
    assert "iteration 3/4" in ran.out
    assert "iteration 2/4" not in ran.out


def test_every_start_is_on_record(recipe_file: Path, run: Path, marble: Marble) -> None:
    """Row 27: what is needed to get the same scores again, beside the scores."""
    marble("train", recipe_file, "--resume")
    first, second = [json.loads(line) for line in (run / "launches.jsonl").read_text().splitlines()]
    assert (first["resumed_at"], second["resumed_at"]) == (None, 2)
    plain = {"steps": 10, "solver": "euler", "guidance_scale": 1.0, "allow_guidance": False, "sde": None}
    assert first["sampling"] == plain
    assert (first["dtype"], first["resolution"], first["seed"]) == ("float32", 64, 1000)
    assert first["packages"]["torch"]
    assert first["machine"]["cores"] == os.cpu_count()
    assert first["machine"]["platform"] == platform.machine()


def test_resume_with_more_iterations(recipe_file: Path, run: Path, marble: Marble) -> None:
    """The one number that may grow; config.yaml follows."""
    assert marble("train", recipe_file, "--resume", "--set", "run.iterations=6").code == 0
    assert strict_yaml.load(run / "config.yaml")["run"]["iterations"] == 6
    before = tree(run)
    problem(marble("train", recipe_file, "--resume"), "run.iterations may only grow, was 6, got 4")
    assert tree(run) == before


JUDGED = (
    "heldout_rewards.judge={scorer: 'some.module:Judge'}",
    "eval={every: 1, early_stop: {by: judge}}",
    "run.iterations=5",
)


def judged(*more: str) -> list[str]:
    return [part for text in (*JUDGED, *more) for part in ("--set", text)]


def test_held_out_rewards_have_a_section_of_the_summary_and_a_star(
    recipe_file: Path, workdir: Path, marble: Marble
) -> None:
    ran = marble("train", recipe_file, *judged())
    assert ran.code == 0, ran.err
    summary = json.loads((workdir / "runs/small/summary.json").read_text())
    assert summary["heldout_rewards"] == {"judge": {"before": 0.5, "after": 0.25, "se": 0.05, "n": 4}}
    assert list(summary["rewards"]) == ["align", "geneval"]
    assert summary["stopped_early"] == "judge has not got better"
    assert "stopped early: judge has not got better" in ran.out
    row = next(line for line in ran.out.splitlines() if line.strip().startswith("judge *"))
    assert row.split() == ["judge", "*", "4", "0.5000", "0.2500", "-0.2500", "0.0500", "-5.0"]
    assert "* held out: judges only, never trained on" in ran.out


def test_an_early_stop_may_be_lifted_and_nothing_else_of_it(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    FakeController.act = {"iteration 2": raising(RunStopped(signal.SIGINT, 2, Path("x/000002")))}
    assert marble("train", recipe_file, *judged()).code == 130
    FakeController.act = {}
    ran = marble("train", recipe_file, *judged("eval.early_stop.patience=9"), "--resume")
    problem(ran, "eval.early_stop.patience was 3, got 9")
    ran = marble("train", recipe_file, *judged("eval.early_stop=null"), "--resume")
    assert ran.code == 0, ran.err
    assert strict_yaml.load(workdir / "runs/small/config.yaml")["eval"]["early_stop"] is None


def test_resume_from_nothing(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    """Row 5."""
    before = tree(workdir)
    problem(
        marble("train", recipe_file, "--resume"), "nothing to resume", str(workdir / "runs/small"), "does not exist"
    )
    (workdir / "runs" / "small").mkdir(parents=True)
    problem(marble("train", recipe_file, "--resume"), "nothing to resume", "no config.yaml")
    (workdir / "runs" / "small").rmdir()
    (workdir / "runs").rmdir()
    assert tree(workdir) == before


def test_resume_without_a_checkpoint(recipe_file: Path, run: Path, marble: Marble) -> None:
    for path in sorted((run / "checkpoints").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    before = tree(run)
    problem(marble("train", recipe_file, "--resume"), "nothing to resume", "has no checkpoint yet")
    assert tree(run) == before
    assert not FakeController.made


TEARS: dict[str, Callable[[Path], None]] = {
    "no manifest": lambda path: (path / "manifest.json").unlink(),
    "cut short": lambda path: (path / "default.safetensors").write_bytes(b"x"),
    "missing file": lambda path: (path / "default.safetensors").unlink(),
    "broken manifest": lambda path: (path / "manifest.json").write_text("{"),
}


@pytest.mark.parametrize("tear", TEARS)
def test_resume_from_a_torn_checkpoint(recipe_file: Path, run: Path, marble: Marble, tear: str) -> None:
    """Row 7: the only checkpoint is torn: said, nothing lost."""
    TEARS[tear](run / "checkpoints" / "000002")
    before = tree(run)
    problem(marble("train", recipe_file, "--resume"), "no whole checkpoint", "000002", "torn")
    assert tree(run) == before
    assert not FakeController.made


def test_a_torn_checkpoint_is_passed_over(recipe_file: Path, run: Path, marble: Marble) -> None:
    """Row 7: an older whole one is there."""
    TEARS["cut short"](save(run, 3))
    assert marble("train", recipe_file, "--resume").code == 0
    assert FakeController.made[0].resume


REFUSALS: dict[str, Callable[[Path, Path], str]] = {
    "in use": lambda run, recipe: _held_by(run, os.getpid(), socket.gethostname()),
    "another host": lambda run, recipe: _held_by(run, 1, "elsewhere"),
    "other prompts": lambda run, recipe: _with_another_prompt(recipe),
}


def _held_by(run: Path, pid: int, host: str) -> str:
    owner = {"pid": pid, "host": host, "started": lock._start_of(pid)}
    (run / lock.NAME).write_text(json.dumps(owner))
    return f"held by process {pid} on {host}" if host == "elsewhere" else f"in use by process {pid}"


def _with_another_prompt(recipe: Path) -> str:
    edited(recipe.parent / "general_train.txt", ("number 3", "number three"))
    return "the prompt files have changed since"


@pytest.mark.parametrize("refusal", REFUSALS)
def test_a_refused_resume_leaves_a_run_as_it_is(
    recipe_file: Path, run: Path, marble: Marble, monkeypatch: pytest.MonkeyPatch, refusal: str
) -> None:
    """With the real controller: displays that write files must wait for it to have the run directory."""
    path = run / "checkpoints" / "000002"
    shutil.rmtree(path)
    digest = keeper.digest(preflight.check_files(load_recipe(recipe_file).config))
    state = {"iterations_done": 2, "prompts": digest, "learner": {}, "harmonizer": HARMONIZER}
    checkpoint.save(run / "checkpoints", 2, {"default": {"a": torch.zeros(2)}}, state)
    monkeypatch.setattr(training, "Controller", Controller)
    said = REFUSALS[refusal](run, recipe_file)
    before = tree(run)
    problem(marble("train", recipe_file, "--resume"), said)
    assert tree(run) == before


def test_resume_with_another_recipe(recipe_file: Path, run: Path, marble: Marble) -> None:
    """Every differing key is named with both values."""
    edited(recipe_file, ("lr: 1e-3", "lr: 2e-3"))
    before = tree(run)
    lines = problem(marble("train", recipe_file, "--resume", "--set", "run.seed=3"), str(run), count=2)
    assert "run.seed was 42, got 3" in lines[0]
    assert "learner.lr was 0.001, got 0.002" in lines[1]
    problem(
        marble("train", recipe_file, "--resume", "--set", "learner.lr=1e-3", "--set", "run.iterations=3"),
        "may only grow",
    )
    assert tree(run) == before
    assert not FakeController.made


def test_a_run_that_cannot_start_leaves_nothing(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    """Not even the folder of runs, so that the next try is no --resume."""
    FakeController.act = {"set_up": raising(UserError("policy.base: broken"))}
    problem(marble("train", recipe_file), "policy.base: broken")
    assert not list(workdir.iterdir())
    FakeController.act = {"started": raising(RuntimeError("a bug"))}
    ran = marble("train", recipe_file, "--run-dir", "a/b/c")
    assert ran.code == 1
    assert "RuntimeError: a bug" in ran.err
    assert not list(workdir.iterdir())


def test_a_run_that_dies_later_keeps_everything(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    FakeController.act = {"iteration 3": raising(UserError("reward align: down"))}
    problem(marble("train", recipe_file), "reward align: down")
    run = workdir / "runs" / "small"
    assert (run / "config.yaml").is_file()
    assert (run / "checkpoints" / "000002").is_dir()
    assert not (run / "summary.json").exists()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_stopped_run_says_how_to_go_on(
    recipe_file: Path, workdir: Path, marble: Marble, number: signal.Signals, code: int
) -> None:
    FakeController.act = {"iteration 2": raising(RunStopped(number, 2, Path("x/000002")))}
    ran = marble("train", recipe_file, "--set", "learner.lr=2e-3", "--run-dir", "my run")
    assert ran.code == code
    assert ran.lines == [
        f"stopped by {number.name} after 2 iterations; go on with: marble train {recipe_file} --set learner.lr=2e-3 "
        "--run-dir 'my run' --resume"
    ]


CALLS: dict[str, tuple[list[str], str, str | None, str]] = {
    "module": ([".venv/bin/python", "-W", "error", "-m", "deploy.cli", "train"], "cli.py", None, "{m} train RECIPE"),
    "script on the PATH": (["python", "SCRIPT", "train"], "SCRIPT", None, "marble train RECIPE"),
    "script by its path": (["python", "bin/marble", "train"], "bin/marble", None, "bin/marble train RECIPE"),
    "make": (["p", "-m", "deploy.cli", "train"], "cli.py", "train-long", "make train-long ARGS='OPTIONS'"),
}


@pytest.mark.parametrize(("words", "name", "target", "expected"), CALLS.values(), ids=CALLS)
def test_the_hint_after_a_stop_can_be_typed(
    recipe_file: Path,
    workdir: Path,
    marble: Marble,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    name: str,
    target: str | None,
    expected: str,
) -> None:
    """In the words in which the program was called, whatever they were."""
    script = workdir.parent / "path" / "marble"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.setenv("PATH", str(script.parent))
    monkeypatch.setattr(sys, "orig_argv", [word.replace("SCRIPT", str(script)) for word in words])
    monkeypatch.setattr(sys, "argv", [name.replace("SCRIPT", str(script))])
    if target:
        monkeypatch.setenv("MARBLE_MAKE_TARGET", target)
    FakeController.act = {"iteration 2": raising(RunStopped(signal.SIGINT, 2, Path("x/000002")))}
    ran = marble("train", recipe_file, "--set", "learner.lr=2e-3")
    options = "--set learner.lr=2e-3 --resume"
    expected = expected.replace("{m}", ".venv/bin/python -W error -m deploy.cli").replace("RECIPE", str(recipe_file))
    command = expected.replace("OPTIONS", options) if target else f"{expected} {options}"
    assert ran.lines == [f"stopped by SIGINT after 2 iterations; go on with: {command}"]
    again = "ARGS=--resume" if target else "with --resume"
    problem(marble("train", recipe_file), "exists; continue it", again, "--run-dir FOLDER")


def test_stopped_before_anything_was_trained(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    for stop in (RunStopped(signal.SIGINT, 0, None), KeyboardInterrupt()):
        FakeController.act = {"started": raising(stop)}
        ran = marble("train", recipe_file)
        assert ran.code == 130
        assert len(ran.lines) == 1
        assert "nothing is left behind" in ran.err
        assert not list(workdir.iterdir())


def test_stopped_before_the_first_checkpoint(recipe_file: Path, workdir: Path, marble: Marble) -> None:
    FakeController.act = {"iteration 1": raising(RunStopped(signal.SIGTERM, 1, None))}
    ran = marble("train", recipe_file)
    assert ran.code == 143
    assert "no checkpoint yet; remove" in ran.err


def test_where_runs_lie(recipe_file: Path, workdir: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """runs/ here, $MARBLE_RUNS, or the home of a job whose working directory is Ray's to throw away."""
    assert rundir.runs_root() == workdir / "runs"
    monkeypatch.setenv("MARBLE_RUNS", str(tmp_path / "all"))
    assert rundir.runs_root() == tmp_path / "all"
    monkeypatch.delenv("MARBLE_RUNS")
    package = tmp_path / "session_1/runtime_resources/working_dir_files/_ray_pkg_0123"
    package.mkdir(parents=True)
    monkeypatch.chdir(package)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rundir.runs_root() == tmp_path / "marble" / "runs"


def test_two_runs_cannot_make_the_same_directory(recipe_file: Path, workdir: Path) -> None:
    from deploy.recipe import load_recipe

    recipe = load_recipe(recipe_file)
    run_dir = rundir.RunDir(workdir / "r")
    with rundir.created(run_dir, recipe) as started:
        started.value = True
        with pytest.raises(UserError, match="another run was started there"), rundir.created(run_dir, recipe):
            pass
    assert run_dir.config.is_file()


def test_the_display_of_a_terminal(
    recipe_file: Path, workdir: Path, marble: Marble, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    made: list[Any] = []
    real = training.LiveListener
    monkeypatch.setattr(training, "LiveListener", lambda *args: made.append(real(*args)) or made[-1])
    assert marble("train", recipe_file).code == 0
    assert len(made) == 1


def test_the_driver_of_a_new_run_loads_no_torch() -> None:
    """Row 28: what is never imported cannot initialise CUDA."""
    code = "import sys, deploy.training, deploy.checking; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
