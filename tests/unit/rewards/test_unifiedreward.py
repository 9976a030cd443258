"""UnifiedReward against servers that answer, refuse, hang and talk nonsense: never a number that was not given."""

import base64
import io
import json
import re
import socket
import threading
import time
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from rewards.config import RewardConfig
from rewards.contract import RewardResult, State
from rewards.registry import build_scorer, self_test
from rewards.retrying import Backoff
from rewards.safe import score_safely
from rewards.scorer_args import UnifiedrewardArgs
from rewards.unifiedreward import QUESTION, UnifiedrewardScorer, parse_score, unified_reward
from tests.unit.rewards import stub_server as stub
from tests.unit.rewards.fakes import painted
from tests.unit.rewards.stub_server import Act, Handler, StubServer


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits of hundredths of seconds."""
    monkeypatch.setattr("rewards.unifiedreward.Backoff", partial(Backoff, first_s=0.01))


def completion(text: object) -> Act:
    """A chat completion as OpenAI's protocol has it."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    return stub.reply(json.dumps({"id": "x", "object": "chat.completion", "choices": [choice]}))


def asked(handler: Handler) -> tuple[dict[str, Any], NDArray[np.uint8], str]:
    """(request, image, text) of a question."""
    request = json.loads(handler.body)
    [message] = request["messages"]
    image, text = message["content"]
    head, _, data = image["image_url"]["url"].partition(",")
    assert (message["role"], image["type"], text["type"], head) == (
        "user",
        "image_url",
        "text",
        "data:image/png;base64",
    )
    return request, np.asarray(Image.open(io.BytesIO(base64.b64decode(data)))), text["text"]


def grade_of_pixel(handler: Handler) -> None:
    """Final Score: the first pixel over ten. 77 is refused, 88 is answered without a score."""
    value = int(asked(handler)[1][0, 0, 0])
    act = {77: stub.reply("no", status=400), 88: completion("I cannot rate this.")}
    act.get(value, completion(f"cat: 1\nFinal Score: {value / 10}"))(handler)


def scorer_at(server: StubServer, **args: Any) -> UnifiedrewardScorer:
    return UnifiedrewardScorer(
        UnifiedrewardArgs.model_validate({"base_url": f"{server.url}/v1", "image_side": None} | args)
    )


def score_one(server: StubServer, **args: Any) -> RewardResult:
    return scorer_at(server, **args)(painted(30), ["a cat"], [{}])


# -- what is asked and what comes of it --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("answer", "score"),
    [
        ("Final Score: 4", 4.0),
        ("a (object): 1\nFinal Score: 3.5\n", 3.5),
        ("Final Score:2 of 5", 2.0),
        ("Final Score: 4/5", 4.0),
        ("Final Score: 1. Final Score: 5.", 1.0),
    ],
)
def test_the_score_of_an_answer(answer: str, score: float) -> None:
    """PAPER 4: 'Final Score: 1..5', the first one."""
    assert parse_score(answer) == score


def test_golden_by_hand() -> None:
    """4.5 of 5 is 0.9."""
    assert unified_reward(parse_score("Final Score: 4.5")) == pytest.approx(0.9)


@pytest.mark.parametrize(
    "answer", ["", "4", "Final score: 4", "Final Score: good", "Final Score: 10", "Final Score: 0", "Final Score: -3"]
)
def test_an_answer_without_a_score_from_1_to_5(answer: str) -> None:
    """FAULTS 8: the public recipe makes 0 of these, and 1 of '10'."""
    with pytest.raises(ValueError, match=f"in the answer {re.escape(repr(answer))}"):
        parse_score(answer)


def test_the_request_is_the_published_one() -> None:
    with StubServer([completion("Final Score: 5")]) as server:
        result = score_one(server, model="UnifiedReward-7b", image_side=512)
        [handler] = server.seen
    request, image, text = asked(handler)
    assert handler.path == "/v1/chat/completions"
    assert (request["model"], request["temperature"]) == ("UnifiedReward-7b", 0)
    assert image.shape == (512, 512, 3)
    assert image.min() == image.max() == 30
    assert text.endswith("Text Caption: [a cat]")
    assert text == QUESTION.replace("{prompt}", "a cat")
    assert result.scores.tolist() == [1.0]


