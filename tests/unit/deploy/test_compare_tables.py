"""Tables from records made up by hand."""

import math
from collections.abc import Sequence
from typing import Any

import pytest

from deploy.compare import render, tables
from deploy.compare.reading import RunRecord, Window
from deploy.compare.statistics import Estimate

NAN = math.nan
BEFORE = {"a": 0.0, "b": 10.0}


def window(solved: bool, against: str, *cosines: float) -> Window:
    return Window(solved, against, dict.fromkeys(("direction", "gradient", "update"), cosines))


def record(row: str, seed: int, a: float, b: float = 10.0, **changes: Any) -> RunRecord:
    values: dict[str, Any] = {
        "row": row,
        "seed": seed,
        "iterations": 4,
        "before": BEFORE,
        "after": {"a": a, "b": b},
        "stages": {},
        "total_s": 120.0,
        "iteration_s": 2.0,
        "learner_s": 1.0,
    }
    return RunRecord(**{**values, **changes})


def mean_of(table: tables.Table, row: str, column: str) -> float:
    cell = table.rows[row][table.columns.index(column)]
    assert isinstance(cell, Estimate)
    return cell.mean


def keyed(made: Sequence[tables.Table]) -> dict[str, tables.Table]:
    return {table.key: table for table in made}


@pytest.fixture
def records() -> dict[str, list[RunRecord]]:
    solved = [window(True, "same", 0.5, 0.1), window(False, "same", 0.5, -0.2), window(True, "next", -0.1, 0.3)]
    of_marble: dict[str, Any] = {"iteration_s": 4.0, "windows": solved, "solved_share": 0.25}
    return {
        "marble": [record("marble", s, a, 20.0, **of_marble) for s, a in ((1, 3.0), (2, 5.0))],
        "weighted_sum": [record("weighted_sum", s, 2.0, 20.0) for s in (1, 2)],
        "single_a": [record("single_a", s, 100.0) for s in (1, 2)],
    }


def test_table_1_has_the_base_and_composites_of_the_fixed_rows(records: dict[str, list[RunRecord]]) -> None:
    """a: base 0, marble 4, sum 2 → mean 2, σ √(8/3); b: 10, 20, 20 → mean 50/3, σ √(200/9)."""
    table = keyed(tables.comparison(records, {}))["rewards"]
    assert list(table.rows) == ["base", "marble", "weighted_sum", "single_a"]
    assert table.columns == ("a", "b", "composite")
    assert table.rows["marble"][0] == Estimate(4.0, 1.0, 2)
    a, b = math.sqrt(8 / 3), math.sqrt(200 / 9)
    assert mean_of(table, "base", "composite") == pytest.approx(((0 - 2) / a + (10 - 50 / 3) / b) / 2)
    assert mean_of(table, "marble", "composite") == pytest.approx(((4 - 2) / a + (20 - 50 / 3) / b) / 2)
    cell = table.rows["marble"][2]
    assert isinstance(cell, Estimate)
    assert cell.se == pytest.approx(1.0 / a / 2), "only a varies between seeds"
    assert "base, marble, weighted_sum" in table.note
    ranking = [words.split()[0] for words in table.note.partition("Ranking by composite: ")[2].split(", ")]
    assert ranking == ["single_a", "marble", "weighted_sum", "base"]
    assert mean_of(table, "single_a", "composite") > mean_of(table, "marble", "composite"), "measured, not measuring"


def test_gains_in_standard_errors(records: dict[str, list[RunRecord]]) -> None:
    table = keyed(tables.comparison(records, {}))["gains"]
    assert table.columns == ("a", "/ s.e.", "b", "/ s.e.")
    assert table.rows["marble"][:2] == (Estimate(4.0, 1.0, 2), "+4.0")
    assert table.rows["weighted_sum"][1] == "-", "no spread, nothing to measure with"


def test_speed_and_memory_are_relative_to_the_weighted_sum(records: dict[str, list[RunRecord]]) -> None:
    table = keyed(tables.comparison(records, {"marble": 3.0, "weighted_sum": 2.0}))["speed"]
    assert mean_of(table, "marble", "speed") == pytest.approx(0.5)
    assert mean_of(table, "marble", "memory") == pytest.approx(1.5)
    assert mean_of(table, "weighted_sum", "speed") == 1.0
    assert math.isnan(mean_of(table, "single_a", "memory"))
    alone = keyed(tables.comparison({"marble": records["marble"]}, {}))["speed"]
    assert math.isnan(mean_of(alone, "marble", "speed")), "nothing to be relative to"


def test_conflicts_by_kind_of_step_and_batch(records: dict[str, list[RunRecord]]) -> None:
    table = keyed(tables.comparison(records, {}))["conflicts_direction"]
    assert list(table.rows) == [
        "marble, solving steps, same batch",
        "marble, solving steps, next batch",
        "marble, amortised steps, same batch",
        "marble, all steps, same batch",
        "marble, all steps, next batch",
    ]
    shares = {row: mean_of(table, row, "opposing some reward") for row in table.rows}
    assert shares["marble, solving steps, same batch"] == 0.0
    assert shares["marble, amortised steps, same batch"] == 1.0
    assert shares["marble, all steps, same batch"] == 0.75, "a quarter of the steps solves, of the windows a half"
    assert mean_of(table, "marble, all steps, same batch", "windows") == 4, "both seeds'"
    assert mean_of(table, "marble, all steps, same batch", "worst") == -0.2
    expected = 0.25 * (0.5 + 0.1) / 2 + 0.75 * (0.5 - 0.2) / 2
    assert mean_of(table, "marble, all steps, same batch", "mean cosine") == pytest.approx(expected)


