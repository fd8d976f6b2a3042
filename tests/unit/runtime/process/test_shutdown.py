"""Graceful shutdown: in order, in time, whatever fails on the way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading

import pytest

from bayplan.runtime.core.clock import VirtualClock
from bayplan.runtime.process.shutdown import ShutdownStack, stop_on_signal


def test_what_was_opened_last_is_closed_first_and_told_the_time_left() -> None:
    clock, told, notes = VirtualClock(), list[tuple[str, float]](), list[str]()
    closing = ShutdownStack(clock, notes.append, grace_seconds=10.0)

    def slow(name: str, seconds: float) -> None:
        def close(left: float) -> None:
            told.append((name, left))
            clock.advance(seconds)

        closing.opened(name, close)

    slow("journal", 0)
    slow("lease", 2)
    slow("writes", 5)
    assert closing.close()
    assert told == [("writes", 10.0), ("lease", 5.0), ("journal", 3.0)]
    assert notes == []
    assert closing.close(), "a second time there is nothing to do"


def test_trouble_does_not_keep_the_rest_from_being_closed() -> None:
    clock, closed, notes = VirtualClock(), list[float](), list[str]()
    closing = ShutdownStack(clock, notes.append, grace_seconds=10.0)

    def broken(left: float) -> None:
        clock.advance(11)
        raise OSError("disk is gone")

    closing.opened("lease", closed.append)
    closing.opened("journal", broken)
    assert not closing.close()
    assert closed == [0.0]
    assert notes == [
        "journal was not closed cleanly: OSError('disk is gone')",
        "closing took longer than 10 s",
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_asks_to_stop_and_handlers_are_put_back(number: signal.Signals) -> None:
    stop, before = threading.Event(), signal.getsignal(number)
    with stop_on_signal(stop):
        os.kill(os.getpid(), number)
        assert stop.wait(5)
    assert signal.getsignal(number) is before


def test_a_second_signal_ends_at_once() -> None:
    program = (
        "import os, signal, threading\n"
        "from bayplan.runtime.process.shutdown import stop_on_signal\n"
        "with stop_on_signal(threading.Event()):\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('first', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGTERM)\n"
        "    print('second', flush=True)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=30, check=False
    )
    assert ended.returncode == 128 + signal.SIGTERM
    assert ended.stdout == "first\n"


def test_a_signal_during_a_wait_is_handled() -> None:
    program = (
        "import os, signal, threading\n"
        "from bayplan.runtime.process.shutdown import stop_on_signal\n"
        "stop = threading.Event()\n"
        "with stop_on_signal(stop):\n"
        "    with stop._cond:\n"  # where the main thread is for an instant of every wait
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "    assert stop.wait(20)\n"
    )
    ended = subprocess.run([sys.executable, "-c", program], timeout=30, check=False)
    assert ended.returncode == 0
