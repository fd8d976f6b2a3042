"""The admission role: queues, quota and places for gangs, and the status of every object that shows it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.api import Ended, Event, Happened, Kind, Outcome, Verb, Write
from bayplan.dialects.kueue import admitting, notices, statuses, upkeep
from bayplan.dialects.kueue.demands import PLAIN, Counting
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Admit, Decline, Evict, Plan
from bayplan.model.profile import Profile
from bayplan.runtime.roles import Settled
from bayplan.runtime.rollups import Rollups, Watcher
from bayplan.scheduling.admit import decide_admissions
from bayplan.state.admissions import AdmissionState
from bayplan.state.turns import AdmissionSnapshot

Key = tuple[str, str]
Object = dict[str, Any]
Shown = Admit | Evict | Decline


@dataclass(frozen=True, slots=True)
class Kept:
    """The tag of a write that keeps a Workload's status true."""

    key: Key
    status: Object


@dataclass(slots=True)
class Flight:
    """A write under way: the Workload as it was before, and what is to be shown of it next."""

    before: Object
    waiting: deque[Shown] = field(default_factory=deque)


class AdmissionRole:
    """Decides on Workloads. What is written to one of them waits until the write before it has ended."""

    name = "admission"
    kinds: tuple[Kind, ...] = admitting.KINDS

    def __init__(
        self, profile: Profile | None = None, counting: Counting = PLAIN, watch: Watcher | None = None
    ) -> None:
        self.profile, self.counting = profile or Profile(), counting
        self.state = AdmissionState()
        self.rollups = Rollups(fair=self.profile.fair_sharing, watch=watch)
        self.workloads: dict[Key, Object] = {}
        self.dirty: dict[Key, None] = {}  # to be looked after; in order of coming
        self.flying: dict[Key, Flight] = {}

    def decode(self, event: Event) -> Iterator[Change]:
        if event.kind == admitting.WORKLOADS:
            self._note(event)
        else:
            self.rollups.note(event)
        return admitting.decode(event, self.counting)

    def fold(self, changes: Iterable[Change]) -> None:
        self.state.apply_all(changes)

    def look(self, now: float) -> AdmissionSnapshot | None:
        heads = self.state.heads(now)
        return self.state.snapshot(heads) if heads else None

    def decide(self, view: AdmissionSnapshot, now: float) -> Plan:
        return decide_admissions(view, self.profile, now)

    def assume(self, plan: Plan, now: float) -> None:
        self.state.assume(plan, now)

    def encode(self, plan: Plan, now: float) -> Iterator[Write]:
        for action in plan.actions:
            if isinstance(action, Shown):
                yield from self._shown(action, now)

    def keep(self, now: float) -> Iterator[Write]:
        """Statuses that have to follow what others wrote."""
        for key in list(self.dirty):
            if key in self.flying:
                continue
            del self.dirty[key]
            workload = self.workloads.get(key)
            status = None if workload is None else self._upkept(workload, now)
            if workload is not None and status is not None:
                self.flying[key] = Flight(workload)
                yield _write(workload, status, Kept(key, status))
        yield from self.rollups.writes(self.state, now)

    def settle(self, settled: Settled, now: float) -> None:
        if settled.ended in (Ended.DONE, Ended.TIMED_OUT):
            return  # the watch will tell, or the assumption runs out
        match settled.action:
            case Admit() as action:
                self.state.admission_failed(action.gang, now)
            case Evict() as action:
                self.state.eviction_failed(action.gang)

    def follow_up(self, outcome: Outcome, now: float) -> Iterator[Write]:
        """Announce what was written, and write what waited for it."""
        self.rollups.ended(outcome)
        tag = outcome.write.tag
        if not isinstance(tag, Shown | Kept):
            return
        key = tag.key if isinstance(tag, Kept) else _key(tag.gang)
        flight = self.flying.pop(key, None)
        if flight is None:
            return
        if outcome.ended is Ended.DONE:
            found = (
                notices.upkeep_events(flight.before, tag.status, now)
                if isinstance(tag, Kept)
                else notices.events(tag, flight.before, now)
            )
            yield from (notices.notice_write(notice, now) for notice in found)
            self._take_answer(key, outcome.object)
        while flight.waiting and key not in self.flying:
            yield from self._shown(flight.waiting.popleft(), now)
        if flight.waiting:
            self.flying[key].waiting = flight.waiting

    def next_due(self, now: float) -> float:
        if any(key not in self.flying for key in self.dirty):
            return now
        return min(self.state.next_due(now), self.rollups.next_due(self.state))

    def _note(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            return
        meta = event.object["metadata"]
        key = (meta.get("namespace", "default"), meta["name"])
        if event.happened is Happened.GONE:
            self.workloads.pop(key, None)
            self.dirty.pop(key, None)
        else:
            self.workloads[key] = event.object
            self.dirty[key] = None

    def _take_answer(self, key: Key, answer: object) -> None:
        """What the API made of a write is known at once; the watch will tell the same later."""
        known = self.workloads.get(key)
        if isinstance(answer, dict) and known is not None and _version(answer) > _version(known):
            self.workloads[key] = answer

    def _shown(self, action: Shown, now: float) -> Iterator[Write]:
        key = _key(action.gang)
        if key in self.flying:
            self.flying[key].waiting.append(action)
            return
        workload = self.workloads.get(key)
        if workload is None:
            return
        match action:
            case Admit():
                status = statuses.admitted(workload, action, now)
            case Evict():
                status = statuses.evicted(workload, action, now)
            case Decline():
                status = statuses.declined(workload, action, now)
        if status is not None:
            self.flying[key] = Flight(workload)
            yield _write(workload, status, action)
        elif isinstance(action, Decline):
            for notice in notices.events(action, workload, now):
                yield notices.notice_write(notice, now)

    def _upkept(self, workload: Object, now: float) -> Object | None:
        """The status that a Workload should have, if that is another."""
        queue = ((workload.get("status") or {}).get("admission") or {}).get("clusterQueue", "")
        status = upkeep.synced(workload, self._checks(workload, queue), now)
        if status is None and not workload["metadata"].get("ownerReferences"):
            status = upkeep.released(workload, now)  # nobody else would: it has no job to stop
        return status

    def _checks(self, workload: Object, queue: str) -> tuple[str, ...]:
        """The checks that an admitted Workload has to pass, by the flavors it was given."""
        rules = self.state.rules.queues.get(queue)
        if rules is None:
            return ()
        parts = workload["status"]["admission"].get("podSetAssignments") or []
        flavors = {flavor for part in parts for flavor in (part.get("flavors") or {}).values()}
        return tuple(
            name for name, only in sorted(rules.checks.items()) if not only or flavors.intersection(only)
        )


def _key(ref: Ref) -> Key:
    return (ref.namespace, ref.name)


def _version(workload: Object) -> int:
    text = str(workload["metadata"].get("resourceVersion", ""))
    return int(text) if text.isdigit() else 0


def _write(workload: Object, status: Object, tag: object) -> Write:
    meta = workload["metadata"]
    return Write(
        Verb.UPDATE,
        admitting.WORKLOADS,
        meta.get("namespace", "default"),
        meta["name"],
        {**workload, "status": status},
        subresource="status",
        version=meta.get("resourceVersion", ""),
        tag=tag,
    )
