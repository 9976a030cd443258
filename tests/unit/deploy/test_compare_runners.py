"""Who makes the runs: processes and jobs, stopped and taken up again."""

import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_compare_order import asked

from actors.lock import NAME
from deploy.compare import order, runners
from deploy.compare.runners import Jobs, Processes, StoppedError, run_process
from deploy.compare.runs import RunSpec, make_spec
from deploy.files import write_json
from learner.errors import UserError


@pytest.fixture
def specs(recipe_file: Path, tmp_path: Path) -> list[RunSpec]:
    [row, *_] = order.checked_rows(asked(recipe_file))
    data = order.main_data(row, asked(recipe_file), 42, 4, 1e-3)
    return [make_spec(tmp_path / "runs", name, data) for name in ("one", "two")]


def finish(spec: RunSpec) -> None:
    spec.run_dir.path.mkdir(parents=True, exist_ok=True)
    write_json(spec.run_dir.summary, {"iterations": 4})


def half(spec: RunSpec) -> None:
    checkpoint = spec.run_dir.checkpoints / "000001"
    checkpoint.mkdir(parents=True)
    (checkpoint / "manifest.json").write_text("{}")


@dataclass
class Lines:
    """Command lines that were run, with what each left and its exit code."""

    specs: list[RunSpec]
    codes: list[int]
    outputs: list[int | None] = field(default_factory=list)
    seen: list[list[str]] = field(default_factory=list)

    def __call__(self, arguments: list[str], output: int | None = None) -> int:
        self.seen.append(arguments)
        self.outputs.append(output)
        code = self.codes.pop(0)
        if not code:
            finish(next(spec for spec in self.specs if str(spec.run_dir.path) in arguments))
        return code


