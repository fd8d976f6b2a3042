"""Slots of admitted gangs: capacity of a host is held for them until their pods take it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Mapping

from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.pod import Pod, PodKey, Slot
from bayplan.model.queued_gang import QueuedGang
from bayplan.state.cluster.ledger import LedgerEntry
from bayplan.state.cluster.node_store import NodeStore

Amounts = Mapping[str, int]
PodSetKey = tuple[Ref, str]
"""A gang, and a pod set of it."""


class SlotClaims:
    """One ledger entry for the open slots of a pod set on a host.

    A pod of the gang takes a slot over when it is bound there, or when it is pending and ours: then its
    claim is with the pod, and no other pod may use the capacity. The slot of a pod that succeeded is open for
    the next pod of its job, unless the Workload needs fewer pods than it has slots.
    """

    def __init__(self, nodes: NodeStore) -> None:
        self.nodes = nodes
        self.gangs: dict[Ref, dict[Slot, tuple[int, Amounts]]] = {}  # slots and requests of one pod, by gang
        self.counts: dict[Slot, dict[Ref, tuple[int, Amounts]]] = {}  # the same, by slot
        self.takers: dict[Slot, set[PodKey]] = {}
        self.slots: dict[PodKey, Slot] = {}  # of the takers, and of pods that succeeded
        self.succeeded: dict[PodSetKey, list[PodKey]] = {}  # by name
        self.spare: dict[PodSetKey, dict[Ref, int]] = {}  # slots that are needed no longer, by gang
        self.waiting: dict[PodKey, Pod] = {}  # those that are not bound

    def gang_seen(self, queued_gang: QueuedGang) -> bool:
        """A gang has an admission. Returns whether capacity became free."""
        slots = _slots_of(queued_gang)
        freed = self._set_gang(queued_gang.gang.source, slots)
        return self._set_spare(queued_gang.gang.source, _spare(queued_gang, slots)) or freed

    def gang_lost(self, ref: Ref) -> bool:
        """A gang has no admission any more. Returns whether capacity became free."""
        freed = self._set_gang(ref, {})
        return self._set_spare(ref, {}) or freed

    def pod_seen(self, pod: Pod) -> bool:
        """A pod, with the node that it is bound to or assumed to be. Returns whether capacity became free."""
        takes = pod.slot is not None and (pod.uses_capacity or pod.succeeded or pod.pending)
        slot = pod.slot if takes and not pod.terminating else None
        if slot is not None and pod.pending:
            self.waiting[pod.key] = pod
        else:
            self.waiting.pop(pod.key, None)
        return self._set_slot(pod.key, slot, succeeded=pod.succeeded)

    def pod_lost(self, key: PodKey) -> bool:
        """A pod is gone. Returns whether capacity became free."""
        self.waiting.pop(key, None)
        return self._set_slot(key, None)

    def pending(self) -> dict[PodKey, tuple[Pod, str]]:
        """The pending pods that have a slot, and its node."""
        found = ((pod, pod.slot) for pod in self.waiting.values())
        return {
            pod.key: (pod, self.nodes.node_of(slot.host))
            for pod, slot in found
            if slot is not None and slot in self.counts
        }

    def taken(self) -> dict[Ref, str]:
        """Gangs with pending pods, none of them bound, that have a slot on a node that is overbooked.

        Other pods were bound there before their scheduler knew of the slots. No pod of the gang may start
        until admission has moved or evicted the gang, or the gang would start in part.
        """
        overbooked = self._overbooked() if self.waiting else set()
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

    def _set_slot(self, key: PodKey, slot: Slot | None, *, succeeded: bool = False) -> bool:
        before = self.slots.pop(key, None)
        if slot is not None:
            self.slots[key] = slot
        known = self.succeeded.get(_pod_set(before), []) if before is not None else []
        if before == slot and succeeded == (key in known):
            return False
        freed = False
        if before is not None:
            if key in known:
                known.remove(key)
                freed |= self._reclaim(_pod_set(before))
            freed |= self._take(before, key, taken=False)
        if slot is not None and succeeded:
            insort(self.succeeded.setdefault(_pod_set(slot), []), key, key=str)
            freed |= self._reclaim(_pod_set(slot))
        elif slot is not None:
            freed |= self._take(slot, key, taken=True)
        return freed

    def _take(self, slot: Slot, key: PodKey, *, taken: bool) -> bool:
        """A pod takes a slot, or leaves it."""
        takers = self.takers.get(slot, set())
        if taken == (key in takers):
            return False
        if taken:
            self.takers.setdefault(slot, takers).add(key)
        else:
            takers.discard(key)
            if not takers:
                del self.takers[slot]
        return self._hold(slot)

    def _reclaim(self, pod_set: PodSetKey) -> bool:
        """As many pods that succeeded keep their slots taken as there are slots to spare."""
        succeeded, freed = self.succeeded.get(pod_set, []), False
        spare = sum(self.spare.get(pod_set, {}).values())
        for number, key in enumerate(succeeded):
            freed |= self._take(self.slots[key], key, taken=number < spare)
        if not succeeded:
            self.succeeded.pop(pod_set, None)
        return freed

    def _set_gang(self, ref: Ref, slots: Mapping[Slot, tuple[int, Amounts]]) -> bool:
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

    def _set_spare(self, ref: Ref, spare: Mapping[PodSetKey, int]) -> bool:
        freed = False
        for pod_set in [one for one, by_gang in self.spare.items() if ref in by_gang and one not in spare]:
            del self.spare[pod_set][ref]
            if not self.spare[pod_set]:
                del self.spare[pod_set]
            freed |= self._reclaim(pod_set)
        for pod_set, count in spare.items():
            by_gang = self.spare.setdefault(pod_set, {})
            if by_gang.get(ref) != count:
                by_gang[ref] = count
                freed |= self._reclaim(pod_set)
        return freed

    def _hold(self, slot: Slot) -> bool:
        """Hold the capacity of the open slots."""
        owner = PodKey(
            slot.gang.namespace, f"{slot.gang.name}/{slot.pod_set}/{slot.host}"
        )  # no pod has a slash
        claims = self.counts.get(slot, {})
        count = sum(number for number, _ in claims.values()) - len(self.takers.get(slot, ()))
        if count <= 0:
            return self.nodes.release(owner)
        requests = next(iter(claims.values()))[1]
        amounts = {name: amount * count for name, amount in requests.items()}
        return self.nodes.hold(LedgerEntry(owner, self.nodes.node_of(slot.host), amounts, assumed=True))


def _slots_of(queued_gang: QueuedGang) -> dict[Slot, tuple[int, Amounts]]:
    """The slots of a gang on hosts. In a topology that ends above the host, a slot has no host yet."""
    if queued_gang.admission is None or queued_gang.evicted:
        return {}
    requests = {one.name: {**one.requests, PODS: 1} for one in queued_gang.gang.root.pod_sets()}
    found: dict[Slot, tuple[int, Amounts]] = {}
    for part in queued_gang.admission.pod_sets:
        if part.assignment is None or part.assignment.levels[-1:] != (HOSTNAME,) or part.name not in requests:
            continue
        for share in part.assignment.shares:
            slot = Slot(queued_gang.family, part.name, share.values[-1])
            found[slot] = found.get(slot, (0, {}))[0] + share.count, requests[part.name]
    return found


def _spare(queued_gang: QueuedGang, slots: Mapping[Slot, tuple[int, Amounts]]) -> dict[PodSetKey, int]:
    """How many slots of each pod set are needed no longer, since so many of its pods are over."""
    wanted = {one.name: one.count for one in queued_gang.gang.root.pod_sets()}
    total: dict[PodSetKey, int] = {}
    for slot, (count, _) in slots.items():
        total[_pod_set(slot)] = total.get(_pod_set(slot), 0) + count
    return {key: more for key, count in total.items() if (more := count - wanted[key[1]]) > 0}


def _pod_set(slot: Slot) -> PodSetKey:
    return slot.gang, slot.pod_set
