"""`marble compare` as a user types it, on real Ray: ended by SIGTERM and by kill -9, it goes on and finishes."""

import json
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from test_commands import TIMEOUT_S, command, environment, marble, place, wait_for_no_orphans

__all__ = ["place"]  # a fixture
pytestmark = pytest.mark.slow

OPTIONS = ("--methods", "marble,weighted_sum", "--seeds", "3", "--iterations", "3", "--tuning-iterations", "0")


def done(place: Path) -> list[int]:
    """Iterations that the comparison's runs have done, over all their lives."""
    lines = [line for path in place.glob("out/runs/*/metrics.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line)["done"] for line in lines if '"event": "iteration"' in line]


def wait_for(place: Path, iterations: int, process: "subprocess.Popen[bytes]") -> None:
    deadline_s = time.monotonic() + TIMEOUT_S
    while len(done(place)) < iterations:
        assert process.poll() is None, "it ended by itself"
        assert time.monotonic() < deadline_s
        time.sleep(0.2)


def started(place: Path) -> "subprocess.Popen[bytes]":
    with (place / "compare.log").open("ab") as log:
        words = command("compare", "recipe.yaml", *OPTIONS, "--dir", "out")
        return subprocess.Popen(words, cwd=place, env=environment(place), stdout=log, stderr=log)


def test_a_comparison_survives_sigterm_and_kill_9(place: Path) -> None:
    first = started(place)
    wait_for(place, 1, first)
    first.send_signal(signal.SIGTERM)
    assert first.wait(TIMEOUT_S) == 143
    assert b"stopped; the same command goes on" in (place / "compare.log").read_bytes()
    wait_for_no_orphans(place)
    kept = len(done(place))

    second = started(place)
    wait_for(place, kept + 1, second)
    os.kill(second.pid, signal.SIGKILL)  # its run, in a session of its own, goes on alone
    second.wait(TIMEOUT_S)

    third = marble(place, "compare", "recipe.yaml", *OPTIONS, "--dir", "out", "--json")
    assert third.returncode == 0, third.stderr
    tables = {table["key"]: table for table in json.loads(third.stdout)["tables"]}
    assert [row["name"] for row in tables["rewards"]["rows"]] == ["base", "marble", "weighted_sum"]
    for name in ("marble", "weighted_sum"):
        run_dir = place / "out" / "runs" / f"{name}-seed3"
        assert json.loads((run_dir / "summary.json").read_text())["iterations"] == 3
    assert sorted(done(place)) == [1, 1, 2, 2, 3, 3], "each iteration stands in the files once"
    wait_for_no_orphans(place)
