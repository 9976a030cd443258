"""Calls of a crew that wait for a replica, and who takes the next one."""

from collections import deque
from collections.abc import Sequence

from actors.calls import Attempt, Replica, Work


class WorkQueue:
    """First in, first out; urgent calls and those to be tried again go in front."""

    def __init__(self, ahead: bool) -> None:
        """`ahead`: a replica may hold its next call while it works."""
        self._ahead = ahead
        self._attempts: deque[Attempt] = deque()

    def __len__(self) -> int:
        return len(self._attempts)

    def add(self, works: Sequence[Work], first: bool) -> None:
        """Queues calls in their order, at the end or in front."""
        if first:
            self._attempts.extendleft(Attempt(work) for work in reversed(works))
        else:
            self._attempts.extend(Attempt(work) for work in works)

    def put_back(self, attempt: Attempt) -> None:
        """In front."""
        self._attempts.appendleft(attempt)

    def clear(self) -> None:
        """Drops every call."""
        self._attempts.clear()

    def take(self, replicas: Sequence[Replica]) -> tuple[Replica, Attempt] | None:
        """Takes the next call off for the replica that gets it, the idle one that has done least, and counts its try.

        Returns:
            None where there is no call, or nobody for it.
        """
        if not self._attempts:
            return None
        attempt = self._attempts[0]
        able = [replica for replica in replicas if replica.idle]
        size = sum(not replica.leaving for replica in replicas)
        # With few calls left one that lay ready behind a long call would be the last to end.
        if not able and self._ahead and len(self) > size and not attempt.work.suspect:
            able = [replica for replica in replicas if replica.takes_ahead]
        if not able:
            return None
        # Elsewhere than last time where there is an elsewhere.
        replica = min(able, key=lambda r: (r.name == attempt.last_replica, r.calls_done))
        self._attempts.popleft()
        attempt.last_replica = replica.name
        attempt.tries += 1
        return replica, attempt
