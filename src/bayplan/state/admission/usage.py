"""Usage of admitted gangs: quota in the quota tree, and capacity in every topology."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.assignment import Assignment, DomainAssignment, Path
from bayplan.model.gang import PodSet, Ref
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.numa import NumaRequest
from bayplan.model.queued_gang import Admission, QueuedGang
from bayplan.model.quota import Cell, Flavor, Queue, QuotaNode
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.overlay.topology_overlay import KnownRows
from bayplan.state.admission.quota_tree import QuotaTree
from bayplan.state.cluster.ledger import Shift
from bayplan.state.cluster.shared_state import ClusterState
from bayplan.state.cluster.topology_state import TopologyState


@dataclass(frozen=True, slots=True, eq=False)
class PlacedPods:
    """Pods of one pod set, placed by an assignment."""

    flavor: str
    place: Assignment
    requests: Mapping[str, int]
    zones: NumaRequest | None = None
    pod_set: str = ""
    gang: Ref | None = None
    shape: PodSet | None = None

    def amounts(self, share: DomainAssignment) -> dict[str, int]:
        """What the pods of one domain use."""
        found = {what: each * share.count for what, each in self.requests.items()}
        found[PODS] = found.get(PODS, 0) + share.count
        return found


def placed_pods(flavor: str, place: Assignment, shape: PodSet, gang: Ref) -> PlacedPods:
    """Pods of a pod set of a gang, placed by an assignment."""
    return PlacedPods(flavor, place, shape.requests, shape.zones, shape.name, gang, shape)


@dataclass(frozen=True, slots=True, eq=False)
class GangUsage:
    """The quota and capacity that one gang holds."""

    queued_gang: QueuedGang
    queue: str
    quota: Mapping[Cell, int]
    placements: tuple[PlacedPods, ...]
    previous: Admission | None = None  # with the placement it leaves once the new one is written


def usage_of(queued: QueuedGang, flavors: Mapping[str, Flavor], before: Admission | None = None) -> GangUsage:
    """The usage of an admitted gang, including the placement that it is about to leave."""
    assert queued.admission is not None
    placements = [*_placements_of(queued, flavors)]
    if before is not None:
        placements += _placements_of(replace(queued, admission=_left_by(before, queued.admission)), flavors)
    return GangUsage(queued, queued.admission.queue, queued.admission.usage(), tuple(placements), before)


def _left_by(before: Admission, after: Admission) -> Admission:
    """The part of an admission's placements that another admission does not have."""
    stays_at = {given.name: given.assignment for given in after.pod_sets}
    given = (
        replace(one, assignment=_minus(one.assignment, stays_at.get(one.name)))
        for one in before.pod_sets
        if one.assignment
    )
    return replace(before, pod_sets=tuple(given))


def _minus(place: Assignment, other: Assignment | None) -> Assignment:
    stays_at: Counter[Path] = Counter()
    for share in other.shares if other is not None else ():
        stays_at[share.values] += share.count
    left = []
    for share in place.shares:
        stays = min(share.count, stays_at[share.values])
        stays_at[share.values] -= stays
        left.append(replace(share, count=share.count - stays))
    return replace(place, shares=tuple(share for share in left if share.count))


def _placements_of(queued: QueuedGang, flavors: Mapping[str, Flavor]) -> Iterator[PlacedPods]:
    """The placements of a gang. A deleted flavor still identifies them."""
    assert queued.admission is not None
    shapes = {pod_set.name: pod_set for pod_set in queued.gang.root.pod_sets()}
    for given in queued.admission.pod_sets:
        if given.assignment is None or given.name not in shapes:
            continue
        named = sorted(set(given.flavors.values()))
        found = [name for name in named if name in flavors and flavors[name].topology] or named or [""]
        yield placed_pods(found[0], given.assignment, shapes[given.name], queued.gang.source)


def _earlier(queued: QueuedGang) -> Ref | None:
    """The version of an elastic gang that this one replaces."""
    return replace(queued.gang.source, name=queued.replaces) if queued.replaces else None


