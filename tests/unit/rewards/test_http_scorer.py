"""The HTTP scorer against servers that are down, slow, broken or of another kind: never a number that was not sent."""

import asyncio
import json
import re
import socket
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from rewards import http_call
from rewards.config import HttpArgs, RewardConfig
from rewards.contract import State
from rewards.evaluation import score_for_evaluation
from rewards.http_scorer import START_LIMIT_S, HttpScorer
from rewards.registry import build_scorer, self_test
from rewards.retrying import Backoff
from rewards.safe import score_safely
from tests.unit.rewards import stub_server as stub
from tests.unit.rewards.fakes import painted
from tests.unit.rewards.stub_server import Act, StubServer


@pytest.fixture
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of hundredths of seconds."""
    monkeypatch.setattr("rewards.http_scorer.Backoff", partial(Backoff, first_s=0.01))


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address where nothing listens, and nothing will: the port is bound."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}"


def scorer_at(server: StubServer, **args: Any) -> HttpScorer:
    return HttpScorer(HttpArgs(url=server.url, **args))


def reason_of(server: StubServer, **args: Any) -> str:
    """Why the one cell of a call failed."""
    result = scorer_at(server, **args)(painted(50), ["a"], [{}])
    assert result.states.tolist() == [State.FAILED]
    assert np.isnan(result.scores).all()
    [reason] = result.reasons
    assert reason.startswith(f"{server.url}/v1/score: ")
    return reason.removeprefix(f"{server.url}/v1/score: ")


# -- answers that are none ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (stub.reply("<html><body>Welcome</body></html>", kind="text/html"), "status 200 OK with text/html: '<html>"),
        (stub.reply(json.dumps(stub.GOOD), kind="text/plain"), "status 200 OK with text/plain"),
        (stub.reply(json.dumps(stub.GOOD)[:30]), "the answer is not JSON"),
        (stub.reply(""), "the answer is not JSON"),
        (stub.reply(json.dumps(stub.GOOD), status=201), "status 201 Created"),
        (stub.reply("", status=302, Location="http://127.0.0.1:1/"), "status 302 Found"),
        (stub.reply('{"detail": "the bearer token is wrong"}', status=401), "status 401 Unauthorized .*token is wrong"),
        (stub.reply("not here", status=404, kind="text/plain"), "status 404 Not Found with text/plain: 'not here'"),
        (stub.reply('{"detail": "no images"}', status=422), "status 422 Unprocessable .*no images"),
        (stub.answer(protocol=2), "speaks protocol 2, this side speaks 1"),
        (stub.answer(scores=[]), r"\(1, 0, 1\) states, scores and reasons for 1 samples"),
        (stub.answer(scores=[0.5, 0.5]), r"\(1, 2, 1\)"),
        (stub.answer(scores=["0.5"]), "should be a valid number"),
    ],
)
def test_whatever_is_no_answer_fails_with_the_address_and_is_asked_once(act: Act, reason: str) -> None:
    """FAULTS 8: HTML, half a JSON, another length, another version: no number, and no point in asking again."""
    with StubServer([act]) as server:
        _match(reason, reason_of(server))
        assert server.num_posts == 1


def _match(pattern: str, text: str) -> None:
    assert re.search(pattern, text), text


def test_nan_fails_its_own_cell() -> None:
    act = stub.answer(scores=[float("nan"), 0.25], states=["scored"] * 2, reasons=[""] * 2)
    with StubServer([act]) as server:
        result = scorer_at(server)(painted(1, 2), ["a", "b"], [{}, {}])
    assert result.states.tolist() == [State.FAILED, State.SCORED]
    assert result.scores[1] == 0.25
    assert result.reasons[0] == "the scorer gave nan, which is not a finite float32"


def test_an_answer_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_call, "MAX_ANSWER_BYTES", 1000)
    with StubServer([stub.reply(b" " * 5000)]) as server:
        assert reason_of(server) == "the answer has more than 1000 bytes"


# -- retries -----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize(
    "act",
    [
        stub.nothing,
        stub.cut_short,
        stub.reply("busy", status=429, Retry_After="0"),
        stub.reply("x", status=408),
        stub.reply("<html>Bad gateway</html>", status=502, kind="text/html"),
        stub.reply("x", status=500),
    ],
)
def test_what_may_pass_is_asked_again(act: Act) -> None:
    with StubServer([act, act, stub.answer()]) as server:
        result = scorer_at(server)(painted(50), ["a"], [{}])
        assert result.scores.tolist() == [0.5]
        assert server.num_posts == 3


@pytest.mark.usefixtures("quick_retries")
@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (stub.reply("Oops", status=500, kind="text/html"), "status 500 Internal Server Error with text/html: 'Oops'"),
        (stub.reply("", status=429), "status 429 Too Many Requests"),
        (stub.nothing, "RemoteProtocolError"),
        (stub.cut_short, "RemoteProtocolError"),
    ],
)
def test_retries_end(act: Act, reason: str) -> None:
    """FAULTS 14."""
    with StubServer([act]) as server:
        _match(rf"^3 tries, the last: {reason}", reason_of(server, retries=2))
        assert server.num_posts == 3


@pytest.mark.usefixtures("quick_retries")
def test_no_retries_is_one_try() -> None:
    with StubServer([stub.reply("", status=503)]) as server:
        _match("^1 try, the last: status 503", reason_of(server, retries=0))
        assert server.num_posts == 1


@pytest.mark.usefixtures("quick_retries")
def test_retry_after_is_waited_for() -> None:
    with StubServer([stub.reply("", status=503, Retry_After="1"), stub.answer()]) as server:
        scorer = scorer_at(server)
        began = time.monotonic()
        assert scorer(painted(50), ["a"], [{}]).scores.tolist() == [0.5]
        assert time.monotonic() - began >= 1.0


def test_a_wait_longer_than_the_time_left_is_not_begun() -> None:
    with StubServer([stub.reply("", status=503, Retry_After="3600")]) as server:
        began = time.monotonic()
        reason = reason_of(server)
        assert time.monotonic() - began < 20
        _match(r"^no time for a wait of 3600\.\d s \(30 s in all\); 1 try, the last: status 503", reason)


@pytest.mark.parametrize("act", [stub.hang, stub.drip])
def test_a_server_that_never_ends_is_left(act: Act) -> None:
    """FAULTS 14: also one that sends a line now and then, which no limit on single reads would end."""
    with StubServer([act]) as server:
        scorer = scorer_at(server, timeout_s=1.0)
        began = time.monotonic()
        [reason] = scorer(painted(50), ["a"], [{}]).reasons
        assert time.monotonic() - began < 20
        _match(r"/v1/score: no answer within 1 s; 1 try$", reason)


def test_a_failure_does_not_have_every_half_asked_again() -> None:
    """An outage costs one call's patience, not one for each sample."""
    with StubServer([stub.reply("", status=500)]) as server:
        scorer = scorer_at(server, retries=0)
        result = score_safely(scorer, painted(1, 2, 3, 4), list("abcd"), [{}] * 4, [True] * 4)
        assert result.states.tolist() == [State.FAILED] * 4
        assert server.num_posts == 1


