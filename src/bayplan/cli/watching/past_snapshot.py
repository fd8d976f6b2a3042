"""A snapshot of a state that was replayed, and what changes in it mean for gangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bayplan.cli.live.replay import Replaying, body_of
from bayplan.dashboard.host_map import GangIds, GangKey, MapMaker
from bayplan.dashboard.snapshot import DashboardSnapshot, GangEntry
from bayplan.dashboard.timeline import HistoryLine
from bayplan.explanation.text import shown_name
from bayplan.model.change import Change, GangSpecLost, NodeLost, NodeSeen, QueuedGangLost, QueuedGangSeen
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod
from bayplan.model.queued_gang import QueuedGang
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.runtime.core.journal import JournalEntry
from bayplan.state.admission.queues import QueueEntryState
from bayplan.state.scheduling.queue import EntryState

PLACED = (EntryState.RUNNING, EntryState.BINDING)
QUEUED = (QueueEntryState.PENDING, QueueEntryState.BACKOFF, QueueEntryState.INACTIVE)

TOLD = frozenset(one.__name__ for one in (QueuedGangSeen, QueuedGangLost, GangSpecLost, NodeLost, NodeSeen))
"""Changes that may be part of the history of a gang."""


class PastMaps:
    """Draws what a replayed state shows. Gangs have fewer fields than `bayplan list gangs` has for them."""

    def __init__(self, replaying: Replaying, ids: GangIds | None = None) -> None:
        scheduler = replaying.controllers[SchedulerController.name]
        admission = replaying.controllers[AdmissionController.name]
        assert isinstance(scheduler, SchedulerController) and isinstance(admission, AdmissionController)
        self.scheduler, self.admission = scheduler, admission
        self.maker = MapMaker(ids)

    @staticmethod
    def key(ref: Ref) -> GangKey:
        """A gang as it is listed."""
        return GangKey(ref.namespace, ref.kind, shown_name(ref))

    @property
    def namespaces(self) -> frozenset[str]:
        """The namespaces of all pods there are at this moment."""
        return frozenset(key.namespace for key in list(self.scheduler.state.store.pods))

    def pending(self) -> int:
        """How many gangs wait."""
        queued = sum(one.state in QUEUED for one in self.admission.state.pending.entries.values())
        return queued + sum(entry.state not in PLACED for entry in self.scheduler.state.entries())

    def snapshot(self, now: float) -> DashboardSnapshot:
        entries = {entry.id: entry for entry in self._entries()}
        known = {entry.key for entry in entries.values()}

        def gang_of(pod: Pod) -> GangKey | None:
            key = self.key_of(pod)
            return key if key in known else None

        reserved = self.admission.state.reservations.by_topology
        domains = {name: one.domains for name, one in reserved.items()}
        maps = self.maker.maps(self.scheduler.state, gang_of, domains)
        return DashboardSnapshot(now, maps, entries)

    def key_of(self, pod: Pod) -> GangKey:
        """The gang that a pod is shown in."""
        if pod.slot is not None:
            return self.key(pod.slot.gang)
        return self.key(pod.gang) if pod.gang is not None else GangKey(*_pod_name(pod))

    def _entries(self) -> Iterator[GangEntry]:
        for ref, one in self.admission.state.pending.entries.items():
            record = _record(self.key(ref), str(one.state).replace("_", " "), queue=one.queue)
            record["pods"] = sum(asked.count for asked in one.queued_gang.requests)
            yield self._entry(record, one.state in QUEUED)
        for entry in self.scheduler.state.entries():
            waits = entry.state not in PLACED
            record = _record(self.key(entry.ref), "pending" if waits else "running", queue=entry.queue)
            record["pods"] = entry.size if waits else len(self.scheduler.state.bound(entry.ref))
            yield self._entry(record, waits)

    def _entry(self, record: dict[str, Any], waits: bool) -> GangEntry:
        key = GangKey(record["namespace"], record["kind"], record["name"])
        return GangEntry(self.maker.id_of(key), key, record, waits)


def gang_histories(entry: JournalEntry, replaying: Replaying) -> Iterator[HistoryLine]:
    """What a change means for gangs, compared with the state before it."""

    def line(key: GangKey, text: str, *nodes: str) -> HistoryLine:
        return HistoryLine(entry.sequence, entry.now, key, text, nodes, joint=": ")

    if entry.body.get("is") not in TOLD:  # most changes: they need not be decoded here
        return
    maps = PastMaps(replaying)
    match body_of(entry, Change):
        case QueuedGangSeen(queued):
            key = maps.key(queued.gang.source)
            known = maps.admission.state.pending.entries.get(queued.gang.source)
            if text := _queued(None if known is None else known.queued_gang, queued):
                yield line(key, text)
        case QueuedGangLost(ref) if ref in maps.admission.state.pending.entries:
            yield line(maps.key(ref), "removed from its queue")
        case GangSpecLost(ref) if maps.scheduler.state.spec_of(ref) is not None:
            yield line(maps.key(ref), "removed")
        case NodeLost(name):
            yield from (line(key, "a node with its pods was removed", name) for key in _gangs_on(maps, name))
        case NodeSeen(node) if not node.ready:
            before = maps.scheduler.state.store.nodes.by_name.get(node.name)
            if before is not None and before.ready:
                yield from (
                    line(key, "a node with its pods is not ready", node.name)
                    for key in _gangs_on(maps, node.name)
                )


def _queued(before: QueuedGang | None, now: QueuedGang) -> str:
    queue = "/".join(now.namespace_queue)
    if before is None:
        return f"queued in {queue}" + (", already admitted" if now.admitted else "")
    if now.evicted and not before.evicted:
        return "is being evicted"
    if now.admitted and not before.admitted:
        return "admitted: its pods may start"
    if before.admission is not None and now.admission is None:
        return f"queued again in {queue}"
    added = [name for name in now.failed_nodes if name not in before.failed_nodes]
    return f"{len(added)} of its nodes failed and are to be replaced" if added else ""


def _gangs_on(maps: PastMaps, node: str) -> list[GangKey]:
    placed = maps.scheduler.state.store.placed.values()
    return sorted({maps.key_of(pod) for pod in placed if pod.node == node and not pod.finished})


def _record(key: GangKey, state: str, queue: str) -> dict[str, Any]:
    return {**key._asdict(), "state": state, "queue": queue}


def _pod_name(pod: Pod) -> tuple[str, str, str]:
    return pod.key.namespace, "Pod", pod.key.name
