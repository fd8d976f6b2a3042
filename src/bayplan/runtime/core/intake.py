"""Applies events to the state of one controller; an object that cannot be decoded affects no other.

An event that cannot be decoded changes nothing: the last known state of its object still counts. A change
that cannot be applied may leave the state half changed, so the state is then rebuilt from the latest change
of every other object, and assumes again the plans in flight.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bayplan.dialects.api import Event, Happened, InvalidInUse
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.model.change import Change, PodLost, Started
from bayplan.model.plan import Plan
from bayplan.model.pod import PodKey
from bayplan.model.subject import Subject, is_loss, subject_of
from bayplan.runtime.core.containment import Containment
from bayplan.runtime.core.controller import Controller, Recorder
from bayplan.runtime.core.latest_objects import LatestObjects
from bayplan.runtime.core.quarantine import Quarantine, deletion_by_name, named, title, usage_change

FLUSH_FAILURES_MAX = 1000  # failures in one step; each removes its object from the batch


class EventIntake:
    """The event intake of one controller."""

    def __init__(self, role: Controller, journal: Recorder, containment: Containment) -> None:
        self.controller, self.journal, self.containment = role, journal, containment
        self.kinds = frozenset(role.kinds)
        self.quarantine = Quarantine()
        self.latest = LatestObjects()
        self.rejected: dict[Subject, Change] = {}  # changes that could not be applied
        self.unseen = False  # the state has changed since it was last asked what is due

    def apply_events(self, events: Iterable[Event], now: float) -> None:
        """Decode events, record and apply the changes."""
        changes: list[Change] = []
        if self.quarantine:
            for event in self.quarantine.due(now):
                self._decode(event, now, changes)
        kinds, kind, wanted = self.kinds, None, False
        for event in events:
            if event.kind is not kind:  # mostly that of the event before
                kind, wanted = event.kind, event.kind in kinds
            if wanted:
                self._decode(event, now, changes)
        self._flush(changes)
        if changes:
            self._record(changes, now)
        self._apply(changes, now)

    def apply_changes(self, changes: Iterable[Change], now: float) -> None:
        """Record and apply changes that no event caused."""
        known = list(changes)
        if known:
            self._record(known, now)
            self._apply(known, now)

    # ── decoding ───────────────────────────────────────────────────────────────────────────────────

    def _decode(self, event: Event, now: float, changes: list[Change]) -> None:
        try:
            changes += self.controller.decode(event)  # changes made before a failure are valid by themselves
        except InvalidInUse:
            self._decode_usage(event, changes)
        except Exception as error:
            self.containment.failed(error, "decode", event.kind.kind, title(event.object))
            if event.happened is Happened.GONE:
                self._decode_loss(event, now, changes)
            else:
                self.quarantine.put(event, now)
                self._decode_usage(event, changes)
            return
        if self.quarantine:
            self.quarantine.release(event)

    def _decode_usage(self, event: Event, changes: list[Change]) -> None:
        """What the object uses counts, unless more is known of it from before."""
        if not self.controller.has_state:
            return
        with self.containment.unit("decode", event.kind.kind, title(event.object)):
            if isinstance(event.object, PodWire):
                least = usage_change(event, self.latest.pod(_pod_key(event)))
                changes += (least,) if least is not None else ()
            else:
                found = self.controller.decode_usage(event)
                changes += [change for change in found if change not in self.latest]

    def _decode_loss(self, event: Event, now: float, changes: list[Change]) -> None:
        """A deleted object must not count any longer, even if it cannot be decoded."""
        try:
            changes += self.controller.decode(deletion_by_name(event))
            self.quarantine.release(event)
        except Exception as error:
            self.containment.failed(error, "decode", event.kind.kind, title(event.object))
            self.quarantine.put(event, now)
            if self.controller.has_state and isinstance(event.object, PodWire):
                changes.append(PodLost(_pod_key(event)))

    def _flush(self, changes: list[Change]) -> None:
        for _ in range(FLUSH_FAILURES_MAX):
            try:
                changes += self.controller.flush()
                return
            except Exception as error:
                self.containment.failed(error, "gather", self.controller.name)

    # ── applying ───────────────────────────────────────────────────────────────────────────────────

    def _record(self, changes: Iterable[Change], now: float) -> None:
        for change in changes:
            try:
                self.journal.record(now, "change", change, self.controller.name)
            except Exception as error:
                self.containment.failed(error, "journal", *_titled(change))

    def _apply(self, changes: Sequence[Change], now: float) -> None:
        self.unseen = self.unseen or bool(changes)
        if self.rejected:
            changes = [change for change in changes if not self._is_rejected(change)]
        try:
            self.controller.apply(changes)
        except Exception as error:
            self._apply_one_by_one(changes, error, now)
        else:
            self.latest.note(changes)

    def rebuild(self, now: float) -> None:
        """Rebuild the state: a failed decision changed it."""
        under_way = self._under_way()
        self._build(now)
        self._assume(under_way, now)

    def _apply_one_by_one(self, changes: Sequence[Change], error: Exception, now: float) -> None:
        """Rebuild the state, then apply the changes one by one, without those that fail."""
        under_way = self._under_way()
        if len(changes) == 1:
            self._reject(changes[0], error)
            changes = ()
        self._build(now)
        for change in changes:
            self._record((change,), now)
            try:
                self.controller.apply((change,))
            except Exception as failure:
                self._reject(change, failure)
                self._build(now)
            else:
                self.latest.note((change,))
        self._assume(under_way, now)

    def _assume(self, plan: Plan, now: float) -> None:
        if plan.actions:
            with self.containment.unit("assume", self.controller.name):
                self.journal.record(now, "assumed", plan, self.controller.name)
                self.controller.assume(plan, now)

    def _build(self, now: float) -> None:
        """Reset the state and apply the latest change of every object."""
        self.unseen = True
        known = [Started(), *self.latest]
        self._record(known, now)
        try:
            self.controller.apply(known)
        except Exception as error:  # not caused by one object alone: apply what can be applied
            self.containment.failed(error, "fold", self.controller.name)
            for change in known:
                with self.containment.unit("fold", *_titled(change)):
                    self.controller.apply((change,))

    def _under_way(self) -> Plan:
        try:
            return self.controller.plan_in_flight()
        except Exception as error:
            self.containment.failed(error, "assume", self.controller.name)
            return Plan()

    def _reject(self, change: Change, error: Exception) -> None:
        self.containment.failed(error, "fold", *_titled(change))
        if is_loss(change):
            self.latest.drop(change)  # the rebuilt state lacks the object
        else:
            self.rejected[subject_of(change)] = change

    def _is_rejected(self, change: Change) -> bool:
        """Whether this change failed before. A newer change of the same object is tried."""
        subject = subject_of(change)
        if self.rejected.get(subject) == change:
            return True
        self.rejected.pop(subject, None)
        return False


def _pod_key(event: Event) -> PodKey:
    namespace, name = named(event.object)
    return PodKey(namespace or "default", name)


def _titled(change: Change) -> tuple[str, str]:
    family, key = subject_of(change)
    named = getattr(key, "name", None)
    if named is None:
        return family, "/".join(map(str, key)) if isinstance(key, tuple) else str(key)
    return family, f"{getattr(key, 'namespace', '')}/{named}"
