"""One scorer, one call at a time: a line of bounded length in front of a single thread.

The scorer is built in that thread too, and never seen by another: libraries differ in what they allow.
"""

import asyncio
import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, TypeVar

T = TypeVar("T")

FIRST_GUESS_S = 1.0
"""A call's length before any was seen."""
NEWEST_SHARE = 0.2
"""Of the last call in the running mean of their lengths."""
LONGEST_ASK_S = 30
"""More than a client is asked to wait, however long the line."""


class BusyError(Exception):
    """The line is full; `wait_s` is a whole number of seconds after which there may be room."""

    def __init__(self, wait_s: int) -> None:
        super().__init__(f"as many requests are waiting as may wait; try again in {wait_s} s")
        self.wait_s = wait_s


class Turns:
    """The line and its thread. The thread does not keep the process alive: a call that hangs cannot be ended."""

    def __init__(self, max_places: int) -> None:
        """`max_places`: requests that are in at once, from the first byte read to the answer."""
        self._max_places = max_places
        self._places = 0
        self._mean_s = FIRST_GUESS_S
        self._since: float | None = None
        self._jobs: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="scorer", daemon=True).start()

    @contextmanager
    def place(self) -> Iterator[None]:
        """A place in the line, for the length of the block. Of the event loop's thread only.

        Raises:
            BusyError: there is none.
        """
        if self._places >= self._max_places:
            raise BusyError(min(LONGEST_ASK_S, max(1, math.ceil(self._places * self._mean_s))))
        self._places += 1
        try:
            yield
        finally:
            self._places -= 1

    def submit(self, call: Callable[[], T]) -> "Future[T]":
        """Has the thread make a call after all before it; a cancelled future is passed over."""
        future: Future[T] = Future()
        self._jobs.put((future, call))
        return future

    async def run(self, call: Callable[[], T]) -> T:
        """The call's result, or what it raises."""
        return await asyncio.wrap_future(self.submit(call))

    @property
    def places(self) -> int:
        """Requests that are in."""
        return self._places

    @property
    def running_s(self) -> float:
        """Since when the call under way runs; 0 between calls."""
        since = self._since
        return 0.0 if since is None else time.monotonic() - since

    def close(self) -> None:
        """The thread ends after the calls that are in the line."""
        self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            future, call = job
            if not future.set_running_or_notify_cancel():
                continue
            began = self._since = time.monotonic()
            try:
                result = call()
            except BaseException as error:  # noqa: BLE001  # whoever waits for the future gets it
                self._since = None
                future.set_exception(error)
            else:
                self._since = None
                self._mean_s += NEWEST_SHARE * (time.monotonic() - began - self._mean_s)
                future.set_result(result)
