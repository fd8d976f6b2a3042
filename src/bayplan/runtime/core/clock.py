"""The only reader of time: the system clock, and a virtual clock for simulations and tests."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol

if sys.platform == "linux":

    def _monotonic() -> float:
        # Counts while the machine is suspended: a leader that resumes must find its lease expired.
        return time.clock_gettime(time.CLOCK_BOOTTIME)

else:
    _monotonic = time.monotonic


class Clock(Protocol):
    """Where the runtime reads the time."""

    def monotonic(self) -> float:
        """Seconds since some moment; never goes back. For all comparisons."""

    def wall(self) -> float:
        """Seconds since 1970. For all that people or other machines read."""

    def sleep(self, seconds: float) -> None:
        """Let that much time pass."""


class SystemClock:
    """The time of this machine."""

    def monotonic(self) -> float:
        return _monotonic()

    def wall(self) -> float:
        return time.time()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))


class VirtualClock:
    """A clock that only moves when it is advanced; both readings move together."""

    def __init__(self, monotonic: float = 0.0, wall: float = 1_700_000_000.0) -> None:
        self._now = monotonic
        self._epoch = wall - monotonic

    def monotonic(self) -> float:
        return self._now

    def wall(self) -> float:
        return self._epoch + self._now

    def sleep(self, seconds: float) -> None:
        self.advance(max(0.0, seconds))

    def advance(self, seconds: float) -> float:
        """Advance, and return the new time."""
        assert seconds >= 0, f"time does not go back ({seconds})"
        self._now += seconds
        return self._now

    def advance_to(self, moment: float) -> float:
        """Advance to a moment; a moment in the past changes nothing."""
        self._now = max(self._now, moment)
        return self._now


def timestamp(wall: float) -> str:
    """Wall time in the format of Kubernetes, to the second."""
    return _utc(wall).strftime("%Y-%m-%dT%H:%M:%SZ")


def micro_timestamp(wall: float) -> str:
    """Wall time in the format of Kubernetes with microseconds, as in a Lease."""
    return _utc(wall).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def timer(clock: Clock) -> Callable[[], float]:
    """A stopwatch: each call returns the seconds since it was made."""
    began = clock.monotonic()
    return lambda: clock.monotonic() - began


def _utc(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, UTC)