def test_one_sample_that_cannot_be_sent_fails_alone() -> None:
    """FAULTS 9."""
    everyone = {"states": ["scored"], "scores": [0.5], "reasons": [""]}

    def as_many_as_asked(handler: stub.Handler) -> None:
        number = handler.body.count(b"{}")
        stub.reply(json.dumps({"protocol": 1, **{key: value * number for key, value in everyone.items()}}))(handler)

    with StubServer([as_many_as_asked]) as server:
        metadata: list[dict[str, Any]] = [{}, {"when": {1}}, {}]
        result = score_safely(scorer_at(server), painted(1, 2, 3), list("abc"), metadata, [True] * 3)
    assert result.states.tolist() == [State.SCORED, State.FAILED, State.SCORED]
    assert "not JSON serializable" in result.reasons[1]


@pytest.mark.parametrize("status", [400, 422])
def test_one_sample_that_the_server_does_not_take_fails_alone(status: int) -> None:
    """FAULTS 9: servers of others refuse a whole request for one sample of it."""

    def picky(handler: stub.Handler) -> None:
        number = handler.body.count(b"{}")
        if b'"bad"' in handler.body:
            return stub.reply('{"detail": "a bad prompt"}', status=status)(handler)
        cells = {"states": ["scored"] * number, "scores": [number / 10] * number, "reasons": [""] * number}
        return stub.reply(json.dumps({"protocol": 1, **cells}))(handler)

    with StubServer([picky]) as server:
        prompts = ["a", "b", "bad", "d"]
        result = score_safely(scorer_at(server), painted(1, 2, 3, 4), prompts, [{}] * 4, [True] * 4)
        # All, two halves, two quarters, and all once more with a stand-in.
        assert server.num_posts == 6
    assert result.states.tolist() == [State.SCORED, State.SCORED, State.FAILED, State.SCORED]
    assert result.scores[[0, 1, 3]].tolist() == [np.float32(0.4)] * 3
    _match(f"/v1/score: status {status} .*a bad prompt", result.reasons[2])