def test_a_method_that_never_solves_has_one_kind_of_step() -> None:
    runs = [record("weighted_sum", 1, 2.0, windows=[window(False, "same", -0.5, 0.5)])]
    table = keyed(tables.comparison({"weighted_sum": runs}, {}))["conflicts_update"]
    assert list(table.rows) == ["weighted_sum, all steps, same batch"]
    assert mean_of(table, "weighted_sum, all steps, same batch", "opposing some reward") == 1.0


def test_forgetting_shows_every_reward_after_every_stage() -> None:
    stages = {"1. a (3)": {"a": 5.0, "b": 9.0}, "2. b (1)": {"a": 2.0, "b": 30.0}}
    runs = [record("sequential", s, 2.0, 30.0, stages=stages) for s in (1, 2)]
    table = keyed(tables.comparison({"sequential": runs}, {}))["forgetting_sequential"]
    assert list(table.rows) == ["base", "1. a (3)", "2. b (1)"]
    assert [mean_of(table, row, "a") for row in table.rows] == [0.0, 5.0, 2.0]
    single = [record("single_a", 1, 2.0, stages={"1. a (4)": {"a": 2.0, "b": 1.0}})]
    assert "forgetting_single_a" not in keyed(tables.comparison({"single_a": single}, {})), "one stage forgets nothing"


def test_ablation_needs_marble_and_how_steps_are_is_everyones() -> None:
    health = {"norms, largest/smallest": 3.0}
    marble = [record("marble", 1, 4.0, health=health)]
    raw = [record("unnormalized", 1, 0.5, health={"norms, largest/smallest": 50.0})]
    made = keyed(tables.comparison({"marble": marble, "unnormalized": raw}, {}))
    assert mean_of(made["steps"], "unnormalized", "norms, largest/smallest") == 50.0
    assert mean_of(made["ablation"], "unnormalized", "a") == 0.5
    assert "norms, largest/smallest" not in made["ablation"].columns
    alone = keyed(tables.comparison({"marble": marble}, {}))
    assert "ablation" not in alone
    assert mean_of(alone["steps"], "marble", "norms, largest/smallest") == 3.0
    assert "ablation" not in keyed(tables.comparison({"unnormalized": raw}, {}))


def test_a_sweep_has_cost_and_jitter() -> None:
    shares = [(0.5, 0.5), (0.7, 0.3)]
    rows = {"refresh.n=1": [record("n1", 1, 1.0, alpha_star=shares, alpha_ema=[(0.5, 0.5)])]}
    rows["refresh.n=10"] = [record("n10", 1, 3.0)]
    [table] = tables.sweep(rows)
    assert list(table.rows) == list(rows)
    assert mean_of(table, "refresh.n=1", "jitter of α*") == pytest.approx(0.4)
    assert math.isnan(mean_of(table, "refresh.n=1", "jitter of ᾱ"))
    assert mean_of(table, "refresh.n=10", "composite") > mean_of(table, "refresh.n=1", "composite")


def test_a_held_out_reward_that_only_evaluations_have_is_a_column() -> None:
    run = record("marble", 1, 4.0, after={"a": 4.0, "b": 20.0, "aesthetic": 5.5}, before={**BEFORE, "aesthetic": 5.0})
    table = keyed(tables.comparison({"marble": [run]}, {}))["rewards"]
    assert mean_of(table, "base", "aesthetic") == 5.0
    assert mean_of(table, "marble", "aesthetic") == 5.5


def test_markdown_and_json_show_the_same(records: dict[str, list[RunRecord]]) -> None:
    made = tables.comparison(records, {})
    text, data = render.markdown(made), render.data(made)
    assert "| marble | 4.0000 ± 1.0000 | 20.00 ± 0.00 |" in text
    assert "| base | 0 | 10 |" in text
    [rewards] = [table for table in data if table["key"] == "rewards"]
    assert rewards["rows"][1]["cells"][0] == {"mean": 4.0, "se": 1.0, "n": 2}
    piped = tables.Table("t", "T", "", ("x|y",), {"r": ("a|b",)})
    assert "| r | a&#124;b |" in render.markdown([piped]), "a pipe would end the cell"


def test_numbers_without_end_are_shown_too() -> None:
    cells = (Estimate(math.inf, NAN, 1), Estimate(-math.inf, math.inf, 2), Estimate(3.0, NAN, 1))
    text = render.markdown([tables.Table("t", "T", "", ("a", "b", "c"), {"r": cells})])
    assert "| r | inf | -inf ± inf | 3 |" in text


def test_rows_say_of_how_many_seeds_they_are_where_they_differ(records: dict[str, list[RunRecord]]) -> None:
    assert "(n = " not in render.markdown(tables.comparison(records, {"marble": 1.0}))
    records["single_a"].pop()
    made = keyed(tables.comparison(records, {}))
    text = render.markdown([made["rewards"]])
    assert "| marble (n = 2) | 4.0000 ± 1.0000 |" in text
    assert "| single_a (n = 1) | 100 |" in text
    assert "| base | 0 |" in text, "of no seed"
    assert [row["name"] for row in render.data([made["rewards"]])[0]["rows"]] == list(made["rewards"].rows)
