"""Ledger parts: what a row says, that a part is whole or not there, and that a resumed run leaves no gap."""

from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from actors.ledger import Ledger, LedgerEntry, sample_columns, step_columns
from actors.ledger_parts import CONFLICTS, SAMPLES, STEPS, read_table
from learner.types import Conflict, WeightedMean
from tests.unit.actors import stand_ins
from tests.unit.actors.stand_ins import harvest, prompts, report, step

NAMES = ("a", "b")


def entry(iteration: int = 0) -> LedgerEntry:
    steps = (step(2 * iteration, True, iteration), step(2 * iteration + 1, False, iteration))
    return LedgerEntry(
        prompts("w", "x", "y", "z"), harvest(), report(*steps, iteration=iteration), {"rollout": 2.0, "total": 3.0}
    )


def test_one_row_per_sample_with_where_it_comes_from_and_every_rewards_cell(tmp_path: Path) -> None:
    Ledger(tmp_path, NAMES).append(0, entry())
    rows = read_table(tmp_path, SAMPLES).to_pylist()
    assert [row["sample"] for row in rows] == [0, 1, 2, 3]
    assert [row["prompt_id"] for row in rows] == [f"plain/{i}" for i in range(4)]
    assert [row["seed"] for row in rows] == [100, 101, 102, 103]
    assert {(row["policy_version"], row["policy_hash"], row["source"]) for row in rows} == {(5, "hash", "plain")}
    assert [row["score_a"] for row in rows] == [0.0, 1.0, 2.0, 3.0]
    assert [row["score_b"] for row in rows] == [None, 5.0, 6.0, None]
    assert [row["state_b"] for row in rows] == [1, 0, 0, 2]
    assert [row["reason_b"] for row in rows] == [None, None, None, "out of ink"]
    assert [row["advantage_b"] for row in rows] == [None, 0.5, 0.5, 0.5]


def test_one_row_per_step_with_everything_that_is_known_of_it(tmp_path: Path) -> None:
    Ledger(tmp_path, NAMES).append(0, entry())
    solved, amortised = read_table(tmp_path, STEPS).to_pylist()
    assert (solved["solved"], amortised["solved"]) == (True, False)
    assert [solved[f"alpha_star_{n}"] for n in NAMES] == pytest.approx([1 / 3, 2 / 3])
    assert [solved[f"alpha_ema_{n}"] for n in NAMES] == pytest.approx([2 / 3, 1 / 3])
    assert [solved[f"norm_{n}"] for n in NAMES] == [3.0, 6.0]
    assert [solved[f"cosine_{n}"] for n in NAMES] == [None, pytest.approx(0.4)]
    assert solved["pairwise_cosines"] == [1.0, 0.0, 0.0, 1.0]
    assert [solved[f"sum_cosine_{n}"] for n in NAMES] == [None, pytest.approx(-0.2)]
    assert (solved["sum_worst_cosine"], solved["negative_fraction"], solved["sum_negative_fraction"]) == (
        -0.2,
        0.25,
        0.75,
    )
    assert (solved["scale"], solved["kl_growth"], solved["kl_status"]) == (1.5, 0.125, "slack")
    assert (solved["solve_reason"], amortised["solve_reason"], amortised["scale"]) == ("every_n", "", None)
    assert (solved["solver"], solved["status"], solved["worst_cosine"]) == ("CLARABEL", "optimal", 0.4)
    assert solved["left"] == "b: zero gradient"
    assert (solved["kkt_gap"], solved["loss"]) == (1e-12, None)
    for row in (solved, amortised):
        assert [row[f"weight_{n}"] for n in NAMES] == pytest.approx([1 / 3, 2 / 3])
        assert [row[f"coefficient_{n}"] for n in NAMES] == [1.0, 2.0]
        assert (row["kl"], row["kl_cosine"], row["kl_share"], row["grad_norm"]) == (0.01, None, 0.02, 0.3)
        assert (row["rollout_s"], row["total_s"], row["step_s"]) == (2.0, 3.0, 0.4)
    names = ("steps_since_solve", "solve_cosine", "solve_norm_ratio", "stale_cosine", "stale_norm_ratio")
    assert [solved[name] for name in names] == [None, None, None, 0.9, 0.8]
    assert [amortised[name] for name in names] == [1, 0.6, 1.1, None, None]
    assert (amortised["loss"], amortised["alpha_star_a"], amortised["pairwise_cosines"]) == (1.25, None, [])


def test_no_name_of_a_reward_makes_two_columns_one(tmp_path: Path) -> None:
    """What stands before a reward's name begins no other column, so that any name gives columns of its own."""
    for columns in (sample_columns(0, entry(), NAMES), step_columns(entry(), NAMES)):
        whats = {column.removesuffix("_a") for column in columns if column.endswith("_a")}
        own = {column for column in columns if not column.endswith(("_a", "_b"))}
        assert len(columns) == len(own) + 2 * len(whats)
        assert len(whats) >= 4
        clashes = [(one, what) for what in whats for one in own | whats if one.startswith(f"{what}_")]
        assert clashes == []


def test_a_reward_called_matrix_keeps_its_cosine(tmp_path: Path) -> None:
    Ledger(tmp_path, ("a", "matrix")).append(0, entry())
    solved, amortised = read_table(tmp_path, STEPS).to_pylist()
    assert solved["cosine_matrix"] == pytest.approx(0.4)
    assert amortised["cosine_matrix"] is None
    assert solved["pairwise_cosines"] == [1.0, 0.0, 0.0, 1.0]


