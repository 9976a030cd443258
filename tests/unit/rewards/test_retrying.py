"""When to ask again, and after which wait."""

import itertools
from datetime import UTC, datetime, timedelta

import pytest

from rewards.retrying import Backoff, is_transient, retry_after_s

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


def test_which_statuses_may_pass() -> None:
    assert [s for s in range(100, 700) if is_transient(s)] == [408, 425, 429, *range(500, 600)]


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        (None, None),
        ("", None),
        ("120", 120.0),
        (" 0 ", 0.0),
        ("Thu, 01 Jan 2026 12:00:30 GMT", 30.0),
        ("Thu, 01 Jan 2026 14:00:30 +0200", 30.0),
        ("Thu, 01 Jan 2026 12:00:30 -0000", 30.0),
        ("Thu, 01 Jan 2026 11:00:00 GMT", 0.0),
        ("soon", None),
        ("-5", None),
        ("1.5", None),
        ("٣", None),
        ("9" * 400, float("inf")),
    ],
)
def test_retry_after_in_both_its_forms(header: str | None, expected: float | None) -> None:
    """RFC 9110, 10.2.3."""
    assert retry_after_s(header, NOW) == expected
    assert retry_after_s(header, NOW.astimezone() + timedelta(0)) == expected


def test_waits_double_up_to_a_limit_between_half_and_whole() -> None:
    backoff = Backoff(first_s=0.5, longest_s=3.0)
    assert [backoff.delay_s(n, 1.0) for n in (1, 2, 3, 4, 5)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    assert [backoff.delay_s(n, 0.0) for n in (1, 2, 3, 4)] == [0.25, 0.5, 1.0, 1.5]
    assert backoff.delay_s(10**6, 0.0) == 1.5


def test_what_the_server_asks_for_comes_on_top_so_that_clients_spread() -> None:
    backoff = Backoff(first_s=0.5)
    waits = [backoff.delay_s(1, draw, asked_s=10.0) for draw in (0.0, 0.5, 1.0)]
    assert waits == [10.25, 10.375, 10.5]
    assert all(a < b for a, b in itertools.pairwise(waits))


@pytest.mark.parametrize(("retry", "draw"), [(0, 0.5), (1, -0.1), (1, 1.1), (1, float("nan"))])
def test_wrong_arguments(retry: int, draw: float) -> None:
    with pytest.raises(ValueError, match="counts from 1"):
        Backoff().delay_s(retry, draw)


def test_the_default_retries_cost_seconds_not_minutes() -> None:
    """FAULTS 14: all waits together, at their longest."""
    backoff = Backoff()
    assert sum(backoff.delay_s(n + 1, 1.0) for n in range(backoff.retries)) == 3.5
