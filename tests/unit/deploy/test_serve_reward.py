"""`marble serve-reward`: what is served, what is refused, and how it ends."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest
from deploy_helpers import Marble, edited, problem

from deploy.paths import ROOT
from deploy.reward_service import serving
from deploy.reward_service.serving import about
from rewards.config import HttpArgs, RewardConfig
from rewards.contract import RewardResult
from rewards.http_scorer import HttpScorer
from rewards.registry import build_scorer, self_test
from tests.unit.rewards.fakes import PixelScorer, painted

FAKES = "tests.unit.rewards.fakes"


@pytest.fixture
def taken_port() -> Any:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        yield sock.getsockname()[1]


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["ocrr"], ["ocrr: scorer: no scorer 'ocrr'; did you mean ocr?"]),
        (["a b"], ["a b: scorer: 'a b' is neither a scorer's name nor a dotted path", "got 'a b'"]),
        (["aesthetic"], ["aesthetic: args.head: Field required"]),
        (["clipscore", "--arg", "checkpoint=none"], ["no checkpoint folder 'none'"]),
        (["ocr", "--arg", "match=exact"], ["ocr: args.match: Input should be 'published' or 'strict', got 'exact'"]),
        ([f"{FAKES}:PixelScorer", "--arg", "offst=1"], ["args do not fit", "offst", "it takes (offset: float = 0.0)"]),
        ([f"{FAKES}:Gone"], ["has no Gone"]),
        ([f"{FAKES}:ExitsAtStart"], ["ExitsAtStart: SystemExit: usage: weights"]),
        ([f"{FAKES}:FailsToStart"], ["FailsToStart: TypeError: weights are of another type"]),
        (["no_module:X"], ["No module named 'no_module'; install its package"]),
        (["ocr", "--arg", "match"], ["--arg match: wants key=value"]),
        (["ocr", "--arg", "a.b=1"], ["--arg a.b=1: wants one name of an argument"]),
        (["ocr", "--set", "run.seed=1"], ["--recipe names none", "--arg"]),
        (["ocr", "--token-env", "NO_SUCH_VARIABLE"], ["the environment variable NO_SUCH_VARIABLE is not set"]),
        (["ocr", "--host", "no.such.host.invalid"], ["--host no.such.host.invalid: "]),
        (["ocr", "--port", "70000"], ["--port"]),
        (["ocr", "--queue", "0"], ["--queue"]),
        (["ocr", "--grace-s", "nan"], ["--grace-s"]),
        (["ocr", "--grace-s", "1e99"], ["--grace-s"]),
        ([], ["NAME"]),
    ],
)
def test_mistakes_are_one_line(marble: Marble, workdir: Path, args: list[str], says: list[str]) -> None:
    problem(marble("serve-reward", *args), *says)


@pytest.mark.parametrize("token", ["ä", "two words", "bell\a"])
def test_a_token_that_no_client_can_send_is_refused(
    marble: Marble, monkeypatch: pytest.MonkeyPatch, token: str
) -> None:
    monkeypatch.setenv("MARBLE_TEST_TOKEN", token)
    ran = marble("serve-reward", "ocr", "--port", "0", "--token-env", "MARBLE_TEST_TOKEN")
    problem(ran, "--token-env: the environment variable MARBLE_TEST_TOKEN holds what no HTTP header can carry")


def test_a_taken_port_is_known_before_anything_is_loaded(marble: Marble, taken_port: int) -> None:
    ran = marble("serve-reward", f"{FAKES}:FailsToStart", "--port", taken_port)
    problem(ran, f"--port {taken_port} on 127.0.0.1 is taken")


def test_a_scorer_that_cannot_score_is_not_served(marble: Marble, monkeypatch: pytest.MonkeyPatch) -> None:
    """FAULTS 12, 14: before the port answers anybody; the fake dislikes white corners, which the known image has."""
    problem(
        marble("serve-reward", f"{FAKES}:PixelScorer", "--port", "0"), "RuntimeError: cannot score a sign that says"
    )


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (["genval"], ["small.yaml: no reward 'genval'; did you mean geneval? (rewards: align, geneval)"]),
        (["geneval", "--arg", "score=strict"], ["--set rewards.geneval.args.KEY=VALUE"]),
        (["geneval", "--set", "rewards.geneval.args.score=good"], ["rewards.geneval.args.score"]),
        (["geneval"], ["geneval: 'some.module:Detector' cannot be imported: No module named 'some'"]),
    ],
)
def test_mistakes_with_a_recipe(marble: Marble, recipe_file: Path, args: list[str], says: list[str]) -> None:
    problem(marble("serve-reward", *args, "--recipe", recipe_file), *says)


def when_serving(monkeypatch: pytest.MonkeyPatch, act: Any) -> list[Any]:
    """Acts in another thread as soon as the server answers, then asks this process to stop; gives act's results."""
    results: list[Any] = []
    announce = serving._announce

    def and_act(order: Any, url: str, token: str | None) -> None:
        announce(order, url, token)

        def run() -> None:
            try:
                results.append(act(url))
            finally:
                os.kill(os.getpid(), signal.SIGTERM)

        threading.Thread(target=run).start()

    monkeypatch.setattr(serving, "_announce", and_act)
    return results


