"""`marble check`: every problem at once, as lines and as JSON with stable codes."""

import json
import re
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import pytest
from deploy_helpers import Marble, Ran, edited, problem, tree

from actors.run_config import RunConfig
from learner.errors import Problem, UserError

ROOT = Path(__file__).parents[3]


class FakeTeam:
    """A team whose start ends as the test says; counts how often it was closed."""

    lines: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    without: ClassVar[set[str]] = set()
    closed = 0

    def __init__(self, config: RunConfig, remote: Any, spawn: Any, warn: Callable[[str], None]) -> None:
        self._warn = warn

    def start(self, check: Callable[[], None], progress: Callable[[str], None], without: Collection[str]) -> None:
        from actors.team import StartError

        type(self).without = set(without)
        progress("1/1 roles up")
        for text in self.warnings:
            self._warn(text)
        if self.lines:
            raise StartError(self.lines)

    def start_vitals(self) -> tuple[Any, ...]:
        from actors.results import ActorVitals

        return (ActorVitals("rollout", "rollout-0", 1, 1, peak_memory_gib=0.5, start_s=2.0),)

    def close(self) -> None:
        FakeTeam.closed += 1


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Problem]]:
    """Stand-in for Ray. Its `problems` are what the cluster lacks."""
    from actors import local_ray, team
    from actors.preflight import PreflightError
    from deploy import checking

    state: dict[str, list[Problem]] = {"problems": []}

    @contextmanager
    def connected(config: RunConfig, address: str | None) -> Iterator[None]:
        if address == "nowhere:1":
            raise UserError("--address nowhere:1: no Ray cluster could be joined (refused)")
        yield

    def check(config: RunConfig) -> None:
        if state["problems"]:
            raise PreflightError(state["problems"])

    monkeypatch.setattr(local_ray, "connected", connected)
    monkeypatch.setattr(checking, "check_cluster", check)
    monkeypatch.setattr(team, "Team", FakeTeam)
    monkeypatch.setattr(FakeTeam, "lines", ())
    monkeypatch.setattr(FakeTeam, "warnings", ())
    monkeypatch.setattr(FakeTeam, "without", set())
    monkeypatch.setattr(FakeTeam, "closed", 0)
    return state


def data_of(ran: Ran) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(ran.out)
    assert data["ok"] == (ran.code == 0)
    # What people read and what programs read are the same.
    said = [f"error: {p['text']}" for p in data["problems"]] + [f"warning: {w['text']}" for w in data["warnings"]]
    assert ran.lines == said
    return data


def codes(data: dict[str, Any], kind: str = "problems") -> list[str]:
    return [problem["code"] for problem in data[kind]]


def append(path: Path, text: str) -> None:
    path.write_text(path.read_text() + text)


def test_a_good_recipe(recipe_file: Path, workdir: Path, marble: Marble, cluster: object) -> None:
    before = tree(workdir.parent)
    ran = marble("check", recipe_file)
    assert (ran.code, ran.lines) == (0, [])
    assert "no problems found" in ran.out
    assert "rollout-0" in ran.out
    data = data_of(marble("check", recipe_file, "--json"))
    assert (data["problems"], data["warnings"]) == ([], [])
    assert [actor["name"] for actor in data["actors"]] == ["rollout-0"]
    assert FakeTeam.closed == 2
    assert tree(workdir.parent) == before, "nothing is written"


def test_every_problem_at_once(recipe_file: Path, marble: Marble, cluster: dict[str, list[Problem]]) -> None:
    """An unknown key, a path, prompt files, metadata, the model, a combination and the cluster, in one go."""
    folder = recipe_file.parent
    append(folder / "general_train.txt", '\nsign ""\n')
    append(folder / "geneval_train.jsonl", '{"prompt": "x"}\n')
    (folder / "model" / "model_index.json").write_text("{")
    edited(recipe_file, ('detector: "some.module:Detector"', 'detector: "tinyworld.detector:ColourShapeDetector"'))
    append(folder / "geneval_heldout.jsonl", '{"prompt": "x", "include": [{"class": "crcle", "count": 1}]}\n')
    cluster["problems"] = [Problem("cluster.resources", "not enough CPU: asked 1, available is 0")]
    sets = ("learner.lrr=1", "rewards.align.args.checkpoint=./nowhere", "checkpoint.keep_best=1")
    ran = marble("check", recipe_file, "--json", *(part for text in sets for part in ("--set", text)))
    assert ran.code == 2
    assert codes(data_of(ran)) == [
        "recipe.unknown_key",
        "recipe.combination",
        "recipe.path",
        "prompts.file",
        "prompts.file",
        "prompts.file",
        "prompts.metadata",
        "model.files",
        "cluster.resources",
    ]
    assert FakeTeam.closed == 0, "there is no room for them"


