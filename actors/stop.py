"""Stopping a run by Ctrl-C or SIGTERM: a wish that the waits look at, not an exception in the middle of something."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from learner.errors import UserError

SIGNALS = (signal.SIGINT, signal.SIGTERM)


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

    @property
    def requested(self) -> bool:
        """Whether a signal came."""
        return self.signal_number != 0

    def request(self, signal_number: int) -> None:
        """As if the signal had come; a second one waits for nothing."""
        if self.requested:
            raise KeyboardInterrupt
        self.signal_number = signal_number

    def check(self) -> None:
        """
        Raises:
            StopRequestedError: at once.
        """
        if self.requested:
            raise StopRequestedError

    @contextmanager
    def handling(self) -> Iterator[None]:
        """Takes over SIGINT and SIGTERM for a block; only the main thread may, others go without."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def on_signal(number: int, frame: FrameType | None) -> None:
            self.request(number)

        former = {number: signal.signal(number, on_signal) for number in SIGNALS}
        try:
            yield
        finally:
            for number, handler in former.items():
                signal.signal(number, handler)
