"""The past of a cluster, from the journal of the loop: read as it grows, and replayed to any entry."""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import OrderedDict, deque
from collections.abc import Iterator, Sequence
from pathlib import Path

from bayplan.cli.live.replay import Replaying, body_of
from bayplan.cli.watching.past_snapshot import PastMaps, gang_histories
from bayplan.configuration.settings import Settings
from bayplan.dashboard.host_map import GangIds, GangKey
from bayplan.dashboard.snapshot import DashboardSnapshot, Totals
from bayplan.dashboard.timeline import Decision, HistoryLine, Overview, totals_at
from bayplan.explanation.plan_lines import plan_lines
from bayplan.model.plan import Plan
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.clock import Clock, timer
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry, JournalReader

SHOWN_ROLES = ("", SchedulerController.name, AdmissionController.name)
"""Roles whose entries change what is shown; "" is the scheduler in journals of one role."""
DECISIONS_MAX = 50_000
GANGS_MAX = 20_000
LINES_MAX = 200  # of one gang
POINTS_MAX = 2048
POINT_SECONDS = 1.0
FRAMES_MAX = 64
BEFORE = 16  # decisions before a moment that are kept with it: users step back
REST_SECONDS = 0.5  # between looks at the journal
WORK_SECONDS = 0.1  # of reading before a pause as long


