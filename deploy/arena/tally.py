"""Votes as win rates with intervals (the paper's Table S5 as a tool).

The rule: a pair is worth to side a the mean of its voters' votes, 1 for a, 0 for b, ½ for a tie. The win rate is the
mean over pairs, so ties count half to either side. The interval is Wilson's with the number of pairs, not of votes:
several voters of one pair do not make several pairs.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist

CONFIDENCE = 0.95
TIE = 0.5
ALL = "all"


@dataclass(frozen=True)
class Interval:
    """A share and how far it is known; NaN without any pair."""

    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class Tally:
    """Pairs of one source, or of all."""

    source: str
    pairs: int
    wins_a: int
    """Pairs worth more than ½ to a."""
    wins_b: int
    ties: int
    a: Interval
    """Win rate of a; b's is 1 less it. Ties count half."""
    a_decided: Interval
    """Of the pairs that are no tie."""


@dataclass(frozen=True)
class Judged:
    """One pair with its votes."""

    source: str
    votes_for_a: tuple[float, ...]
    """Per voter: 1, ½ or 0."""

    @property
    def worth(self) -> float:
        """Mean over voters."""
        return sum(self.votes_for_a) / len(self.votes_for_a)


def wilson(rate: float, n: int, confidence: float = CONFIDENCE) -> Interval:
    """Wilson's score interval of a share of n (E. B. Wilson, 1927); with ties, n · rate need not be whole.

    Its variance is that of shares of 0 and 1, the largest possible, so with ties it is rather too wide than too narrow.
    """
    if n == 0:
        return Interval(math.nan, math.nan, math.nan)
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    middle = (rate + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    return Interval(rate, max(0.0, middle - half), min(1.0, middle + half))


def tally(pairs: Sequence[Judged]) -> tuple[Tally, ...]:
    """One row per source in the order in which they come, and one of all."""
    by_source: dict[str, list[Judged]] = {}
    for pair in pairs:
        by_source.setdefault(pair.source, []).append(pair)
    rows = [_row(source, members) for source, members in by_source.items()]
    return (*rows, _row(ALL, pairs))


def _row(source: str, pairs: Sequence[Judged]) -> Tally:
    worths = [pair.worth for pair in pairs]
    wins_a, wins_b = sum(worth > TIE for worth in worths), sum(worth < TIE for worth in worths)
    decided = wins_a + wins_b
    return Tally(
        source=source,
        pairs=len(pairs),
        wins_a=wins_a,
        wins_b=wins_b,
        ties=len(pairs) - decided,
        a=wilson(sum(worths) / len(worths) if worths else math.nan, len(worths)),
        a_decided=wilson(wins_a / decided if decided else math.nan, decided),
    )


def left_share(choices: Mapping[str, int]) -> Interval:
    """Share of left among the votes that chose a side: far from ½, voters went by the side."""
    left, right = choices.get("left", 0), choices.get("right", 0)
    return wilson(left / (left + right) if left + right else math.nan, left + right)
