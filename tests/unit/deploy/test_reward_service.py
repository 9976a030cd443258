"""The reward server: the same cells as the scorer itself, one call at a time, and limits on everything."""

import concurrent.futures
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, cast

import httpx2
import numpy as np
import pytest
from numpy.typing import NDArray

from deploy.reward_service.app import Limits, Service, create_app
from deploy.reward_service.server import Server, bind
from deploy.reward_service.turns import Turns
from rewards.config import HttpArgs, RewardConfig
from rewards.contract import Metadata, RewardResult, Scorer, State
from rewards.http_scorer import HttpScorer
from rewards.registry import build_scorer
from rewards.results import Cell, collect, from_scores
from rewards.safe import score_safely
from rewards.wire import encode_request
from tests.unit.rewards.fakes import PixelScorer, painted
from tests.unit.rewards.tiny_clip import save_tiny_clip

Images = NDArray[np.uint8]
Serve = Callable[..., str]
DEFAULTS = Limits()
PLAIN: dict[str, Any] = {"timeout": 30, "trust_env": False, "verify": False}
"""Neither proxies nor certificates."""


@contextmanager
def served(scorer: Any, *, limits: Limits = DEFAULTS, token: str | None = None, grace_s: int = 20) -> Iterator[Server]:
    """A reward server on a free port."""
    turns = Turns(limits.max_places)
    service = Service("pixel", cast(Scorer, scorer), turns, {"scorer": "fake"}, limits, token)
    with bind("127.0.0.1", 0) as sock:
        server = Server(create_app(service), sock, grace_s)
        try:
            yield server
        finally:
            server.hurry()
            server.stop()
            turns.close()


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Serves a scorer until the test ends; gives its address."""
    with ExitStack() as stack:
        yield lambda scorer, **options: stack.enter_context(served(scorer, **options)).url


def form_of(images: Images, *, evaluation: bool = False, prompts: Sequence[str] | None = None) -> list[Any]:
    prompts = ["a"] * len(images) if prompts is None else prompts
    return list(encode_request(images, prompts, [{}] * len(prompts), evaluation, "npy"))


def post(url: str, **options: Any) -> httpx2.Response:
    return httpx2.post(f"{url}/v1/score", **PLAIN | options)


def get(url: str, path: str, **options: Any) -> httpx2.Response:
    return httpx2.get(f"{url}{path}", **PLAIN | options)


def wait_until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


class Gate:
    """A scorer that waits in each call until the test opens it; counts who is inside at once."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.calls: list[list[int]] = []
        self.threads: set[int] = set()
        self.inside = self.most_inside = 0

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        self.threads.add(threading.get_ident())
        self.inside += 1
        self.most_inside = max(self.most_inside, self.inside)
        self.calls.append([int(image[0, 0, 0]) for image in images_NHWC])
        assert self.open.wait(60)
        self.inside -= 1
        return from_scores([image[0, 0, 0] / 100 for image in images_NHWC])


class Opinions:
    """All three states, another figure for evaluation, and scores with bits in their last places."""

    def __call__(self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]) -> RewardResult:
        return collect([self._cell(*sample) for sample in zip(images_NHWC, prompts, metadata, strict=True)])

    def _cell(self, image: Images, prompt: str, metadata: Metadata) -> Cell:
        if metadata.get("skip"):
            return Cell.not_applicable(f"ä “{prompt}”")
        value = float(image.astype(np.float64).mean()) / 255
        return Cell.failed(f"too dark: {value:.3f}") if value < 0.3 else Cell.scored(value / 3)

    def score_for_evaluation(
        self, images_NHWC: Images, prompts: Sequence[str], metadata: Sequence[Metadata]
    ) -> RewardResult:
        return from_scores([-float(image.mean()) for image in images_NHWC])


def assert_same(one: RewardResult, other: RewardResult) -> None:
    assert one.scores.tobytes() == other.scores.tobytes()
    assert one.states.tobytes() == other.states.tobytes()
    assert one.reasons == other.reasons


