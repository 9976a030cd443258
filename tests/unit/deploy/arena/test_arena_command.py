"""`marble arena`: what the page holds and hides, counting its votes, and what is refused."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from deploy_helpers import Marble, problem

from actors.prompts import Prompt
from deploy.arena import fresh
from deploy.arena.blinding import SIDES, arena_id, token
from deploy.drawing import Look
from deploy.report.pictures import data_uri
from learner.config import SamplingConfig
from tests.unit.deploy.report.made_run import EVAL_PROMPTS, write_run


@pytest.fixture
def runs(workdir: Path) -> tuple[Path, Path]:
    return write_run(workdir / "runs" / "walnut"), write_run(workdir / "runs" / "cherry", seed=2, shift=0.1)


@pytest.fixture
def arena(runs: tuple[Path, Path], marble: Marble) -> dict[str, Any]:
    """What page and key of these runs hold."""
    ran = marble("arena", *runs)
    assert (ran.code, ran.err) == (0, "")
    text = Path("arena/arena.html").read_text()
    found = re.search(r'<script type="application/json" id="data">(.*?)</script>', text, re.DOTALL)
    assert found
    return {"text": text, "page": json.loads(found[1]), "key": json.loads(Path("arena/key.json").read_text())}


def side_of(arena: dict[str, Any], pair: dict[str, str]) -> str:
    """The side on a pair's left, which only the key tells."""
    key = arena["key"]
    return {token(key["key"], p["prompt_id"], s): s for p in key["pairs"] for s in SIDES}[pair["pair"]]


def vote_file(path: Path, made: dict[str, Any], choose: Callable[[dict[str, str]], str], **changes: Any) -> Path:
    """Votes on every pair of the page."""
    votes = [{"pair": pair["pair"], "choice": choose(pair), "seconds": 1.5} for pair in made["page"]["pairs"]]
    head = {"format": "marble-arena-votes", "version": 1, "arena": made["page"]["arena"], "voter": "v1"}
    path.write_text(json.dumps({**head, "exported": "2026-01-01T00:00:00Z", "votes": votes, **changes}))
    return path


def test_the_page_shows_each_prompts_two_pictures_on_the_sides_its_token_says(
    arena: dict[str, Any], runs: tuple[Path, Path]
) -> None:
    pairs = arena["page"]["pairs"]
    assert sorted(pair["prompt"] for pair in pairs) == sorted(EVAL_PROMPTS.values())
    ids = {text: prompt_id for prompt_id, text in EVAL_PROMPTS.items()}
    for pair in pairs:
        name = ids[pair["prompt"]].replace("/", "-") + ".png"
        a, b = (data_uri(run / "samples" / "000003" / name) for run in runs)
        assert (pair["left"], pair["right"]) == ((a, b) if side_of(arena, pair) == "a" else (b, a))
    assert sorted(side_of(arena, pair) for pair in pairs) in (["a", "a", "b"], ["a", "b", "b"])


def test_the_page_hides_runs_and_key_and_needs_no_address(arena: dict[str, Any], runs: tuple[Path, Path]) -> None:
    text = arena["text"]
    for hidden in ("walnut", "cherry", arena["key"]["key"], "runs", "://", "plain/0"):
        assert hidden not in text, hidden
    assert "<b>bold" not in text
    assert arena["page"]["arena"] == arena_id(arena["key"]["key"])
    assert arena["key"]["a"]["label"] == "walnut"


def test_votes_are_counted_for_the_run_behind_the_side(arena: dict[str, Any], marble: Marble) -> None:
    """Whoever always chooses the first run's picture gives it every pair, on whichever side it stood."""
    vote_file(Path("arena/votes.json"), arena, lambda pair: "left" if side_of(arena, pair) == "a" else "right")
    data = json.loads(marble("arena", "--tally", "arena/votes.json", "--json").out)
    assert (data["a"]["label"], data["b"]["label"], data["a"]["done"]) == ("walnut", "cherry", 3)
    everything = data["tallies"][-1]
    assert (everything["pairs"], everything["wins_a"], everything["wins_b"]) == (3, 3, 0)
    assert everything["a"]["rate"] == 1.0
    assert [row["source"] for row in data["tallies"]] == ["plain", "signs", "all"]
    ran = marble("arena", "--tally", "arena/votes.json")
    assert "A: walnut, after 3 iterations" in ran.out
    assert "100.0%" in ran.out
    assert "3 votes of 1 voter;" in ran.out


