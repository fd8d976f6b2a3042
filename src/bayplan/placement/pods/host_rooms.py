"""Places gangs in topologies that end above the host only where each pod finds a host.

The capacity of a domain is the sum of its hosts, but a pod needs one host. So the pods of the placement found
are packed on the hosts of their domains, beside pods of other gangs there: those that are bound, and those
that are expected and get hosts as binding would choose them. If some find no host, each pod set gets caps of
pods per host, and the search is repeated a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from bayplan.model.assignment import Assignment, Code, Misfit, Path, Placement
from bayplan.model.filter_failure import FILTERED, FilterReason
from bayplan.model.gang import Gang, PodSet, Ref
from bayplan.model.node import Node
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import ALIGNED
from bayplan.model.quota import Flavor
from bayplan.placement.cluster.capacity import with_slot
from bayplan.placement.cluster.node_table import (
    NodeTable,
    labelled,
    mask,
    matching_affinity,
    matching_selector,
)
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree, find
from bayplan.placement.domains.host_packing import ROOM_MAX, HostDemand, pack_hosts
from bayplan.placement.domains.node_caps import with_node_caps
from bayplan.placement.overlay.moves import TentativeMoves
from bayplan.placement.pods.bindable import room_per_row

TRIES_MAX = 16
ON_HOSTS = f"{FILTERED}{FilterReason.INSUFFICIENT.value}"
Amounts = Mapping[str, int]
Levels = tuple[str, ...]
Find = Callable[[CapacitySnapshot, Gang], Placement]


@dataclass(frozen=True, slots=True)
class DomainPods:
    """The pods of one pod set of an admitted gang in a domain: what the bound ones use, and how many lack."""

    gang: Ref
    pod_set: str
    flavor: str
    each: Amounts  # of one pod, its slot included
    missing: int
    rules: NodeRules = ANY_NODE
    bound: Mapping[str, Amounts] = field(default_factory=dict)  # by node
    needed: int = 0  # of the missing pods, those that the gang still waits for


@dataclass(frozen=True, slots=True, eq=False)
class DomainContent:
    """All pods of admitted gangs in a domain. What they use of its hosts is computed once."""

    pods: tuple[DomainPods, ...] = ()
    memory: dict[object, Ints] = field(default_factory=dict)
    elsewhere: dict[object, tuple[Tree, Ints, Ints]] = field(default_factory=dict)  # in other topologies


Contents = Mapping[tuple[Levels, Path], DomainContent]


def host_demand(
    pods: DomainPods, nodes: Sequence[Node], good: Bools, labels: Mapping[str, str], count: int
) -> HostDemand:
    """Pods that need hosts among these nodes, as far as the nodes have the labels of their flavor."""
    caps = {
        node.name: ROOM_MAX
        for node, accepted in zip(nodes, good.tolist(), strict=True)
        if accepted and all(node.labels.get(key) == value for key, value in labels.items())
    }
    return HostDemand(f"{pods.gang.namespace}/{pods.gang.name}/{pods.pod_set}", pods.each, count, caps)


def has_labels(table: NodeTable, rules: NodeRules) -> Bools:
    """The nodes whose labels the rules accept; taints may go away."""
    return matching_selector(table, rules) & matching_affinity(table, rules)


class HostRooms:
    """The hosts of domains with the pods of admitted gangs, changed tentatively as gangs are tried."""

    def __init__(self, contents: Contents, flavors: Mapping[str, Flavor]) -> None:
        self.contents, self.flavors = contents, flavors
        self._moves: TentativeMoves[tuple[DomainPods, Assignment]] = TentativeMoves()
        self.tentative = self._moves.tentative

    def use(self, pods: DomainPods, place: Assignment, requests: Amounts, sign: int) -> None:
        """Pods are placed (sign -1: removed) from now on."""
        self._moves.add((id(place), id(requests)), (pods, place), sign)

    def place(
        self, snapshot: CapacitySnapshot, gang: Gang, find_place: Find, *, empty: bool = False
    ) -> Placement:
        """Run `find_place` so that every pod finds a host; `empty`: in an empty cluster."""
        left = snapshot if empty else self._beside_others(snapshot)
        pod_sets = list(gang.root.pod_sets())
        caps: dict[str, Ints] = {}
        for _ in range(TRIES_MAX):
            limiting = {one.name: caps[one.name] for one in pod_sets if _limits(caps.get(one.name), one)}
            capped, root = with_node_caps(snapshot, gang.root, limiting, ON_HOSTS)
            placement = find_place(capped, replace(gang, root=root))
            if placement.misfit is not None:
                return placement
            wanted = [(one, place) for one in pod_sets if (place := placement.assignments.get(one.name))]
            crowded = self._crowded(left, wanted)
            if crowded is None:
                return placement
            if caps:
                self._lower(snapshot, caps, wanted, crowded)
            else:
                caps = {pod_set.name: room_per_row(left, _plain(pod_set)) for pod_set in pod_sets}
        names = tuple(pod_set.name for pod_set in pod_sets)
        return Placement({}, Misfit(Code.NOT_DECIDED, names, topology=snapshot.tree.topology.name))

    def fit(self, snapshot: CapacitySnapshot, wanted: Iterable[tuple[PodSet, Assignment]]) -> bool:
        """Whether all of these pods find hosts in the domains where they are placed."""
        return self._crowded(self._beside_others(snapshot), list(wanted)) is None

    # ── what other gangs use ───────────────────────────────────────────────────────────────────────

    def beside_other_topologies(self, snapshot: CapacitySnapshot) -> CapacitySnapshot:
        """The snapshot with hosts as gangs leave them that are placed in domains of other topologies."""
        levels = snapshot.tree.levels
        touched = {
            (place.levels, share.values)
            for _, (_, place) in self._moves
            for share in place.shares
            if place.levels != levels
        }
        contents = [(of, one) for of, one in self.contents.items() if of[0] != levels and of not in touched]
        contents += [(of, DomainContent(tuple(self._moved(*of)))) for of in touched]
        if not contents:
            return snapshot
        free = snapshot.free.copy()
        for domain, content in contents:
            rows, used = self._used_elsewhere(snapshot, domain, content)
            free[:, rows] -= used
        return replace(snapshot, free=free, memory={})

    def _used_elsewhere(
        self, snapshot: CapacitySnapshot, domain: tuple[Levels, Path], content: DomainContent
    ) -> tuple[Ints, Ints]:
        """The rows of a domain of another topology, and what its pods use of them."""
        key = snapshot.tree.levels, tuple(snapshot.resources)
        known = content.elsewhere.get(key)
        if known is None or known[0] is not snapshot.tree:
            rows = np.flatnonzero(labelled(snapshot.table, dict(zip(*domain, strict=True))))
            content.elsewhere[key] = known = snapshot.tree, rows, self._used(snapshot, rows, content.pods)
        return known[1:]

    def _beside_others(self, snapshot: CapacitySnapshot) -> CapacitySnapshot:
        """The snapshot with hosts as pods of other gangs leave them."""
        levels = snapshot.tree.levels
        free = snapshot.free.copy()
        touched = {share.values[: len(levels)] for _, (_, place) in self._moves for share in place.shares}
        for (of, path), content in self.contents.items():
            if of == levels and path not in touched:
                self._take(snapshot, free, path, content)
        for path in touched:
            content = DomainContent(tuple(self._moved(levels, path)))
            self._take(snapshot, free, path, content)
        return replace(snapshot, free=free, memory={})

    def _moved(self, levels: Levels, path: Path) -> Iterator[DomainPods]:
        """The pods of a domain after all moves."""
        known = self.contents.get((levels, path))
        gone = {(pods.gang, pods.pod_set) for times, (pods, _) in self._moves if times < 0}
        for pods in known.pods if known is not None else ():
            if (pods.gang, pods.pod_set) not in gone:
                yield pods
        for times, (pods, place) in self._moves:
            count = sum(share.count for share in place.shares if share.values == path)
            if times > 0 and place.levels == levels and count:
                yield replace(pods, missing=count)

    def _take(self, snapshot: CapacitySnapshot, free: Ints, path: Path, content: DomainContent) -> None:
        low, high = find(snapshot.tree, path)
        if low == high or not content.pods:
            return
        key = low, high, tuple(snapshot.resources)
        if key not in content.memory:
            content.memory[key] = self._used(snapshot, slice(low, high), content.pods)
        free[:, low:high] -= content.memory[key]

    def _used(self, snapshot: CapacitySnapshot, rows: slice | Ints, pods: Sequence[DomainPods]) -> Ints:
        """By resource and host of a domain: what pods use, also those without a host yet."""
        nodes: list[Node] = snapshot.tree.nodes[rows].tolist()
        used = np.zeros((len(snapshot.resources), len(nodes)), np.int64)
        column = {node.name: at for at, node in enumerate(nodes)}
        for one in pods:
            for name, amounts in one.bound.items():
                if name in column:
                    _add(snapshot, used, column[name], amounts)
        waiting = [one for one in pods if one.missing > 0]
        if waiting:
            free = _by_host(snapshot, snapshot.free[:, rows] - used, nodes)
            packed = pack_hosts(free, self._demands(snapshot, rows, nodes, waiting))
            for one, hosts in zip(waiting, packed.pods, strict=True):
                for name, count in hosts.items():
                    _add(snapshot, used, column[name], one.each, count)
        return used

    def _demands(
        self,
        snapshot: CapacitySnapshot,
        rows: slice | Ints,
        nodes: Sequence[Node],
        pods: Sequence[DomainPods],
    ) -> list[HostDemand]:
        ready = np.array([node.ready and node.schedulable for node in nodes], dtype=bool)
        found = []
        for one in pods:
            flavor = self.flavors.get(one.flavor)
            rules = one.rules
            if flavor is not None:
                rules = replace(rules, tolerations=rules.tolerations + flavor.tolerations)
            good = mask(snapshot.table, rules)[rows] & ready
            found.append(host_demand(one, nodes, good, flavor.labels if flavor else {}, one.missing))
        return found

    # ── pods of several pod sets in one domain ─────────────────────────────────────────────────────

    def _crowded(self, left: CapacitySnapshot, wanted: Sequence[tuple[PodSet, Assignment]]) -> Path | None:
        """The first domain in which the pods do not all find hosts."""
        by_domain: dict[Path, list[tuple[PodSet, int]]] = {}
        for pod_set, place in wanted:
            for share in place.shares:
                by_domain.setdefault(share.values, []).append((pod_set, share.count))
        for path, parts in by_domain.items():
            low, high = find(left.tree, path)
            nodes: list[Node] = left.tree.nodes[low:high].tolist()
            demands = []
            for pod_set, count in parts:
                good = (mask(left.table, pod_set.rules) & left.active)[low:high].tolist()
                caps = {node.name: ROOM_MAX for node, accepted in zip(nodes, good, strict=True) if accepted}
                demands.append(HostDemand(pod_set.name, with_slot(pod_set.requests), count, caps))
            if not pack_hosts(_by_host(left, left.free[:, low:high], nodes), demands).is_complete:
                return path
        return None

    def _lower(
        self,
        snapshot: CapacitySnapshot,
        caps: dict[str, Ints],
        wanted: Sequence[tuple[PodSet, Assignment]],
        path: Path,
    ) -> None:
        """Leave one pod less in a domain, of the pod set with the most pods there."""
        low, high = find(snapshot.tree, path)
        counts = {
            one.name: sum(share.count for share in place.shares if share.values == path)
            for one, place in wanted
        }
        name = max(counts, key=lambda name: (counts[name], name))
        cap = caps[name].copy()
        before = np.cumsum(cap[low:high]) - cap[low:high]
        cap[low:high] = np.clip(counts[name] - 1 - before, 0, cap[low:high])
        caps[name] = cap


def _limits(cap: Ints | None, pod_set: PodSet) -> bool:
    return cap is not None and bool((cap < pod_set.count).any())


def _plain(pod_set: PodSet) -> PodSet:
    """The pod set without the caps of filters and zones among its requests."""
    real = {n: amount for n, amount in pod_set.requests.items() if not n.startswith((FILTERED, ALIGNED))}
    return replace(pod_set, requests=real)


def _by_host(snapshot: CapacitySnapshot, free: Ints, nodes: Sequence[Node]) -> dict[str, dict[str, int]]:
    names = list(snapshot.resources)
    rows = free[[snapshot.resources[name] for name in names]].T.tolist()
    return {node.name: dict(zip(names, row, strict=True)) for node, row in zip(nodes, rows, strict=True)}


def _add(snapshot: CapacitySnapshot, used: Ints, at: int, amounts: Amounts, times: int = 1) -> None:
    for name, amount in amounts.items():
        row = snapshot.resources.get(name)
        if row is not None:
            used[row, at] += amount * times