# -- parity ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["npy", "png"])
@pytest.mark.parametrize("evaluation", [False, True])
def test_the_same_cells_as_at_home(serve: Serve, form: str, evaluation: bool) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(0, 256, (12, 9, 6, 3), np.uint8) // rng.integers(1, 4, (12, 1, 1, 1), np.uint8)
    prompts, metadata = [f"prompt {i} “ü”" for i in range(12)], [{"skip": i % 5 == 0} for i in range(12)]
    applicable = [i % 4 != 3 for i in range(12)]
    at_home = score_safely(Opinions(), images, prompts, metadata, applicable, evaluation=evaluation)
    remote = HttpScorer(HttpArgs(url=serve(Opinions()), images=form))  # type: ignore[arg-type]
    assert_same(score_safely(remote, images, prompts, metadata, applicable, evaluation=evaluation), at_home)
    if not evaluation:
        assert {State(int(state)) for state in at_home.states} == set(State)


@pytest.mark.parametrize("broken", [None, 0, 2])
def test_a_sample_that_raises_fails_alone_over_there_too(serve: Serve, broken: int | None) -> None:
    """FAULTS 8, 9: with scores that depend on the batch's size in the last bits."""
    images = painted(*(255 if i == broken else 10 * i + 1 for i in range(5)))
    prompts, metadata = [f"prompt {i}" for i in range(5)], [{} for _ in range(5)]
    at_home = score_safely(PixelScorer(), images, prompts, metadata, [True] * 5)
    remote = HttpScorer(HttpArgs(url=serve(PixelScorer())))
    assert_same(score_safely(remote, images, prompts, metadata, [True] * 5), at_home)
    assert (State.FAILED in at_home.states) is (broken is not None)


def test_a_real_model_gives_the_same_bits(serve: Serve, tmp_path: Path) -> None:
    args = {"checkpoint": str(save_tiny_clip(tmp_path / "clip", seed=5))}
    clip = build_scorer("pickscore", RewardConfig(scorer="pickscore", args=args))
    images = np.random.default_rng(1).integers(0, 256, (5, 40, 40, 3), np.uint8)
    prompts, metadata = [f"a thing number {i}" for i in range(5)], [{} for _ in range(5)]
    remote = HttpScorer(HttpArgs(url=serve(clip)))
    assert_same(remote(images, prompts, metadata), clip(images, prompts, metadata))


def test_a_batch_of_the_usual_size(serve: Serve) -> None:
    """32 images of 512 pixels: 25 MB there."""
    images = np.random.default_rng(2).integers(0, 256, (32, 512, 512, 3), np.uint8)
    remote = HttpScorer(HttpArgs(url=serve(Opinions()), timeout_s=120))
    result = remote(images, ["a"] * 32, [{}] * 32)
    assert_same(result, Opinions()(images, ["a"] * 32, [{}] * 32))


# -- one call at a time ------------------------------------------------------------------------------------------------


def test_calls_of_many_clients_come_one_at_a_time_and_keep_their_samples(serve: Serve) -> None:
    """FAULTS 11: in one and the same thread."""
    gate = Gate()
    gate.open.set()
    remote = HttpScorer(HttpArgs(url=serve(gate, limits=Limits(max_places=16))))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        scores = list(pool.map(lambda value: float(remote(painted(value), ["a"], [{}]).scores[0]), range(24)))
    assert scores == [float(np.float32(value / 100)) for value in range(24)]
    assert gate.most_inside == 1
    assert len(gate.threads) == 1


def test_a_full_line_is_429_with_a_time_to_come_back(serve: Serve) -> None:
    gate = Gate()
    url = serve(gate, limits=Limits(max_places=2))
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        waiting = [pool.submit(post, url, files=form_of(painted(value))) for value in (1, 2)]
        wait_until(lambda: get(url, "/healthz").json()["requests"] == 2)
        # Large enough for the answer to come long before the body has been sent.
        refused = post(url, files=form_of(np.zeros((8, 512, 512, 3), np.uint8)))
        assert refused.status_code == 429
        assert 1 <= int(refused.headers["Retry-After"]) <= 30
        assert "as many requests are waiting as may wait" in refused.json()["detail"]
        gate.open.set()
        assert [future.result().json()["scores"] for future in waiting] == [
            [float(np.float32(v / 100))] for v in (1, 2)
        ]
    assert post(url, files=form_of(painted(3))).status_code == 200, "the places are free again"


def test_our_client_comes_back_after_429(serve: Serve) -> None:
    gate = Gate()
    url = serve(gate, limits=Limits(max_places=1))
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, url, files=form_of(painted(1)))
        wait_until(lambda: gate.inside == 1)
        threading.Timer(0.3, gate.open.set).start()
        assert HttpScorer(HttpArgs(url=url))(painted(2), ["a"], [{}]).scores.tolist() == [float(np.float32(0.02))]
        assert first.result().status_code == 200
    assert gate.calls == [[1], [2]]