@dataclass(slots=True)
class AdmittedUsage:
    """The usage of all admitted gangs. A pod on a host uses its capacity in every topology."""

    by_gang: dict[Ref, GangUsage] = field(default_factory=dict)
    by_queue: dict[str, dict[Ref, QueuedGang]] = field(default_factory=dict)
    covered: dict[Ref, GangUsage] = field(default_factory=dict)  # included in the usage of a later version
    successors: dict[Ref, Ref] = field(default_factory=dict)  # earlier version → later one with the usage
    topologies: dict[str, TopologyState] = field(default_factory=dict)
    nodes: dict[str, Node] = field(default_factory=dict)
    hosts: dict[str, str] = field(default_factory=dict)  # host label → node
    flavors: Mapping[str, Flavor] = field(default_factory=dict)
    shared: tuple[QuotaNode, ...] = ()
    queues: tuple[Queue, ...] = ()
    tree: QuotaTree | None = None
    known: KnownRows = field(default_factory=KnownRows)
    watcher: Callable[[GangUsage, int], None] | None = None  # usage added (1) or removed (-1)
    cluster: ClusterState = field(default_factory=ClusterState)  # shared with other states of the process

    def quota_tree(self) -> QuotaTree:
        """The quota tree, rebuilt after the configuration changed."""
        if self.tree is None:
            self.tree = QuotaTree(self.shared, (queue.node for queue in self.queues))
            for usage in self.by_gang.values():
                self.tree.use(usage.queue, usage.quota)
        return self.tree

    def prepare(self) -> None:
        """Build the rows of added nodes now instead of for the next snapshot."""
        for cluster in self.topologies.values():
            cluster.settle()

    def supplies(self) -> dict[str, CapacitySnapshot]:
        return {name: cluster.snapshot() for name, cluster in self.topologies.items()}

    def set_rules(
        self, flavors: Mapping[str, Flavor], shared: Iterable[QuotaNode], queues: Iterable[Queue]
    ) -> None:
        """Flavors, quota nodes or queues changed: recompute the usage of all gangs."""
        self.shared, self.queues, self.tree = tuple(shared), tuple(queues), None
        if flavors != self.flavors:
            for usage in self.by_gang.values():
                self._count_placements(usage, -1)
            self.flavors = dict(flavors)
            for ref, usage in self.by_gang.items():
                self.by_gang[ref] = usage_of(usage.queued_gang, self.flavors, usage.previous)
                self._count_placements(self.by_gang[ref], 1)

    def set_topology(
        self, name: str, topology: Topology | None, used: Mapping[str, Mapping[str, int]]
    ) -> bool:
        """A topology was added, changed or deleted; `used` is the usage of other pods by node."""
        known = self.topologies.get(name)
        if topology is None:
            return self.topologies.pop(name, None) is not None
        if known is not None and known.topology == topology:
            return False
        cluster = self.topologies[name] = TopologyState(topology, cluster=self.cluster)
        for node, amounts in used.items():
            cluster.use_node(node, amounts)
        cluster.load(self.nodes.values())
        for usage in self.by_gang.values():
            self._count_placements(usage, 1, only=name)
        return True

    def put_nodes(self, nodes: Mapping[str, Node]) -> list[str]:
        """Nodes were added or changed. Returns the topologies they belong to."""
        changed = {name: node for name, node in nodes.items() if self.nodes.get(name) != node}
        if not changed:
            return []
        fresh = {name: node for name, node in changed.items() if name not in self.nodes}
        for name, node in changed.items():
            before = self.nodes.get(name)
            host = node.labels.get(HOSTNAME, name)
            if before is not None and before.labels.get(HOSTNAME, name) != host:
                self._name_host(before.labels.get(HOSTNAME, name), None)
            self._name_host(host, name)
        self.nodes |= changed
        for cluster in self.topologies.values():
            for name, node in changed.items():
                if name not in fresh:
                    cluster.upsert(node)
            if len(fresh) == 1:
                cluster.upsert(next(iter(fresh.values())))
            elif fresh:
                cluster.load(fresh.values())
        return list(self.topologies)

    def remove_node(self, name: str) -> None:
        node = self.nodes.pop(name, None)
        if node is not None:
            self._name_host(node.labels.get(HOSTNAME, name), None)
            for cluster in self.topologies.values():
                cluster.remove(name)

    def _name_host(self, host: str, name: str | None) -> None:
        """A host belongs to another node than before, or to none: move the usage of gangs to that node."""
        before, after = self.hosts.get(host, host), name or host
        if before != after:
            self._move_host(host, before, after)
        if name is None:
            self.hosts.pop(host, None)
        else:
            self.hosts[host] = name

    def _move_host(self, host: str, before: str, after: str) -> None:
        wider = [cluster for cluster in self.topologies.values() if not cluster.topology.ends_at_host]
        for amounts in self._usage_at(host) if wider else ():
            for cluster in wider:
                cluster.use_node(before, amounts, -1)
                cluster.use_node(after, amounts)

    def _usage_at(self, host: str) -> Iterator[dict[str, int]]:
        for usage in self.by_gang.values():
            for placement in usage.placements:
                for share in placement.place.shares if placement.place.levels[-1] == HOSTNAME else ():
                    if share.values[-1] == host:
                        yield placement.amounts(share)

    def shift(self, shifts: Iterable[Shift]) -> list[str]:
        """Other pods use or free capacity. Returns the topologies where some was freed."""
        gained = False
        for shift in shifts:
            gained = gained or shift.sign < 0
            for cluster in self.topologies.values():
                cluster.use_node(shift.node, shift.amounts, shift.sign)
        return list(self.topologies) if gained else []

    def add(self, usage: GangUsage) -> None:
        """Add the usage of a gang. It includes the usage of an earlier version."""
        ref, earlier = usage.queued_gang.gang.source, _earlier(usage.queued_gang)
        assert ref not in self.by_gang, ref
        if earlier is not None:
            self.successors[earlier] = ref
            if (before := self._drop(earlier)) is not None:
                self.covered[earlier] = before
        if ref in self.successors:
            self.covered[ref] = usage
            return
        self.by_gang[ref] = usage
        self.by_queue.setdefault(usage.queue, {})[ref] = usage.queued_gang
        if self.tree is not None:
            self.tree.use(usage.queue, usage.quota)
        self._count_placements(usage, 1)

    def remove(self, ref: Ref) -> GangUsage | None:
        """Remove the usage of a gang. An earlier version that still exists gets its own usage back."""
        covered, usage = self.covered.pop(ref, None), self._drop(ref)
        gone = usage or covered
        earlier = _earlier(gone.queued_gang) if gone is not None else None
        if earlier is not None and self.successors.pop(earlier, None) is not None and earlier in self.covered:
            self.add(usage_of(self.covered.pop(earlier).queued_gang, self.flavors))
        return usage

    def _drop(self, ref: Ref) -> GangUsage | None:
        usage = self.by_gang.pop(ref, None)
        if usage is None:
            return None
        there = self.by_queue[usage.queue]
        del there[ref]
        if not there:
            del self.by_queue[usage.queue]
        if self.tree is not None:
            self.tree.use(usage.queue, usage.quota, -1)
        self._count_placements(usage, -1)
        return usage

    def topologies_of(self, usage: GangUsage) -> set[str]:
        """The topologies where removing a gang frees capacity: all, since its pods leave hosts."""
        return set(self.topologies) if usage.placements else set()

    def _topologies_of_placement(self, placement: PlacedPods) -> Iterator[tuple[str, TopologyState]]:
        """The topologies in which placed pods use capacity: their own, and all topologies with the host.

        Without the flavor or its topology, the levels of the assignment identify the topology.
        """
        flavor = self.flavors.get(placement.flavor)
        own = flavor.topology if flavor is not None else ""
        on_host = placement.place.levels[-1] == HOSTNAME
        for name, cluster in self.topologies.items():
            if on_host or (name == (own or name) and cluster.topology.levels == placement.place.levels):
                yield name, cluster

    def _count_placements(self, usage: GangUsage, sign: int, only: str = "") -> None:
        if self.watcher is not None and not only:
            self.watcher(usage, sign)
        for placement in usage.placements:
            for name, cluster in self._topologies_of_placement(placement):
                if only and name != only:
                    continue
                for share in placement.place.shares:
                    amounts = placement.amounts(share)
                    if cluster.topology.ends_at_host or placement.place.levels[-1] != HOSTNAME:
                        cluster.use_domain(share.values, amounts, sign)
                    else:
                        cluster.use_node(self.hosts.get(share.values[-1], share.values[-1]), amounts, sign)
