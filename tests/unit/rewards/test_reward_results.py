"""Cells and results."""

from collections.abc import Callable

import numpy as np
import pyarrow as pa
import pytest

from rewards.contract import RewardResult, State
from rewards.evaluation import score_for_evaluation
from rewards.results import Cell, collect, describe, from_scores, to_cells
from tests.unit.rewards.fakes import PixelScorer, painted


def test_collect_keeps_order_and_types() -> None:
    result = collect([Cell.scored(0.5), Cell.not_applicable("no text"), Cell.failed("broke"), Cell.scored(0.0)])
    assert result.scores.dtype == np.float32
    assert result.states.dtype == np.uint8
    assert result.states.tolist() == [State.SCORED, State.NOT_APPLICABLE, State.FAILED, State.SCORED]
    assert result.scores[[0, 3]].tolist() == [0.5, 0.0]
    assert result.reasons == ("", "no text", "broke", "")


@pytest.mark.parametrize("value", [float("nan"), float("inf"), 1e300])
def test_a_score_that_is_no_number_is_a_failure(value: float) -> None:
    """FAULTS 8."""
    assert from_scores([value]).states.tolist() == [State.FAILED]


def test_cells_and_back() -> None:
    cells = [Cell.scored(0.25), Cell.failed("x"), Cell.scored(-14.0)]
    assert collect(to_cells(collect(cells))).scores.tobytes() == collect(cells).scores.tobytes()


def test_describe_names_the_type_and_is_bounded() -> None:
    assert describe(KeyError("a")) == "KeyError: 'a'"
    assert len(describe(ValueError("x" * 100_000))) == 2000


@pytest.mark.parametrize("cell", [Cell.failed, Cell.not_applicable])
def test_a_reason_fits_into_the_ledger_whoever_gave_it(cell: Callable[[str], Cell]) -> None:
    """A server's whole log, and the name of a file that is not UTF-8, which no column of text takes."""
    assert len(cell("x" * 100_000).reason) == 2000
    assert pa.array([cell("no file a\udcff.bin").reason])[0].as_py() == "no file a\\udcff.bin"
    assert describe(FileNotFoundError("a\udcff")).encode()
    assert cell("“ä” ☃").reason == "“ä” ☃"


def test_contract_refuses_what_it_must() -> None:
    """FAULTS 8."""
    one = np.zeros(1, np.float32)
    with pytest.raises(ValueError, match="one entry per sample"):
        RewardResult(one, np.zeros(2, np.uint8), ("",))
    with pytest.raises(ValueError, match="must be finite"):
        RewardResult(one * np.nan, np.zeros(1, np.uint8), ("",))
    with pytest.raises(ValueError, match="needs a reason"):
        RewardResult(one, np.full(1, State.FAILED, np.uint8), ("",))


def test_evaluation_falls_back_to_the_training_score() -> None:
    images = painted(10)
    training = PixelScorer()(images, ["a"], [{}])
    assert score_for_evaluation(PixelScorer(), images, ["a"], [{}]).scores.tobytes() == training.scores.tobytes()