def test_finished_runs_are_passed_over_and_stopped_ones_resumed(
    specs: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    half(specs[1])
    lines = Lines(specs, [0, 0])
    monkeypatch.setattr(runners, "run_process", lines)
    made: list[str] = []
    Processes(lambda text: None, 2).make(specs, lambda spec: made.append(spec.name))
    assert made == ["one", "two"]
    assert lines.outputs == [2, 2], "with --json runs print on standard error"
    assert [line[-1] == "--resume" for line in lines.seen] == [False, True]
    Processes(lambda text: None).make(specs, lambda spec: made.append(spec.name))
    assert len(lines.seen) == 2, "both are done"


@pytest.mark.parametrize("code", [130, 143])
def test_a_stop_ends_the_comparison_with_the_same_code(
    specs: list[RunSpec], monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    lines = Lines(specs, [code])
    monkeypatch.setattr(runners, "run_process", lines)
    with pytest.raises(StoppedError) as caught:
        Processes(lambda text: None).make(specs, lambda spec: None)
    assert (caught.value.code, len(lines.seen)) == (code, 1)


def test_a_run_that_fails_is_named(specs: list[RunSpec], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runners, "run_process", Lines(specs, [2]))
    with pytest.raises(UserError, match="run one ended with exit code 2; what it said stands above"):
        Processes(lambda text: None).make(specs, lambda spec: None)


def test_a_run_that_another_process_still_trains_is_waited_for(
    specs: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A comparison that was killed with -9 leaves its run alive; a second one must not start it again."""
    looks = iter(["alive", "alive", "alive", "done", "done"])
    monkeypatch.setattr(runners, "standing", lambda spec: next(looks))
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    said: list[str] = []
    Processes(said.append).make(specs[:1], lambda spec: None)
    assert said == ["one is being trained by another process; waiting for it"]


def test_what_a_run_left_before_its_first_checkpoint_goes_as_it_is_started_anew(
    specs: list[RunSpec], monkeypatch: pytest.MonkeyPatch
) -> None:
    left = specs[0].run_dir.path
    left.mkdir()
    os.utime(left, (0, 0))
    there: list[bool] = []

    def train(arguments: list[str], output: int | None = None) -> int:
        there.append(left.exists())
        finish(specs[0])
        return 0

    monkeypatch.setattr(runners, "run_process", train)
    Processes(lambda text: None).make(specs[:1], lambda spec: None)
    assert there == [False]


def test_a_run_that_somebody_trains_outside_the_cluster_is_no_jobs(specs: list[RunSpec]) -> None:
    specs[0].run_dir.path.mkdir()
    (specs[0].run_dir.path / NAME).write_text('{"pid": 7, "host": "elsewhere", "started": "1"}')
    cluster = Cluster(specs)
    with pytest.raises(UserError, match=r"one is being trained by process 7 on elsewhere .*, which is no job of this"):
        Jobs(cluster, 1, lambda text: None, lambda seconds: None).make(specs[:1], lambda spec: None)
    assert not cluster.jobs


def asked_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals, exit_code: str
) -> threading.Thread:
    """From now on a run is a process that exits so at the signal, and we get that signal as soon as it is up."""
    up = tmp_path / "up"
    code = (
        "import pathlib, signal, sys, time\n"
        f"signal.signal({int(number)}, lambda n, f: sys.exit({exit_code}))\n"
        f"pathlib.Path({str(up)!r}).touch()\n"
        "time.sleep(60)\n"
    )
    real = subprocess.Popen
    monkeypatch.setattr(
        subprocess, "Popen", lambda command, **kwargs: real([sys.executable, "-c", code], start_new_session=True)
    )

    def ask() -> None:
        while not up.exists():
            time.sleep(0.05)
        os.kill(os.getpid(), number)

    thread = threading.Thread(target=ask)
    thread.start()
    return thread


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_reach_the_run_and_its_exit_code_comes_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: signal.Signals
) -> None:
    """The child has a session of its own: Ctrl-C reaches it through us, once."""
    thread = asked_while_it_runs(tmp_path, monkeypatch, number, f"100 + {int(number)}")
    former = signal.getsignal(number)
    assert run_process(["train"]) == 100 + number
    thread.join()
    assert signal.getsignal(number) is former


def test_a_stop_that_comes_as_a_run_ends_well_is_a_stop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the next run would begin."""
    thread = asked_while_it_runs(tmp_path, monkeypatch, signal.SIGTERM, "0")
    with pytest.raises(StoppedError) as caught:
        run_process(["train"])
    thread.join()
    assert caught.value.code == 143


def test_a_run_killed_by_a_signal_has_a_shells_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    monkeypatch.setattr(subprocess, "Popen", lambda command, **kwargs: real([sys.executable, "-c", code]))
    assert run_process(["train"]) == 137


class Cluster:
    """JobSubmissionClient of a cluster in which a job is over at the second look."""

    def __init__(self, specs: list[RunSpec], fails: str = "") -> None:
        self.specs, self.fails = specs, fails
        self.jobs: dict[str, Any] = {}
        self.most_at_once = 0
        self.stopped: list[str] = []

    def submit_job(self, *, entrypoint: str, submission_id: str, runtime_env: dict[str, str]) -> str:
        name = submission_id
        if name in self.jobs:
            raise RuntimeError(f"there is a job {name}")
        self.jobs[name] = SimpleNamespace(submission_id=name, entrypoint=entrypoint, status="RUNNING", looks=0)
        running = sum(job.status == "RUNNING" for job in self.jobs.values())
        self.most_at_once = max(self.most_at_once, running)
        return name

    def list_jobs(self) -> list[Any]:
        return list(self.jobs.values())

    def get_job_status(self, name: str) -> Any:
        job = self.jobs[name]
        job.looks += 1
        if job.looks == 2:
            [spec] = [spec for spec in self.specs if str(spec.run_dir.path) in job.entrypoint]
            job.status = "FAILED" if spec.name == self.fails else "SUCCEEDED"
            if job.status == "SUCCEEDED":
                finish(spec)
        return SimpleNamespace(value=job.status)

    def get_job_logs(self, name: str) -> str:
        return "one\ntwo\nerror: out of paper\n"

    def stop_job(self, name: str) -> None:
        self.stopped.append(name)


@pytest.mark.parametrize("parallel", [1, 2])
def test_jobs_run_so_many_at_once(specs: list[RunSpec], parallel: int) -> None:
    half(specs[1])
    cluster, made = Cluster(specs), list[str]()
    Jobs(cluster, parallel, lambda text: None, lambda seconds: None).make(specs, lambda spec: made.append(spec.name))
    assert (sorted(made), cluster.most_at_once) == (["one", "two"], parallel)
    first, second = (job.entrypoint for job in cluster.jobs.values())
    assert first == f"python -m deploy.cli train {specs[0].recipe_file} --run-dir {specs[0].run_dir.path}"
    assert second.endswith(" --resume")


def test_runs_of_which_none_may_take_anothers_time_are_jobs_one_by_one(specs: list[RunSpec]) -> None:
    cluster = Cluster(specs)
    Jobs(cluster, 2, lambda text: None, lambda seconds: None).make(specs, lambda spec: None, alone=True)
    assert (len(cluster.jobs), cluster.most_at_once) == (2, 1)


def test_a_job_of_an_earlier_sitting_goes_on_and_others_are_nobodys_business(specs: list[RunSpec]) -> None:
    cluster, said = Cluster(specs), list[str]()
    cluster.jobs["theirs"] = SimpleNamespace(submission_id=None, entrypoint="echo it's", status="RUNNING", looks=-9)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        Jobs(cluster, 1, said.append, interrupted).make(specs[:1], lambda spec: None)
    [job] = [name for name in cluster.jobs if name != "theirs"]
    cluster.jobs[f"{job}-of-mine"] = SimpleNamespace(submission_id=f"{job}-of-mine", entrypoint="", status="RUNNING")
    Jobs(cluster, 1, said.append, lambda seconds: None).make(specs[:1], lambda spec: None)
    assert said == [f"one: job {job}", f"one: job {job} goes on"]


def test_a_run_whose_job_is_over_gets_another_one(specs: list[RunSpec]) -> None:
    cluster = Cluster(specs, fails="one")
    jobs = Jobs(cluster, 1, lambda text: None, lambda seconds: None)
    with pytest.raises(UserError, match="did not end well"):
        jobs.make(specs[:1], lambda spec: None)
    cluster.fails = ""
    jobs.make(specs[:1], lambda spec: None)
    first, second = cluster.jobs
    assert (first[:-1], first[-1], second[-1]) == (second[:-1], "1", "2")


def test_a_job_that_fails_is_told_with_its_last_lines(specs: list[RunSpec]) -> None:
    jobs = Jobs(Cluster(specs, fails="two"), 1, lambda text: None, lambda seconds: None)
    with pytest.raises(UserError, match=r"run two, job marble-\w+-1, did not end well: one \| two \| error: out"):
        jobs.make(specs, lambda spec: None)


def test_ctrl_c_stops_the_jobs_under_way(specs: list[RunSpec]) -> None:
    cluster = Cluster(specs)

    def interrupted(seconds: float) -> None:
        raise KeyboardInterrupt

    with pytest.raises(StoppedError):
        Jobs(cluster, 2, lambda text: None, interrupted).make(specs, lambda spec: None)
    assert cluster.stopped == list(cluster.jobs)
    assert len(cluster.stopped) == 2