def test_an_own_question_and_braces_in_captions() -> None:
    with StubServer([completion("Final Score: 5")]) as server:
        scorer_at(server, question="{x} Rate {prompt}")(painted(30), ["{a} {prompt} {0}"], [{}])
        assert asked(server.seen[0])[2] == "{x} Rate {a} {prompt} {0}"


def test_the_key_comes_from_the_environment_and_stays_out_of_sight(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UNIFIED_KEY", "s3cret")
    with StubServer([stub.reply("who?", status=401)]) as server:
        result = score_one(server, token_env="UNIFIED_KEY")
        assert server.seen[0].headers["Authorization"] == "Bearer s3cret"
        assert "s3cret" not in repr(result)
        with pytest.raises(ValueError, match="NO_SUCH_KEY is not set where the scorer runs"):
            scorer_at(server, token_env="NO_SUCH_KEY")


def test_every_image_gets_its_own_answer_and_failures_stay_with_theirs() -> None:
    """FAULTS 8, 9: one image refused, one answered without a score, the others untouched."""
    with StubServer([grade_of_pixel]) as server:
        result = scorer_at(server)(painted(10, 77, 30, 88, 50), list("abcde"), [{}] * 5)
    assert result.states.tolist() == [0, State.FAILED, 0, State.FAILED, 0]
    np.testing.assert_allclose(result.scores[[0, 2, 4]], [0.2, 0.6, 1.0], rtol=1e-6)
    assert "status 400 Bad Request" in result.reasons[1]
    assert "no 'Final Score:' with a number in the answer 'I cannot rate this.'" in result.reasons[3]
    assert all(reason.startswith(f"{server.url}/v1/chat/completions: ") for reason in result.reasons if reason)


def test_batch_equals_one_by_one() -> None:
    images, prompts = painted(*range(10, 51, 2)), [f"prompt {i}" for i in range(21)]
    with StubServer([grade_of_pixel]) as server:
        scorer = scorer_at(server, concurrency=4)
        together = scorer(images, prompts, [{}] * 21).scores
        alone = [scorer(images[i : i + 1], prompts[i : i + 1], [{}]).scores[0] for i in range(21)]
    assert together.tolist() == alone


def test_requests_under_way_are_bounded() -> None:
    lock, gate, under_way, most = threading.Lock(), threading.Barrier(3), 0, 0

    def count(handler: Handler) -> None:
        nonlocal under_way, most
        with lock:
            under_way += 1
            most = max(most, under_way)
        gate.wait(timeout=20)  # three at once, or nobody gets an answer
        with lock:
            under_way -= 1
        completion("Final Score: 3")(handler)

    with StubServer([count]) as server:
        result = scorer_at(server, concurrency=3)(painted(*range(9)), ["a"] * 9, [{}] * 9)
    assert (result.states == State.SCORED).all()
    assert most == 3


# -- a server that is not well -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "act",
    [
        stub.reply("slow down", status=429, kind="text/plain", Retry_After="0"),
        stub.reply("<html>Bad gateway</html>", status=502, kind="text/html"),
        stub.reply("{}", status=500),
        stub.nothing,
        stub.cut_short,
    ],
)
def test_what_may_pass_is_asked_again(act: Act) -> None:
    """FAULTS 14."""
    with StubServer([act, act, completion("Final Score: 4")]) as server:
        assert score_one(server).scores.tolist() == pytest.approx([0.8])
        assert server.num_posts == 3


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (stub.reply("<html>Welcome</html>", kind="text/html"), "status 200 OK with text/html: '<html>Welcome</html>'"),
        (stub.reply("no such model", status=404, kind="text/plain"), "status 404 Not Found .*'no such model'"),
        (stub.reply(""), "the answer is no chat completion"),
        (stub.reply('{"error": "overlong"}'), r"the answer is no chat completion \(KeyError\('choices'\)\).*overlong"),
        (stub.reply('{"choices": []}'), "the answer is no chat completion"),
        (stub.reply("[1]"), "the answer is no chat completion"),
        (stub.reply("[" * 100_000), "the answer is no chat completion"),
        (completion(None), "the chat completion has no text"),
        (completion("It is a fine image."), "no 'Final Score:' with a number in the answer 'It is a fine image.'"),
    ],
)
def test_what_would_be_the_same_again_is_asked_once(act: Act, reason: str) -> None:
    """FAULTS 8: failed with the reason and the address; there is no point in asking again."""
    with StubServer([act]) as server:
        result = score_one(server)
        assert result.states.tolist() == [State.FAILED]
        assert re.search(reason, result.reasons[0]), result.reasons[0]
        assert server.num_posts == 1


