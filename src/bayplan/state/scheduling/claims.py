"""Slots of admitted gangs: capacity of a host or a domain is held for them until their pods take it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from bayplan.model.devices.claims import PodDevices
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import Pod, PodKey, Slot, domain_text
from bayplan.model.pod_spec import PodSignature
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Flavor
from bayplan.placement.numa.snapshot import NumaSnapshot
from bayplan.state.cluster.ledger import LedgerEntry
from bayplan.state.cluster.node_store import NodeStore
from bayplan.state.scheduling.domain_claims import DeviceRoom, DomainClaims, DomainDemand

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """The slots of a pod set on a host or in a domain: how many, and what a pod needs there."""

    count: int
    amounts: Amounts
    zones: NumaRequest | None
    rules: NodeRules = ANY_NODE
    devices: PodDevices | None = None
    flavors: tuple[str, ...] = ()  # that narrow the nodes of a domain down


class SlotClaims:
    """One ledger entry for the open slots of a pod set on a host; those of a domain are held on its hosts.

    A pod of the gang takes a slot over when it is bound there, or when it is pending and ours: then its
    claim is with the pod, and no other pod may use the capacity. The slot of a pod that is over is open
    again: the job may create another pod for it, and admission gives the host to no other gang either.
    """

    def __init__(self, nodes: NodeStore) -> None:
        self.nodes = nodes
        self.gangs: dict[Ref, dict[Slot, SlotClaim]] = {}
        self.counts: dict[Slot, dict[Ref, SlotClaim]] = {}  # the same, by slot
        self.open: dict[Slot, int] = {}  # how many pods are missing in a slot
        self.takers: dict[Slot, set[PodKey]] = {}
        self.slots: dict[PodKey, Slot] = {}  # of the takers
        self.waiting: dict[PodKey, Pod] = {}  # those that are not bound
        self.waiting_on: dict[str, dict[PodKey, Slot]] = {}  # the same, by host of their slot
        self.domains = DomainClaims(nodes, self._pending_on)
        self.in_domains: dict[tuple[Ref, str], list[Slot]] = {}  # slots in domains, by gang and pod set
        self.hostless: dict[Ref, dict[PodKey, Pod]] = {}  # pods that may have one of them, by gang
        self.gang_of: dict[PodKey, Ref] = {}  # of these pods
        self.flavors: dict[str, Flavor] = {}

    def gang_seen(self, queued_gang: QueuedGang) -> bool:
        """A gang has an admission. Returns whether capacity became free."""
        return self._set_gang(queued_gang.gang.source, _slots_of(queued_gang))

    def gang_lost(self, ref: Ref) -> bool:
        """A gang has no admission any more. Returns whether capacity became free."""
        return self._set_gang(ref, {})

    def pod_seen(self, pod: Pod) -> bool:
        """A pod, with the node that it is bound to or assumed to be. Returns whether capacity became free."""
        before = self.slots.get(pod.key)
        takes = (pod.uses_capacity or pod.pending) and not pod.terminating
        slot = self._slot_of(pod) if takes else None
        self._note_hostless(pod, takes=takes)
        if before is not None and before != slot:
            self.domains.drop_waiting(pod.key, before.domain)
        self._note_host(pod.key, before, slot if pod.pending else None)
        if slot is not None and pod.pending:
            self.waiting[pod.key] = pod
            if slot.domain:
                self.domains.set_waiting(pod, slot)
        else:
            waited = self.waiting.pop(pod.key, None) is not None
            if slot is not None and slot.domain and waited:  # it may not have got the host held for it
                self.domains.drop_waiting(pod.key, slot.domain)
                self._take(pod.key, before, slot)
                return True
        return before != slot and self._take(pod.key, before, slot)

    def pod_lost(self, key: PodKey) -> bool:
        """A pod is gone. Returns whether capacity became free."""
        self.waiting.pop(key, None)
        slot = self.slots.get(key)
        self._note_host(key, slot, None)
        if slot is not None:
            self.domains.drop_waiting(key, slot.domain)
        self._forget_hostless(key)
        return self._take(key, slot, None)

    def flavor_changed(self, name: str, flavor: Flavor | None) -> None:
        """A flavor has other labels or tolerations: slots of domains may be on other nodes."""
        if self.flavors.get(name) == flavor:
            return
        if flavor is None:
            del self.flavors[name]
        else:
            self.flavors[name] = flavor
        for slots in self.in_domains.values():
            for slot in slots:
                self._hold(slot)

    def _rules_of(self, claim: SlotClaim) -> NodeRules:
        """The rules of pods that get the labels and tolerations of their flavors when they start."""
        flavors = [self.flavors[name] for name in claim.flavors if name in self.flavors]
        labels = {key: value for flavor in flavors for key, value in flavor.labels.items()}
        return replace(
            claim.rules,
            selector=tuple(sorted({**labels, **dict(claim.rules.selector)}.items())),
            tolerations=claim.rules.tolerations + tuple(t for flavor in flavors for t in flavor.tolerations),
        )

    def settle(self, zones: NumaSnapshot | None = None, device_room: DeviceRoom | None = None) -> None:
        """Choose hosts for the open slots of domains in which something changed."""
        self.domains.settle(zones, device_room)

    def all_slots(self) -> Collection[Slot]:
        """All slots, as pods name them: those in domains without their domain."""
        if not self.in_domains:
            return self.counts.keys()
        return {*self.counts, *(Slot(gang, pod_set, "") for gang, pod_set in self.in_domains)}

    def _note_host(self, key: PodKey, before: Slot | None, after: Slot | None) -> None:
        """A pod is pending in a slot on a host, or is no longer: slots of domains go around it."""
        for slot in {slot for slot in (before, after) if slot is not None and slot.host}:
            here = self.waiting_on.setdefault(slot.host, {})
            was = here.pop(key, None)
            if slot == after:
                here[key] = slot
            if not here:
                del self.waiting_on[slot.host]
            if (was is None) != (slot != after):
                self.domains.host_changed(self.nodes.node_of(slot.host))

    def _pending_on(self, node: Node) -> Iterator[Pod]:
        """The pending pods in slots on a node whose gang is admitted there."""
        for key, slot in self.waiting_on.get(node.labels.get(HOSTNAME, node.name), {}).items():
            if slot in self.counts:
                yield self.waiting[key]

    def _slot_of(self, pod: Pod) -> Slot | None:
        """The slot of a pod: on its host, or in the domain that its node selector names."""
        slot = pod.slot
        if slot is None or slot.host:
            return slot
        selector = dict(pod.spec.signature.rules.selector)
        for known in self.in_domains.get((slot.gang, slot.pod_set), ()):
            if all(selector.get(level) == value for level, value in known.domain):
                return known
        return None

    def _note_hostless(self, pod: Pod, *, takes: bool) -> None:
        """Remember pods whose slot depends on the levels of their gang's assignment."""
        if pod.slot is None or pod.slot.host:
            self._forget_hostless(pod.key)  # it may have had a node selector without a host before
            return
        if self.gang_of.get(pod.key) != pod.slot.gang or not takes:
            self._forget_hostless(pod.key)
        if takes:
            self.hostless.setdefault(pod.slot.gang, {})[pod.key] = pod
            self.gang_of[pod.key] = pod.slot.gang

    def _forget_hostless(self, key: PodKey) -> None:
        gang = self.gang_of.pop(key, None)
        if gang is not None:
            pods = self.hostless[gang]
            del pods[key]
            if not pods:
                del self.hostless[gang]

    def pending(self) -> dict[PodKey, tuple[Pod, str]]:
        """The pending pods that have a slot, and its node."""
        found: dict[PodKey, tuple[Pod, str]] = {}
        for key, pod in self.waiting.items():
            slot = self.slots[key]
            if slot in self.counts:
                node = (
                    self.domains.node_of(key, slot.domain) if slot.domain else self.nodes.node_of(slot.host)
                )
                if node:
                    found[key] = pod, node
        return found

    def zones(self, *, with_pending: bool = False) -> dict[str, list[tuple[NumaRequest, int]]]:
        """By node: the pods that slots are open for and what they request of zones; or all that wait."""
        found: dict[str, list[tuple[NumaRequest, int]]] = {}
        for slot, count in self.open.items():
            request = next(iter(self.counts[slot].values())).zones
            if request is not None and slot.host:
                found.setdefault(self.nodes.node_of(slot.host), []).append((request, count))
        for node, demand, count in self.domains.chosen():
            if demand.zones is not None and demand.pod is None:
                found.setdefault(node, []).append((demand.zones, count))
        for pod, node in self.pending().values() if with_pending else ():
            if pod.spec.signature.zones is not None:
                found.setdefault(node, []).append((pod.spec.signature.zones, 1))
        return found

    def devices(self) -> dict[tuple[str, PodDevices], int]:
        """By node and claims: for how many pods devices are promised that no pending pod of ours claims."""
        found: dict[tuple[str, PodDevices], int] = {}
        for node, demand, count in self.domains.chosen():
            devices = self._devices_of(demand.slot)
            if devices is not None and not (demand.pod is not None and self._has_claims(demand.pod)):
                found[node, devices] = found.get((node, devices), 0) + count
        for slot in self.counts:
            devices = self._devices_of(slot)
            if devices is None or slot.domain:
                continue
            takers = self.takers.get(slot, ())
            unclaimed = sum(key in self.waiting and not self._has_claims(key) for key in takers)
            count = self.open.get(slot, 0) + unclaimed
            if count:
                key = self.nodes.node_of(slot.host), devices
                found[key] = found.get(key, 0) + count
        return found

    def _devices_of(self, slot: Slot) -> PodDevices | None:
        claims = self.counts.get(slot)
        return next(iter(claims.values())).devices if claims else None

    def _has_claims(self, key: PodKey) -> bool:
        """Whether the claims of a pending pod exist; they are made later than the pod."""
        return self.waiting[key].spec.signature.devices is not None

    def taken(self, without_zones: Collection[str] = ()) -> dict[Ref, str]:
        """Gangs with pending pods, none of them bound, that have a slot on a node that is overbooked.

        So are nodes whose zones have no room for all slots.

        Other pods were bound there before their scheduler knew of the slots. No pod of the gang may start
        until admission has moved or evicted the gang, or the gang would start in part.
        """
        overbooked = self._overbooked().union(without_zones) if self.waiting else set()
        lost = self.domains.lost() if self.waiting else set()
        if not overbooked and not lost:
            return {}
        found: dict[Ref, str] = {}
        started = {slot.gang for key, slot in self.slots.items() if key not in self.waiting}
        for slots in self.gangs.values():
            for slot in slots:
                if slot.gang in started:
                    continue
                node = self.nodes.node_of(slot.host) if slot.host else ""
                if node in overbooked:
                    found[slot.gang] = node
                elif slot.domain in lost:
                    found[slot.gang] = domain_text(slot.domain)
        return found

    def _overbooked(self) -> set[str]:
        """The nodes on which pods and slots, also those of pending pods, need more than there is."""
        pending: dict[str, dict[str, int]] = {}
        for pod, node in self.pending().values():
            total = pending.setdefault(node, {})
            for name, amount in pod.amounts.items():
                total[name] = total.get(name, 0) + amount
        return self.nodes.overbooked() | {n for n, more in pending.items() if self.nodes.lacks(n, more)}

    def _take(self, key: PodKey, before: Slot | None, slot: Slot | None) -> bool:
        freed = False
        if before is not None:
            del self.slots[key]
            self.takers[before].discard(key)
            if not self.takers[before]:
                del self.takers[before]
            freed = self._hold(before)
        if slot is not None:
            self.slots[key] = slot
            self.takers.setdefault(slot, set()).add(key)
            freed |= self._hold(slot)
        return freed

    def _set_gang(self, ref: Ref, slots: Mapping[Slot, SlotClaim]) -> bool:
        before = self.gangs.get(ref, {})
        if before == slots:
            return False
        for slot in before:
            del self.counts[slot][ref]
            if not self.counts[slot]:
                del self.counts[slot]
                self._name_domain(slot, known=False)
        for slot, claim in slots.items():
            if slot not in self.counts:
                self.counts[slot] = {}
                self._name_domain(slot, known=True)
            self.counts[slot][ref] = claim
        self.gangs[ref] = dict(slots)
        if not slots:
            del self.gangs[ref]
        freed = any(  # by pending pods that had it to themselves
            key in self.waiting
            for slot in before
            if slot not in self.counts
            for key in self.takers.get(slot, ())
        )
        for slot in {**before, **slots}:
            freed |= self._hold(slot)
        for gang in {slot.gang: None for slot in (*before, *slots)}:
            for pod in list(self.hostless.get(gang, {}).values()):
                freed |= self.pod_seen(pod)
        return freed

    def _name_domain(self, slot: Slot, *, known: bool) -> None:
        """A slot in a domain is known by its gang and pod set, or is no longer."""
        if not slot.domain:
            return
        key = slot.gang, slot.pod_set
        slots = [one for one in self.in_domains.get(key, ()) if one != slot]
        if known:
            slots.append(slot)
        if slots:
            self.in_domains[key] = sorted(slots, key=lambda one: one.domain)
        else:
            self.in_domains.pop(key, None)

    def _hold(self, slot: Slot) -> bool:
        """Hold the capacity of the open slots."""
        owner = PodKey(
            slot.gang.namespace, f"{slot.gang.name}/{slot.pod_set}/{slot.host}"
        )  # no pod has a slash
        claims = self.counts.get(slot, {})
        count = sum(claim.count for claim in claims.values()) - len(self.takers.get(slot, ()))
        if slot.domain:
            return self._hold_in_domain(slot, claims, count)
        if count <= 0:
            self.open.pop(slot, None)
            return self.nodes.release(owner)
        self.open[slot] = count
        requests = next(iter(claims.values())).amounts
        amounts = {name: amount * count for name, amount in requests.items()}
        return self.nodes.hold(LedgerEntry(owner, self.nodes.node_of(slot.host), amounts))

    def _hold_in_domain(self, slot: Slot, claims: Mapping[Ref, SlotClaim], count: int) -> bool:
        if count <= 0:
            self.open.pop(slot, None)
            return self.domains.set_open(slot, None)
        self.open[slot] = count
        claim = next(iter(claims.values()))
        rules = self._rules_of(claim)
        devices = _own_devices(claim.devices)
        demand = DomainDemand(slot, count, claim.amounts, rules, claim.zones, devices=devices)
        return self.domains.set_open(slot, demand)


