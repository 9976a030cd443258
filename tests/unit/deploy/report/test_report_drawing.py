"""Plots: axes, gaps, long and short series."""

import re

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from deploy.report.drawing import axes as axes_
from deploy.report.drawing import lines, maps, style, times
from deploy.report.numbers.curves import Curve
from deploy.report.numbers.gradients import Series, Snapshot
from deploy.report.numbers.specialists import SourceMap


def texts(svg: str) -> list[str]:
    """What a plot says, in order."""
    return re.findall(r"<text[^>]*>([^<]*)</text>", svg)


def curve(x: list[float]) -> Curve:
    return Curve(np.array(x), np.linspace(0.2, 0.4, len(x)), np.full(len(x), 0.01))


def test_one_point_alone_stands_over_whole_numbers() -> None:
    svg = lines.scores("taste", [lines.Line("run", None, curve([0]))], "p").svg
    assert "iterations done" in texts(svg)
    assert not [one for one in texts(svg) if re.fullmatch("[\N{MINUS SIGN}]?0[.]0?[1-9]", one) and float(one) < 0.1]
    figure = Figure()
    plot = figure.add_subplot()
    plot.plot([7], [1.0], marker="o")
    axes_.over(plot, "x", "y")
    assert plot.get_xlim() == (6, 8)
    assert [tick for tick in plot.get_xticks() if 6 <= tick <= 8] == [6, 7, 8]


def test_the_legend_of_one_run_names_what_is_there_and_that_of_several_each_run_once() -> None:
    both = lines.scores("a", [lines.Line("run", curve([1, 2]), curve([0, 2]))], "p").svg
    assert [one for one in texts(both) if one in ("training", "held out")] == ["training", "held out"]
    watched = lines.scores("a", [lines.Line("run", None, curve([0, 2]))], "p").svg
    assert [one for one in texts(watched) if one in ("training", "held out")] == ["held out"]
    several = [lines.Line("one", curve([1, 2]), curve([0, 2])), lines.Line("two", None, curve([0, 2]))]
    assert [one for one in texts(lines.scores("a", several, "p").svg) if one in ("one", "two")] == ["one", "two"]


def test_points_of_several_runs_stand_beside_each_other_and_of_one_run_where_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Points and errors on one another cannot be told apart."""
    drawn = []

    def panel(names: list[str]) -> tuple[Figure, Axes]:
        drawn.append(style.panel(names))
        return drawn[-1]

    monkeypatch.setattr(lines, "panel", panel)
    runs = [lines.Line(name, None, curve([0, 100])) for name in ("one", "two")]
    lines.scores("a", runs, "p")
    lines.scores("a", runs[:1], "p")
    xs = [[container[0].get_xdata().tolist() for container in axes.containers] for _, axes in drawn]
    assert xs == [[[-0.75, 99.25], [0.75, 100.75]], [[0, 100]]]


def test_iterations_without_a_score_are_a_gap_and_a_point_between_gaps_a_dot() -> None:
    """A line across a stage in which a reward was not scored would show what nobody measured."""
    rows, alone = lines._with_gaps(curve([1, 2, 5, 8, 9]))
    assert np.isnan(rows[1]).tolist() == [False, False, True, False, True, False, False]
    assert alone.tolist() == [False, False, True, False, False]
    rows, alone = lines._with_gaps(curve([3]))
    assert (rows.shape, alone.tolist()) == ((3, 1), [True])


def test_every_axis_has_its_name() -> None:
    series = Series(np.array([0, 10]), np.array([0.25, 0.5]))
    assert {"optimizer step", "cosine"} <= set(texts(lines.together("t", [("a", series)], "p", unit="cosine").svg))
    one = SourceMap("plain", 0, ("a",), np.array([[0.5, -0.5]]))
    assert {"2 samples", "z-score", "a"} <= set(texts(maps.advantages("t", one, "p").svg))


def test_a_logarithmic_axis_within_a_decade_names_one_two_and_five() -> None:
    series = Series(np.arange(3), np.array([[0.04, 0.09, 0.3]]))
    said = texts(lines.by_reward("norm", ["a"], series, "p", unit="norm", log=True).svg)
    assert {"0.05", "0.1", "0.2"} <= set(said)
    assert not {"0.06", "0.07", "0.08", "0.09"} & set(said)


def test_a_scale_stands_for_the_numbers_of_a_large_matrix() -> None:
    small = maps.cosines("t", ["a", "b"], Snapshot(0, 0, np.eye(2)), "p").svg
    assert ("1.00" in texts(small), "cosine" in texts(small)) == (True, False)
    large = maps.cosines("t", [f"r{i}" for i in range(9)], Snapshot(0, 0, np.eye(9)), "p").svg
    assert ("1.00" in texts(large), "cosine" in texts(large)) == (False, True)


def test_a_running_mean_is_over_known_neighbours() -> None:
    values = np.arange(120.0)
    values[60] = np.nan
    found = axes_.running_mean(values)
    assert len(found) == 120
    assert found[30] == pytest.approx(30.0)
    assert (found[60], found[0]) == (pytest.approx(60.0), pytest.approx(0.5))
    assert np.isnan(axes_.running_mean(np.full(9, np.nan))).all()


def test_long_runs_are_drawn_as_means_of_several_iterations() -> None:
    edges, (means,) = times.blocks(np.arange(7), [np.array([1.0, 3, 5, 7, np.nan, 4, 9])], 3)
    assert edges.tolist() == [0, 3, 6, 7]
    assert means.tolist() == [3.0, pytest.approx(11 / 3), 9.0]