def test_ties_other_voters_and_a_voter_who_saved_twice(arena: dict[str, Any], marble: Marble) -> None:
    early = vote_file(Path("early.json"), arena, lambda pair: "right")
    late = vote_file(Path("late.json"), arena, lambda pair: "tie", exported="2026-01-02T00:00:00Z")
    other = vote_file(Path("other.json"), arena, lambda pair: "tie", voter="v2")
    ran = marble("arena", "--tally", late, early, other, "--json")
    data = json.loads(ran.out)
    assert (data["voters"], data["votes"], data["choices"]) == (2, 6, {"tie": 6})
    assert data["tallies"][-1]["a"]["rate"] == 0.5
    assert data["tallies"][-1]["ties"] == 3
    assert ran.lines == [f"warning: {early} and {late} are of the same voter; only the later one, {late}, counts"]


def test_pairs_with_the_same_pictures_are_not_shown_and_count_as_ties(runs: tuple[Path, Path], marble: Marble) -> None:
    shutil.copy(runs[0] / "samples" / "000003" / "signs-0.png", runs[1] / "samples" / "000003" / "signs-0.png")
    assert "2 pairs; 1 more are the same on both sides" in marble("arena", *runs).out
    key = json.loads(Path("arena/key.json").read_text())
    assert [one["prompt_id"] for one in key["identical"]] == ["signs/0"]
    pair = token(key["key"], "plain/0", "b")
    votes = {"votes": [{"pair": pair, "choice": "right", "seconds": 1}]}
    page = {"page": {"arena": arena_id(key["key"]), "pairs": []}}
    vote_file(Path("votes.json"), page, lambda pair: "tie", **votes)
    data = json.loads(marble("arena", "--tally", "votes.json", "--json").out)
    assert (data["unjudged"], data["identical"]) == (1, 1)
    assert [(row["source"], row["pairs"], row["wins_a"], row["ties"]) for row in data["tallies"]] == [
        ("plain", 1, 1, 0),
        ("signs", 1, 0, 1),
        ("all", 2, 1, 1),
    ]


def test_one_run_is_compared_with_its_base(runs: tuple[Path, Path], marble: Marble) -> None:
    assert marble("arena", runs[0], "--out", "alone").code == 0
    key = json.loads(Path("alone/key.json").read_text())
    assert (key["a"]["label"], key["a"]["done"], key["b"]["label"], key["b"]["done"]) == ("base", 0, "walnut", 3)


def test_what_an_arena_needs_is_said_in_one_line(runs: tuple[Path, Path], marble: Marble, workdir: Path) -> None:
    first, second = runs
    problem(marble("arena", first, first), "are the same run")
    problem(marble("arena", first, second, write_run(workdir / "third")), "got 3")
    problem(marble("arena", "nothing", first), "nothing is neither a run directory nor a folder of runs")
    other = write_run(workdir / "other", changes={"eval.seed": 8})
    problem(marble("arena", first, other), "eval.seed is 7 in walnut and 8 in other")
    shutil.rmtree(second / "samples" / "000003")
    problem(marble("arena", first, second), f"{second} has no pictures of a later evaluation")
    problem(marble("arena", first, first.parent / "cherry", "--device", "cpu"), "--device means nothing without --draw")
    problem(marble("arena", first, second, "--json"), "--json means nothing without --tally")
    assert not Path("arena").exists()


def test_another_base_or_sampler_is_a_warning(runs: tuple[Path, Path], marble: Marble, workdir: Path) -> None:
    other = write_run(workdir / "other", shift=0.2, changes={"policy.base": "large"})
    ran = marble("arena", runs[0], other)
    assert ran.code == 0
    assert ran.lines == ["warning: policy.base is tiny in walnut and large in other"]