def test_a_client_that_gave_up_is_not_scored(serve: Serve) -> None:
    """FAULTS 14: or each retry of a slow call would make the next one slower."""
    gate = Gate()
    url = serve(gate)
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, url, files=form_of(painted(1)))
        wait_until(lambda: gate.inside == 1)
        with pytest.raises(httpx2.ReadTimeout):
            post(url, files=form_of(painted(2)), timeout=0.5)
        wait_until(lambda: get(url, "/healthz").json()["requests"] == 1)
        gate.open.set()
        assert first.result().status_code == 200
    assert post(url, files=form_of(painted(3))).status_code == 200
    assert gate.calls == [[1], [3]]


def test_a_call_that_hangs_shows_in_healthz(serve: Serve) -> None:
    gate = Gate()
    url = serve(gate, limits=Limits(stuck_after_s=0.05))
    assert get(url, "/healthz").status_code == 200
    with concurrent.futures.ThreadPoolExecutor(1) as pool:
        first = pool.submit(post, url, files=form_of(painted(1)))
        wait_until(lambda: get(url, "/healthz").status_code == 503)
        assert get(url, "/healthz").json()["status"].startswith("stuck: one call has been running for")
        gate.open.set()
        first.result()
    assert get(url, "/healthz").json() == {
        "status": "ok",
        "requests": 0,
        "cells": {"scored": 1, "not_applicable": 0, "failed": 0},
    }


def test_stopping_finishes_what_is_in() -> None:
    gate = Gate()
    with served(gate) as server, concurrent.futures.ThreadPoolExecutor(3) as pool:
        waiting = [pool.submit(post, server.url, files=form_of(painted(value))) for value in (1, 2)]
        wait_until(lambda: get(server.url, "/healthz").json()["requests"] == 2)
        stopped = pool.submit(server.stop)
        wait_until(lambda: not _listens(server.url))
        assert not stopped.done()
        gate.open.set()
        assert [future.result().status_code for future in waiting] == [200, 200]
        stopped.result(30)
        assert not server.alive


def test_stopping_waits_for_a_hanging_call_no_longer_than_its_grace() -> None:
    gate = Gate()
    with served(gate, grace_s=1) as server, concurrent.futures.ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, server.url, files=form_of(painted(1)))
        wait_until(lambda: gate.inside == 1)
        began = time.monotonic()
        server.stop()
        assert time.monotonic() - began < 20
        # Told or cut off: a client of ours asks again either way.
        with suppress(httpx2.TransportError):
            assert waiting.result(30).status_code >= 500
        gate.open.set()


def _listens(url: str) -> bool:
    try:
        get(url, "/healthz")
    except httpx2.TransportError:
        return False
    return True


# -- what is refused ---------------------------------------------------------------------------------------------------


def question(**changes: Any) -> tuple[str, tuple[None, bytes, str]]:
    text = {"protocol": 1, "prompts": ["a"], "metadata": [{}]} | changes
    return "request", (None, json.dumps(text).encode(), "application/json")


IMAGE = form_of(painted(50))[1]


