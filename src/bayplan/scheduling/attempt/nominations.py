"""Capacity on nodes that is reserved for nominated pods which are not bound yet."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.state.scheduling.single_pod import single_pod_ref
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot

NOWHERE = -1
CLAIMED = 1 << 40  # above every priority: a slot of an admitted gang is for its pod alone


class Nominations:
    """Nominated pods in the overlay: those of at least the priority of the gang that is tried.

    They are sorted by priority, highest first, so that those in the overlay are always a prefix.
    """

    def __init__(self, overlay: NodeOverlay, snapshot: SchedulingSnapshot) -> None:
        self.overlay = overlay
        self.specs: Mapping[Ref, GangSpec] = snapshot.specs
        self.order: list[tuple[int, str, PodKey]] = []
        self.nominated: dict[PodKey, tuple[Pod, int]] = {}
        self.in_overlay = 0
        self.claims = snapshot.claims
        self.contested = snapshot.contested
        for pod, node in snapshot.claims.values():
            self.add(pod, node, CLAIMED)
        for pod, node in snapshot.nominations.values():
            self.add(pod, node, pod_priority(pod, snapshot.specs))
        for candidate in snapshot.candidates:
            waiting = {pod.key: pod for pod in candidate.pending} if candidate.nominated else {}
            for key, node in candidate.nominated.items():
                if key in waiting:
                    self.add(waiting[key], node, priority_of(candidate))

    def add(self, pod: Pod, node: str, priority: int) -> None:
        """Nominate a pod for a node."""
        row = self.overlay.row(node)
        if row == NOWHERE or pod.key in self.nominated or pod.key in self.overlay.filter_input.index.pods:
            return
        entry = (-priority, str(pod.key), pod.key)
        if self.in_overlay and entry < self.order[self.in_overlay - 1]:
            self._add_to_overlay(pod, row, priority)
            self.in_overlay += 1
        self.nominated[pod.key] = pod, row
        insort(self.order, entry)

    def holding_back(self, pods: Iterable[Pod], priority: int) -> Ref | None:
        """The gang of higher priority that these pods must not get ahead of, if there is one.

        Several preemptions got it no node, and its required affinity or spread counts pods like these, or
        they could take the devices that its victims leave: they would again be why it does not fit.
        """
        if not self.contested:
            return None
        others = {pod.spec.signature: None for pod in pods}
        for pod, _ in self.nominated.values():
            gang = pod.gang or single_pod_ref(pod.key)
            if gang in self.contested and pod_priority(pod, self.specs) > priority:
                owner = pod.spec.signature
                if any(self._counts(owner, other) for other in others):
                    return gang
        return None

    def _counts(self, owner: PodSignature, other: PodSignature) -> bool:
        """Whether required affinity or spread of a pod counts another one, or both need devices."""
        if owner.devices is not None and other.devices is not None:
            return True
        labels, index = dict(other.labels), self.overlay.filter_input.index
        for term in owner.affinity.required:
            namespaces = index.namespaces_of(term)
            if (namespaces is None or other.namespace in namespaces) and term.selector.accepts(labels):
                return True
        same = owner.namespace == other.namespace
        return same and any(one.required and one.selector.accepts(labels) for one in owner.spread)

    def _add_to_overlay(self, pod: Pod, row: int, priority: int) -> None:
        claimed = priority == CLAIMED
        self.overlay.add_pod(pod.key, pod.spec.signature, row, claimed=claimed, nominated=not claimed)

    def drop(self, keys: Iterable[PodKey]) -> None:
        """Clear nominations: the pods are assigned again."""
        dropped = {key for key in keys if key in self.nominated}
        if not dropped:
            return
        self.overlay.remove_pods(key for *_, key in self.order[: self.in_overlay] if key in dropped)
        self.in_overlay -= sum(key in dropped for *_, key in self.order[: self.in_overlay])
        self.order = [entry for entry in self.order if entry[-1] not in dropped]
        for key in dropped:
            del self.nominated[key]

    def take(self, candidate: SchedulingCandidate) -> None:
        """The pods of this gang are tried: what is nominated or claimed for them is free for them."""
        self.drop(candidate.nominated)
        if self.claims:
            self.drop(pod.key for pod in candidate.pending)

    def give_back(self, pods: Iterable[Pod]) -> None:
        """These pods stay pending, and keep their claims."""
        for pod in pods:
            if pod.key in self.claims:
                self.add(*self.claims[pod.key], CLAIMED)

    def respect(self, priority: int) -> None:
        """Keep exactly those nominated pods in the overlay that a pod of this priority has to respect."""
        while self.in_overlay < len(self.order) and -self.order[self.in_overlay][0] >= priority:
            inverse_priority, _, key = self.order[self.in_overlay]
            pod, row = self.nominated[key]
            self._add_to_overlay(pod, row, -inverse_priority)
            self.in_overlay += 1
        while self.in_overlay and -self.order[self.in_overlay - 1][0] < priority:
            self.in_overlay -= 1
            self.overlay.remove_pod(self.order[self.in_overlay][-1])


def priority_of(candidate: SchedulingCandidate) -> int:
    """The priority in the gang's spec, or else the highest priority of its pods."""
    if candidate.spec.priority is not None:
        return candidate.spec.priority
    pods = candidate.pending or candidate.bound
    return max((pod.spec.priority for pod in pods), default=0)


def pod_priority(pod: Pod, specs: Mapping[Ref, GangSpec]) -> int:
    """The priority in the gang's spec, if it has one, or else that of the pod."""
    spec = specs.get(pod.gang) if pod.gang is not None else None
    if spec is not None and spec.priority is not None:
        return spec.priority
    return pod.spec.priority
