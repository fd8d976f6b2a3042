"""Recording of a run: each plan, checked before it is carried out, and each write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from bayplan.dialects.api import Backend, Write
from bayplan.model.plan import Plan
from bayplan.runtime.core.journal import MemoryJournal
from bayplan.simulator.core.faults import Chances, FaultyBackend


class PlanObserver:
    """A journal that passes every plan to a checker while the state is still the one that was decided on.

    It keeps what is recorded, and encodes it only when the lines are asked for: few runs are compared.
    """

    def __init__(self, check: Callable[[Plan], None]) -> None:
        self.check = check
        self._entries: list[tuple[float, str, object, str]] = []

    @property
    def sequence(self) -> int:
        """The number of the last entry."""
        return len(self._entries)

    def record(self, now: float, what: str, body: object, role: str = "") -> None:
        self._entries.append((now, what, body, role))
        if what == "plan" and isinstance(body, Plan):
            self.check(body)

    def lines(self) -> list[bytes]:
        """The entries as a journal in files would hold them."""
        journal = MemoryJournal()
        for entry in self._entries:
            journal.record(*entry)
        return journal.lines


class RecordingBackend(FaultyBackend):
    """A faulty backend that records every write of Bayplan, so that two runs can be compared byte by byte."""

    def __init__(
        self, inner: Backend, rng: Random, chances: Chances, injected: Counter[str], lines: list[bytes]
    ) -> None:
        super().__init__(inner, rng, chances, injected)
        self.lines = lines

    def submit(self, writes: Sequence[Write]) -> None:
        self.lines += [
            msgspec.json.encode((w.verb, w.kind.path(w.namespace, w.name, w.subresource), w.body))
            for w in writes
        ]
        super().submit(writes)
