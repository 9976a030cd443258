"""The benchmark scripts: what they print is of the recipe they were asked about, and mistakes are one line."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deploy_helpers import Ran, edited, problem, tree

from benchmarks import iteration, seeds
from deploy.recipe import load_recipe, to_yaml

SUMMARY: dict[str, Any] = {
    "rewards": {
        "align": {"before": 0.5, "after": 0.6, "se": 0.02, "n": 8},
        "geneval": {"before": None, "after": None, "se": None, "n": 0},
    },
    "heldout_rewards": {"judge": {"before": 0.2, "after": 0.1, "se": 0.05, "n": 8}},
    "iterations": 4,
    "seconds": 90.0,
    "seed": 43,
}
Script = Callable[..., Ran]


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Script:
    """Runs a script's main in this process."""

    def call(module: Any, *args: object) -> Ran:
        monkeypatch.setattr(sys, "argv", [module.__name__, *map(str, args)])
        capsys.readouterr()
        try:
            module.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return call


@pytest.fixture
def run(recipe_file: Path, workdir: Path) -> Path:
    """A finished run of seed 43, as seeds.py itself would have made it."""
    folder = workdir / "runs" / "small-seed43"
    folder.mkdir(parents=True)
    recipe = load_recipe(recipe_file, ["run.seed=43", "run.name=small-seed43"])
    (folder / "config.yaml").write_text(to_yaml(recipe))
    (folder / "summary.json").write_text(json.dumps(SUMMARY))
    return folder


def test_a_finished_run_is_read(recipe_file: Path, run: Path, script: Script) -> None:
    ran = script(seeds, recipe_file, "--seeds", 43, "--markdown", "out.md")
    assert ran.code == 0, ran.err
    assert f"`marble train {recipe_file} --set run.seed=43 --set run.name=small-seed43`: 4 iterations" in ran.out
    assert "| align | 8 | 0.5000 | 0.6000 | +0.1000 | 0.0200 | +5.0 |" in ran.out
    assert "| geneval | 0 | - | - | - | - | - |" in ran.out
    assert "| judge (held out) | 8 | 0.2000 | 0.1000 | -0.1000 | 0.0500 | -2.0 |" in ran.out
    assert "1 seeds, all as they came out" in Path("out.md").read_text()


def test_a_run_of_the_same_name_in_another_place_is_the_same_run(recipe_file: Path, run: Path, script: Script) -> None:
    edited(run / "config.yaml", ("name: small-seed43", "name: else"))
    run.parent.rename(run.parents[1] / "moved")
    assert script(seeds, recipe_file, "--seeds", 43, "--runs", "moved").code == 0


def test_a_run_that_stopped_early_is_finished(recipe_file: Path, run: Path, script: Script) -> None:
    (run / "summary.json").write_text(json.dumps(SUMMARY | {"iterations": 3}))
    problem(script(seeds, recipe_file, "--seeds", 43), "is of seed 43 after 3 iterations, asked for is seed 43 after 4")
    (run / "summary.json").write_text(json.dumps(SUMMARY | {"iterations": 3, "stopped_early": "no better"}))
    assert "3 iterations, 1.5 minutes" in script(seeds, recipe_file, "--seeds", 43).out


def test_a_run_of_another_recipe_is_not_printed_as_this_one(recipe_file: Path, run: Path, script: Script) -> None:
    edited(recipe_file, ("lr: 1e-3", "lr: 9e-1"))
    before = tree(run)
    problem(
        script(seeds, recipe_file, "--seeds", 43),
        "small-seed43 holds a run of another recipe: learner.lr was 0.001, the recipe says 0.9",
    )
    assert tree(run) == before


def test_a_run_that_is_shorter_than_the_recipe_is_not_finished(recipe_file: Path, run: Path, script: Script) -> None:
    edited(recipe_file, ("iterations: 4", "iterations: 6"))
    problem(script(seeds, recipe_file, "--seeds", 43), "run.iterations was 4, the recipe says 6")


def test_a_run_of_another_seed(recipe_file: Path, run: Path, script: Script) -> None:
    """By its summary, and by its config.yaml."""
    (run / "summary.json").write_text(json.dumps(SUMMARY | {"seed": 7}))
    problem(script(seeds, recipe_file, "--seeds", 43), "is of seed 7 after 4 iterations, asked for is seed 43")
    (run / "summary.json").write_text(json.dumps(SUMMARY))
    edited(run / "config.yaml", ("seed: 43", "seed: 7"))
    problem(script(seeds, recipe_file, "--seeds", 43), "run.seed was 7, the recipe says 43")


DAMAGED: dict[str, tuple[str, str]] = {
    "empty": ("", "summary.json: Invalid JSON"),
    "cut": ('{"rewards": {', "summary.json: Invalid JSON"),
    "list": ("[]", "summary.json: Input should be an object"),
    "not UTF-8": ("\udcff", "summary.json: "),
    "no rewards": (json.dumps(SUMMARY | {"rewards": None}), "summary.json: rewards: "),
    "a text": (json.dumps(SUMMARY | {"seconds": "long"}), "summary.json: seconds: "),
    "half a row": (json.dumps(SUMMARY | {"rewards": {"align": {"n": 3}}}), "summary.json: rewards.align.before: "),
    "no seed": (json.dumps({k: v for k, v in SUMMARY.items() if k != "seed"}), "summary.json: seed: "),
}


@pytest.mark.parametrize(("text", "says"), DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_summary(recipe_file: Path, run: Path, script: Script, text: str, says: str) -> None:
    (run / "summary.json").write_text(text, errors="surrogateescape")
    problem(script(seeds, recipe_file, "--seeds", 43), says)


def test_a_summary_without_a_recipe(recipe_file: Path, run: Path, script: Script) -> None:
    (run / "config.yaml").unlink()
    problem(script(seeds, recipe_file, "--seeds", 43), "config.yaml: no such file")


def test_a_recipe_that_does_not_load(recipe_file: Path, workdir: Path, script: Script) -> None:
    problem(script(seeds, "nope.yaml"), "nope.yaml: no such file")
    problem(script(iteration, "--recipe", "nope.yaml"), "nope.yaml: no such file")
    problem(script(iteration, "--recipe", recipe_file, "--iterations", 0), "run.iterations: should be greater than")
    problem(script(iteration, "--recipe", recipe_file, "--set", "learner.lrr=1"), "nearest valid key is learner.lr")
