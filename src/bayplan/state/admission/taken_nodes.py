"""Hosts of admitted gangs whose capacity other pods use before the pods of the gang are bound there.

Admission and binding may decide at the same moment in two processes, and other schedulers know nothing of
admissions. A bound pod keeps its node; the gang has to move or to be evicted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.pod import Pod, PodKey, domain_text
from bayplan.placement.numa.alignment import USUAL
from bayplan.placement.overlay.zone_claims import lost_nodes
from bayplan.state.admission.device_losses import DeviceLosses
from bayplan.state.admission.domain_usage import Domain, DomainUsage
from bayplan.state.admission.numa_usage import NumaUsage
from bayplan.state.admission.other_pods import GangVersions, UnmanagedPods
from bayplan.state.admission.usage import AdmittedUsage, GangUsage
from bayplan.state.cluster.device_state import DeviceState
from bayplan.state.cluster.topology_state import TopologyState


class TakenNodes:
    """Checks the nodes that changed, and knows the hosts that each gang has lost to other pods."""

    def __init__(
        self, usage: AdmittedUsage, unmanaged: UnmanagedPods, numa: NumaUsage, devices: DeviceState
    ) -> None:
        self.usage, self.unmanaged, self.numa = usage, unmanaged, numa
        self.domains = DomainUsage(usage, unmanaged)
        self.devices = DeviceLosses(usage, unmanaged, self.domains, devices)
        self.changed: set[str] = set()  # nodes or hosts to check
        self.in_domain: dict[Domain, frozenset[Ref]] = {}  # the gangs that have lost a domain above the host
        self.on_host: dict[str, frozenset[Ref]] = {}  # the gangs that have lost it

    def touch(self, names: Iterable[str]) -> None:
        """Pods, slots or amounts changed on these nodes or hosts."""
        nodes, hosts = self.usage.nodes, self.usage.hosts
        found = [name for name in names if name in nodes or name in hosts]
        self.changed.update(found)
        self.domains.touch(found)

    def node_lost(self, name: str) -> None:
        """A node is gone: what stood there is replaced as after any failure."""
        self.domains.touch((name,))
        self.changed -= {name, self._host(name)}
        self.on_host.pop(self._host(name), None)

    def touch_gang(self, usage: GangUsage | None) -> None:
        """A gang got or lost slots."""
        if usage is not None:
            self.domains.gang_moved(usage.queued_gang.family)
            self.devices.gang_moved(usage.queued_gang.family)
        for placement in usage.placements if usage is not None else ():
            if placement.place.levels[-1] == HOSTNAME:
                self.touch(share.values[-1] for share in placement.place.shares)

    def hosts_of(self, ref: Ref) -> tuple[str, ...]:
        """The hosts that a gang has lost, and domains above the host."""
        lost = (domain for domain, refs in self.in_domain.items() if ref in refs)
        domains = (domain_text(tuple(zip(levels, path, strict=True))) for levels, path in lost)
        return tuple(sorted((*domains, *(host for host, refs in self.on_host.items() if ref in refs))))

    def check(self) -> set[Ref]:
        """Check the nodes that changed. Returns the gangs for which something is different now."""
        different: set[Ref] = set()
        if self.numa.active:
            self.touch(self.numa.cache.touched | self.numa.changed)
        self.touch(self.devices.changed())
        for host in {self._host(name) for name in self.changed}:
            losers = frozenset(self._losers(host)) or frozenset(self._losers_of_zones(host))
            node = self.usage.nodes.get(self.usage.hosts.get(host, host))
            if not losers and node is not None:
                losers = frozenset(self.devices.losers(host, node))
            before, after = self.on_host.pop(host, frozenset()), losers
            if after:
                self.on_host[host] = after
            different |= before ^ after
        self.changed.clear()
        for domain, losers in self.domains.check():
            different |= self.in_domain.pop(domain, frozenset()) ^ losers
            if losers:
                self.in_domain[domain] = losers
        return different

    def may_move(self, ref: Ref) -> bool:
        """Whether a pod of the gang is bound, and the gang has lost single hosts only."""
        versions = self.unmanaged.families.get(self.unmanaged.family_of.get(ref, ref))
        has_started = versions is not None and self._bound(versions.pods) > 0
        return has_started and not any(ref in refs for refs in self.in_domain.values())

    def _host(self, name: str) -> str:
        node = self.usage.nodes.get(name)
        return name if node is None else node.labels.get(HOSTNAME, name)

    def _losers(self, host: str) -> Iterator[Ref]:
        """The gangs that have to leave the host, those that are last in their queues first."""
        node = self.usage.nodes.get(self.usage.hosts.get(host, host))
        cluster = next((one for one in self.usage.topologies.values() if (host,) in one.held), None)
        if node is None or cluster is None:
            return
        lack = _lack(node, cluster, host)
        if not lack or not (lack := _minus(lack, self._nominated_on(node.name))):
            return
        for family, open_slots in sorted(
            self._open_slots(host), key=lambda pair: self.domains.rank(pair[0]), reverse=True
        ):
            own = self._own_usage(family, node.name)
            if any(amount > own.get(name, 0) for name, amount in lack.items() if name in open_slots):
                yield from (ref for ref in family.versions if ref in self.usage.by_gang)
                lack = _minus(lack, open_slots)
            if not lack:
                return

    def _losers_of_zones(self, host: str) -> Iterator[Ref]:
        """The gangs that have to leave the host, since its zones have no room for all slots."""
        node = self.usage.nodes.get(self.usage.hosts.get(host, host)) if self.numa.active else None
        promised = self.numa.promised_on(node) if node is not None else None
        if promised is None:
            return
        columns, missing = promised
        families = [(ref, self.unmanaged.families[ref]) for ref in missing if ref in self.unmanaged.families]
        waiting = [family for family, _ in self._open_slots(host)]
        families = [(ref, family) for ref, family in families if any(family is one for one in waiting)]
        for ref, family in sorted(families, key=lambda pair: self.domains.rank(pair[1]), reverse=True):
            if not lost_nodes(columns, {0: [pods for each in missing.values() for pods in each]}, USUAL):
                return
            del missing[ref]
            yield from (version for version in family.versions if version in self.usage.by_gang)

    def _open_slots(self, host: str) -> Iterator[tuple[GangVersions, Mapping[str, int]]]:
        """The gangs with slots on the host that no bound pod has, and the capacity of these slots."""
        for family in self.unmanaged.families.values():
            amounts: dict[str, int] = {}
            for pod_set in family.levels:
                slot = (pod_set, (HOSTNAME,), (host,))
                if slot not in family.slots:
                    continue
                count = family.slots[slot] - self._bound(family.inside.get(slot, ()))
                if count > 0 and (count := min(count, self.domains.missing(family, pod_set))) > 0:
                    for name, each in {**family.each[slot], PODS: 1}.items():
                        amounts[name] = amounts.get(name, 0) + each * count
            if amounts:
                yield family, amounts

    def _nominated_on(self, node: str) -> dict[str, int]:
        """What pods use that are not bound: they take nothing yet."""
        total: dict[str, int] = {}
        for key in self.unmanaged.unbound.get(node, ()):
            for name, amount in self._pod(key).amounts.items():
                total[name] = total.get(name, 0) + amount
        return total

    def _pod(self, key: PodKey) -> Pod:
        pod = self.unmanaged.pod(key)
        assert pod is not None, key
        return pod

    def _bound(self, keys: Iterable[PodKey]) -> int:
        return sum(not self._pod(key).unbound for key in keys)

    def _own_usage(self, family: GangVersions, node: str) -> dict[str, int]:
        """What pods of the gang use beyond its slots: it takes nothing from itself."""
        total: dict[str, int] = {}
        for key in family.pods:
            claim = self.unmanaged.ledger.claim_of(key)
            if claim is not None and self._pod(key).node == node:
                for name, amount in claim.amounts.items():
                    total[name] = total.get(name, 0) + amount
        return total


def _lack(node: Node, cluster: TopologyState, host: str) -> dict[str, int]:
    """What other pods use of the capacity that the slots on a node need."""
    held = cluster.held[host,]
    return {
        name: more
        for name, used in cluster.used.get(node.name, {}).items()
        if name in held and (more := min(used, held[name] + used - node.allocatable.get(name, 0))) > 0
    }


def _minus(amounts: Mapping[str, int], others: Mapping[str, int]) -> dict[str, int]:
    return {name: left for name, amount in amounts.items() if (left := amount - others.get(name, 0)) > 0}
