"""`ray job submit`: progress as plain lines, `ray job stop` ends it cleanly, --resume goes on."""

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_commands import ROOT, TIMEOUT_S, environment, orphans, place

__all__ = ["place"]  # a fixture

RAY = Path(sys.executable).with_name("ray")
pytestmark = pytest.mark.slow


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@pytest.fixture(scope="module")
def dashboard(place: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of a head node of our own; other clusters of this machine are left alone (`ray stop` would end them)."""
    port, http = free_port(), free_port()
    # Ray's sockets have paths of at most 107 characters.
    temp = tmp_path_factory.getbasetemp().parent / f"r{os.getpid()}"
    env = job_environment(place)
    arguments = ["--head", "--block", f"--port={port}", "--num-cpus=2", "--include-dashboard=true"]
    arguments += [f"--dashboard-port={http}", "--dashboard-agent-listen-port=0", f"--temp-dir={temp}"]
    (place / "home").mkdir(exist_ok=True)
    subprocess.run([RAY, "get-auth-token", "--generate"], env=env, check=True, capture_output=True)
    with (place / "head.log").open("w") as log:
        head = subprocess.Popen(
            [RAY, "start", *arguments], cwd=place, env=env, stdout=log, stderr=log, start_new_session=True
        )
        address = f"http://127.0.0.1:{http}"
        wait_until_up(place, address, head)
        yield address
        head.terminate()
        head.wait(60)


def job_environment(place: Path) -> dict[str, str]:
    """A user's with authentication on; without the mode Ray would have it on or off as processes before left it."""
    more = {"HOME": str(place / "home"), "RAY_AUTH_MODE": "token", "RAY_USAGE_STATS_ENABLED": "0"}
    return environment(place) | more


def wait_until_up(place: Path, address: str, head: "subprocess.Popen[bytes]") -> None:
    log, deadline_s = place / "head.log", time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline_s:
        assert head.poll() is None, log.read_text()
        if ray_job(place, address, "list").returncode == 0:
            return
        time.sleep(1)
    raise AssertionError(log.read_text())


def ray_job(place: Path, address: str, *args: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [RAY, "job", args[0], "--address", address, *args[1:]],
        env=job_environment(place),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )


def submit(address: str, place: Path, name: str, *args: str) -> "subprocess.Popen[str]":
    """`ray job submit --working-dir CLONE -- python -m deploy.cli train ...`, streaming its output."""
    command = [RAY, "job", "submit", "--address", address, "--working-dir", ROOT, "--submission-id", name]
    command += ["--", sys.executable, "-m", "deploy.cli", "train", str(place / "recipe.yaml"), *args]
    return subprocess.Popen(
        command, cwd=place, env=job_environment(place), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )


def test_submit_stop_and_resume(place: Path, dashboard: str) -> None:
    # Enough that the stop, which takes Ray seconds, comes before the end.
    sets = ("--set", "run.iterations=60", "--set", "run.name=job", "--set", "checkpoint.every=20")
    process = submit(dashboard, place, "first", *sets)
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line)
        if "iteration 2/60" in line:
            break
    assert "iteration 2/60" in seen[-1], "".join(seen)
    assert ray_job(place, dashboard, "stop", "first").returncode == 0
    process.communicate(timeout=TIMEOUT_S)

    run = place / "home" / "marble" / "runs" / "job"
    assert (run / "config.yaml").is_file(), "a job's runs lie in the home, not in Ray's copy of the clone"
    deadline_s = time.monotonic() + 60
    while (run / "run.lock").exists() and time.monotonic() < deadline_s:
        time.sleep(0.5)
    assert not (run / "run.lock").exists(), "ended cleanly"
    assert not [line for line in orphans(place) if re.search(r"ray::(RolloutActor|LearnerWorker|ScorerActor)", line)]

    process = submit(dashboard, place, "second", *sets, "--resume")
    out, _ = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, out
    assert "iteration 60/60" in out
    assert "iteration 2/60" not in out
    assert "difference/s.e." in out
    assert json.loads((run / "summary.json").read_text())["iterations"] == 60


SMALL = ("run.iterations=1", "eval.prompts_per_source=2", "prompts.groups_per_iteration=3", "prompts.group_size=2")
SMALL += ("prompts.chunk_size=2", "sampling.steps=5", "eval_sampling.steps=2", "run.tensorboard=false")


@pytest.mark.parametrize("inside", [True, False], ids=["from the clone", "from elsewhere"])
def test_the_line_of_the_readme(place: Path, dashboard: str, inside: bool) -> None:
    """The recipe's path is relative to the working directory that travels, wherever the line is typed."""
    name = "inside" if inside else "outside"
    sets = [part for text in (*SMALL, f"run.name={name}") for part in ("--set", text)]
    command = [RAY, "job", "submit", "--address", dashboard, "--working-dir", "." if inside else ROOT, "--"]
    command += [sys.executable, "-m", "deploy.cli", "train", "deploy/recipes/tiny.yaml", *sets]
    done = subprocess.run(
        command,
        cwd=ROOT if inside else place,
        env=job_environment(place),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    run = place / "home" / "marble" / "runs" / name
    assert json.loads((run / "summary.json").read_text())["rewards"]["ocr"]["n"] == 2
