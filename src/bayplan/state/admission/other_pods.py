"""Pods whose capacity no admission covers: pods of other schedulers, surplus pods, and pods left behind.

An admitted gang has a number of slots for pods of each pod set in each domain. A pod of the gang is covered
if it is in such a domain and a slot is free; only what it uses beyond its slot is counted again. All other
pods use capacity of their nodes by themselves, whatever gang they name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain

from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS
from bayplan.model.pod import Pod, PodKey
from bayplan.state.admission.usage import AdmittedUsage, GangUsage
from bayplan.state.cluster.ledger import Ledger, LedgerEntry, Shift

Levels = tuple[str, ...]
Slot = tuple[str, Levels, Path]
"""The pod set, the levels of its topology, and the domain."""


@dataclass(slots=True)
class GangVersions:
    """All versions of one elastic gang, the pods that name it, and the slots of the admitted versions."""

    versions: dict[Ref, None] = field(default_factory=dict)
    slots: dict[Slot, int] = field(default_factory=dict)
    each: dict[Slot, Mapping[str, int]] = field(default_factory=dict)  # requests of one pod
    levels: dict[str, dict[Levels, None]] = field(default_factory=dict)  # by pod set
    pods: dict[PodKey, Slot | None] = field(default_factory=dict)  # None: in no domain that has slots
    inside: dict[Slot, dict[PodKey, None]] = field(
        default_factory=dict
    )  # in order of arrival: the first pods have the slots


class UnmanagedPods:
    """Capacity that pods use on nodes beyond what admitted gangs hold."""

    def __init__(self, usages: AdmittedUsage) -> None:
        self.usage = usages
        self.ledger = Ledger()
        self._others: dict[PodKey, Pod] = {}  # pods that are not claims by themselves
        self.families: dict[Ref, GangVersions] = {}
        self.family_of: dict[Ref, Ref] = {}  # of gangs that hold usage
        self.on_node: dict[str, dict[PodKey, None]] = {}  # pods that name a gang
        self.unbound: dict[str, dict[PodKey, None]] = {}  # pods without a gang that are not bound yet

    def pod(self, key: PodKey) -> Pod | None:
        """The pod, as far as it is bound, assigned or nominated."""
        return self.ledger.pods.get(key) or self._others.get(key)

    def pods(self) -> Iterator[Pod]:
        """All these pods."""
        return chain(self.ledger.pods.values(), self._others.values())

    def _known(self, key: PodKey) -> Pod:
        return self.ledger.pods.get(key) or self._others[key]

    def seen(self, pod: Pod) -> list[Shift]:
        """A pod was added or changed."""
        shifts = self._replaced(pod)
        if pod.unbound and pod.gang is None and pod.uses_capacity:
            self.unbound.setdefault(pod.node, {})[pod.key] = None
        return shifts

    def _replaced(self, pod: Pod) -> list[Shift]:
        before = self.pod(pod.key)
        if before is not None:
            _drop(self.unbound, before.node, pod.key)
        if before is not None and _weight(before) == _weight(pod):
            (self.ledger.pods if pod.key in self.ledger.pods else self._others)[pod.key] = pod
            return []
        same_claim = before is not None and before.uid == pod.uid and before.gang is pod.gang is None
        shifts = [] if same_claim else self.deleted(pod.key)
        if pod.gang is None and pod.uses_capacity:
            return shifts + self._hold(pod)
        if pod.gang is None:
            return shifts + self._release(pod)
        self._others[pod.key] = pod
        if pod.uses_capacity:
            self.on_node.setdefault(pod.node, {})[pod.key] = None
            shifts += self._enter(self.families.setdefault(pod.gang, GangVersions()), pod)
        return shifts

    def deleted(self, key: PodKey) -> list[Shift]:
        """A pod was deleted."""
        pod = self.pod(key)
        self._others.pop(key, None)
        shifts = self.ledger.release(key)
        if pod is not None:
            _drop(self.unbound, pod.node, key)
        if pod is None or pod.gang is None:
            return shifts
        _drop(self.on_node, pod.node, key)
        family = self.families.get(pod.gang)
        if family is not None:
            shifts += self._leave(family, key)
            self._forget(pod.gang, family)
        return shifts

    def moved(self, ref: Ref, usage: GangUsage | None) -> list[Shift]:
        """A gang has another placement than before, or none."""
        name = self.family_of.pop(ref, ref) if usage is None else usage.queued_gang.family
        family = self.families.setdefault(name, GangVersions())
        if usage is None:
            family.versions.pop(ref, None)
        else:
            family.versions[ref], self.family_of[ref] = None, name
        shifts = self._renewed(family)
        self._forget(name, family)
        return shifts

    def nodes_changed(self, names: Iterable[str]) -> list[Shift]:
        """Labels of nodes changed: their pods may be in other domains now."""
        shifts: list[Shift] = []
        for name in names:
            for key in list(self.on_node.get(name, ())):
                pod = self._known(key)
                family = self.families[pod.gang] if pod.gang is not None else None
                if family is not None and family.pods.get(key) != self._slot(family, pod):
                    shifts += self._leave(family, key) + self._enter(family, pod)
        return shifts

    def _renewed(self, family: GangVersions) -> list[Shift]:
        """Recompute the slots and which pods have them."""
        family.slots, family.each, family.levels = {}, {}, {}
        found = (self.usage.by_gang.get(ref) for ref in family.versions)
        for placement in (
            placement for usage in found if usage is not None for placement in usage.placements
        ):
            levels = _levels(placement.place.levels)
            family.levels.setdefault(placement.pod_set, {})[levels] = None
            for share in placement.place.shares:
                slot = (placement.pod_set, levels, share.values[-len(levels) :])
                family.slots[slot] = family.slots.get(slot, 0) + share.count
                family.each[slot] = placement.requests
        pods = [self._known(key) for key in family.pods]
        family.pods, family.inside = {}, {}
        return [shift for pod in pods for shift in self._enter(family, pod)]

    def _enter(self, family: GangVersions, pod: Pod) -> list[Shift]:
        slot = family.pods[pod.key] = self._slot(family, pod)
        if slot is None:
            return self._hold(pod)
        inside = family.inside.setdefault(slot, {})
        inside[pod.key] = None
        has_slot = len(inside) <= family.slots[slot]
        return self._settled(pod, family.each[slot] if has_slot else None)

    def _leave(self, family: GangVersions, key: PodKey) -> list[Shift]:
        """Hand the slot of a pod to the first pod without one."""
        slot = family.pods.pop(key, None)
        if slot is None:
            return []
        inside, count = family.inside[slot], family.slots[slot]
        order = list(inside) if len(inside) > count else []
        del inside[key]
        if not inside:
            del family.inside[slot]
        if not order or order.index(key) >= count:
            return []
        return self._settled(self._known(order[count]), family.each[slot])

    def _settled(self, pod: Pod, slot: Mapping[str, int] | None) -> list[Shift]:
        """What a pod uses beyond its slot, or all that it uses if it has none."""
        if slot is None:
            return self._hold(pod)
        each = {**slot, PODS: slot.get(PODS, 0) + 1}
        beyond = {
            name: more for name, amount in pod.amounts.items() if (more := amount - each.get(name, 0)) > 0
        }
        if not beyond:
            return self._release(pod)
        self._others[pod.key] = pod
        return self.ledger.hold(LedgerEntry(pod.key, pod.node, beyond))

    def _hold(self, pod: Pod) -> list[Shift]:
        """A pod uses all that it requests."""
        self._others.pop(pod.key, None)
        return self.ledger.hold(pod)

    def _release(self, pod: Pod) -> list[Shift]:
        """A pod uses nothing by itself."""
        self._others[pod.key] = pod
        return self.ledger.release(pod.key)

    def _slot(self, family: GangVersions, pod: Pod) -> Slot | None:
        """The slot of a pod: its domain, if its gang has slots for its pod set there."""
        for pod_set in self._pod_sets(family, pod):
            for levels in family.levels[pod_set]:
                domain = self._domain(pod.node, levels)
                if domain is not None and (pod_set, levels, domain) in family.slots:
                    return pod_set, levels, domain
        return None

    def _pod_sets(self, family: GangVersions, pod: Pod) -> Iterator[str]:
        """The pod set of the pod; if the pod names none, the only pod set there is."""
        if pod.pod_set in family.levels:
            yield pod.pod_set
        elif not pod.pod_set and len(family.levels) == 1:
            yield from family.levels

    def _domain(self, name: str, levels: Levels) -> Path | None:
        node = self.usage.nodes.get(name)
        if levels == (HOSTNAME,):
            return (name if node is None else node.labels.get(HOSTNAME, name),)
        if node is None or any(level not in node.labels for level in levels):
            return None
        return tuple(node.labels[level] for level in levels)

    def _forget(self, name: Ref, family: GangVersions) -> None:
        if not family.versions and not family.pods:
            self.families.pop(name, None)


def _levels(levels: Levels) -> Levels:
    """A host is identified by its name alone."""
    return levels[-1:] if levels[-1] == HOSTNAME else levels


def _weight(pod: Pod) -> tuple[object, ...]:
    """The fields of a pod that decide where it uses how much."""
    return pod.uid, pod.gang, pod.pod_set, pod.node, pod.uses_capacity, pod.amounts


def _drop(index: dict[str, dict[PodKey, None]], name: str, key: PodKey) -> None:
    here = index.get(name, {})
    here.pop(key, None)
    if not here:
        index.pop(name, None)