SCORER = "reward.geneval: ValueError: 1 missing (logit_scale)"


@pytest.mark.parametrize(
    ("text", "code", "without"),
    [
        ("learner.lrr=1", "recipe.unknown_key", {"rollout", "learner"}),
        ("checkpoint.keep_best=1", "recipe.combination", {"rollout", "learner"}),
        ("rewards.align.args.checkpoint=./nowhere", "recipe.path", {"rollout", "learner", "reward.align"}),
        ("actors.pools.align={batch: 2}", "recipe.unknown_key", {"rollout", "learner", "reward.align"}),
    ],
)
def test_a_recipes_fault_does_not_hide_a_scorer_that_cannot_start(
    recipe_file: Path,
    marble: Marble,
    cluster: object,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    code: str,
    without: set[str],
) -> None:
    """Row 24: what has a problem already is not started to tell it again; the others are."""
    monkeypatch.setattr(FakeTeam, "lines", (SCORER,))
    data = data_of(marble("check", recipe_file, "--json", "--set", text))
    assert codes(data) == [code, "rewards.start"], data["problems"]
    assert FakeTeam.without == without


def test_a_broken_base_model_does_not_hide_a_scorer_that_cannot_start(
    recipe_file: Path, marble: Marble, cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    (recipe_file.parent / "model" / "model_index.json").write_text("{")
    monkeypatch.setattr(FakeTeam, "lines", (SCORER,))
    assert codes(data_of(marble("check", recipe_file, "--json"))) == ["model.files", "rewards.start"]
    assert FakeTeam.without == {"rollout", "learner"}


def test_a_process_that_was_replaced_at_its_start_stops_nothing(
    recipe_file: Path, marble: Marble, cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeTeam, "warnings", ("reward.align-0: the actor died; replaced",))
    data = data_of(marble("check", recipe_file, "--json"))
    assert (data["ok"], codes(data, "warnings"), FakeTeam.without) == (True, ["actors.start"], set())


def test_as_lines(recipe_file: Path, marble: Marble, cluster: dict[str, list[Problem]]) -> None:
    append(recipe_file.parent / "general_train.txt", "\n")
    cluster["problems"] = [Problem("cluster.resources", "not enough CPU: asked 1, available is 0")]
    lines = problem(marble("check", recipe_file), count=2)
    assert "general_train.txt, line 9" in lines[0]
    assert lines[1] == "error: not enough CPU: asked 1, available is 0"


def test_what_each_role_asks_for_is_in_the_data(recipe_file: Path, marble: Marble, cluster: object) -> None:
    data = data_of(marble("check", recipe_file, "--json"))
    roles = ["rollout", "reward.align", "reward.geneval", "harmonizer", "learner"]
    assert [role["role"] for role in data["asked"]] == roles


RECIPE_FAULTS = {
    "recipe.unknown_key": ("learner.lrr=1", "learner.lrr: unknown key"),
    "recipe.value": ("learner.lr=abc", "learner.lr: should be a valid number"),
    "recipe.combination": ("sampling.guidance_scale=4.5", "guidance_scale is 4.5"),
    "recipe.path": ("policy.base=./nowhere", "policy.base: no such file or folder"),
    "recipe.override": ("learner.lr", "wants key=value"),
}


@pytest.mark.parametrize(("code", "text", "says"), [(c, *v) for c, v in RECIPE_FAULTS.items()], ids=list(RECIPE_FAULTS))
def test_faults_of_the_recipe(
    recipe_file: Path, marble: Marble, cluster: object, code: str, text: str, says: str
) -> None:
    """Row 24, and row 19: guidance is refused before anything starts."""
    data = data_of(marble("check", recipe_file, "--json", "--set", text))
    assert codes(data) == [code], data["problems"]
    assert says in data["problems"][0]["text"]


def test_a_missing_key_and_a_file_that_is_no_recipe(recipe_file: Path, marble: Marble, cluster: object) -> None:
    edited(recipe_file, ("  iterations: 4\n", ""))
    assert codes(data_of(marble("check", recipe_file, "--json"))) == ["recipe.missing_key"]
    recipe_file.write_text("run: [")
    assert codes(data_of(marble("check", recipe_file, "--json"))) == ["recipe.unreadable"]


def test_several_combinations_are_told_together(recipe_file: Path, marble: Marble, cluster: object) -> None:
    sets = ("actors.learner.replicas=3", "rewards.align.applies=[nothing]", "actors.pools.algn={replicas: 2}")
    data = data_of(marble("check", recipe_file, "--json", *(part for text in sets for part in ("--set", text))))
    assert codes(data) == ["recipe.combination"] * 3
    for told, key in zip(data["problems"], ("applies", "actors.pools", "learner ranks"), strict=True):
        assert key in told["text"]


def test_a_default_in_place_of_a_wrong_value_is_not_complained_about(
    recipe_file: Path, marble: Marble, cluster: dict[str, list[Problem]]
) -> None:
    """The recipe's 8 prompts would not do for the 48 groups that stand in; files that cannot be read are told."""
    cluster["problems"] = [Problem("cluster.resources", "not enough CPU")]
    text = "prompts.groups_per_iteration=many"
    assert codes(data_of(marble("check", recipe_file, "--json", "--set", text))) == ["recipe.value"]
    append(recipe_file.parent / "general_train.txt", "\n")
    assert codes(data_of(marble("check", recipe_file, "--json", "--set", text))) == ["recipe.value", "prompts.file"]


def test_a_file_that_is_not_there_is_told_once(recipe_file: Path, marble: Marble, cluster: object) -> None:
    (recipe_file.parent / "general_train.txt").unlink()
    assert codes(data_of(marble("check", recipe_file, "--json"))) == ["recipe.path"]


def test_prompts_that_do_not_do(recipe_file: Path, marble: Marble, cluster: object) -> None:
    sets = ("prompts.groups_per_iteration=40", "rewards.align.when=quoted")
    data = data_of(marble("check", recipe_file, "--json", *(part for text in sets for part in ("--set", text))))
    assert codes(data) == ["prompts.too_few"] * 2 + ["rewards.no_prompts"] * 2


def test_a_method_without_its_package(
    recipe_file: Path, marble: Marble, cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harmonizer.config.find_spec", lambda name: None if name == "ecos" else "there")
    data = data_of(marble("check", recipe_file, "--json", "--set", "harmonizer.method=nash_mtl"))
    assert codes(data) == ["harmonizer.package"]


def test_no_cluster_at_the_address(recipe_file: Path, marble: Marble, cluster: object) -> None:
    data = data_of(marble("check", recipe_file, "--json", "--address", "nowhere:1"))
    assert codes(data) == ["cluster.unreachable"]


def test_actors_that_do_not_start(
    recipe_file: Path, marble: Marble, cluster: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Row 12: a broken scorer is named with its cause, beside whatever else does not start."""
    lines = ("reward.align: ValueError: 1 missing (logit_scale)", "learner: out of memory")
    monkeypatch.setattr(FakeTeam, "lines", lines)
    data = data_of(marble("check", recipe_file, "--json"))
    assert data["problems"] == [
        {"code": "rewards.start", "text": lines[0]},
        {"code": "actors.start", "text": lines[1]},
    ]
    assert FakeTeam.closed == 1


def test_warnings_stop_nothing(recipe_file: Path, marble: Marble, cluster: object) -> None:
    append(recipe_file.parent / "general_train.txt", "long " * 90 + "\n")
    data = data_of(marble("check", recipe_file, "--json"))
    assert (data["ok"], codes(data, "warnings")) == (True, ["prompts.too_long"])
    assert "at least 1 of 17 training prompts (general 1) are longer than 77 tokens" in data["warnings"][0]["text"]


def test_codes_are_documented() -> None:
    """docs/check.md lists every code, and no other."""
    known = {"recipe", "prompts", "rewards", "model", "harmonizer", "cluster", "actors"}
    pattern = re.compile(r'"((?:%s)\.[a-z_]+)"' % "|".join(known))  # noqa: UP031  # braces are for the regex
    sources = [ROOT / "deploy" / n for n in ("recipe.py", "checking.py")]
    sources += [ROOT / "actors" / n for n in ("preflight.py", "prompt_checks.py")]
    used = {code for path in sources for code in pattern.findall(path.read_text(encoding="utf-8"))}
    docs = (ROOT / "docs" / "check.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `([a-z_.]+)` \|", docs, re.MULTILINE)) == used