@pytest.mark.parametrize(
    ("act", "reason"),
    [
        (stub.reply("busy", status=429, kind="text/plain"), "3 tries, the last: status 429 Too Many Requests"),
        (stub.reply("Oops", status=500, kind="text/html"), "3 tries, the last: status 500 Internal Server Error"),
        (stub.nothing, "3 tries, the last: .*(disconnected|without)"),
        (stub.hang, "no answer within 0.5 s"),
        (stub.drip, "no answer within 0.5 s"),
    ],
)
def test_a_server_that_never_recovers_is_away(act: Act, reason: str) -> None:
    """FAULTS 14: a bound on the whole, and a type that tells the pool not to try the batch in halves."""
    limit = 0.5 if act in (stub.hang, stub.drip) else 30
    with StubServer([act]) as server:
        start = time.monotonic()
        with pytest.raises(ConnectionError, match=reason) as caught:
            score_one(server, retries=2, timeout_s=limit)
        assert time.monotonic() - start < 20
        assert str(caught.value).startswith(f"{server.url}/v1/chat/completions: ")


@pytest.fixture
def dead_url() -> Iterator[str]:
    """An address where nothing listens, and nothing will: the port is bound."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{sock.getsockname()[1]}/v1"


def test_no_server_fails_the_self_test_with_its_address(dead_url: str) -> None:
    """FAULTS 14: before any training step."""
    scorer = build_scorer("judge", RewardConfig(scorer="unifiedreward", args={"base_url": dead_url, "retries": 1}))
    with pytest.raises(ConnectionError, match=re.escape(dead_url)):
        self_test(scorer)


def test_no_server_fails_every_cell_of_a_batch_once(dead_url: str) -> None:
    scorer = UnifiedrewardScorer(UnifiedrewardArgs(base_url=dead_url, retries=0))
    result = score_safely(scorer, painted(1, 2, 3), list("abc"), [{}] * 3, [True] * 3)
    assert result.states.tolist() == [State.FAILED] * 3
    assert all(dead_url in reason for reason in result.reasons)


def test_the_self_test_of_a_server_that_answers() -> None:
    with StubServer([completion("Final Score: 5")]) as server:
        scorer = build_scorer("judge", RewardConfig(scorer="unifiedreward", args={"base_url": f"{server.url}/v1/"}))
        assert self_test(scorer).scores.tolist() == [1.0]
        assert server.seen[0].path == "/v1/chat/completions"


def test_bad_batches_raise_before_anything_is_sent() -> None:
    """FAULTS 13."""
    with StubServer([completion("Final Score: 5")]) as server:
        wrong: Any = painted(1).astype(np.float32)
        with pytest.raises(ValueError, match="must be uint8"):
            scorer_at(server)(wrong, ["a"], [{}])
        with pytest.raises(ValueError, match="got 1 images, 2 prompts and 1 metadata"):
            scorer_at(server)(painted(1), ["a", "b"], [{}])
        assert len(scorer_at(server)(painted(1)[:0], [], []).scores) == 0
        assert server.seen == []
