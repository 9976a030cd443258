"""When a remote scorer is asked again, and after which wait. The rule alone: no clock, no network, no dice."""

import math
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

_TRANSIENT_4XX = (408, 425, 429)
"""Request timeout, too early, too many requests: the same request may well be taken later."""


def is_transient(status: int) -> bool:
    """Whether an HTTP status speaks of the moment and not of the request (RFC 9110): 408, 425, 429 and every 5xx."""
    return status in _TRANSIENT_4XX or 500 <= status < 600


def retry_after_s(header: str | None, now: datetime) -> float | None:
    """Seconds that a Retry-After header asks to wait (RFC 9110, 10.2.3: a number of seconds, or a date).

    Args:
        header: its value; None where there is none.
        now: with a time zone.

    Returns:
        Never negative; None where there is no header or it cannot be read.
    """
    text = (header or "").strip()
    if text.isascii() and text.isdigit():
        return float(text)
    try:
        when = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    # Dates without a zone are in UTC, which is all that the RFC allows.
    return max(0.0, ((when if when.tzinfo else when.replace(tzinfo=UTC)) - now).total_seconds())


@dataclass(frozen=True)
class Backoff:
    """Waits that double from try to try, with jitter: many clients that failed together must not come back together."""

    retries: int = 3
    """Tries after the first."""
    first_s: float = 0.5
    longest_s: float = 10.0

    def delay_s(self, retry: int, draw: float, asked_s: float | None = None) -> float:
        """Seconds to wait before a retry.

        Between half and all of first_s · 2^(retry − 1), at most longest_s. What the server asks for comes on top.

        Args:
            retry: 1 before the first retry.
            draw: uniform in [0, 1).
            asked_s: of its Retry-After header.

        Raises:
            ValueError: retry below 1, or draw outside [0, 1].
        """
        if retry < 1 or not 0.0 <= draw <= 1.0:
            raise ValueError(f"retry counts from 1 and draw is in [0, 1], got {retry} and {draw}")
        # The exponent is bounded so that no number of retries overflows a float.
        ceiling = min(self.longest_s, self.first_s * math.ldexp(1.0, min(retry - 1, 64)))
        return (asked_s or 0.0) + ceiling * (1.0 + draw) / 2.0
