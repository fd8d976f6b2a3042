"""Whose turn it is in a decision, and for how long it may go on about one gang.

Nothing here reads a clock: the time comes from outside, and in virtual time none passes. Should deciding
fail, whoever asked for the decision reads here which gang had its turn, and what had been found by then.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf

from bayplan.model.gang import Ref


class OutOfTime(Exception):
    """One gang took longer than the decision may go on about it."""


class Watchdog:
    """One for each decision."""

    def __init__(self, elapsed: Callable[[], float] = lambda: 0.0, budget: float = inf) -> None:
        self.elapsed, self.budget = elapsed, budget
        self.gang: Ref | None = None  # whose turn it is
        self.so_far: Callable[[], object] | None = None  # what is known of it if nothing more is found out
        self.slowest: tuple[float, Ref | None] = (0.0, None)
        self._began = 0.0

    def turn(self, gang: Ref) -> None:
        """From now on the decision is about this gang."""
        self.end_turn()
        self.gang, self.so_far = gang, None

    def end_turn(self) -> None:
        """The decision is about no gang in particular."""
        now = self.elapsed()
        if self.gang is not None and now - self._began > self.slowest[0]:
            self.slowest = now - self._began, self.gang
        self.gang, self.so_far, self._began = None, None, now

    def check(self) -> None:
        """Called by every search that may go on for long."""
        if self.gang is not None and self.elapsed() - self._began > self.budget:
            raise OutOfTime(f"{self.gang.namespace}/{self.gang.name}")

    @property
    def is_over(self) -> bool:
        """Whether the decision as a whole has used up its budget: the others have their turn in the next."""
        return self.elapsed() > self.budget
