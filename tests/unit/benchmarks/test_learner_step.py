"""The benchmark of learner steps on a model of two small blocks: what it measures, prints and adds up."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

FOLDER = Path(__file__).parents[3] / "benchmarks"
KEYS = {"row", "K", "kl_fraction", "ratio", "ratio_full_kl", "spread", "peak_bytes"}
ROWS = {"k_pass", "two_pass", "amortized", "avg_n10", "avg_every_step"}


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script as a module, at a size for tests."""
    monkeypatch.syspath_prepend(str(FOLDER))
    import learner_step
    from random_policy import Size

    monkeypatch.setattr(
        learner_step, "CPU", Size(2, 1, (0,), 4, 3, (16, 8), 2, "float32", num_samples=4, timesteps=2, micro_batch=4)
    )
    threads = torch.get_num_threads()
    yield learner_step
    torch.set_num_threads(threads)


def test_rows_keys_and_averages(
    bench: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One row per kind, K and share of KL; ratios are to the weighted sum, averages follow from their parts."""
    options = ["--rewards", "2", "3", "--kl-fractions", "1", "0", "--rounds", "2", "--threads", "1", "--json"]
    monkeypatch.setattr(sys, "argv", ["learner_step.py", *options])
    bench.main()
    found = json.loads(capsys.readouterr().out)
    rows = {(row["row"], row["K"], row["kl_fraction"]): row for row in found["rows"]}
    assert len(rows) == len(found["rows"])
    assert all(set(row) == KEYS for row in found["rows"])
    several = {(row, k, f) for row in ROWS for k in (2, 3) for f in (1.0, 0.0)}
    single = {(row, 1, f) for row in ("one_reward", "weighted_sum") for f in (1.0, 0.0)}
    once = {("bare_passes", 2, 1.0), ("bare_passes", 2, 0.0)}
    once |= {("weighted_sum_checkpointed", 1, 1.0), ("two_pass_checkpointed", 2, 1.0)}
    assert set(rows) == several | single | once
    for (_, _, f), row in rows.items():
        assert row["ratio_full_kl"] == row["ratio"] if f == 1 else row["ratio_full_kl"] != row["ratio"]
    assert rows["weighted_sum", 1, 1.0]["ratio"] == rows["weighted_sum", 1, 0.0]["ratio"] == 1
    solve, other = rows["two_pass", 3, 1.0]["ratio"], rows["amortized", 3, 1.0]["ratio"]
    assert rows["avg_n10", 3, 1.0]["ratio"] == pytest.approx((solve + 9 * other) / 10)
    assert rows["avg_every_step", 3, 1.0]["ratio"] == pytest.approx(solve)
    held = [row["peak_bytes"] for row in found["rows"] if not row["row"].startswith("avg")]
    assert min(held) > 0
    assert [row["K"] for row in found["qp"]] == [2, 3]


def test_the_page_for_docs_holds_the_command_and_every_row(bench: Any) -> None:
    row = {"row": "two_pass", "K": 5, "kl_fraction": 0.25, "ratio": 1.414, "ratio_full_kl": 1.1, "spread": 0.051}
    found = {
        "machine": "some machine",
        "parameters": 35_600_000,
        "trained": 580_000,
        "setup": "16 cells",
        "rows": [{**row, "peak_bytes": 3 * 2**19}, {**row, "K": 16, "spread": None, "peak_bytes": None}],
        "qp": [{"K": 5, "milliseconds": 1.964, "first_milliseconds": 8.4}],
    }
    page = bench.markdown(found, ["--rewards", "5", "16"])
    assert "`python benchmarks/learner_step.py --rewards 5 16`\non some machine: 35.6M parameters" in page
    assert "LoRA 0.58M, 16 cells.\n\nOptimizer steps" in page
    assert "| two_pass | 5 | 0.25 | 1.41 | 1.10 | 5% | 1.5 |\n| two_pass | 16 | 0.25 | 1.41 | 1.10 |  |  |\n" in page
    assert "| 5 | 1.96 | 8 |\n" in page


def test_no_round_begins_after_the_minutes_are_over(bench: Any) -> None:
    case = (bench.WEIGHTED_SUM, 1, 1.0)
    steps = iter(range(100))
    fast = type("Fast", (), {"step": lambda *_, **__: next(steps), "num_micro_batches": 4})()
    seconds = bench.measure(fast, [case], 5, 0.0, lambda: 0.0, "cpu")
    assert len(seconds[case]) == 1
    assert next(steps) == 2


def test_a_ratio_is_taken_within_its_round_and_the_median_over_rounds(bench: Any) -> None:
    """A machine that slows down by half between two rounds changes no ratio; K passes have fewer rounds."""
    yardstick, solve, k_pass = (bench.WEIGHTED_SUM, 1, 1.0), (bench.TWO_PASS, 5, 1.0), (bench.K_PASS, 5, 1.0)
    amortized, without = (bench.AMORTIZED, 5, 1.0), (bench.WEIGHTED_SUM, 1, 0.0)
    seconds = {
        yardstick: [1.0, 2.0, 4.0],
        solve: [1.5, 3.0, 6.4],
        amortized: [1.0, 2.0, 4.0],
        k_pass: [3.0],
        without: [0.5, 1.0, 2.0],
    }
    rows = {(row["row"], row["kl_fraction"]): row for row in bench.table(seconds, {})}
    assert rows[bench.TWO_PASS, 1.0]["ratio"] == 1.5
    assert rows[bench.TWO_PASS, 1.0]["spread"] == pytest.approx(0.1 / 1.5)
    assert rows["avg_n10", 1.0]["ratio"] == pytest.approx(1.05)
    assert rows[bench.K_PASS, 1.0]["ratio"] == 3
    assert rows[bench.K_PASS, 1.0]["spread"] is None
    assert rows[bench.WEIGHTED_SUM, 0.0]["ratio_full_kl"] == 0.5


def test_each_turn_counts_by_its_micro_batches(bench: Any) -> None:
    """Shares of KL need the whole step; the yardstick is the mean of its two turns."""
    asked: list[tuple[float, int]] = []
    clock = iter([0.0, 8.0, 10.0, 12.0, 20.0, 24.0])
    fast = type("Fast", (), {"num_micro_batches": 4})()
    fast.step = lambda row, k, f, micro_batches_run: asked.append((f, micro_batches_run))
    whole, part = (bench.WEIGHTED_SUM, 1, 1.0), (bench.TWO_PASS, 2, 0.25)
    seconds = bench.measure(fast, [whole, part, whole], 1, 1.0, lambda: next(clock), "cpu")
    assert asked[2:] == [(1.0, 2), (0.25, 4), (1.0, 2)]
    assert seconds == {whole: [3.0], part: [0.5]}


@pytest.mark.parametrize("row", ["k_pass", "two_pass", "amortized", "two_pass_checkpointed"])
def test_each_row_steps_in_bfloat16_too(bench: Any, row: str) -> None:
    """As on a GPU, where the base is in bfloat16."""
    from random_policy import Size

    size = Size(2, 1, (0,), 4, 3, (16, 8), 2, "bfloat16", num_samples=4, timesteps=1, micro_batch=4)
    made = bench.Bench(size, "cpu")
    before = [parameter.clone() for parameter in made._optimizer.parameters.values()]
    made.step(row, 3, 1.0)
    after = made._optimizer.parameters.values()
    assert not all(torch.equal(one, other) for one, other in zip(before, after, strict=True))
    assert all(parameter.dtype == torch.float32 for parameter in after)
