"""The time limit of one gang within a decision, and which gang is being decided on.

Nothing here reads a clock: the time is passed in, and in virtual time none passes. If a decision fails, its
caller reads here which gang it was deciding on, and the result so far.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from bayplan.model.gang import Ref


class OutOfTime(Exception):
    """The decision on one gang exceeded its time limit."""


class Watchdog:
    """Watches one decision."""

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0, budget: float = inf) -> None:
        self.elapsed, self.budget = elapsed, budget
        self.gang: Ref | None = None  # the gang being decided on
        self.so_far: Callable[[], object] | None = None  # the result so far, if the decision stops here
        self.slowest: tuple[float, Ref | None] = (0.0, None)
        self._began = 0.0

    def turn(self, gang: Ref) -> None:
        """The decision continues with this gang."""
        self.end_turn()
        self.gang, self.so_far = gang, None

    def end_turn(self) -> None:
        """The decision is about no gang in particular."""
        now = self.elapsed()
        if self.gang is not None and now - self._began > self.slowest[0]:
            self.slowest = now - self._began, self.gang
        self.gang, self.so_far, self._began = None, None, now

    def check(self) -> None:
        """Raise OutOfTime if the gang exceeded its limit; called by every search that may take long."""
        if self.gang is not None and self.elapsed() - self._began > self.budget:
            raise OutOfTime(f"{self.gang.namespace}/{self.gang.name}")

    @property
    def is_over(self) -> bool:
        """Whether the whole decision exceeded its budget: the remaining gangs are left to the next one."""
        return self.elapsed() > self.budget
