"""Admissions that another controller of this process has decided on and that the watch has not shown yet.

Their slots are held at once. Events from before the decision do not undo it. What the API shows counts again
as soon as the result of the write is known, or is in doubt for too long.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.api import Ended, Event, Happened
from bayplan.dialects.dialect import SlotReader
from bayplan.model.change import Change, QueuedGangLost, QueuedGangSeen
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, Plan
from bayplan.runtime.core.controller import Settled

NEVER = float("inf")
DOUBT_SECONDS = 60.0  # so long an admission holds its slots after its write has timed out


@dataclass(slots=True)
class AdmissionWrite:
    """The write of an admission, and the latest event since that did not count."""

    action: Admit
    version: int | None = None  # that it was written with
    latest: Event | None = None
    until: float = NEVER  # when its result is in doubt: how long it counts


class AdmissionsInFlight:
    """What is decided holds slots until the watch shows it, or it turns out that it was not written."""

    def __init__(self, slots: SlotReader) -> None:
        self.slots = slots
        self.writes: dict[Ref, AdmissionWrite] = {}
        self.due: list[Change] = []  # what the API shows, and counts from now on

    def decided(self, plan: Plan) -> Iterator[Change]:
        """What admission decides holds hosts from now on."""
        for action in plan.actions:
            if isinstance(action, Admit):
                self.writes[action.gang] = AdmissionWrite(action)
                yield QueuedGangSeen(replace(action.queued_gang, admission=action.admission, evicted=False))

    def seen(self, event: Event) -> Iterator[Change]:
        """The changes of the slots of a Workload; none if the event does not count yet."""
        ref = self.slots.ref_of(event.object) if event.happened is not Happened.SYNCED else None
        write = self.writes.get(ref) if ref is not None else None
        if self.due:  # what the API shows now is newer
            self.due = [change for change in self.due if _gang_of(change) != ref]
        if write is not None and event.happened is Happened.SEEN and not self._shows(event, write):
            write.latest = event
            return iter(())
        if write is not None:
            del self.writes[write.action.gang]
        return self.slots.decode(event)

    def refreshed(self) -> Iterator[Change]:
        """Slots whose devices became known, or others; not where an admission is being written."""
        for change in self.slots.flush():
            if isinstance(change, QueuedGangSeen) and change.queued_gang.gang.source not in self.writes:
                yield change

    def _shows(self, event: Event, write: AdmissionWrite) -> bool:
        """Whether an event shows a Workload as it was written, or as it became later."""
        if write.version is not None:
            return self.slots.version_of(event.object) >= write.version
        changes = self.slots.decode(event) if write.until < NEVER else ()
        shown = [one.queued_gang.admission for one in changes if isinstance(one, QueuedGangSeen)]
        return write.action.admission in shown

    def ended(self, settled: Settled, now: float) -> Iterator[Change]:
        """An admission that was not written holds nothing. After a timeout it may have been."""
        write = self.writes.get(settled.action.gang)
        if write is None or write.action is not settled.action or settled.ended is Ended.DONE:
            return
        write.until = now + DOUBT_SECONDS
        if settled.ended is not Ended.TIMED_OUT:
            yield from self._undo(write)
        elif write.latest is not None and self._shows(write.latest, write):
            yield from self._undo(write)  # the API shows that it was written

    def written(self, action: Admit, version: int) -> None:
        """An admission was written with this version; the watch may have shown that already."""
        write = self.writes.get(action.gang)
        if write is not None and write.action is action:
            write.version = version
            if write.latest is not None and self._shows(write.latest, write):
                self.due += self._undo(write)

    def overdue(self, now: float) -> None:
        """Admissions that are in doubt for too long were not written."""
        for write in [write for write in self.writes.values() if write.until <= now]:
            self.due += self._undo(write)

    def take_due(self) -> list[Change]:
        """The changes since the last call that no event causes."""
        due, self.due = self.due, []
        return due

    def next_due(self) -> float:
        """When an admission that is in doubt ends."""
        return min((write.until for write in self.writes.values()), default=NEVER)

    def in_doubt(self) -> bool:
        """Whether the result of a write is unknown."""
        return self.next_due() < NEVER

    def _undo(self, write: AdmissionWrite) -> Iterator[Change]:
        """What the API shows counts again."""
        self.writes.pop(write.action.gang, None)
        before = write.action.queued_gang
        if write.latest is not None:
            yield from self.slots.decode(write.latest)
        elif before.admission is None:
            yield QueuedGangLost(before.gang.source)
        else:
            yield QueuedGangSeen(before)


def _gang_of(change: Change) -> Ref | None:
    match change:
        case QueuedGangSeen(queued_gang):
            return queued_gang.gang.source
        case QueuedGangLost(ref):
            return ref
    return None
