"""The nodes and the gangs that a journal of `bayplan run` tells of, as a cluster and a trace to simulate."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from bayplan.cli.live.replay import body_of
from bayplan.model.change import (
    Change,
    GangSpecLost,
    GangSpecSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    QueuedGangLost,
    QueuedGangSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import AUTO, GangSpec, Locality, PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.pod import Pod, PodKey
from bayplan.model.queued_gang import QueuedGang
from bayplan.runtime.core.journal import Damaged, EntryKind, JournalEntry, replay
from bayplan.simulation.traces.cluster_shapes import BLOCK, RACK
from bayplan.simulation.traces.workload import Trace, TraceJob

_KINDS = frozenset(
    one.__name__
    for one in (
        NodeSeen, NodeLost, TopologySeen, TopologyLost, QueuedGangSeen, QueuedGangLost, PodSeen, PodLost,
        GangSpecSeen, GangSpecLost,
    )
)  # fmt: skip


def is_journal(path: str) -> bool:
    """Whether a path names a journal: a folder, or one of its files."""
    return Path(path).is_dir() or path.endswith(".jsonl")


def read_journal(path: str) -> JournalWorkload:
    """What a journal tells. A journal that cannot be read is an error of the command."""
    found = JournalWorkload(path)
    try:
        for entry in replay(Path(path)):
            found.follow(entry)
    except (Damaged, OSError) as error:
        raise click.ClickException(str(error)) from None
    return found


@dataclass(slots=True)
class SeenGang:
    """A gang of the journal; of gangs with several pod sets the largest pod counts for all."""

    arrival: float
    pods: int = 0
    requests: Mapping[str, int] = field(default_factory=dict)
    locality: Locality = field(default_factory=Locality)
    priority: int = 0
    started: float | None = None
    ended: float | None = None
    unequal: bool = False
    alive: set[PodKey] = field(default_factory=set)  # its pods, if the scheduler binds them


class JournalWorkload:
    """Nodes and gangs, from the entries of a journal in their order."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.first: float | None = None
        self.last = 0.0
        self.known_nodes: dict[str, Node] = {}
        self.topologies: dict[str, Topology] = {}
        self.specs: dict[Ref, GangSpec] = {}
        self.open: dict[Ref, SeenGang] = {}
        self.queued: dict[Ref, str] = {}  # the uid of each open gang of a queue
        self.gang_of: dict[PodKey, Ref] = {}
        self.all: list[tuple[Ref, SeenGang]] = []  # in order of appearance

    def follow(self, entry: JournalEntry) -> None:
        """Take in one entry."""
        self.first = entry.now if self.first is None else self.first
        self.last = max(self.last, entry.now)
        kind = entry.body.get("is") if isinstance(entry.body, dict) else None
        if entry.kind is not EntryKind.CHANGE or kind not in _KINDS:
            return
        match body_of(entry, Change):
            case NodeSeen(node):
                self.known_nodes[node.name] = node
            case NodeLost(name):
                self.known_nodes.pop(name, None)
            case TopologySeen(topology):
                self.topologies[topology.name] = topology
            case TopologyLost(name):
                self.topologies.pop(name, None)
            case GangSpecSeen(spec):
                self.specs[spec.source] = spec
            case GangSpecLost(ref):
                self.specs.pop(ref, None)
            case QueuedGangSeen(gang):
                self._gang_seen(gang, entry.now)
            case QueuedGangLost(ref):
                self._gang_ended(ref, entry.now)
            case PodSeen(pod):
                self._pod_seen(pod, entry.now)
            case PodLost(key):
                self._pod_ended(key, entry.now)

    def nodes(self) -> tuple[Node, ...]:
        """The nodes at the end of the journal that were ready and schedulable, by name."""
        usable = [node for node in self.known_nodes.values() if node.ready and node.schedulable]
        if not usable:
            raise click.ClickException(
                f"{self.path} tells of no node that is ready and schedulable at its end"
            )
        return tuple(sorted(with_racks(usable, self.topologies), key=lambda node: node.name))

    def trace(self) -> Trace:
        """The gangs in order of arrival; those that never started have no run time."""
        if not self.all or self.first is None:
            raise click.ClickException(f"{self.path} tells of no gang and no pod that Bayplan schedules")
        names: dict[str, int] = {}
        jobs = []
        for ref, gang in self.all:
            name = f"{ref.namespace}/{ref.name}"
            names[name] = names.get(name, 0) + 1
            title = name if names[name] == 1 else f"{name}#{names[name]}"
            jobs.append(self._job(title, ref, gang, self.first))
        jobs.sort(key=lambda job: (job.arrival, job.name))
        return Trace(self.path, tuple(jobs), notes=tuple(self._notes()))

    def _job(self, name: str, ref: Ref, gang: SeenGang, first: float) -> TraceJob:
        duration = None
        if gang.started is not None:
            end = self.last if gang.ended is None else gang.ended
            duration = max(end - max(gang.started, first), 0.0)
        return TraceJob(
            name,
            max(gang.arrival - first, 0.0),
            duration,
            {resource: amount for resource, amount in gang.requests.items() if amount and resource != PODS},
            max(gang.pods, 1),
            ref.namespace,
            locality=gang.locality,
            priority=gang.priority,
        )

    def _notes(self) -> Iterable[str]:
        first, gangs = self.first or 0.0, [gang for _, gang in self.all]
        if early := sum(gang.started is not None and gang.started < first for gang in gangs):
            yield f"{early} gangs ran before the journal begins; they arrive at its beginning"
        if late := sum(gang.started is not None and gang.ended is None for gang in gangs):
            yield f"{late} gangs ran when the journal ends; they are taken to end then"
        if unequal := sum(gang.unequal for gang in gangs):
            yield f"{unequal} gangs have pods of several sizes; all count as the largest"
        yield "pods of other schedulers are left out"

    # ── gangs of queues ────────────────────────────────────────────────────────────────────────────

    def _gang_seen(self, queued: QueuedGang, now: float) -> None:
        ref, uid = queued.gang.source, queued.gang.uid
        if self.queued.get(ref) != uid:
            self._gang_ended(ref, now)
            self.queued[ref] = uid
            self._opened(ref, queued.created or now)
        gang, pod_sets = self.open[ref], list(queued.gang.root.pod_sets())
        gang.priority, gang.pods = queued.gang.priority, sum(one.count for one in pod_sets)
        gang.requests, gang.unequal = _largest(pod_sets)
        gang.locality = _locality([queued.gang.root.locality, *(one.locality for one in pod_sets)])
        if not queued.admitted or queued.evicted:
            gang.started = None  # if it ran, it runs again from its beginning
        elif gang.started is None:
            gang.started = queued.reserved or now

    def _gang_ended(self, ref: Ref, now: float) -> None:
        gang = self.open.pop(ref, None)
        self.queued.pop(ref, None)
        if gang is not None:
            gang.ended = now

    def _opened(self, ref: Ref, arrival: float) -> SeenGang:
        gang = self.open[ref] = SeenGang(arrival)
        self.all.append((ref, gang))
        return gang

    # ── gangs and pods of the scheduler ────────────────────────────────────────────────────────────

    def _pod_seen(self, pod: Pod, now: float) -> None:
        if not pod.ours or pod.slot is not None:  # pods in slots are those of a queued gang
            return
        if pod.finished:
            self._pod_ended(pod.key, now)
            return
        ref = pod.gang or Ref("", "Pod", pod.key.namespace, pod.key.name)
        spec = self.specs.get(ref)
        gang = self.open.get(ref)
        if gang is None:
            gang = self._opened(ref, (spec.created if spec else 0.0) or pod.created or now)
            if spec is not None:
                gang.locality = _locality([spec.locality])
        self.gang_of[pod.key] = ref
        gang.alive.add(pod.key)
        gang.pods = max(gang.pods, len(gang.alive))
        gang.priority = (spec.priority if spec else None) or pod.spec.priority
        gang.unequal |= bool(gang.requests) and gang.requests != pod.amounts
        gang.requests = _larger(gang.requests, pod.amounts)
        if pod.node and not pod.unbound and gang.started is None:
            gang.started = pod.started or now

    def _pod_ended(self, key: PodKey, now: float) -> None:
        ref = self.gang_of.pop(key, None)
        gang = self.open.get(ref) if ref is not None else None
        if gang is None or ref is None:
            return
        gang.alive.discard(key)
        if not gang.alive:
            gang.ended = now
            del self.open[ref]


