"""Room on nodes that is promised to pods which are not bound yet, as far as others have to respect it."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable, Mapping

from bayplan.model.gang import GangSpec, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot

NOWHERE = -1


class Nominations:
    """Nominated pods on the floor: those that are at least as important as whoever is being seated.

    The most important come first, so that the ones on the floor are always the first few.
    """

    def __init__(self, floor: NodeOverlay, look: SchedulingSnapshot) -> None:
        self.floor = floor
        self.charters: Mapping[Ref, GangSpec] = look.charters
        self.order: list[tuple[int, str, PodKey]] = []
        self.made: dict[PodKey, tuple[Pod, int]] = {}
        self.seated = 0
        for pod, node in look.nominations.values():
            self.note(pod, node, pod_priority(pod, look.charters))
        for candidate in look.candidates:
            waiting = {pod.key: pod for pod in candidate.waiting} if candidate.nominated else {}
            for key, node in candidate.nominated.items():
                if key in waiting:
                    self.note(waiting[key], node, priority_of(candidate))

    def note(self, pod: Pod, node: str, priority: int) -> None:
        """From now on a pod has a claim to room on a node."""
        row = self.floor.row(node)
        if row == NOWHERE or pod.key in self.made or pod.key in self.floor.scene.index.pods:
            return
        entry = (-priority, str(pod.key), pod.key)
        if self.seated and entry < self.order[self.seated - 1]:
            self.floor.seat(pod.key, pod.wants.shape, row)
            self.seated += 1
        self.made[pod.key] = pod, row
        insort(self.order, entry)

    def drop(self, keys: Iterable[PodKey]) -> None:
        """Claims end: the pods are being seated anew."""
        gone = {key for key in keys if key in self.made}
        if not gone:
            return
        self.floor.lift_many(key for *_, key in self.order[: self.seated] if key in gone)
        self.seated -= sum(key in gone for *_, key in self.order[: self.seated])
        self.order = [entry for entry in self.order if entry[-1] not in gone]
        for key in gone:
            del self.made[key]

    def hold(self, priority: int) -> None:
        """Put those on the floor that a pod of this priority has to respect, and only those."""
        while self.seated < len(self.order) and -self.order[self.seated][0] >= priority:
            pod, row = self.made[self.order[self.seated][-1]]
            self.floor.seat(pod.key, pod.wants.shape, row)
            self.seated += 1
        while self.seated and -self.order[self.seated - 1][0] < priority:
            self.seated -= 1
            self.floor.lift(self.order[self.seated][-1])


def priority_of(candidate: SchedulingCandidate) -> int:
    """What its charter says; else the highest of its pods."""
    if candidate.charter.priority is not None:
        return candidate.charter.priority
    pods = candidate.waiting or candidate.standing
    return max((pod.wants.priority for pod in pods), default=0)


def pod_priority(pod: Pod, charters: Mapping[Ref, GangSpec]) -> int:
    """That of its gang, if that says one."""
    charter = charters.get(pod.gang) if pod.gang is not None else None
    if charter is not None and charter.priority is not None:
        return charter.priority
    return pod.wants.priority