# -- the start ---------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("quick_retries")
def test_a_server_that_is_down_is_an_error_at_the_start(dead_url: str) -> None:
    """FAULTS 14."""
    config = RewardConfig(scorer="http", args={"url": dead_url})
    with pytest.raises(ConnectionError, match=rf"^{dead_url}/v1/info: 4 tries, the last: ConnectError"):
        build_scorer("remote", config)


def test_the_first_question_has_a_limit_whatever_the_recipe_allows_a_batch() -> None:
    assert START_LIMIT_S + HttpArgs(url="http://x").timeout_s < 60
    with StubServer([stub.answer()], info=stub.hang) as server, pytest.raises(ConnectionError, match=r"within 0\.5 s"):
        scorer_at(server, timeout_s=0.5)


@pytest.mark.parametrize(
    ("info", "args", "message"),
    [
        ({"protocol": 2, "reward": "stub"}, {}, "speaks protocol 2, this side speaks 1"),
        ({"reward": "stub"}, {}, "speaks protocol None"),
        ({"protocol": 1, "reward": "ocr"}, {"reward": "pickscore"}, "serves 'ocr', not 'pickscore'"),
        ({"protocol": 1, "reward": "ocr"}, {"images": "png"}, "takes images as npy, not as png"),
        (stub.reply("<html>", kind="text/html"), {}, "status 200 OK with text/html"),
        (stub.reply("no", status=404), {}, "status 404 Not Found"),
        (stub.reply('{"detail": "a bearer token is wanted"}', status=401), {}, "401 .*a bearer token is wanted"),
    ],
)
def test_a_server_of_another_kind_is_an_error_at_the_start(info: Any, args: dict[str, Any], message: str) -> None:
    with StubServer([stub.answer()], info=info) as server, pytest.raises(ValueError, match=message) as caught:
        scorer_at(server, **args)
    assert str(caught.value).startswith(server.url)


def test_the_self_test_uses_the_servers_metadata() -> None:
    metadata = {"include": [{"class": "dog", "count": 1}]}
    with StubServer([stub.answer()], info={**stub.INFO, "self_test_metadata": metadata}) as server:
        assert self_test(scorer_at(server), side=64).scores.tolist() == [0.5]
        assert json.dumps(metadata).encode() in server.seen[-1].body


def test_the_self_test_finds_a_server_that_cannot_score() -> None:
    """FAULTS 12: before the first step, with the server's own reason."""
    with StubServer([stub.answer(states=["failed"], scores=[None], reasons=["no GPU"])]) as server:
        scorer = scorer_at(server)
        with pytest.raises(RuntimeError, match="failed on the known image: no GPU"):
            self_test(scorer, side=64)


def test_an_address_that_is_none_is_said_at_the_start() -> None:
    with pytest.raises(ValueError, match=r"/v1/info: no valid address: "):
        HttpScorer(HttpArgs(url="http://ü..example"))


def test_it_works_where_an_event_loop_is_running() -> None:
    """A notebook, or an async actor."""

    async def notebook() -> list[float]:
        return self_test(scorer_at(server), side=64).scores.tolist()

    with StubServer([stub.answer()]) as server:
        assert asyncio.run(notebook()) == [0.5]


# -- what is sent ------------------------------------------------------------------------------------------------------


def test_evaluation_is_asked_for_by_name() -> None:
    with StubServer([stub.answer()]) as server:
        scorer = scorer_at(server)
        scorer(painted(50), ["a"], [{}])
        score_for_evaluation(scorer, painted(50), ["a"], [{}])
        asked = [b'"evaluation": true' in handler.body for handler in server.seen[1:]]
    assert asked == [False, True]