def test_an_arena_is_never_overwritten(arena: dict[str, Any], runs: tuple[Path, Path], marble: Marble) -> None:
    problem(marble("arena", *runs), "arena.html exists, and its votes need its key")
    assert json.loads(Path("arena/key.json").read_text()) == arena["key"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"arena": "ffffffffffff"}, "holds votes of arena ffffffffffff, the key is of arena"),
        ({"format": "other"}, "is not a vote file of marble arena: format"),
        ({"votes": []}, "no votes in votes.json"),
        ({"votes": [{"pair": "0" * 32, "choice": "left", "seconds": 1}]}, "is none of arena"),
        ({"votes": [{"pair": "0" * 32, "choice": "up", "seconds": 1}]}, "votes.0.choice"),
    ],
)
def test_votes_that_cannot_be_counted(
    arena: dict[str, Any], marble: Marble, changes: dict[str, Any], said: str
) -> None:
    vote_file(Path("votes.json"), arena, lambda pair: "left", **changes)
    problem(marble("arena", "--tally", "votes.json"), said)


def test_files_that_are_no_votes_and_no_key(arena: dict[str, Any], marble: Marble) -> None:
    Path("votes.json").write_text("{")
    problem(marble("arena", "--tally", "votes.json"), "votes.json is not a vote file of marble arena")
    problem(marble("arena", "--tally", "gone.json"), "gone.json: no such file or directory")
    vote_file(Path("votes.json"), arena, lambda pair: "left")
    problem(marble("arena", "--tally", "votes.json", "--key", "votes.json"), "is not a key file of marble arena")
    problem(marble("arena", "--tally", "votes.json", "--out", "x"), "--out means nothing with --tally")
    shutil.rmtree("arena")
    problem(marble("arena", "--tally", "votes.json"), "no key in key.json or arena/key.json")


def test_a_pair_voted_on_again_counts_once_with_the_later_vote(arena: dict[str, Any], marble: Marble) -> None:
    pair = arena["page"]["pairs"][0]["pair"]
    votes = [{"pair": pair, "choice": choice, "seconds": 1} for choice in ("left", "tie")]
    vote_file(Path("votes.json"), arena, lambda pair: "left", votes=votes)
    data = json.loads(marble("arena", "--tally", "votes.json", "--json").out)
    assert (data["votes"], data["choices"], data["unjudged"]) == (1, {"tie": 1}, 2)


# -- new pictures -----------------------------------------------------------------------------------------------------


def test_new_pictures_have_the_noise_of_the_runs_own_evaluations(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prompt's noise depends on the evaluation seed and its place among all held-out prompts."""
    import torch

    from learner.noise import sample_seed

    asked: list[tuple[str, int]] = []

    def draw(pipeline: object, look: Look, prompt: str, seed: int) -> torch.Tensor:
        asked.append((prompt, seed))
        return torch.full((3, 4, 4), 0.5)

    monkeypatch.setattr(fresh, "load", lambda look, device: "pipeline")
    monkeypatch.setattr(fresh, "draw", draw)
    look = Look(policy=None, sampling=SamplingConfig(), lora=None)  # type: ignore[arg-type]
    said: list[str] = []
    prompts = [(0, Prompt("plain/0", "plain", "one")), (192, Prompt("signs/0", "signs", "two"))]
    entries = fresh._entries(look, prompts, 1000, None, said.append)
    assert asked == [("one", sample_seed(1000, "eval", 0, 0)), ("two", sample_seed(1000, "eval", 0, 192))]
    assert [(i, one.source, one.prompt) for i, one in entries.items()] == [
        ("plain/0", "plain", "one"),
        ("signs/0", "signs", "two"),
    ]
    assert said == ["1 of 2 pictures", "2 of 2 pictures"]
    assert np.unique([one.uri for one in entries.values()]).size == 1
