"""Votes as win rates: the rule for ties, several voters of one pair, and Wilson's interval."""

import math

import pytest
from scipy.stats import binomtest

from deploy.arena.tally import Judged, left_share, tally, wilson


@pytest.mark.parametrize(("wins", "n"), [(0, 5), (3, 10), (10, 10), (41, 60)])
def test_the_interval_is_wilsons(wins: int, n: int) -> None:
    expected = binomtest(wins, n).proportion_ci(method="wilson")
    found = wilson(wins / n, n)
    assert (found.rate, found.low, found.high) == pytest.approx((wins / n, expected.low, expected.high))


def test_nothing_judged_is_nothing_known() -> None:
    assert math.isnan(wilson(math.nan, 0).low)
    (row,) = tally([])
    assert (row.source, row.pairs) == ("all", 0)
    assert math.isnan(row.a.rate)


def test_ties_count_half_and_are_left_out_of_the_decided_rate() -> None:
    pairs = [Judged("plain", (1.0,)), Judged("plain", (0.5,)), Judged("signs", (0.0,)), Judged("signs", (1.0,))]
    plain, signs, everything = tally(pairs)
    assert (plain.source, plain.pairs, plain.wins_a, plain.ties, plain.wins_b) == ("plain", 2, 1, 1, 0)
    assert plain.a.rate == 0.75
    assert plain.a_decided.rate == 1.0
    assert (signs.wins_a, signs.ties, signs.wins_b, signs.a.rate) == (1, 0, 1, 0.5)
    assert (everything.source, everything.a.rate) == ("all", 0.625)
    assert everything.a_decided.rate == pytest.approx(2 / 3)
    assert everything.a == wilson(0.625, 4)
    assert everything.a_decided == wilson(2 / 3, 3)


def test_several_voters_of_a_pair_are_one_pair() -> None:
    """Three voters of two pairs are no six observations: the interval is that of two."""
    pairs = [Judged("x", (1.0, 1.0, 0.0)), Judged("x", (0.0, 0.5, 0.5))]
    row = tally(pairs)[-1]
    assert (row.wins_a, row.wins_b, row.ties) == (1, 1, 0)
    assert row.a.rate == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert row.a == wilson(row.a.rate, 2)


def test_a_voter_who_likes_one_side_is_seen() -> None:
    found = left_share({"left": 9, "right": 1, "tie": 4})
    assert found.rate == 0.9
    assert found.low > 0.5
