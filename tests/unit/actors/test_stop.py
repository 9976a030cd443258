"""Asking a run to stop."""

import os
import signal

import pytest

from actors.stop import RunStopped, StopRequest, StopRequestedError


def test_nothing_is_asked_at_first() -> None:
    stop = StopRequest()
    stop.check()
    assert not stop.requested


def test_a_signal_is_seen_at_the_next_check_and_handlers_come_back() -> None:
    stop, former = StopRequest(), signal.getsignal(signal.SIGTERM)
    with stop.handling():
        os.kill(os.getpid(), signal.SIGTERM)
        with pytest.raises(StopRequestedError):
            stop.check()
    assert stop.signal_number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is former


def test_a_second_signal_waits_for_nothing() -> None:
    stop = StopRequest()
    with stop.handling():
        os.kill(os.getpid(), signal.SIGINT)
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)


def test_the_end_says_what_stopped_it_and_what_is_kept() -> None:
    assert str(RunStopped(signal.SIGTERM, 7, None)) == "stopped by SIGTERM after 7 iterations; no checkpoint yet"
