"""A comparison's steps, with runs that nobody makes."""

import json
import math
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest
from deploy_helpers import GENEVAL_LINE, edited
from test_compare_order import Nobody, asked

from actors.run_config import RunConfig
from deploy.compare import reading, session, tuning
from deploy.compare.runs import RunSpec
from deploy.compare.session import Session
from learner.errors import UserError


class Made:
    """Which runs were asked for, and whether one after the other."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.alone: list[bool] = []

    def make(self, specs: Sequence[RunSpec], made: Callable[[RunSpec], None], alone: bool = False) -> None:
        self.names += [spec.name for spec in specs]
        self.alone.append(alone)


@pytest.fixture
def tuned_without_scores(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning runs of which no prompt was scored, at a second an iteration."""
    monkeypatch.setattr(tuning, "tuned_gain", lambda *given: math.nan)
    monkeypatch.setattr(reading, "read_run", lambda *given: SimpleNamespace(iteration_s=1.0))
    monkeypatch.setattr(reading, "peak_memory", lambda *given: math.nan)


@pytest.mark.usefixtures("tuned_without_scores")
def test_what_tuning_found_is_read_back_and_found_once(recipe_file: Path, tmp_path: Path) -> None:
    """Also where it is NaN, and where the runs that found it are gone."""
    folder, first, second = tmp_path / "compare", Made(), Made()
    settings = {"seeds": "1", "lr_factors": "0.5,1", "minutes": 0.1}
    Session(asked(recipe_file, methods="marble", **settings), folder, first, lambda text: None).run()
    assert first.names == ["marble-lr0.5", "marble-lr1", "marble-seed1"]
    assert first.alone == [True, False], "runs that tell how long one takes have the machine to themselves"
    [budget] = json.loads((folder / "budget.json").read_text())["rows"].values()
    assert budget == {
        "iterations": 6,
        "lr": 1e-3,
        "gains": {"0.5": None, "1": None},
        "iteration_s": 1.0,
        "memory_gib": None,
    }
    shutil.rmtree(folder / "tuning")
    Session(asked(recipe_file, methods="marble,uniform", **settings), folder, second, lambda text: None).run()
    assert second.names == ["uniform-lr0.5", "uniform-lr1", "marble-seed1", "uniform-seed1"]
    assert not (folder / "tuning" / "recipes" / "marble-lr1.yaml").exists()


@pytest.mark.usefixtures("tuned_without_scores")
def test_a_given_number_of_iterations_is_tuned_beside_each_other(recipe_file: Path, tmp_path: Path) -> None:
    made = Made()
    Session(asked(recipe_file, methods="marble", iterations=4), tmp_path / "it", made, lambda text: None).run()
    assert made.alone == [False, False]


@pytest.mark.parametrize("line", ['{"prompt": ', '["a list"]', '{"prompt": "x", "tag": "b"}'])
def test_a_prompt_that_is_none_is_told_before_anything_is_written(recipe_file: Path, tmp_path: Path, line: str) -> None:
    (recipe_file.parent / "geneval_train.jsonl").write_text(GENEVAL_LINE * 6 + line + "\n")
    path = edited(recipe_file, ("format: geneval}", "format: geneval, tags: [single_object]}"))
    with pytest.raises(UserError, match=r"geneval_train\.jsonl, line 7: "):
        Session(asked(path), tmp_path / "compare", Nobody(), lambda text: None).run()
    assert not (tmp_path / "compare").exists()


def test_files_are_looked_at_once_for_all_rows_that_have_the_same(
    recipe_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[RunConfig] = []
    monkeypatch.setattr(session, "check_files", seen.append)
    wanted = asked(recipe_file, sweep=("method=min_norm,upgrad", "refresh.n=1,2"), seeds="1,2", iterations=4)
    Session(wanted, tmp_path / "sweep", Made(), lambda text: None).run()
    assert [config.harmonizer.method for config in seen] == ["min_norm", "upgrad"]
