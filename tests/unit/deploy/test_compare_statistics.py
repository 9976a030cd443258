"""The tables' arithmetic against values worked out by hand."""

import math

import pytest

from deploy.compare.statistics import (
    Conflicts,
    Estimate,
    Scale,
    all_steps,
    composite,
    conflicts,
    jitter,
    scales,
    whole_windows,
)

NAN = math.nan


def test_mean_and_standard_error() -> None:
    """1, 2, 6: mean 3, squares 4 + 1 + 9 = 14, s² = 7, s.e. = √(7/3)."""
    found = Estimate.of([1.0, 2.0, 6.0])
    assert (found.mean, found.n) == (3.0, 3)
    assert found.se == pytest.approx(math.sqrt(7 / 3))


def test_few_and_missing_values() -> None:
    one = Estimate.of([NAN, 2.0])
    assert (one.mean, one.n) == (2.0, 1)
    assert math.isnan(one.se)
    none = Estimate.of([NAN])
    assert (math.isnan(none.mean), none.n) == (True, 0)


def test_composite_by_hand() -> None:
    """Column a of the fixed rows: 0, 2 → mean 1, σ 1; b: 10, 30 → mean 20, σ 10."""
    rows = {"base": {"a": 0.0, "b": 30.0}, "x": {"a": 2.0, "b": 10.0}, "other": {"a": 4.0, "b": 40.0}}
    found = scales(rows, ("base", "x", "absent"), ("a", "b"))
    assert found == {"a": Scale(1.0, 1.0), "b": Scale(20.0, 10.0)}
    assert [composite(rows[name], found) for name in rows] == pytest.approx([0.0, 0.0, (3 + 2) / 2])


def test_rows_outside_the_fixed_set_move_nobody() -> None:
    """FAULTS 26's kind: a score must not depend on what else happens to be in the table."""
    rows = {"base": {"a": 0.0}, "x": {"a": 2.0}}
    more = {**rows, "specialist": {"a": 100.0}}
    assert scales(rows, ("base", "x"), ("a",)) == scales(more, ("base", "x"), ("a",))


@pytest.mark.parametrize("cells", [(NAN, 2.0), (2.0, 2.0), (0.1 + 0.2, 0.3)])
def test_columns_without_a_scale_count_in_nobodys_composite(cells: tuple[float, float]) -> None:
    """One cell missing, or all equal but for rounding."""
    rows = {"base": {"a": 0.0, "b": cells[0]}, "x": {"a": 2.0, "b": cells[1]}}
    found = scales(rows, ("base", "x"), ("a", "b"))
    assert list(found) == ["a"]
    assert composite(rows["x"], found) == 1.0


def test_a_row_that_lacks_a_measured_cell_has_no_composite() -> None:
    assert math.isnan(composite({"b": 1.0}, {"a": Scale(0.0, 1.0), "b": Scale(0.0, 1.0)}))
    assert math.isnan(composite({"a": 1.0}, {}))


def test_conflicts_by_hand() -> None:
    """Three windows of which two oppose; an unknown cosine counts nowhere, a window of none is no window."""
    found = conflicts([(0.5, -0.25), (NAN, 0.25), (-0.75, 0.0), (NAN, NAN)])
    assert (found.windows, found.worst) == (3, -0.75)
    assert found.opposing == pytest.approx(2 / 3)
    assert found.mean == pytest.approx((0.5 - 0.25 + 0.25 - 0.75 + 0.0) / 5)
    assert found.mean_worst == pytest.approx((-0.25 + 0.25 - 0.75) / 3)


def test_both_kinds_of_steps_count_in_their_share_of_the_run() -> None:
    """A tenth of the steps solves; half of the windows do."""
    solving, amortised = conflicts([(0.5, 0.25), (0.5, 0.25)]), conflicts([(-0.25, 0.75), (0.25, 0.25)])
    found = all_steps(solving, amortised, 0.1)
    assert (found.windows, found.worst) == (4, -0.25)
    assert found.opposing == pytest.approx(0.9 * 0.5)
    assert found.mean == pytest.approx(0.1 * 0.375 + 0.9 * 0.25)
    assert found.mean_worst == pytest.approx(0.1 * 0.25)
    assert all_steps(conflicts([]), amortised, 0.1) == amortised
    assert all_steps(solving, conflicts([]), 0.1) == solving


def test_roundings_of_zero_oppose_nobody() -> None:
    assert conflicts([(-1e-12, 0.5)]).opposing == 0.0
    nothing = conflicts([])
    assert (nothing.windows, math.isnan(nothing.opposing)) == (0, True)
    assert isinstance(nothing, Conflicts)


def test_jitter_by_hand() -> None:
    """|0.2| + |−0.2| and then |0.3| + |−0.3|; a reward that comes in has had no share."""
    assert jitter([(0.5, 0.5), (0.7, 0.3), (0.4, 0.6)]) == pytest.approx((0.4 + 0.6) / 2)
    assert jitter([(1.0, NAN), (0.5, 0.5)]) == pytest.approx(1.0)
    assert math.isnan(jitter([(1.0,)]))


@pytest.mark.parametrize(
    ("iterations", "per_iteration", "window", "counted"),
    [
        (10, 2, 10, 5),  # steps 10 to 19: one solve in ten
        (11, 2, 10, 10),
        (76, 2, 10, 75),
        (12, 1, 10, 10),
        (10, 3, 10, 9),  # 30 steps would be needed
        (4, 2, 10, 3),  # no whole window: all after the first
        (1, 2, 10, 1),
    ],
)
def test_whole_windows(iterations: int, per_iteration: int, window: int, counted: int) -> None:
    assert whole_windows(iterations, per_iteration, window) == counted
