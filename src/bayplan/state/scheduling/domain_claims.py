"""Open slots of admitted gangs in domains above the host: they are held on hosts of the domain.

The pods of such slots may use any host of the domain. So the hosts are chosen here, for all slots of a domain
together, and chosen again when a pod, a node or a slot of the domain has changed. The choice depends on the
state alone. A pod that needs one of these hosts gets it if the slots still fit on the others: see
`scheduling/attempt/moved_claims.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bayplan.model.devices.claims import PodDevices
from bayplan.model.node import Node
from bayplan.model.node_rules import NodeRules
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import Domain, Pod, PodKey, Slot
from bayplan.placement.cluster.node_table import labelled, mask, matching_affinity, matching_selector
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains.host_packing import ROOM_MAX, HostDemand, pack_hosts
from bayplan.placement.numa.capacity import aligned_counts
from bayplan.placement.numa.columns import narrowed
from bayplan.placement.numa.resources import is_indifferent
from bayplan.placement.numa.snapshot import NumaSnapshot
from bayplan.state.cluster.ledger import LedgerEntry
from bayplan.state.cluster.node_store import NodeStore

Amounts = Mapping[str, int]
DeviceRoom = Callable[[PodDevices], Mapping[str, int]]
"""How many pods with such claims the free devices of each node serve."""
PendingOn = Callable[[Node], Iterable[Pod]]
"""Pending pods of gangs that have slots on a node itself: what they need is not in the ledger."""


@dataclass(frozen=True, slots=True)
class DomainDemand:
    """Pods in slots of a domain that are not bound: of an open slot, or one pod that is pending."""

    slot: Slot
    count: int
    amounts: Amounts
    rules: NodeRules
    zones: NumaRequest | None = None
    pod: PodKey | None = None
    devices: PodDevices | None = None


@dataclass(frozen=True, slots=True)
class HeldDomain:
    """The open slots of a domain and the nodes they are held on."""

    hosts: tuple[str, ...] = ()
    demands: tuple[DomainDemand, ...] = ()
    wanted: tuple[HostDemand, ...] = ()  # the same, with the most pods by node
    pods: tuple[Mapping[str, int], ...] = ()  # by demand and node
    is_lost: bool = False  # other pods use what the slots need

    def used(self) -> dict[str, dict[str, int]]:
        """By node: what is held for open slots."""
        total: dict[str, dict[str, int]] = {}
        for demand, pods in zip(self.demands, self.pods, strict=True):
            if demand.pod is None:
                for node, count in pods.items():
                    here = total.setdefault(node, {})
                    for name, amount in demand.amounts.items():
                        here[name] = here.get(name, 0) + amount * count
        return total


@dataclass(slots=True)
class _Domain:
    """A domain with slots that are not all bound."""

    open: dict[Slot, DomainDemand] = field(default_factory=dict)
    waiting: dict[PodKey, DomainDemand] = field(default_factory=dict)
    held: HeldDomain = HeldDomain()
    owners: set[PodKey] = field(default_factory=set)  # of its entries in the ledger


class DomainClaims:
    """Holds the open slots of domains on hosts, and knows the hosts for pending pods in such slots."""

    def __init__(self, nodes: NodeStore, pending_on: PendingOn) -> None:
        self.nodes, self.pending_on = nodes, pending_on
        self.domains: dict[Domain, _Domain] = {}
        self.changed: set[Domain] = set()
        self._levels: dict[tuple[str, ...], int] = {}  # of the domains, and how many have them

    def set_open(self, slot: Slot, demand: DomainDemand | None) -> bool:
        """So many pods are missing in a slot. Returns whether capacity became free."""
        if demand is None and slot.domain not in self.domains:
            return False
        here = self._domain(slot.domain)
        before = here.open.pop(slot, None)
        if demand is not None:
            here.open[slot] = demand
        self._note_change(slot.domain, here)
        return before is not None and (demand is None or demand.count < before.count)

    def set_waiting(self, pod: Pod, slot: Slot) -> None:
        """A pod in a slot of a domain is pending."""
        here = self._domain(slot.domain)
        signature = pod.spec.signature
        here.waiting[pod.key] = DomainDemand(
            slot, 1, pod.amounts, signature.rules, signature.zones, pod.key, signature.devices
        )
        self.changed.add(slot.domain)

    def drop_waiting(self, key: PodKey, domain: Domain) -> None:
        """A pod in a slot of a domain is pending no longer."""
        if domain in self.domains and self.domains[domain].waiting.pop(key, None) is not None:
            self._note_change(domain, self.domains[domain])

    def node_of(self, key: PodKey, domain: Domain) -> str:
        """The node that is held for a pending pod; empty if there is none."""
        held = self.domains[domain].held if domain in self.domains else HeldDomain()
        found = (pods for demand, pods in zip(held.demands, held.pods, strict=True) if demand.pod == key)
        return next((node for pods in found for node in pods), "")

    def lost(self) -> set[Domain]:
        """The domains where other pods use what open slots and pending pods need."""
        return {domain for domain, here in self.domains.items() if here.held.is_lost}

    def held(self) -> dict[Domain, HeldDomain]:
        """What is held, by domain."""
        return {domain: here.held for domain, here in self.domains.items()}

    def chosen(self) -> Iterator[tuple[str, DomainDemand, int]]:
        """On which node how many pods of a demand are expected."""
        for here in self.domains.values():
            for demand, pods in zip(here.held.demands, here.held.pods, strict=True):
                for node, count in pods.items():
                    yield node, demand, count

    # ── choosing hosts ─────────────────────────────────────────────────────────────────────────────

    def settle(self, zones: NumaSnapshot | None = None, device_room: DeviceRoom | None = None) -> None:
        """Choose the hosts again in the domains that changed, and where zones or devices may have changed."""
        if not self.domains:
            return
        if zones is not None:
            self.changed.update(domain for domain, here in self.domains.items() if _has_zones(here))
        if device_room is not None:
            self.changed.update(domain for domain, here in self.domains.items() if _has_devices(here))
        changed, self.changed = self.changed, set()
        for domain in sorted(changed):
            if domain in self.domains:
                self._hold(domain, self.domains[domain], zones, device_room)
        self.changed.clear()  # by what was held itself

    def _domain(self, domain: Domain) -> _Domain:
        if domain not in self.domains:
            levels = tuple(level for level, _ in domain)
            self._levels[levels] = self._levels.get(levels, 0) + 1
            self.domains[domain] = _Domain()
            self.nodes.on_change = self._node_changed
        return self.domains[domain]

    def _note_change(self, domain: Domain, here: _Domain) -> None:
        """Hosts are chosen later; but a domain without slots holds nothing, and is forgotten at once."""
        if here.open or here.waiting:
            self.changed.add(domain)
        else:
            self._hold(domain, here, None, None)
            self.changed.discard(domain)

    def _forget(self, domain: Domain) -> None:
        levels = tuple(level for level, _ in domain)
        del self.domains[domain]
        self._levels[levels] -= 1
        if not self._levels[levels]:
            del self._levels[levels]
        if not self.domains:
            self.nodes.on_change = None

    def host_changed(self, name: str) -> None:
        """Other pods are pending on a node than before."""
        node = self.nodes.by_name.get(name) if self.domains else None
        if node is not None:
            self._node_changed(node)

    def _node_changed(self, node: Node) -> None:
        for levels in self._levels:
            domain = tuple((level, node.labels.get(level, "")) for level in levels)
            if domain in self.domains:
                self.changed.add(domain)

    def _hold(
        self, domain: Domain, here: _Domain, zones: NumaSnapshot | None, device_room: DeviceRoom | None
    ) -> None:
        demands = (*(here.open[slot] for slot in sorted(here.open, key=_order)), *here.waiting.values())
        here.held = self._packed(domain, here, demands, zones, device_room)
        owners: set[PodKey] = set()
        for demand, pods in zip(here.held.demands, here.held.pods, strict=True):
            for node, count in pods.items() if demand.pod is None else ():
                owners.add(owner := _owner(demand.slot, node))
                amounts = {name: amount * count for name, amount in demand.amounts.items()}
                self.nodes.hold(LedgerEntry(owner, node, amounts))
        for owner in here.owners - owners:
            self.nodes.release(owner)
        here.owners = owners
        if not demands:
            self._forget(domain)

    def _packed(
        self, domain: Domain, here: _Domain, demands: Sequence[DomainDemand], zones: NumaSnapshot | None,
        device_room: DeviceRoom | None,
    ) -> HeldDomain:  # fmt: skip
        """Hosts that are usable now; if these are too few, all hosts of the domain with the right labels.

        What nodes that are not ready, cordoned or tainted lack was taken by no other pod.
        """
        if not demands:
            return HeldDomain()
        table = self.nodes.flat.cluster.table
        rows = np.flatnonzero(labelled(table, dict(domain)))
        members: list[Node] = table.nodes[rows].tolist()
        own = here.held.used()
        free = {node.name: self._free(node, own.get(node.name, {})) for node in members}
        ready = np.array([node.ready and node.schedulable for node in members], dtype=bool)
        names = [node.name for node in members]
        labels = [
            (matching_selector(table, demand.rules) & matching_affinity(table, demand.rules))[rows]
            for demand in demands
        ]
        usable = [mask(table, demand.rules)[rows] & ready for demand in demands]
        for masks in (usable, labels):
            wanted = tuple(
                _wanted(demand, names, good, _aligned(demand, rows, zones), device_room)
                for demand, good in zip(demands, masks, strict=True)
            )
            found = pack_hosts(free, wanted)
            if found.is_complete:
                return HeldDomain(tuple(names), tuple(demands), wanted, found.pods)
        return HeldDomain(
            tuple(names), tuple(demands), wanted, found.pods, is_lost=_is_taken(members, wanted)
        )

    def _free(self, node: Node, own: Amounts) -> dict[str, int]:
        used = self.nodes.flat.cluster.used.get(node.name, {})
        left = {
            name: amount - used.get(name, 0) + own.get(name, 0) for name, amount in node.allocatable.items()
        }
        for pod in self.pending_on(node):
            for name, amount in pod.amounts.items():
                left[name] = left.get(name, 0) - amount
        return left


def _is_taken(members: Sequence[Node], wanted: Sequence[HostDemand]) -> bool:
    """Whether the hosts of a domain could hold the pods, if no other pod used them."""
    return pack_hosts({node.name: node.allocatable for node in members}, wanted).is_complete


def _wanted(
    demand: DomainDemand, names: Sequence[str], good: Bools, aligned: Ints | None,
    device_room: DeviceRoom | None,
) -> HostDemand:  # fmt: skip
    most = np.where(good, ROOM_MAX, 0)
    if aligned is not None:
        most = np.minimum(most, aligned)
    if device_room is not None and demand.devices is not None:
        by_node = device_room(demand.devices)
        most = np.minimum(most, [by_node.get(name, 0) for name in names])
    caps = {name: count for name, count in zip(names, most.tolist(), strict=True) if count > 0}
    return HostDemand(_name(demand), demand.amounts, demand.count, caps)


def _aligned(demand: DomainDemand, rows: Ints, zones: NumaSnapshot | None) -> Ints | None:
    """How many pods the zones of each host can align."""
    if zones is None or demand.zones is None or is_indifferent(demand.zones, zones.rules):
        return None
    return aligned_counts(narrowed(zones.columns, rows), demand.zones, zones.rules, demand.count)


def _has_zones(here: _Domain) -> bool:
    return any(demand.zones is not None for demand in (*here.open.values(), *here.waiting.values()))


def _has_devices(here: _Domain) -> bool:
    return any(demand.devices is not None for demand in (*here.open.values(), *here.waiting.values()))


def _order(slot: Slot) -> tuple[str, ...]:
    return slot.gang.namespace, slot.gang.name, slot.pod_set


def _name(demand: DomainDemand) -> str:
    gang = demand.slot.gang
    return f"{gang.namespace}/{gang.name}/{demand.slot.pod_set}/{demand.pod or ''}"


def _owner(slot: Slot, node: str) -> PodKey:
    """The owner of what is held on a node; no pod has a slash in its name."""
    values = "/".join(value for _, value in slot.domain)
    return PodKey(slot.gang.namespace, f"{slot.gang.name}/{slot.pod_set}/{values}/{node}")
