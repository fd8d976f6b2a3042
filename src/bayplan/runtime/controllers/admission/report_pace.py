"""How fast pending gangs are told why they wait: behind admissions, and a few at a time."""

from __future__ import annotations

from collections.abc import Iterator

from bayplan.model.plan import ReportNotAdmitted
from bayplan.runtime.core.object_cache import Key

WRITING_MAX = 8  # reports in flight
SLOW_BURST, SLOW_RATE = 10.0, 2.0  # reports while admissions are written: at once, and per second
NEVER = float("inf")


class ReportPace:
    """Holds back reports in the order in which they came; a newer one of the same gang replaces the older.

    While gangs are admitted one after the other, most of those that wait will not wait for long, and each
    report would delay an admission.
    """

    def __init__(self) -> None:
        self.held: dict[Key, ReportNotAdmitted] = {}
        self._writing: set[Key] = set()
        self._tokens, self._counted_at = SLOW_BURST, 0.0

    def may_write(self, key: Key, action: ReportNotAdmitted, now: float, *, admitting: bool) -> bool:
        """Whether a report may be written now; else it is held back."""
        if not self.held and self._take(key, now, admitting=admitting):
            return True
        self.held[key] = action
        return False

    def due(self, now: float, *, admitting: bool) -> Iterator[ReportNotAdmitted]:
        """The reports that may be written now."""
        while self.held and self._take(key := next(iter(self.held)), now, admitting=admitting):
            yield self.held.pop(key)

    def ended(self, key: Key) -> None:
        """The write of a report has ended, or there was nothing to write."""
        self._writing.discard(key)

    def drop(self, key: Key) -> None:
        """Forget the report of a gang: there is a newer decision, or the gang is gone."""
        self.held.pop(key, None)

    def next_due(self, now: float, *, admitting: bool) -> float:
        """When the next report may be written, unless a write ends before."""
        if not self.held:
            return NEVER
        if not admitting and len(self._writing) < WRITING_MAX:
            return now
        return self._counted_at + max(0.0, 1.0 - self._tokens) / SLOW_RATE

    def _take(self, key: Key, now: float, *, admitting: bool) -> bool:
        self._tokens = min(SLOW_BURST, self._tokens + max(0.0, now - self._counted_at) * SLOW_RATE)
        self._counted_at = now
        if admitting or len(self._writing) >= WRITING_MAX:
            if self._tokens < 1.0:
                return False
            self._tokens -= 1.0
        self._writing.add(key)
        return True