def test_parts_of_several_iterations_read_as_one_table(tmp_path: Path) -> None:
    """Columns that one part does not know have another type there; together they must still fit."""
    ledger = Ledger(tmp_path, NAMES)
    ledger.append(0, entry(0))
    alone = report(step(2, False, 1), iteration=1)
    ledger.append(1, LedgerEntry(prompts("w", "x", "y", "z"), harvest(), alone, {"total": 1.0}))
    table = read_table(tmp_path, STEPS)
    assert table.column("step").to_pylist() == [0, 1, 2]
    assert table.column("alpha_star_a").to_pylist()[1:] == [None, None]


def test_row_5_a_resumed_run_drops_what_it_will_do_again_and_half_written_parts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path, NAMES)
    for iteration in range(5):
        ledger.append(iteration, entry(iteration))
    half = tmp_path / "ledger" / ".samples-000005.parquet.tmp"
    half.write_text("PAR1")
    ledger.truncate_after(3)
    assert read_table(tmp_path, SAMPLES).column("iteration").unique().to_pylist() == [0, 1, 2]
    assert read_table(tmp_path, STEPS).column("iteration").unique().to_pylist() == [0, 1, 2]
    assert not half.exists()


def test_a_file_of_another_name_is_no_part_and_stays(tmp_path: Path) -> None:
    """A user's copy beside the parts neither stops a resume nor shows in the table."""
    ledger = Ledger(tmp_path, NAMES)
    for iteration in range(2):
        ledger.append(iteration, entry(iteration))
    strangers = ["samples-backup.parquet", "samples-000001-old.parquet", "notes.parquet", "samples-²00000.parquet"]
    for name in strangers:
        (tmp_path / "ledger" / name).write_bytes(ledger.path(SAMPLES, 1).read_bytes())
    assert read_table(tmp_path, SAMPLES).num_rows == 8
    ledger.truncate_after(1)
    assert read_table(tmp_path, SAMPLES).column("iteration").unique().to_pylist() == [0]
    kept = {path.name for path in (tmp_path / "ledger").iterdir()}
    assert kept == {*strangers, "samples-000000.parquet", "steps-000000.parquet"}


def test_a_crash_in_the_middle_leaves_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def crash(table: object, path: Path) -> None:
        Path(path).write_bytes(b"PAR1")
        raise OSError("disk full")

    monkeypatch.setattr(pq, "write_table", crash)
    with pytest.raises(OSError, match="disk full"):
        Ledger(tmp_path, NAMES).append(0, entry())
    assert list((tmp_path / "ledger").glob("*.parquet")) == []


def test_stand_ins_have_the_shapes_they_claim() -> None:
    assert stand_ins.solution(3).alpha_K.sum() == pytest.approx(1.0)


def test_a_weighted_sum_stands_beside_every_rewards_own(tmp_path: Path) -> None:
    """Its score, state and advantage per sample; its weight per step, in place of the rewards'."""
    mean = WeightedMean(
        np.array([1.0, np.nan, 2.0, np.nan], np.float32),
        np.array([0, 1, 0, 2], np.uint8),
        np.array([0.5, np.nan, -0.5, np.nan]),
    )
    told = report(step(0, False, num_rewards=1), weighted_mean=mean)
    Ledger(tmp_path, NAMES, ("weighted_sum",)).append(0, LedgerEntry(prompts(*"wxyz"), harvest(), told, {"total": 1.0}))
    rows = read_table(tmp_path, SAMPLES).to_pylist()
    assert [row["score_weighted_sum"] for row in rows] == [1.0, None, 2.0, None]
    assert [row["state_weighted_sum"] for row in rows] == [0, 1, 0, 2]
    assert [row["advantage_weighted_sum"] for row in rows] == [0.5, None, -0.5, None]
    assert [row["score_a"] for row in rows] == [0.0, 1.0, 2.0, 3.0]
    [row] = read_table(tmp_path, STEPS).to_pylist()
    assert row["weight_weighted_sum"] == 1.0
    assert "weight_a" not in row


def test_conflicts_are_a_table_of_their_own_and_dropped_on_resume(tmp_path: Path) -> None:
    cosines = {"direction": np.array([0.5, np.nan]), "gradient": np.array([0.25, 0.0]), "update": np.array([-1.0, 1.0])}
    ledger = Ledger(tmp_path, NAMES)
    for iteration in (0, 1):
        conflict = Conflict(step=2 * iteration, iteration=iteration, solved=True, against="same", cosines=cosines)
        told = report(step(2 * iteration, True, iteration), iteration=iteration, conflicts=(conflict,))
        ledger.append(iteration, LedgerEntry(prompts(*"wxyz"), harvest(), told, {"total": 1.0}))
    first, _ = read_table(tmp_path, CONFLICTS).to_pylist()
    assert first == {
        "step": 0,
        "iteration": 0,
        "solved": True,
        "against": "same",
        "direction_a": 0.5,
        "direction_b": None,
        "gradient_a": 0.25,
        "gradient_b": 0.0,
        "update_a": -1.0,
        "update_b": 1.0,
    }
    ledger.truncate_after(1)
    assert [row["iteration"] for row in read_table(tmp_path, CONFLICTS).to_pylist()] == [0]
    assert read_table(tmp_path / "nothing", CONFLICTS).to_pylist() == []
