"""Forecasts corrected by our own past errors: how much later or earlier gangs started than forecast."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

ERRORS_KEPT = 150
"""Only recent errors: how much is overtaken changes from week to week."""
ERRORS_NEEDED = 20
"""With fewer past forecasts the draws are shown as they are."""
SMALLEST_WAIT = 300.0
"""Seconds added before waits are compared: twice as long matters less for a wait of a minute."""
LATEST = 0.95


@dataclass(frozen=True, slots=True)
class WaitMarks:
    """Waits in seconds from the moment of the forecast; infinite where they are unknown."""

    low: float  # 10 % of the draws start earlier
    middle: float
    high: float  # 10 % start later
    by_limits: float  # if all gangs run as long as they may


@dataclass(frozen=True, slots=True)
class CalibratedWait:
    """The interval in which 80 % start, and the time that few exceed."""

    low: float
    middle: float
    high: float
    latest: float  # infinite: not known


class Calibration:
    """The ratios of waits to what was forecast, of the gangs that started last."""

    def __init__(self, past: Iterable[tuple[WaitMarks, float]] = ()) -> None:
        self._low, self._high, self._by_limits = _Ratios(), _Ratios(), _Ratios()
        for marks, wait in past:
            self.learn(marks, wait)

    @property
    def errors(self) -> int:
        """How many past forecasts it knows."""
        return len(self._high.order)

    def learn(self, marks: WaitMarks, wait: float) -> None:
        """A gang for which there was a forecast has started, after this wait."""
        if np.isfinite(marks.high):
            self._low.add(wait, marks.low)
            self._high.add(wait, marks.high)
        if np.isfinite(marks.by_limits):
            self._by_limits.add(wait, marks.by_limits)

    def apply(self, marks: WaitMarks) -> CalibratedWait:
        """The marks, each moved so that it would have held for the right part of past forecasts."""
        low, high, latest = marks.low, marks.high, marks.by_limits
        if np.isfinite(latest):
            latest = max(latest, self._by_limits.moved(latest, LATEST))
        elif np.isfinite(high) and self.errors >= ERRORS_NEEDED:
            latest = self._high.moved(high, LATEST)
        if np.isfinite(high):
            low, high = self._low.moved(low, 0.1), self._high.moved(high, 0.9)
        low = max(0.0, min(low, marks.middle))
        high = max(high, marks.middle)
        return CalibratedWait(low, marks.middle, high, max(latest, high))


class _Ratios:
    """The ratios of waits to one mark, in order of time and in order of size."""

    def __init__(self) -> None:
        self.order: deque[float] = deque()
        self.sizes: list[float] = []

    def add(self, wait: float, mark: float) -> None:
        ratio = (wait + SMALLEST_WAIT) / (mark + SMALLEST_WAIT)
        self.order.append(ratio)
        insort(self.sizes, ratio)
        if len(self.order) > ERRORS_KEPT:
            self.sizes.remove(self.order.popleft())

    def moved(self, mark: float, part: float) -> float:
        """The mark, times the ratio that this part of past waits did not exceed."""
        if len(self.order) < ERRORS_NEEDED:
            return mark
        return (mark + SMALLEST_WAIT) * float(np.quantile(self.sizes, part)) - SMALLEST_WAIT
