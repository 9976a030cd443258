"""`marble compare` as it is typed."""

import json
from pathlib import Path

import pytest
from deploy_helpers import Marble, problem, tree

from deploy.compare import order
from deploy.compare.runners import StoppedError
from deploy.compare.session import Session
from deploy.compare.statistics import Estimate
from deploy.compare.tables import Table

TABLE = Table("rewards", "Rewards", "A note.", ("a",), {"base": (Estimate(0.25, 0.5, 3),)})


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--suite", "all"), "--suite all: there are core, paper"),
        (("--methods", "marbel"), "no method 'marbel'; there are marble, weighted_sum"),
        (("extra",), "extra: unexpected; axes of a sweep stand behind --sweep"),
        (("--minutes", 1, "--iterations", 1), "--minutes and --iterations exclude each other"),
        (("--sweep", "refresh.n", "--iterations", 1), "--sweep refresh.n: wants key=value,value"),
        (("--jobs", 2), "--jobs is for runs as jobs of a Ray cluster"),
        (("--set", "learner.lrr=1"), "--set: learner.lrr: unknown key"),
        (("--tables-only",), "compare-small has no finished run yet"),
    ],
)
def test_mistakes_are_one_line(marble: Marble, recipe_file: Path, options: tuple[object, ...], told: str) -> None:
    problem(marble("compare", recipe_file, *options), told)


def test_a_comparison_of_other_settings_is_left_as_it_is(marble: Marble, recipe_file: Path, workdir: Path) -> None:
    folder = workdir / "runs" / "compare-small"
    problem(marble("compare", recipe_file, "--tables-only"), "has no finished run yet")
    assert not folder.exists()
    folder.mkdir(parents=True)
    there = order.Asked(
        recipe=str(recipe_file.resolve()), methods=("marble",), seeds=(42, 43), minutes=10.0, probe_every=11
    )
    (folder / "compare.json").write_text(there.model_dump_json())
    before = tree(folder)
    ran = marble("compare", recipe_file, "--methods", "uniform", "--seeds", "42", "--tuning-iterations", "7")
    problem(
        ran,
        "holds another comparison: methods was marble, got uniform",
        "seeds was 42,43, got 42",
        "tuning_iterations was 6, got 7",
        "choose another --dir",
        count=4,
    )
    assert tree(folder) == before
    problem(marble("compare", recipe_file, "--tables-only"), "has no finished run yet")
    assert tree(folder) == before, "more methods and a third seed are no other comparison"
    (folder / "compare.json").write_text("{")
    problem(marble("compare", recipe_file, "--tables-only"), "compare.json is damaged")


@pytest.mark.parametrize("options", [(), ("--tables-only",)])
@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("file", "file is not a folder that can be written to"),
        ("file/below", "file is not a folder that can be written to"),
        ("/proc/version/x", "/proc/version is not a folder that can be written to"),
    ],
)
def test_a_place_where_no_comparison_can_lie(
    marble: Marble, recipe_file: Path, workdir: Path, place: str, told: str, options: tuple[str, ...]
) -> None:
    (workdir / "file").write_text("mine")
    problem(marble("compare", recipe_file, "--dir", place, *options), told)
    assert tree(workdir) == {"file": b"mine"}


def test_a_place_that_the_system_refuses(marble: Marble, recipe_file: Path, workdir: Path) -> None:
    """What no look tells: a link to nowhere, a file system that takes nothing."""
    (workdir / "link").symlink_to(workdir / "nowhere" / "else")
    problem(marble("compare", recipe_file, "--dir", "link"), "link: file exists")
    problem(marble("compare", recipe_file, "--dir", "/proc/x"), "/proc/x")


def test_a_sweeps_further_axes_follow_without_an_option(
    marble: Marble, recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Session] = []

    def run(session: Session) -> list[Table]:
        seen.append(session)
        return [TABLE]

    monkeypatch.setattr(Session, "run", run)
    ran = marble("compare", recipe_file, "--sweep", "refresh.n=1,5", "ema.rho=0,0.7", "--seeds", 3, "--iterations", 2)
    assert ran.code == 0, ran.err
    assert seen[0].asked.sweep == ("refresh.n=1,5", "ema.rho=0,0.7")
    assert seen[0].folder.name == "sweep-small"
    assert "| base | 0.2500 ± 0.5000 |" in ran.out


def test_json_is_all_there_is_on_standard_output(
    marble: Marble, recipe_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Session, "run", lambda session: [TABLE])
    ran = marble("compare", recipe_file, "--json", "--dir", "here")
    data = json.loads(ran.out)
    assert Path(data["dir"]).name == "here"
    [table] = data["tables"]
    assert table["rows"] == [{"name": "base", "cells": [{"mean": 0.25, "se": 0.5, "n": 3}]}]
    assert "tables.md" in ran.err


@pytest.mark.parametrize(("error", "code"), [(StoppedError(143), 143), (KeyboardInterrupt(), 130)])
def test_a_stop_says_that_the_same_command_goes_on(
    marble: Marble, recipe_file: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException, code: int
) -> None:
    def stop(session: Session) -> list[Table]:
        raise error

    monkeypatch.setattr(Session, "run", stop)
    ran = marble("compare", recipe_file)
    assert ran.code == code
    assert ran.err.startswith("stopped; the same command goes on")


def test_a_dashboard_that_is_not_there_is_one_line(marble: Marble, recipe_file: Path) -> None:
    """FAULTS 14's kind: what is away is named."""
    ran = marble("compare", recipe_file, "--address", "http://127.0.0.1:9")
    problem(ran, "--address http://127.0.0.1:9: ")
