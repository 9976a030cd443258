"""Stopping a run by Ctrl-C or SIGTERM: a wish that the waits look at, not an exception in the middle of something."""

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from learner.errors import UserError

GRACE_S = {signal.SIGINT: 30.0, signal.SIGTERM: 2.0}
"""How long a training step under way may take to end, seconds: a user at a terminal can press Ctrl-C again, while
`ray job stop` kills 3 s after its SIGTERM."""


class StopRequestedError(Exception):
    """The run should end here."""


class RunStopped(UserError):  # noqa: N818 - no error of anyone's
    """The run ended early because it was asked to; it can be resumed from `checkpoint`, where there is one."""

    def __init__(self, signal_number: int, iterations_done: int, checkpoint: Path | None) -> None:
        kept = f"checkpoint {checkpoint.name}; go on with --resume" if checkpoint else "no checkpoint yet"
        name = signal.Signals(signal_number).name
        super().__init__(f"stopped by {name} after {iterations_done} iterations; {kept}")
        self.signal_number, self.checkpoint = signal_number, checkpoint


class StopRequest:
    """Set by a signal, seen at the next turn of a wait."""

    def __init__(self) -> None:
        self.signal_number = 0
        self._since_s = 0.0

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self.signal_number != 0

    def request(self, signal_number: int) -> None:
        """As if the signal had come; a second one gives no grace."""
        if self.requested:
            raise KeyboardInterrupt
        self.signal_number, self._since_s = signal_number, time.monotonic()

    def check(self) -> None:
        """
        Raises:
            StopRequestedError: at once.
        """
        if self.requested:
            raise StopRequestedError

    def check_patiently(self) -> None:
        """For waits whose end leaves something worth keeping.

        Raises:
            StopRequestedError: when the signal's grace is over.
        """
        if self.requested and time.monotonic() - self._since_s > self.grace_s:
            raise StopRequestedError

    @property
    def grace_s(self) -> float:
        """Of the signal that came."""
        return GRACE_S.get(signal.Signals(self.signal_number), 0.0) if self.requested else 0.0

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Takes over SIGINT and SIGTERM for a block; only the main thread may, others go without."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: FrameType | None) -> None:
            self.request(number)

        former = {number: signal.signal(number, on_signal) for number in GRACE_S}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