def test_a_reward_of_a_recipe(marble: Marble, recipe_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Under its own name, with the recipe's args and the metadata that its self-test needs."""
    edited(recipe_file, ("some.module:Detector", f"{FAKES}:PixelDetector"))

    def act(url: str) -> Any:
        remote = HttpScorer(HttpArgs(url=url, reward="geneval"))
        dogs = {"include": [{"class": "dog", "count": 2}]}
        return remote.info, self_test(remote, side=64).scores.tolist(), remote(painted(2), ["two dogs"], [dogs])

    results = when_serving(monkeypatch, act)
    ran = marble("serve-reward", "geneval", "--recipe", recipe_file, "--port", 0, "--json")
    assert (ran.code, ran.err) == (0, "")
    started = json.loads(ran.out)
    assert started["reward"] == "geneval"
    assert started["url"].startswith("http://127.0.0.1:")
    [(info, known, result)] = results
    assert info.self_test_metadata["include"]
    assert known == [0.0], "no dogs on the known image"
    assert result.scores.tolist() == [1.0]


def test_a_scorer_by_name_with_a_token(marble: Marble, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARBLE_TEST_TOKEN", "s3cret")
    results = when_serving(
        monkeypatch, lambda url: self_test(HttpScorer(HttpArgs(url=url, token_env="MARBLE_TEST_TOKEN"))).scores.tolist()
    )
    ran = marble("serve-reward", "ocr", "--arg", "match=strict", "--port", 0, "--token-env", "MARBLE_TEST_TOKEN")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.startswith("serving ocr on http://127.0.0.1:")
    assert "s3cret" not in ran.out
    assert results == [[1.0]]


def test_all_addresses_without_a_token_is_said(marble: Marble, monkeypatch: pytest.MonkeyPatch) -> None:
    when_serving(monkeypatch, lambda url: None)
    args = ["geneval", "--arg", f"detector={FAKES}:PixelDetector", "--port", 0]
    ran = marble("serve-reward", *args, "--host", "0.0.0.0")
    assert ran.code == 0
    assert ran.err.startswith("warning: anyone who reaches http://0.0.0.0:")
    assert ran.err.count("\n") == 1


def test_about_names_range_and_versions() -> None:
    config = RewardConfig(scorer="geneval", args={"detector": f"{FAKES}:PixelDetector"})
    said = about(build_scorer("geneval", config), config)
    assert said["range"] == [None, 1.0]
    assert said["scorer"] == "geneval"
    assert said["versions"]["python"].startswith("3.")
    assert said["versions"]["packages"]["torch"]
    assert about(PixelScorer(), RewardConfig(scorer="x:Y"))["range"] == [None, None]
    json.dumps(said, allow_nan=False)


def test_sigterm_finishes_what_is_in_flight_and_is_no_error() -> None:
    """The command itself, as a container runs it."""
    command = [sys.executable, "-m", "deploy.cli", "serve-reward", f"{FAKES}:SlowScorer", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        remote = HttpScorer(HttpArgs(url=json.loads(process.stdout.readline())["url"]))
        with ThreadPoolExecutor(1) as pool:
            answer = _under_way(remote, pool)
            process.send_signal(signal.SIGTERM)
            assert answer.result(60).scores.tolist() == [2.0]
        _, err = process.communicate(timeout=60)
        assert (process.returncode, err) == (0, "")
    finally:
        process.kill()
        process.wait()


def _under_way(remote: HttpScorer, pool: ThreadPoolExecutor) -> Future[RewardResult]:
    """A request that the server has and has not answered; on a busy machine the first may be over before it is seen."""
    for _ in range(30):
        answer = pool.submit(remote, painted(200), ["a"], [{}])
        while not answer.done():
            if httpx2.get(f"{remote.args.url}/healthz", trust_env=False, verify=False).json()["requests"]:
                return answer
            time.sleep(0.01)
    raise AssertionError("no request was seen under way")