def test_no_samples_are_no_request() -> None:
    with StubServer([stub.answer()]) as server:
        assert len(scorer_at(server)(np.zeros((0, 4, 4, 3), np.uint8), [], []).scores) == 0
        assert server.num_posts == 0


def test_images_of_another_kind_never_leave() -> None:
    """FAULTS 13."""
    with StubServer([stub.answer()]) as server:
        scorer = scorer_at(server)
        with pytest.raises(ValueError, match="must be uint8"):
            scorer(painted(50).astype(np.float32), ["a"], [{}])  # type: ignore[arg-type]
        assert server.num_posts == 0


@pytest.mark.parametrize("form", ["npy", "png"])
def test_a_batch_over_the_servers_limit_never_leaves(form: str) -> None:
    """Plain pictures make small files; what counts is what the server would hold."""
    images = np.zeros((3, 128, 128, 3), np.uint8)
    with StubServer([stub.answer()]) as server:
        result = scorer_at(server, images=form)(images, ["a"] * 3, [{}] * 3)
        assert server.num_posts == 0
    assert result.states.tolist() == [State.FAILED] * 3
    _match(r"3 images are 14\d{4} bytes, the server takes 100000; lower the pool's batch_size", result.reasons[0])


# -- the token ---------------------------------------------------------------------------------------------------------

SECRET = "s3cret-t0ken"


def test_the_token_comes_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_TOKEN", f"{SECRET}\n")
    with StubServer([stub.reply("", status=403)]) as server:
        reason = reason_of(server, token_env="MY_TOKEN")
        assert [handler.headers["Authorization"] for handler in server.seen] == [f"Bearer {SECRET}"] * 2
    assert SECRET not in reason


def test_without_token_env_nothing_is_sent() -> None:
    with StubServer([stub.answer()]) as server:
        scorer_at(server)(painted(50), ["a"], [{}])
        assert [handler.headers["Authorization"] for handler in server.seen] == [None, None]


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "MY_TOKEN is not set"), (" ", "MY_TOKEN is not set"), ("a\nb", "no HTTP header"), ("ä", "no HTTP header")],
)
def test_a_token_that_cannot_be_sent(value: str | None, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MY_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("MY_TOKEN", value)
    with pytest.raises(ValueError, match=message):
        HttpScorer(HttpArgs(url="http://127.0.0.1:1", token_env="MY_TOKEN"))


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "where", "message"),
    [
        ({}, ("args", "url"), "Field required"),
        ({"url": "host:8500"}, ("args", "url"), "is no address like"),
        ({"url": "ftp://host"}, ("args", "url"), "is no address like"),
        ({"url": "http://"}, ("args", "url"), "is no address like"),
        ({"url": "http://host/?a=1"}, ("args", "url"), "is no address like"),
        ({"url": "http://a b"}, ("args", "url"), "is no address like"),
        ({"url": "http://me:pw@host"}, ("args", "url"), "name a variable in token_env"),
        ({"url": "http://host:99999"}, ("args", "url"), "Port out of range"),
        ({"url": "http://host", "token": "abc"}, ("args", "token"), "Extra inputs"),
        ({"url": "http://host", "token_env": "A B"}, ("args", "token_env"), "match pattern"),
        ({"url": "http://host", "retries": -1}, ("args", "retries"), "greater than or equal to 0"),
        ({"url": "http://host", "timeout_s": 0}, ("args", "timeout_s"), "greater than 0"),
        ({"url": "http://host", "images": "jpeg"}, ("args", "images"), "'npy' or 'png'"),
    ],
)
def test_refused_when_the_recipe_is_loaded(args: dict[str, Any], where: tuple[str, ...], message: str) -> None:
    """FAULTS 24."""
    with pytest.raises(ValidationError, match=message) as caught:
        RewardConfig(scorer="http", args=args)
    assert [error["loc"] for error in caught.value.errors()] == [where]


def test_a_slash_at_the_end_of_the_address_changes_nothing() -> None:
    assert HttpArgs(url="https://host:1/path/").url == "https://host:1/path"