def _slots_of(queued_gang: QueuedGang) -> dict[Slot, SlotClaim]:
    """The slots of a gang on hosts, or in domains if its topology ends above the host.

    An evicted gang keeps its slots until its quota is released. Admission counts them as long, and what a
    preempted gang leaves is for the gang that preempted it.
    """
    if queued_gang.admission is None:
        return {}
    requests = {
        one.name: ({**one.requests, PODS: 1}, one.zones, one.rules, _devices(one.template))
        for one in queued_gang.gang.root.pod_sets()
    }
    found: dict[Slot, SlotClaim] = {}
    for part in queued_gang.admission.pod_sets:
        if part.assignment is None or not part.assignment.levels or part.name not in requests:
            continue
        levels, flavors = part.assignment.levels, tuple(sorted(set(part.flavors.values())))
        for share in part.assignment.shares:
            slot = Slot(queued_gang.family, part.name, share.values[-1])
            if levels[-1] != HOSTNAME:
                slot = Slot(queued_gang.family, part.name, "", tuple(zip(levels, share.values, strict=False)))
            before = found[slot].count if slot in found else 0
            found[slot] = SlotClaim(before + share.count, *requests[part.name], flavors)
    return found


def _devices(template: PodSignature | None) -> PodDevices | None:
    """The devices of claims that have none yet."""
    devices = None if template is None else template.devices
    return None if devices is None or not devices.claims else PodDevices(devices.claims, devices.shared)


def _own_devices(devices: PodDevices | None) -> PodDevices | None:
    """The devices that each pod gets for itself: pods that share some are not packed on hosts by them."""
    own = () if devices is None else tuple(one for one in devices.claims if one.key not in devices.shared)
    return PodDevices(own) if own else None
