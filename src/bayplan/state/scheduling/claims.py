"""Slots of admitted gangs: capacity of a host is held for them until their pods take it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from bayplan.model.devices.claims import PodDevices
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import Pod, PodKey, Slot
from bayplan.model.pod_spec import PodSignature
from bayplan.model.queued_gang import QueuedGang
from bayplan.state.cluster.ledger import LedgerEntry
from bayplan.state.cluster.node_store import NodeStore

Amounts = Mapping[str, int]


@dataclass(frozen=True, slots=True)
class SlotClaim:
    """The slots of a pod set on a host: how many, and what a pod needs of the node, its zones and devices."""

    count: int
    amounts: Amounts
    zones: NumaRequest | None
    devices: PodDevices | None = None


class SlotClaims:
    """One ledger entry for the open slots of a pod set on a host.

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

    def gang_seen(self, queued_gang: QueuedGang) -> bool:
        """A gang has an admission. Returns whether capacity became free."""
        return self._set_gang(queued_gang.gang.source, _slots_of(queued_gang))

    def gang_lost(self, ref: Ref) -> bool:
        """A gang has no admission any more. Returns whether capacity became free."""
        return self._set_gang(ref, {})

    def pod_seen(self, pod: Pod) -> bool:
        """A pod, with the node that it is bound to or assumed to be. Returns whether capacity became free."""
        before = self.slots.get(pod.key)
        takes = pod.slot is not None and (pod.uses_capacity or pod.pending)
        slot = pod.slot if takes and not pod.terminating else None
        if slot is not None and pod.pending:
            self.waiting[pod.key] = pod
        else:
            self.waiting.pop(pod.key, None)
        return before != slot and self._take(pod.key, before, slot)

    def pod_lost(self, key: PodKey) -> bool:
        """A pod is gone. Returns whether capacity became free."""
        self.waiting.pop(key, None)
        return self._take(key, self.slots.get(key), None)

    def pending(self) -> dict[PodKey, tuple[Pod, str]]:
        """The pending pods that have a slot, and its node."""
        found = ((pod, pod.slot) for pod in self.waiting.values())
        return {
            pod.key: (pod, self.nodes.node_of(slot.host))
            for pod, slot in found
            if slot is not None and slot in self.counts
        }

    def zones(self, *, with_pending: bool = False) -> dict[str, list[tuple[NumaRequest, int]]]:
        """By node: the pods that slots are open for and what they request of zones; or all that wait."""
        found: dict[str, list[tuple[NumaRequest, int]]] = {}
        for slot, count in self.open.items():
            request = next(iter(self.counts[slot].values())).zones
            if request is not None:
                found.setdefault(self.nodes.node_of(slot.host), []).append((request, count))
        for pod, node in self.pending().values() if with_pending else ():
            if pod.spec.signature.zones is not None:
                found.setdefault(node, []).append((pod.spec.signature.zones, 1))
        return found

    def devices(self) -> dict[tuple[str, PodDevices], int]:
        """By node and claims: for how many pods devices are promised that no pending pod of ours claims."""
        found: dict[tuple[str, PodDevices], int] = {}
        for slot, claims in self.counts.items():
            devices = next(iter(claims.values())).devices
            if devices is None:
                continue
            pods = (self.waiting.get(key) for key in self.takers.get(slot, ()))
            # the claims of a new pod are made later than the pod
            unclaimed = sum(pod is not None and pod.spec.signature.devices is None for pod in pods)
            count = self.open.get(slot, 0) + unclaimed
            if count:
                key = self.nodes.node_of(slot.host), devices
                found[key] = found.get(key, 0) + count
        return found

    def taken(self, without_zones: Collection[str] = ()) -> dict[Ref, str]:
        """Gangs with pending pods, none of them bound, that have a slot on a node that is overbooked.

        So are nodes whose zones have no room for all slots.

        Other pods were bound there before their scheduler knew of the slots. No pod of the gang may start
        until admission has moved or evicted the gang, or the gang would start in part.
        """
        overbooked = self._overbooked().union(without_zones) if self.waiting else set()
        if not overbooked:
            return {}
        found: dict[Ref, str] = {}
        started = {slot.gang for key, slot in self.slots.items() if key not in self.waiting}
        for slots in self.gangs.values():
            for slot in slots:
                node = self.nodes.node_of(slot.host)
                if node in overbooked and slot.gang not in started:
                    found[slot.gang] = node
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
        for slot, claim in slots.items():
            self.counts.setdefault(slot, {})[ref] = claim
        self.gangs[ref] = dict(slots)
        if not slots:
            del self.gangs[ref]
        freed = False
        for slot in {**before, **slots}:
            freed |= self._hold(slot)
        return freed

    def _hold(self, slot: Slot) -> bool:
        """Hold the capacity of the open slots."""
        owner = PodKey(
            slot.gang.namespace, f"{slot.gang.name}/{slot.pod_set}/{slot.host}"
        )  # no pod has a slash
        claims = self.counts.get(slot, {})
        count = sum(claim.count for claim in claims.values()) - len(self.takers.get(slot, ()))
        if count <= 0:
            self.open.pop(slot, None)
            return self.nodes.release(owner)
        self.open[slot] = count
        requests = next(iter(claims.values())).amounts
        amounts = {name: amount * count for name, amount in requests.items()}
        return self.nodes.hold(LedgerEntry(owner, self.nodes.node_of(slot.host), amounts))


def _slots_of(queued_gang: QueuedGang) -> dict[Slot, SlotClaim]:
    """The slots of a gang on hosts. In a topology that ends above the host, a slot has no host yet.

    An evicted gang keeps its slots until its quota is released. Admission counts them as long, and what a
    preempted gang leaves is for the gang that preempted it.
    """
    if queued_gang.admission is None:
        return {}
    requests = {
        one.name: ({**one.requests, PODS: 1}, one.zones, _own_devices(one.template))
        for one in queued_gang.gang.root.pod_sets()
    }
    found: dict[Slot, SlotClaim] = {}
    for part in queued_gang.admission.pod_sets:
        if part.assignment is None or part.assignment.levels[-1:] != (HOSTNAME,) or part.name not in requests:
            continue
        for share in part.assignment.shares:
            slot = Slot(queued_gang.family, part.name, share.values[-1])
            before = found[slot].count if slot in found else 0
            found[slot] = SlotClaim(before + share.count, *requests[part.name])
    return found


def _own_devices(template: PodSignature | None) -> PodDevices | None:
    """The devices of the claims that each pod gets for itself: what pods share is in no slot."""
    devices = None if template is None else template.devices
    own = () if devices is None else tuple(one for one in devices.claims if one.key not in devices.shared)
    return PodDevices(own) if own else None
