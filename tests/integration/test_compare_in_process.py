"""A whole comparison without processes: ended anywhere, it goes on, and its tables come out of the runs' files."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from actors.results import IterationResult
from benchmarks.results import section
from deploy import summary as summaries
from deploy.compare import reading
from deploy.compare.order import Asked
from deploy.compare.runs import RunSpec, standing
from deploy.compare.session import Session
from deploy.files import write_json, write_text
from deploy.recipe import Recipe, to_data, to_yaml
from learner.errors import UserError
from tests.integration.small_run import Recorder, run, small_config
from tests.unit.actors.in_process import InProcess

CALL_S = 0.01
"""What an actor's call takes by the clock, so that iterations take time."""


class Ended(BaseException):
    """kill -9 of the whole comparison."""


class Counting(Recorder):
    """Counts iterations over all runs, and ends everything at one of them."""

    def __init__(self, tally: list[int], end_at: int) -> None:
        super().__init__()
        self._tally, self._end_at = tally, end_at

    def on_iteration(self, result: IterationResult) -> None:
        self._tally.append(result.done)
        if len(self._tally) == self._end_at:
            raise Ended


class Here:
    """A runner that trains in this process."""

    def __init__(self, tally: list[int], end_at: int = -1) -> None:
        self._tally, self._end_at = tally, end_at

    def make(self, specs: Sequence[RunSpec], made: Callable[[RunSpec], None], alone: bool = False) -> None:
        for spec in specs:
            now = standing(spec)
            if now != "done":
                self._train(spec, now == "stopped")
            made(spec)

    def _train(self, spec: RunSpec, resume: bool) -> None:
        run_dir = spec.run_dir
        run_dir.path.mkdir(parents=True, exist_ok=True)
        write_text(run_dir.config, to_yaml(spec.recipe))
        recorder = Counting(self._tally, self._end_at)
        remote = InProcess(call_s=CALL_S)
        summary, _, _ = run(spec.recipe.config, run_dir.path, remote, recorder, resume=resume)
        write_json(run_dir.summary, summaries.to_data(summary))


