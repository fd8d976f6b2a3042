"""The frozen snapshot of one scheduling cycle: candidates, nodes, pods, budgets and nominations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.gang import AUTO, DisruptionBudget, GangSpec, Group, PodSet, Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import Domain, Pod, PodKey, Slot
from bayplan.model.rejection import Rejection
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.numa.snapshot import NumaSnapshot
from bayplan.placement.overlay.zone_claims import lost_nodes
from bayplan.state.cluster.node_state import FLAT
from bayplan.state.pending_queue import NEVER
from bayplan.state.scheduling.domain_claims import HeldDomain
from bayplan.state.scheduling.fair_usage import FairView
from bayplan.state.scheduling.gang_state import GangState, blocker_of, in_order
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.state_machine import GangStateMachine
from bayplan.state.scheduling.store import SchedulingStore

PRIVATE_MARK = "/"
"""In a topology name: only gangs that name this topology are placed in it."""


@dataclass(frozen=True, slots=True)
class SchedulingCandidate:
    """A gang, or a single pod, to decide on."""

    spec: GangSpec
    pending: tuple[Pod, ...]  # pending pods, in the order in which they are tried
    bound: tuple[Pod, ...] = ()  # bound or succeeded pods
    nominated: Mapping[PodKey, str] = field(default_factory=dict)
    victims: frozenset[PodKey] = frozenset()  # pods being preempted for it
    blocker: Rejection | None = None  # what blocks it: to be reported, not tried
    reported: Rejection | None = None  # the rejection reported last
    stale: bool = False  # partially bound for too long
    since: float = 0.0  # pending since
    topology: str = ""  # whose levels its tree names; key of `SchedulingSnapshot.supplies`
    paused_until: float | None = None  # no pod is preempted for it before


@dataclass(frozen=True, slots=True, eq=False)
class SchedulingSnapshot:
    """The input of one cycle. The pod index in the filter input is live: changes to it must be undone."""

    filter_input: FilterInput
    supply: CapacitySnapshot  # all nodes by name; rows as in the filter input
    supplies: Mapping[str, CapacitySnapshot] = field(default_factory=dict)  # by topology
    candidates: tuple[SchedulingCandidate, ...] = ()
    pods: Mapping[PodKey, Pod] = field(default_factory=dict)  # all pods that use capacity
    specs: Mapping[Ref, GangSpec] = field(default_factory=dict)
    members: Mapping[Ref, Collection[PodKey]] = field(default_factory=dict)
    budgets: tuple[DisruptionBudget, ...] = ()
    nominations: Mapping[PodKey, tuple[Pod, str]] = field(default_factory=dict)  # of other pods
    losing: frozenset[Ref] = frozenset()  # gangs with a pod whose preemption may still fail
    contested: frozenset[Ref] = frozenset()  # gangs with nominations whose preemptions were in vain so far
    claims: Mapping[PodKey, tuple[Pod, str]] = field(default_factory=dict)  # pending pods of admitted gangs
    slots: Collection[Slot] = ()  # of admitted gangs
    held_domains: Mapping[Domain, HeldDomain] = field(
        default_factory=dict
    )  # and where their open slots are held
    taken: Mapping[Ref, str] = field(default_factory=dict)  # gangs with a slot on a node that others took
    reserved: tuple[Ref, frozenset[str]] | None = None  # the gang with a backfill reservation, and its nodes
    reserved_priority: int | None = None  # priority of that gang
    reserved_candidate: SchedulingCandidate | None = None  # that gang, if it is in a fair-share queue
    fair: FairView | None = None  # fair-share usage of the queues
    departed: tuple[PodKey, ...] = ()  # pods that are gone or finished and still hold devices


class SnapshotBuilder:
    """Builds the snapshot of a cycle from the store and the gang states."""

    def __init__(self, store: SchedulingStore, gangs: GangStateMachine) -> None:
        self.store, self.gangs = store, gangs

    def build(self, refs: Iterable[Ref], now: float) -> SchedulingSnapshot:
        """A snapshot for deciding on these gangs. It is valid until the next change is applied."""
        store, kept = self.store, self.gangs.reserved
        gangs = (store.gang_states.get(ref) for ref in refs)
        candidates = tuple(self._candidate(gang, now) for gang in gangs if gang is not None)
        store.claims.settle(self._reported_zones(), store.device_room)  # before capacity is read
        supply, node_snapshot = store.nodes.flat.view()
        if levels := self._levels_above_hosts():
            node_snapshot = replace(node_snapshot, levels=levels)
        own = {pod.key for candidate in candidates for pod in candidate.pending} if store.nominations else ()
        topologies = {each.topology for each in candidates if each.spec.tree is not None}
        if store.fair.active:  # pods that are moved to make room may be in any topology
            topologies |= set(store.nodes.topologies)
        zones, without_zones = self._zones(supply, node_snapshot.node_index)
        return SchedulingSnapshot(
            filter_input=FilterInput(
                node_snapshot,
                store.index,
                store.volumes.snapshot(),
                store.nodes.images,
                zones,
                store.device_supply(node_snapshot.node_index),
            ),
            supply=supply,
            supplies={
                name: supply if name == FLAT.name else store.nodes.topologies[name].snapshot()
                for name in topologies
            },
            candidates=candidates,
            pods=store.placed,
            specs=store.specs,
            members=store.members,
            budgets=tuple(store.budgets.values()),
            nominations={key: nomination for key, nomination in store.nominations.items() if key not in own},
            losing=frozenset(self._losing()),
            contested=frozenset(self._contested()),
            claims=store.claims.pending(),
            slots=store.claims.all_slots(),
            held_domains=store.claims.domains.held(),
            taken=store.claims.taken(without_zones),
            reserved=kept,
            reserved_priority=self.gangs.queue.entries[kept[0]].priority if kept is not None else None,
            reserved_candidate=self._reserved_in_queue(now),
            fair=store.fair.view(),
            departed=tuple(store.departed()),
        )

    def _losing(self) -> Iterator[Ref]:
        """Gangs with a pod whose preemption may fail. For its own surplus pods a gang waits by itself."""
        store = self.store
        for key in store.preempting:
            pod = store.pods[key]
            gang = store.gang_states.get(pod.gang) if pod.gang is not None else None
            if gang is not None and not pod.terminating and key not in gang.victims:
                yield gang.ref

    def _contested(self) -> Iterator[Ref]:
        """Gangs with nominations for which pods were preempted more than once, without a node for them."""
        for pod, _ in self.store.nominations.values():
            gang = self.store.gang_states.get(pod.gang or single_pod_ref(pod.key))
            if gang is not None and gang.fruitless > 1:
                yield gang.ref

    def _reserved_in_queue(self, now: float) -> SchedulingCandidate | None:
        """The gang with a backfill reservation, if it is in a fair-share queue."""
        gang = self.store.gang_states.get(self.gangs.reserved[0]) if self.gangs.reserved is not None else None
        return (
            self._candidate(gang, now)
            if gang is not None and gang.spec is not None and gang.spec.queue
            else None
        )

    def _reported_zones(self) -> NumaSnapshot | None:
        """The zones, as far as slots in domains depend on them."""
        store = self.store
        if not store.claims.in_domains or not store.numa.active:
            return None
        return store.numa.snapshot(store.nodes.flat.cluster.table.nodes)

    def _zones(
        self, supply: CapacitySnapshot, nodes: NodeIndex
    ) -> tuple[NumaSnapshot | None, Collection[str]]:
        """The zones with what is promised of them, and the nodes where more is promised than there is."""
        zones, claims = self.store.numa.snapshot(supply.tree.nodes), self.store.claims
        if zones is None or not claims.counts:
            return zones, ()
        promised = {nodes.row(name): pods for name, pods in claims.zones(with_pending=True).items()}
        promised.pop(ABSENT, None)
        lost = lost_nodes(zones.columns, promised, zones.rules)
        return replace(zones, claims=claims.zones()), [supply.tree.nodes[row].name for row in lost]

    def _candidate(self, gang: GangState, now: float) -> SchedulingCandidate:
        store, gangs = self.store, self.gangs
        entry, waiting = gangs.queue.put(gang.ref, lone=gang.single), store.pending(gang.ref)
        since = gangs.partial.get(gang.ref, NEVER)
        stale = since + gangs.heal_seconds <= now and (gang.repair_failed or not gangs.can_repair(gang.ref))
        spec = gang.spec
        rejection = None if stale and spec is not None else blocker_of(gang)
        if spec is None:
            spec = GangSpec(gang.ref, priority=entry.priority)
        nominated = {}
        if store.nominations:
            found = ((pod.key, store.nominations.get(pod.key)) for pod in waiting)
            nominated = {key: nomination[1] for key, nomination in found if nomination is not None}
        return SchedulingCandidate(
            spec,
            in_order(store.pods[key] for key in gang.pending) if rejection is not None else waiting,
            store.bound(gang.ref),
            nominated,
            frozenset(gang.victims),
            rejection,
            gang.reported,
            stale,
            entry.since,
            self._topology_of(spec, spec.tree) if spec.tree is not None else FLAT.name,
            gang.paused_until if gang.paused_until > now else None,
        )

    def _levels_above_hosts(self) -> tuple[str, ...]:
        """The levels of the first shared topology, by name, that has domains above hosts."""
        for name, one in sorted(self.store.nodes.topologies.items()):
            levels = tuple(level for level in one.topology.levels if level != HOSTNAME)
            if levels and PRIVATE_MARK not in name:
                return levels
        return ()

    def _topology_of(self, spec: GangSpec, tree: Group) -> str:
        """The topology the gang names; else the first shared one, by name, that has every level of the gang.

        Strict and quorum gangs that name no level use the flat topology of all nodes.
        """
        wanted = set(_levels(tree)) - {AUTO}
        if spec.topology and spec.topology in self.store.nodes.topologies:
            return spec.topology
        if (spec.is_strict or spec.quorum) and not wanted:
            return FLAT.name
        named = sorted(
            name for name in self.store.nodes.topologies if name != FLAT.name and PRIVATE_MARK not in name
        )
        for name in named:
            if wanted <= set(self.store.nodes.topologies[name].topology.levels):
                return name
        return named[0] if named else FLAT.name


def _levels(member: Group | PodSet) -> Iterator[str]:
    """Every level named in the tree."""
    for level in (member.locality.required, member.locality.preferred):
        if level:
            yield level
    if isinstance(member, PodSet):
        yield from (segment.level for segment in member.segments)
    else:
        for inner in member.members:
            yield from _levels(inner)
