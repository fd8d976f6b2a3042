"""Pods of admitted gangs in domains above the host, and gangs whose pods find no hosts there any more.

Admission and binding may decide at the same moment in two processes, and other schedulers know nothing of
admissions. A bound pod keeps its node; the gang has to leave the domain.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.pod import Pod
from bayplan.placement.domains.host_packing import Hosts, pack_hosts
from bayplan.placement.pods.host_rooms import DomainContent, DomainPods, has_labels, host_demand
from bayplan.state.admission.other_pods import GangVersions, Levels, UnmanagedPods
from bayplan.state.admission.usage import AdmittedUsage
from bayplan.state.cluster.topology_state import TopologyState

Domain = tuple[Levels, Path]


class DomainUsage:
    """Follows the domains in which gangs have slots; each is computed again when it has changed."""

    def __init__(self, usage: AdmittedUsage, unmanaged: UnmanagedPods) -> None:
        self.usage, self.unmanaged = usage, unmanaged
        self.gangs: dict[Domain, dict[Ref, None]] = {}  # with slots there, by the name that all versions have
        self.domains: dict[Ref, frozenset[Domain]] = {}  # the same, by gang
        self.contents: dict[Domain, DomainContent] = {}
        self.changed: set[Domain] = set()
        self._levels: dict[Levels, int] = {}  # of the domains, and how many have them
        self._hosts: dict[str, set[Domain]] = {}  # the domains of a node when they were last looked at

    def gang_moved(self, family: Ref) -> None:
        """A gang has other slots than before."""
        versions = self.unmanaged.families.get(family)
        slots = versions.slots if versions is not None else {}
        after = frozenset((levels, path) for _, levels, path in slots if levels[-1] != HOSTNAME)
        before = self.domains.pop(family, frozenset())
        if after:
            self.domains[family] = after
        for domain in before | after:
            self._drop(domain)
        for domain in after - before:
            if domain not in self.gangs:
                self._levels[domain[0]] = self._levels.get(domain[0], 0) + 1
            self.gangs.setdefault(domain, {})[family] = None
        for domain in before - after:
            del self.gangs[domain][family]
            if not self.gangs[domain]:
                self._forget(domain)

    def touch(self, names: Iterable[str]) -> None:
        """Pods or amounts changed on these nodes, or their labels."""
        if self.gangs:
            for name in names:
                for domain in self._domains_of(self.usage.hosts.get(name, name)):
                    self._drop(domain)

    def all(self) -> dict[Domain, DomainContent]:
        """The pods of admitted gangs in every domain."""
        for domain in self.gangs:
            if domain not in self.contents:
                self.contents[domain] = self._content(domain)
        return dict(self.contents)

    def _drop(self, domain: Domain) -> None:
        self.contents.pop(domain, None)
        self.changed.add(domain)

    def _forget(self, domain: Domain) -> None:
        del self.gangs[domain]
        self._levels[domain[0]] -= 1
        if not self._levels[domain[0]]:
            del self._levels[domain[0]]
        if not self.gangs:
            self._hosts.clear()

    def _domains_of(self, name: str) -> set[Domain]:
        found = self._hosts.pop(name, set())
        node = self.usage.nodes.get(name)
        if node is not None:
            for levels in self._levels:
                domain = levels, tuple(node.labels.get(level, "") for level in levels)
                if domain in self.gangs:
                    found.add(domain)
        return found

    def _content(self, domain: Domain) -> DomainContent:
        found: list[DomainPods] = []
        for ref in sorted(self.gangs[domain], key=lambda ref: (ref.namespace, ref.name)):
            family = self.unmanaged.families[ref]
            for slot, count in family.slots.items():
                if slot[1:] == domain:
                    found.append(self._pods(ref, family, slot[0], domain, count))
        return DomainContent(tuple(found))

    def _pods(self, ref: Ref, family: GangVersions, pod_set: str, domain: Domain, count: int) -> DomainPods:
        slot = (pod_set, *domain)
        each = {**family.each[slot], PODS: family.each[slot].get(PODS, 0) + 1}
        bound: dict[str, dict[str, int]] = {}
        number = 0
        for key in list(family.inside.get(slot, ()))[:count]:
            pod = self.unmanaged.pod(key)
            if pod is None or pod.unbound:
                continue
            number += 1
            here = bound.setdefault(pod.node, {})
            for name, amount in pod.amounts.items():
                here[name] = here.get(name, 0) + min(
                    amount, each.get(name, 0)
                )  # the rest is counted by itself
        flavor, rules = self._shape(family, pod_set)
        missing = count - number
        needed = max(min(missing, self.missing(family, pod_set)), 0)
        return DomainPods(ref, pod_set, flavor, each, missing, rules, bound, needed)

    def _shape(self, family: GangVersions, pod_set: str) -> tuple[str, NodeRules]:
        for ref in family.versions:
            usage = self.usage.by_gang.get(ref)
            for placement in usage.placements if usage is not None else ():
                if placement.pod_set == pod_set and placement.shape is not None:
                    return placement.flavor, placement.shape.rules
        return "", ANY_NODE

    def missing(self, family: GangVersions, pod_set: str) -> int:
        """The pods of a pod set that are still to be bound; finished ones need their slots no longer."""
        wanted = sum(
            one.count
            for ref in family.versions
            if ref in self.usage.by_gang
            for one in self.usage.by_gang[ref].queued_gang.gang.root.pod_sets()
            if one.name == pod_set
        )
        keys = (key for key, slot in family.pods.items() if slot and slot[0] == pod_set)
        bound = sum((pod := self.unmanaged.pod(key)) is not None and not pod.unbound for key in keys)
        return wanted - bound

    # ── gangs that have to leave ───────────────────────────────────────────────────────────────────

    def check(self) -> Iterator[tuple[Domain, frozenset[Ref]]]:
        """The domains that changed, and the gangs that have lost them to other pods."""
        changed, self.changed = self.changed, set()
        for domain in sorted(changed):
            yield domain, frozenset(self._losers(domain)) if domain in self.gangs else frozenset()

    def _losers(self, domain: Domain) -> Iterator[Ref]:
        """The gangs that have to leave, those that are last in their queues first."""
        levels, path = domain
        cluster = next((one for one in self.usage.topologies.values() if one.topology.levels == levels), None)
        if domain not in self.contents:
            self.contents[domain] = self._content(domain)
        pods = self.contents[domain].pods
        nodes = cluster.nodes_in(path) if cluster is not None else []
        for node in nodes:
            self._hosts.setdefault(node.name, set()).add(domain)
        waiting = [one for one in pods if one.needed > 0]
        if cluster is None or not waiting:
            return
        free = {node.name: self._free(node, cluster, pods) for node in nodes}
        if self._fit(cluster, path, nodes, free, waiting):
            return
        if not self._fit(cluster, path, nodes, self._without_others(nodes, pods), waiting):
            return  # no other pod is in the way, but nodes are missing
        order = dict.fromkeys(one.gang for one in waiting)
        for ref in sorted(order, key=lambda ref: self.rank(self.unmanaged.families[ref]), reverse=True):
            family = self.unmanaged.families[ref]
            yield from (version for version in family.versions if version in self.usage.by_gang)
            waiting = [one for one in waiting if one.gang != ref]
            if self._fit(cluster, path, nodes, free, waiting):
                return

    def _fit(
        self,
        cluster: TopologyState,
        path: Path,
        nodes: Sequence[Node],
        free: Hosts,
        waiting: Sequence[DomainPods],
    ) -> bool:
        """Whether these pods find hosts, whatever the taints and the health of the nodes."""
        demands = []
        for one in waiting:
            flavor = self.usage.flavors.get(one.flavor)
            good = has_labels(cluster.table, one.rules)[cluster.rows_in(path)]
            demands.append(host_demand(one, nodes, good, flavor.labels if flavor else {}, one.needed))
        return pack_hosts(free, demands).is_complete

    def _free(self, node: Node, cluster: TopologyState, pods: Sequence[DomainPods]) -> dict[str, int]:
        """What is left of a node; pods that are only nominated take nothing yet."""
        left = dict(node.allocatable)
        _minus(left, cluster.used.get(node.name, {}))
        for key in self.unmanaged.unbound.get(node.name, ()):
            if (pod := self.unmanaged.pod(key)) is not None:
                _minus(left, pod.amounts, -1)
        for one in pods:
            _minus(left, one.bound.get(node.name, {}))
        return left

    def _without_others(self, nodes: Sequence[Node], pods: Sequence[DomainPods]) -> dict[str, dict[str, int]]:
        """The nodes with pods of the gangs that have slots in the domain alone, whatever these use."""
        left = {node.name: dict(node.allocatable) for node in nodes}
        for ref in dict.fromkeys(one.gang for one in pods):
            for key in self.unmanaged.families[ref].pods:
                pod: Pod | None = self.unmanaged.pod(key)
                if pod is not None and not pod.unbound and pod.node in left:
                    _minus(left[pod.node], pod.amounts)
        return left

    def rank(self, family: GangVersions) -> tuple[object, ...]:
        """The order of a gang in its queue."""
        known = (self.usage.by_gang[ref] for ref in family.versions if ref in self.usage.by_gang)
        return max((usage.queued_gang.rank for usage in known), default=())


def _minus(left: dict[str, int], amounts: Mapping[str, int], sign: int = 1) -> None:
    for name, amount in amounts.items():
        left[name] = left.get(name, 0) - amount * sign