@pytest.fixture(scope="module")
def recipe(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("recipe")
    config = small_config(model, folder)
    path = folder / "small.yaml"
    path.write_text(to_yaml(Recipe(config, to_data(config))))
    return path


def asked(recipe: Path, **changes: Any) -> Asked:
    settings: dict[str, Any] = {
        "recipe": str(recipe),
        "methods": ("marble", "weighted_sum", "sequential"),
        "seeds": (7,),
        "iterations": 5,
        "tuning_iterations": 4,
        "lr_factors": (1.0,),
        "probe_every": 2,
    }
    return Asked(**{**settings, **changes})


def test_ended_in_the_middle_it_loses_one_iteration_and_comes_to_the_same_tables(recipe: Path, tmp_path: Path) -> None:
    """Three tuning runs of 4 and three main runs of 5 iterations; ended in the first main run's third."""
    tally: list[int] = []
    folder = tmp_path / "compare"
    said: list[str] = []
    with pytest.raises(Ended):
        Session(asked(recipe), folder, Here(tally, end_at=15), said.append).run()
    assert not (folder / "tables.md").exists()
    made = Session(asked(recipe), folder, Here(tally), said.append).run()
    assert len(tally) == 3 * 4 + 3 * 5 + 1
    assert said.count("training: 3 runs, 3 to go") == 2
    tables = {table["key"]: table for table in json.loads((folder / "tables.json").read_text())}
    assert list(tables) == [table.key for table in made]
    assert {"rewards", "gains", "speed", "conflicts_direction", "forgetting_sequential"} <= set(tables)
    rows = {row["name"]: row["cells"] for row in tables["rewards"]["rows"]}
    assert list(rows) == ["base", "marble", "weighted_sum", "sequential"]
    for name in ("marble", "weighted_sum", "sequential"):
        summary = json.loads((folder / "runs" / f"{name}-seed7" / "summary.json").read_text())["rewards"]
        means = [cell["mean"] for cell in rows[name][:-1]]
        assert means == pytest.approx([summary[reward]["after"] for reward in ("red", "dark", "contrast")])
        assert [cell["mean"] for cell in rows["base"][:-1]] == pytest.approx(
            [summary[reward]["before"] for reward in ("red", "dark", "contrast")]
        )
    budgets = json.loads((folder / "budget.json").read_text())["rows"]
    assert all(budget["memory_gib"] > 0 and budget["iterations"] == 5 for budget in budgets.values())
    before = len(tally)
    assert Session(asked(recipe), folder, Here(tally), said.append).tables_of() == made
    assert len(tally) == before
    with pytest.raises(UserError, match=r"holds another comparison: seeds was 7, got 8"):
        Session(asked(recipe, seeds=(8,)), folder, Here(tally), said.append).run()

    text = section(folder)
    assert f"`marble compare {recipe} --methods marble,weighted_sum,sequential --seeds 7 --iter" in text
    assert "## Training speed and peak memory" in text

    marble = reading.read_run(_run_dir(folder, "marble-seed7"), "marble")
    summed = reading.read_run(_run_dir(folder, "weighted_sum-seed7"), "weighted_sum")
    assert len(marble.alpha_star) == 2, "steps 0 and 3 of five"
    assert summed.alpha_star == []

    assert {(w.solved, w.against) for w in marble.windows} == {
        (True, "same"),
        (True, "next"),
        (False, "same"),
        (False, "next"),
    }
    solving = [w for w in marble.windows if w.solved and w.against == "same"]
    assert min(min(c for c in w.cosines["direction"] if c == c) for w in solving) > -1e-6, "min-norm opposes nobody"


def test_a_comparison_takes_more_methods_and_trains_only_them(recipe: Path, tmp_path: Path) -> None:
    tally: list[int] = []
    settings: dict[str, Any] = {"iterations": 2, "tuning_iterations": 1, "probe_every": 0}
    few = asked(recipe, methods=("weighted_sum",), **settings)
    Session(few, tmp_path, Here(tally), lambda text: None).run()
    [budget] = json.loads((tmp_path / "budget.json").read_text())["rows"].values()
    assert len(tally) == 3
    made = Session(
        asked(recipe, methods=("marble", "weighted_sum"), **settings), tmp_path, Here(tally), lambda text: None
    ).run()
    assert len(tally) == 6
    assert list(made[0].rows) == ["base", "marble", "weighted_sum"]
    assert json.loads((tmp_path / "budget.json").read_text())["rows"]["weighted_sum"] == budget
    with pytest.raises(UserError, match="methods was marble,weighted_sum, got weighted_sum"):
        Session(few, tmp_path, Here(tally), lambda text: None).run()


def _run_dir(folder: Path, name: str) -> Any:
    from deploy.rundir import RunDir

    return RunDir(folder / "runs" / name)


def test_minutes_become_iterations_by_each_methods_own_speed(recipe: Path, tmp_path: Path) -> None:
    """And learning rates are tried on prompts that are set aside: the one that wins there is the main runs'."""
    tally: list[int] = []
    wanted = asked(
        recipe, methods=("marble",), minutes=2e-2, iterations=None, tuning_iterations=2, lr_factors=(0.5, 1.0)
    )
    folder = tmp_path / "compare"
    Session(wanted, folder, Here(tally), lambda text: None).run()
    [budget] = json.loads((folder / "budget.json").read_text())["rows"].values()
    assert budget["iterations"] == max(1, round(1.2 / budget["iteration_s"])) > 1
    assert set(budget["gains"]) == {"0.5", "1"}
    best = max(budget["gains"], key=budget["gains"].__getitem__)
    assert budget["lr"] == pytest.approx(1e-2 * float(best))
    assert len(tally) == 2 * 2 + budget["iterations"]


def test_a_sweep_is_one_table(recipe: Path, tmp_path: Path) -> None:
    wanted = asked(
        recipe, methods=(), sweep=("refresh.n=1,2",), iterations=3, tuning_iterations=0, probe_every=0, minutes=None
    )
    [table] = Session(wanted, tmp_path / "sweep", Here([]), lambda text: None).run()
    assert list(table.rows) == ["refresh.n=1", "refresh.n=2"]
    assert table.columns[:4] == ("s/iteration", "learner s/iteration", "jitter of α*", "jitter of ᾱ")
    assert table.columns[4:] == ("red", "dark", "contrast", "composite")
