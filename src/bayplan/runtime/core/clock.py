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


SLEW = 0.1  # of the time that passes: how fast the loop's time approaches a clock that was set
APART_SECONDS = 5.0  # a larger difference is logged


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


class SteadyWall:
    """Wall time for the loop, which measures delays with it: never goes back, and never jumps.

    It runs with the monotonic clock, and approaches the system clock by a tenth of the time that passes. If
    the loop followed a clock that is set back by an hour, every backoff would last an hour longer; if it
    followed one that is set forward, timeouts would end that have not passed.
    """

    def __init__(self, clock: Clock, note: Callable[[str], None] = lambda sentence: None) -> None:
        self._clock, self._note = clock, note
        self._at, self._wall = clock.monotonic(), clock.wall()
        self._apart = False

    def now(self) -> float:
        """Seconds since 1970."""
        at = self._clock.monotonic()
        passed, self._at = at - self._at, at
        apart = self._clock.wall() - (self._wall + passed)
        most = SLEW * passed
        self._wall += passed + max(-most, min(apart, most))
        self._tell(apart)
        return self._wall

    def _tell(self, apart: float) -> None:
        if self._apart != (abs(apart) > APART_SECONDS):
            self._apart = not self._apart
            set_to = f"{'forward' if apart > 0 else 'back'} by {abs(apart):.0f} s"
            self._note(
                f"the clock of this machine was set {set_to}; "
                "delays last as long as before, and times follow slowly"
                if self._apart
                else "the times of the loop are those of the clock again"
            )


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