class JournalTimeline:
    """Reads a journal in one thread (`run`); answers from any thread."""

    def __init__(self, folder: Path, settings: Settings, clock: Clock, ids: GangIds | None = None) -> None:
        self._folder, self._settings, self._clock = folder, settings, clock
        self._lock = threading.Lock()  # of everything that is read by other threads
        self._decisions: deque[Decision] = deque(maxlen=DECISIONS_MAX)
        self._histories: OrderedDict[GangKey, deque[HistoryLine]] = OrderedDict()
        self._namespaces: set[str] = set()
        self._points: list[tuple[int, Totals]] = []
        self._spacing = POINT_SECONDS
        self._first = self._last = 0
        self._note, self._is_read = "", False
        self._newest = _Position(folder, settings, ids)
        self._ids = ids
        self._replaying = threading.Lock()  # of the position that answers `at`
        self._past: _Position | None = None
        self._frames: OrderedDict[int, DashboardSnapshot] = OrderedDict()

    # ── reading ────────────────────────────────────────────────────────────────────────────────────

    def run(self, stop: threading.Event) -> None:
        """Read the journal as it grows, until it is stopped or the journal cannot be read any further."""
        while not stop.is_set():
            try:
                self.read_new(stop)
            except (Damaged, OSError) as error:
                with self._lock:
                    self._note, self._is_read = f"the journal cannot be read further: {error}", True
                return
            stop.wait(REST_SECONDS)

    def read_new(self, stop: threading.Event | None = None) -> None:
        """Read all entries that are new. Raises Damaged and OSError."""
        seconds = timer(self._clock)
        for entry in self._newest.entries():
            lines = self._lines(entry)
            self._newest.follow(entry)
            self._take(entry, lines)
            if stop is not None and seconds() > WORK_SECONDS:
                if stop.wait(WORK_SECONDS):
                    return
                seconds = timer(self._clock)
        with self._lock:
            self._is_read = True
            if self._newest.reader.lost:
                self._note = "the beginning of the journal is deleted; what is shown lacks what was in it"

    def _lines(self, entry: JournalEntry) -> list[HistoryLine]:
        """What an entry says of gangs. Asked before it is applied: changes are compared with the state."""
        if entry.role not in SHOWN_ROLES:
            return []
        if entry.kind is EntryKind.CHANGE:
            return list(gang_histories(entry, self._newest.replaying))
        if entry.kind is not EntryKind.PLAN:
            return []
        return [
            HistoryLine(
                entry.sequence,
                entry.now,
                self._newest.maps.key(line.gang),
                line.text,
                line.nodes,
                None if line.other is None else self._newest.maps.key(line.other),
            )
            for line in plan_lines(body_of(entry, Plan))
        ]

    def _take(self, entry: JournalEntry, lines: Sequence[HistoryLine]) -> None:
        is_plan = entry.kind is EntryKind.PLAN and bool(lines)
        due = not self._points or entry.now - self._points[-1][1].now >= self._spacing
        point = self._newest.totals(entry.now) if due and entry.role in SHOWN_ROLES else None
        with self._lock:
            self._first, self._last = self._first or entry.sequence, entry.sequence
            if is_plan:
                self._decisions.append(Decision(entry.sequence, entry.now, tuple(lines)))
            for line in lines:
                self._remember(line)
            if point is not None:
                self._points.append((entry.sequence, point))
                if len(self._points) > POINTS_MAX:
                    self._points = self._points[::2]
                    self._spacing *= 2

    def _remember(self, line: HistoryLine) -> None:
        self._namespaces.add(line.key.namespace)
        known = self._histories.setdefault(line.key, deque(maxlen=LINES_MAX))
        self._histories.move_to_end(line.key)
        if known and (known[-1].text, known[-1].nodes) == (line.text, line.nodes):
            return  # told again
        known.append(line)
        while len(self._histories) > GANGS_MAX:
            self._histories.popitem(last=False)

    # ── answers ────────────────────────────────────────────────────────────────────────────────────

    def overview(self) -> Overview:
        with self._lock:
            return Overview(self._first, self._last, tuple(self._points), self._note, self._is_read)

    def history(self, key: GangKey) -> Sequence[HistoryLine]:
        with self._lock:
            return tuple(self._histories.get(key, ()))

    def namespaces(self) -> frozenset[str]:
        with self._lock:
            return frozenset(self._namespaces) | self._newest.maps.namespaces

    def decisions(self, after: int, before: int, limit: int) -> Sequence[Decision]:
        with self._lock:
            known = list(self._decisions)
        low = bisect_left(known, after + 1, key=_sequence) if after >= 0 else 0
        found = known[low : bisect_left(known, before, key=_sequence)]
        return found[:limit] if after >= 0 else found[-limit:] if limit else []

    def at(self, sequence: int) -> DashboardSnapshot | None:
        with self._replaying:
            if sequence in self._frames:
                self._frames.move_to_end(sequence)
                return self._frames[sequence]
            known = self.overview()
            if not known.first <= sequence <= known.last:
                return None
            kept = {one.sequence for one in self.decisions(-1, sequence, BEFORE)} | {sequence}
            if self._past is None or self._past.sequence > min(kept):
                self._past = _Position(self._folder, self._settings, self._ids)
            self._replay(self._past, sequence, kept)
            return self._frames.get(sequence)

    def _replay(self, past: _Position, sequence: int, kept: set[int]) -> None:
        """Replay up to an entry, and keep what was to be seen at some of them."""
        while past.sequence < sequence:
            entry = next(past.waiting, None)
            if entry is None:
                past.waiting = past.entries()
                entry = next(past.waiting, None)
                if entry is None:
                    return
            past.follow(entry)
            if entry.sequence in kept:
                self._frames[entry.sequence] = past.snapshot(entry.now)
                while len(self._frames) > FRAMES_MAX:
                    self._frames.popitem(last=False)


class _Position:
    """The state after some entry of the journal."""

    def __init__(self, folder: Path, settings: Settings, ids: GangIds | None) -> None:
        self.reader = JournalReader(folder)
        self.replaying = Replaying(settings)
        self.maps = PastMaps(self.replaying, ids)
        self.sequence = 0
        self.waiting: Iterator[JournalEntry] = iter(())

    def entries(self) -> Iterator[JournalEntry]:
        """New entries of the journal."""
        return self.reader.read()

    def follow(self, entry: JournalEntry) -> None:
        if entry.role in SHOWN_ROLES:
            self.replaying.follow(entry)
        self.sequence = entry.sequence

    def totals(self, now: float) -> Totals:
        return totals_at(self.maps.scheduler.state, now, self.maps.pending())

    def snapshot(self, now: float) -> DashboardSnapshot:
        return self.maps.snapshot(now)


def _sequence(decision: Decision) -> int:
    return decision.sequence
