"""Asking a running run for another size: answers, refusals, nobody there, two at once."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from actors import scaling
from actors.config import PoolConfig
from actors.scaling import ANSWER, FOLDER, REQUEST, TAKEN, Requests, Resized, ask, check_size
from learner.errors import UserError

POOLS = {"ocr": PoolConfig(replicas=2, min_replicas=2, max_replicas=4), "geneval": PoolConfig()}


class Server(threading.Thread):
    """A controller that looks for requests until it is told to stop."""

    def __init__(self, run_dir: Path) -> None:
        super().__init__(daemon=True)
        self.requests, self.over, self.sizes = Requests(run_dir), False, {"ocr": 2, "geneval": 1}

    def run(self) -> None:
        while not self.over:
            self.requests.serve(self.apply)
            time.sleep(0.01)

    def apply(self, sizes: Mapping[str, int]) -> list[Resized]:
        for name, size in sizes.items():
            check_size(name, size, POOLS)
        changes = [Resized(name, self.sizes[name], size) for name, size in sizes.items()]
        self.sizes.update(sizes)
        return changes

    def __enter__(self) -> "Server":
        self.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.over = True
        self.join()


def test_a_request_is_answered_with_what_changed_and_nothing_is_left(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        assert ask(tmp_path, {"ocr": 4, "geneval": 2}, 20) == [Resized("ocr", 2, 4), Resized("geneval", 1, 2)]
        assert server.sizes == {"ocr": 4, "geneval": 2}
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_refusal_comes_back_as_the_runs_own_words_and_nothing_changed(tmp_path: Path) -> None:
    with Server(tmp_path) as server:
        with pytest.raises(UserError, match=r"reward\.ocr=5: actors\.pools\.ocr allows 2 to 4 replicas"):
            ask(tmp_path, {"geneval": 3, "ocr": 5}, 20)
        assert server.sizes == {"ocr": 2, "geneval": 1}


def test_nobody_there_withdraws_the_request(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"did not take up the request within 0\.2 s; nothing was changed"):
        ask(tmp_path, {"ocr": 3}, 0.2)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_a_run_that_ends_meanwhile_is_not_waited_for(tmp_path: Path) -> None:
    began_s, looks = time.monotonic(), iter([True, True, False, False])
    with pytest.raises(UserError, match="has ended meanwhile; nothing was changed"):
        ask(tmp_path, {"ocr": 3}, 300, lambda: next(looks))
    assert time.monotonic() - began_s < 60
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_an_earlier_life_of_the_run_left_is_not_done(tmp_path: Path) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"old{REQUEST}").write_text('{"sizes": {"ocr": 4}}')
    done: list[Mapping[str, int]] = []
    Requests(tmp_path).serve(lambda sizes: done.append(sizes) or [])
    assert done == []


@pytest.mark.parametrize("kind", [REQUEST, TAKEN, ANSWER])
def test_what_an_earlier_life_left_in_the_middle_is_dropped(tmp_path: Path, kind: str) -> None:
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"old{kind}").write_text("{}")
    Requests(tmp_path)
    assert list((tmp_path / FOLDER).iterdir()) == []


def test_what_others_put_into_the_folder_does_not_end_the_run(tmp_path: Path) -> None:
    """A folder in place of a file stands for whatever cannot be read or removed, e.g. another user's files."""
    folder = tmp_path / FOLDER
    (folder / f"a{REQUEST}").mkdir(parents=True)
    (folder / f"b{REQUEST}").mkdir()
    (folder / f"b{TAKEN}").mkdir()
    (folder / f"b{TAKEN}" / "full").touch()
    requests, done = Requests(tmp_path), list[Mapping[str, int]]()
    (folder / f"c{REQUEST}").write_text('{"sizes": {"ocr": 3}}')
    requests.serve(lambda sizes: done.append(sizes) or [])
    assert done == [{"ocr": 3}]
    assert "is no request" in (folder / f"a{ANSWER}").read_text()


def test_a_file_in_place_of_the_folder_is_no_request(tmp_path: Path) -> None:
    (tmp_path / FOLDER).touch()
    Requests(tmp_path).serve(lambda sizes: [])
    with pytest.raises(OSError, match="exists"):
        ask(tmp_path, {"ocr": 3}, 0.1)


def test_a_run_that_ends_after_taking_a_request_up_is_not_said_to_have_done_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scaling, "TAKEN_PATIENCE_S", 0.1)
    said: list[str] = []
    ended = threading.Event()

    def asks() -> None:
        with pytest.raises(UserError) as caught:
            ask(tmp_path, {"ocr": 3}, 300, lambda: not ended.is_set())
        said.append(str(caught.value))

    thread = threading.Thread(target=asks)
    thread.start()
    while not (waiting := list(tmp_path.glob(f"{FOLDER}/*{REQUEST}"))):
        time.sleep(0.01)
    waiting[0].rename(waiting[0].with_name(f"x{TAKEN}"))
    ended.set()
    thread.join()
    assert said == [f"{tmp_path} took up the request and gave no answer; its status says what became of it"]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"sizes": {"ocr": "many"}}',
        '{"sizes": {"ocr": "3"}}',
        '{"sizes": {"ocr": true}}',
        '{"sizes": {"ocr": 2.5}}',
        '{"sizes": {"ocr": 1e400}}',
        '{"sizes": 3}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_no_request_is_refused_and_the_next_one_served(tmp_path: Path, text: str) -> None:
    requests, done = Requests(tmp_path), list[Mapping[str, int]]()
    (tmp_path / FOLDER).mkdir()
    (tmp_path / FOLDER / f"a{REQUEST}").write_text(text)
    requests.serve(lambda sizes: done.append(sizes) or [])
    assert done == []
    assert "is no request" in (tmp_path / FOLDER / f"a{ANSWER}").read_text()
    (tmp_path / FOLDER / f"b{REQUEST}").write_text('{"sizes": {"ocr": 3}}')
    requests.serve(lambda sizes: done.append(sizes) or [])
    assert done == [{"ocr": 3}]


def test_requests_of_several_people_are_all_served(tmp_path: Path) -> None:
    answers: list[list[Resized]] = []
    with Server(tmp_path) as server:
        threads = [
            threading.Thread(target=lambda size=size: answers.append(ask(tmp_path, {"geneval": size}, 20)))
            for size in range(1, 6)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(change.after for (change,) in answers) == [1, 2, 3, 4, 5]
        assert server.sizes["geneval"] in range(1, 6)


@pytest.mark.parametrize(
    ("reward", "size", "said"),
    [
        ("ocrr", 3, "reward.ocrr: the run's rewards are ocr, geneval; did you mean ocr?"),
        ("ocr", 1, "reward.ocr=1: actors.pools.ocr allows 2 to 4 replicas"),
        ("geneval", 10**9, "reward.geneval=1000000000: actors.pools.geneval allows 1 to 4096 replicas"),
        ("geneval", 0, "reward.geneval=0: actors.pools.geneval allows 1 to 4096 replicas"),
    ],
)
def test_what_a_pool_does_not_allow_is_said_with_what_it_does(reward: str, size: int, said: str) -> None:
    with pytest.raises(UserError) as caught:
        check_size(reward, size, POOLS)
    assert str(caught.value) == said