def with_racks(nodes: Iterable[Node], topologies: Mapping[str, Topology]) -> list[Node]:
    """The nodes with the labels by which the simulation knows racks and blocks.

    They are the levels above hosts of the first topology, by name, that has any.
    """
    for _, topology in sorted(topologies.items()):
        levels = [level for level in topology.levels if level != HOSTNAME]
        if levels:
            return [_in_rack(node, levels) for node in nodes]
    return list(nodes)


def _in_rack(node: Node, levels: list[str]) -> Node:
    if RACK in node.labels or not all(level in node.labels for level in levels):
        return node
    path = [node.labels[level] for level in levels]
    return replace(node, labels={**node.labels, BLOCK: "/".join(path[:-1]) or "all", RACK: "/".join(path)})


def _largest(pod_sets: list[PodSet]) -> tuple[Mapping[str, int], bool]:
    """For each resource the most that a pod requests, and whether pods differ."""
    found: Mapping[str, int] = {}
    for one in pod_sets:
        found = _larger(found, one.requests)
    return found, any(one.requests != pod_sets[0].requests for one in pod_sets)


def _larger(one: Mapping[str, int], two: Mapping[str, int]) -> Mapping[str, int]:
    if not one or one == two:
        return two
    return {name: max(one.get(name, 0), two.get(name, 0)) for name in sorted({*one, *two})}


def _locality(found: Iterable[Locality]) -> Locality:
    """The first that names a level; the lowest level that holds all pods is not a level of the trace."""
    for one in found:
        if (one.required or one.preferred) not in (None, AUTO):
            return one
    return Locality()