@pytest.mark.parametrize(
    ("options", "status", "detail"),
    [
        ({"json": {"prompts": ["a"]}}, 415, "must be multipart/form-data"),
        ({"content": b""}, 415, "must be multipart/form-data"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data"}}, 400, "boundary"),
        ({"content": b"x", "headers": {"Content-Type": "multipart/form-data; boundary=b"}}, 400, ""),
        ({"files": [IMAGE]}, 422, "the form has no part 'request'"),
        ({"files": [question()]}, 422, "got 0 and 0"),
        ({"files": [question(), IMAGE, IMAGE]}, 422, "got 2 and 0"),
        ({"files": [question(), IMAGE, ("image", ("0.png", b"", "image/png"))]}, 422, "got 1 and 1"),
        ({"files": [question(), ("images", ("i.npy", b"<html>", "x"))]}, 422, "not in numpy's .npy format"),
        ({"files": [question(), ("image", ("0.png", b"<html>", "x"))]}, 422, "image 0 cannot be taken as PNG"),
        ({"files": [question(protocol=2), IMAGE]}, 422, "speaks protocol 2, this side speaks 1"),
        ({"files": [question(prompts=["a", "b"]), IMAGE]}, 422, "2 prompts but 1 metadata"),
        ({"files": [question(prompts=["a"] * 2, metadata=[{}] * 2), IMAGE]}, 422, "2 prompts but 1 images"),
        ({"files": [("request", (None, b"{", "x")), IMAGE]}, 422, "the request is not JSON"),
        ({"files": form_of(np.zeros((1, 200, 200, 3), np.uint8))}, 413, "at most 100000 are taken"),
        ({"files": [question(), ("image", ("0.png", b"", "x"))]}, 422, "image 0 cannot be taken"),
    ],
)
def test_a_wrong_request_is_refused_in_one_line(serve: Serve, options: Any, status: int, detail: str) -> None:
    scorer = PixelScorer()
    answer = post(serve(scorer, limits=Limits(max_request_bytes=100_000)), **options)
    assert answer.status_code == status, answer.text
    assert detail in answer.json()["detail"]
    assert "\n" not in answer.json()["detail"]
    assert scorer.batches == []


def test_curl_may_send_the_question_as_a_file(serve: Serve) -> None:
    name, (_, text, kind) = question()
    answer = post(serve(PixelScorer()), files=[(name, ("q.json", text, kind)), IMAGE])
    assert answer.json()["states"] == ["scored"]


def test_a_body_that_does_not_say_its_length_is_counted(serve: Serve) -> None:
    def endless() -> Iterator[bytes]:
        yield b'--b\r\nContent-Disposition: form-data; name="images"; filename="i.npy"\r\n\r\n'
        for _ in range(64):
            yield b"x" * 10_000

    headers = {"Content-Type": "multipart/form-data; boundary=b"}
    url = serve(PixelScorer(), limits=Limits(max_request_bytes=100_000))
    answer = post(url, content=endless(), headers=headers)
    assert answer.status_code == 413
    assert get(url, "/healthz").json()["requests"] == 0


def test_a_body_that_stops_in_the_middle_keeps_its_place_no_longer_than_the_limit(serve: Serve) -> None:
    url = serve(PixelScorer(), limits=Limits(max_places=1, body_limit_s=0.3))
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(
            b"POST /v1/score HTTP/1.1\r\nHost: x\r\nContent-Type: multipart/form-data; boundary=b\r\n"
            b"Content-Length: 1000\r\n\r\n--b\r\n"
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 408")
    assert post(url, files=form_of(painted(3))).status_code == 200


def test_an_answer_of_the_scorer_that_breaks_the_contract_is_failed_cells(serve: Serve) -> None:
    answer = post(serve(lambda images, prompts, metadata: [0.5]), files=form_of(painted(1))).json()
    assert answer["states"] == ["failed"]
    assert answer["scores"] == [None]
    assert "not a RewardResult" in answer["reasons"][0]


# -- the token ---------------------------------------------------------------------------------------------------------


def test_without_the_token_nothing_but_healthz_answers(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    scorer = PixelScorer()
    url = serve(scorer, token="right")
    for headers in (
        {},
        {"Authorization": "Bearer wrong"},
        {"Authorization": "right"},
        {"Authorization": b"Bearer \xe4"},
    ):
        refused = [get(url, "/v1/info", headers=headers), post(url, files=form_of(painted(1)), headers=headers)]
        assert [answer.status_code for answer in refused] == [401, 401]
        assert all(answer.headers["WWW-Authenticate"] == "Bearer" for answer in refused)
    assert scorer.batches == []
    assert get(url, "/healthz").status_code == 200
    monkeypatch.setenv("MARBLE_TEST_TOKEN", "right")
    remote = HttpScorer(HttpArgs(url=url, token_env="MARBLE_TEST_TOKEN"))
    assert remote(painted(50), ["a"], [{}]).states.tolist() == [State.SCORED]
    with pytest.raises(ValueError, match=r"/v1/info: status 401 .*a bearer token is wanted"):
        HttpScorer(HttpArgs(url=url))


def test_info_says_what_is_served(serve: Serve) -> None:
    info = get(serve(PixelScorer(), limits=Limits(max_request_bytes=123)), "/v1/info").json()
    assert info == {
        "protocol": 1,
        "reward": "pixel",
        "images": ["npy", "png"],
        "max_request_bytes": 123,
        "scorer": "fake",
    }


def test_there_is_nothing_else(serve: Serve) -> None:
    url = serve(PixelScorer())
    assert [get(url, path).status_code for path in ("/", "/docs", "/openapi.json", "/v1/score")] == [404, 404, 404, 405]
