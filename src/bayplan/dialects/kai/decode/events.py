"""Watch events of PodGroups, Queues, Topologies and PriorityClasses, and of pods in groups, as changes.

The spec of a gang depends on its PodGroup and its pods together. New and changed pods are therefore held
until all pending events are decoded; then each affected group is decoded once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kai.api import queues, wire
from bayplan.dialects.kai.api.gang_tree import BadTree, Decoded, decode, gang_spec
from bayplan.dialects.kai.api.members import known_pods, pod_positions
from bayplan.dialects.kai.api.names import (
    BUILD,
    DIALECT,
    INFERENCE,
    INTERACTIVE_PREEMPTIBLE,
    POD_INDEX_LABEL,
    TRAIN,
)
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.segments import INDEX_LABELS
from bayplan.dialects.kai.grouper.join import flaw_of, wants_group
from bayplan.dialects.kube.decode.wire import Metadata, PodWire, Struct
from bayplan.dialects.kube.fields.times import seconds
from bayplan.model.change import (
    Change,
    FairQueueLost,
    FairQueueSeen,
    GangSpecLost,
    GangSpecSeen,
    PodLost,
    PodSeen,
    TopologyLost,
    TopologySeen,
)
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.node import Topology
from bayplan.model.pod import Pod, PodKey
from bayplan.model.whole_numbers import whole_number

DEFAULT_PRIORITIES = {TRAIN: 50, INTERACTIVE_PREEMPTIBLE: 75, BUILD: 100, INFERENCE: 125}
"""The values of the default priority classes where these do not exist."""
DEFAULT_PRIORITY = 50
ALONE = "Pod"
"""The kind of the Ref of a pod that is not in a group yet."""
_INDEX_LABELS = tuple(dict.fromkeys(INDEX_LABELS.values()))
PodPositions = dict[PodKey, tuple[str, int]]
"""Pod set and rank of each pod."""


class PriorityClassWire(Struct, frozen=True):
    """A PriorityClass."""

    metadata: Metadata = Metadata()
    value: int = 0
    global_default: bool = False


PRIORITY_CLASSES = Kind(
    "scheduling.k8s.io", "v1", "PriorityClass", "priorityclasses", namespaced=False, wire=PriorityClassWire
)
KINDS = (*wire.KINDS, PRIORITY_CLASSES)


@dataclass(slots=True)
class KnownGroup:
    """One PodGroup: its object, and its pods."""

    group: PodGroup | None = None
    created: float = 0.0
    status: wire.PodGroupStatusWire = wire.PodGroupStatusWire()  # noqa: RUF009 - it is frozen
    priority: int = 0
    pods: dict[PodKey, Pod] = field(default_factory=dict)
    positions: PodPositions = field(default_factory=dict)


class GroupDecoder:
    """Keeps the objects that gangs depend on: PodGroups, their pods, topologies, priority classes."""

    def __init__(self, awaits_grouper: bool = False) -> None:
        self.awaits_grouper = awaits_grouper  # pods without a group wait for the pod grouper
        self.flaws: dict[Ref, str] = {}  # why a pod could not be grouped, by its single-pod gang
        self.groups: dict[Ref, KnownGroup] = {}
        self.group_of: dict[PodKey, Ref] = {}
        self.queues: dict[str, wire.QueueWire] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.priorities: dict[str, PriorityClassWire] = {}
        self.changed_groups: dict[Ref, None] = {}  # groups whose status may have changed
        self.changed_queues: set[str] = set()
        self.parents: dict[str, str] = {}  # the parent of each queue; empty for a root
        self.children: dict[str, set[str]] = {}  # the queues that name each queue as their parent
        self.moved_queues: set[str] = set()  # queues added, deleted, or with another parent
        self._dirty: dict[Ref, None] = {}  # groups to decode again
        self._held: dict[PodKey, None] = {}  # pods held back until their group is decoded

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""
        if event.happened is Happened.SYNCED:
            return
        gone, obj = event.happened is Happened.GONE, event.object
        match event.kind.kind:
            case "PodGroup":
                yield from self._group(obj, gone)
            case "Queue":
                yield from self._queue(obj, gone)
            case "Topology":
                yield from self._topology(obj, gone)
            case "PriorityClass":
                self._priority_class(obj, gone)

    def position_pods(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The same changes with each pod at its position in its gang; pods of changed groups are held."""
        for change in changes:
            match change:
                case PodSeen(pod):
                    yield from self._pod(pod)
                    continue
                case PodLost(key):
                    self._remove_pod(key)
            yield change

    def flush(self) -> Iterator[Change]:
        """The changes of all affected groups and held pods. Called once after a batch of events.

        After a failure, the next call continues with the remaining groups.
        """
        dirty, self._dirty = list(self._dirty), {}
        attempted = 0
        try:
            for ref in dirty:
                attempted += 1
                yield from self._decode_group(ref)
            self._held.clear()
        finally:
            self._dirty |= dict.fromkeys(dirty[attempted:])

    # ── pods ───────────────────────────────────────────────────────────────────────────────────────

    def membership(self, pod: PodWire) -> tuple[Ref, str, int] | None:
        """The gang, the sub-group and the index of a pod that is in a PodGroup, or waits to be grouped."""
        group = wire.group_of(pod)
        if group is not None:
            return *group, _index(pod)
        awaited = self.awaits_grouper or flaw_of(pod)
        if not awaited or pod.spec.node_name or not wants_group(pod):
            return None
        ref = Ref(DIALECT, ALONE, pod.metadata.namespace or "default", pod.metadata.name)
        if self.flaws.get(ref, "") != flaw_of(pod):
            self.flaws[ref] = flaw_of(pod)
            self._dirty[ref] = None
        return ref, "", 0

    def _pod(self, pod: Pod) -> Iterator[Change]:
        key, gang = pod.key, pod.gang
        if self.group_of.get(key, gang) != gang:
            self._remove_pod(key)
        if gang is None or gang.dialect != DIALECT:
            yield PodSeen(pod)
            return
        known = self.groups.setdefault(gang, KnownGroup())
        self.group_of[key], before = gang, known.pods.get(key)
        known.pods[key] = pod
        self.changed_groups[gang] = None
        if before is None or _identity(before) != _identity(pod):
            self._dirty[gang] = self._held[key] = None
        elif key not in self._held:
            yield PodSeen(_positioned(pod, known))

    def _remove_pod(self, key: PodKey) -> None:
        ref = self.group_of.pop(key, None)
        self._held.pop(key, None)
        if ref is None:
            return
        known = self.groups[ref]
        known.pods.pop(key, None)
        known.positions.pop(key, None)
        self._dirty[ref] = self.changed_groups[ref] = None

    # ── objects ────────────────────────────────────────────────────────────────────────────────────

    def _group(self, group_wire: wire.KaiPodGroupWire, gone: bool) -> Iterator[Change]:
        group = wire.pod_group(group_wire)
        known = self.groups.setdefault(group.ref, KnownGroup())
        self.changed_groups[group.ref] = None
        if gone:
            known.group, known.status = None, wire.PodGroupStatusWire()
            if known.pods:
                self._dirty[group.ref] = None
            else:
                del self.groups[group.ref]
            yield GangSpecLost(group.ref)
            return
        known.status = group_wire.status
        if group != known.group:
            known.group, known.created = group, seconds(group_wire.metadata.creation_timestamp or "")
            self._dirty[group.ref] = None

    def _queue(self, queue_wire: wire.QueueWire, gone: bool) -> Iterator[Change]:
        name, had_any = queue_wire.metadata.name, bool(self.queues)
        before = self.queues.get(name)
        if gone:
            self.queues.pop(name, None)
            yield FairQueueLost(name)
        else:
            self.queues[name] = queue_wire
            if before is None or queues.queue(before) != queues.queue(queue_wire):
                yield FairQueueSeen(queues.queue(queue_wire))
        self.changed_queues.add(name)
        old_parent, new_parent = (
            self.parents.pop(name, None),
            None if gone else queue_wire.spec.parent_queue or "",
        )
        if new_parent is not None:
            self.parents[name] = new_parent
        if old_parent != new_parent:
            self.moved_queues.add(name)
            self._move_queue(name, old_parent or "", new_parent or "")
            for above in (old_parent, new_parent):  # their status lists their children
                self.changed_queues |= set(queues.ancestors(above or "", self.parents))
        if had_any != bool(self.queues):
            self._dirty |= dict.fromkeys(self.groups)

    def _move_queue(self, name: str, old_parent: str, new_parent: str) -> None:
        siblings = self.children.get(old_parent, set())
        siblings.discard(name)
        if not siblings:
            self.children.pop(old_parent, None)
        if new_parent:
            self.children.setdefault(new_parent, set()).add(name)

    def _topology(self, topology_wire: wire.KaiTopologyWire, gone: bool) -> Iterator[Change]:
        name = topology_wire.metadata.name
        topology = None if gone else wire.topology(topology_wire)
        before = self.topologies.get(name)
        if topology is None:
            if self.topologies.pop(name, None) is not None:
                yield TopologyLost(wire.topology_name(name))
        elif topology.levels != before:
            self.topologies[name] = topology.levels
            yield TopologySeen(Topology(wire.topology_name(name), topology.levels))
        if self.topologies.get(name) != before:
            for ref, known in self.groups.items():
                if known.group is not None and known.group.names(name):
                    self._dirty[ref] = None

    def _priority_class(self, priority_class: PriorityClassWire, gone: bool) -> None:
        name = priority_class.metadata.name
        if gone:
            self.priorities.pop(name, None)
        else:
            self.priorities[name] = priority_class
        for ref, known in self.groups.items():
            if known.group is not None and self.priority_of(known.group) != known.priority:
                self._dirty[ref] = None

    # ── groups ─────────────────────────────────────────────────────────────────────────────────────

    def priority_of(self, group: PodGroup) -> int:
        """The priority of a PodGroup: of its class, else the global default."""
        priority_class = self.priorities.get(group.priority_class)
        if priority_class is not None:
            return priority_class.value
        if group.priority_class in DEFAULT_PRIORITIES:
            return DEFAULT_PRIORITIES[group.priority_class]
        global_defaults = [one.value for one in self.priorities.values() if one.global_default]
        return min(global_defaults, default=DEFAULT_PRIORITY)

    def _decode_group(self, ref: Ref) -> Iterator[Change]:
        known = self.groups.get(ref)
        if known is None:
            return
        if known.group is None and not known.pods:
            del self.groups[ref]
            if self.flaws.pop(ref, None) is not None:
                yield GangSpecLost(ref)
            return
        tree: Decoded | None = None
        members: dict[str, list[Pod]] = {}
        if known.group is not None:
            members = _by_sub_group(known.pods.values())
            spec, tree = self._gang_spec(known.group, known, members)
            yield GangSpecSeen(spec)
        elif ref in self.flaws:
            flaw = self.flaws[ref]
            yield GangSpecSeen(GangSpec(ref, 1, flaw=flaw)) if flaw else GangSpecLost(ref)
        before, known.positions = known.positions, {}
        if tree is not None:
            known.positions = pod_positions(tree, members) | _positions_of_inactive(known.pods, tree, before)
        for key, pod in known.pods.items():
            if key in self._held or before.get(key) != known.positions.get(key):
                yield PodSeen(_positioned(pod, known))

    def _gang_spec(
        self, group: PodGroup, known: KnownGroup, members: dict[str, list[Pod]]
    ) -> tuple[GangSpec, Decoded | None]:
        known.priority = priority = self.priority_of(group)
        decoded: Decoded | None = None
        try:
            decoded = decode(group, known_pods(members))
        except BadTree as error:
            group = replace(group, flaw=group.flaw or str(error))
        spec = gang_spec(group, decoded, priority, known.created, self.topologies)
        topologies = group.topologies()
        flat = not group.sub_groups and not topologies
        pods = 0 if spec.tree is None else sum(one.count for one in spec.tree.pod_sets())
        spec = replace(
            spec,
            tree=None if flat else spec.tree,  # only a number of pods is required
            topology=wire.topology_name(topologies[0]) if topologies else "",
            queue=group.queue if self.queues else "",  # without Queues, no gang has one
            non_preemptible=not group.is_preemptible(priority),
            disrupt_together=1 < spec.minimum == pods,
        )
        return spec, decoded


def _positioned(pod: Pod, known: KnownGroup) -> Pod:
    position = known.positions.get(pod.key)
    return pod if position is None else replace(pod, pod_set=position[0], rank=position[1])


def _by_sub_group(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The active pods by sub-group, in an order that does not depend on the order of events."""
    by_sub_group: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.pod_set, pod.key.name)):
        if _is_active(pod):
            by_sub_group.setdefault(pod.pod_set, []).append(pod)
    return by_sub_group


def _positions_of_inactive(pods: Mapping[PodKey, Pod], tree: Decoded, before: PodPositions) -> PodPositions:
    """Positions of pods that no longer count: those they had before."""
    positions = ((pod.key, tree.position(pod.pod_set)) for pod in pods.values() if not _is_active(pod))
    return {key: before.get(key, (position.pod_set, position.first)) for key, position in positions}


def _is_active(pod: Pod) -> bool:
    """Whether a pod counts for its group; a failed or terminating pod is replaced by another one."""
    return not pod.terminating and (not pod.finished or pod.succeeded)


def _identity(pod: Pod) -> tuple[object, ...]:
    """What a group depends on in a pod. Binding it to a node changes nothing."""
    return pod.uid, pod.pod_set, pod.rank, pod.amounts, pod.spec.signature.rules, _is_active(pod)


def _index(pod: PodWire) -> int:
    labels = pod.metadata.labels or {}
    named = (pod.metadata.annotations or {}).get(POD_INDEX_LABEL, "")
    for label in (named, *_INDEX_LABELS):
        number = whole_number(labels.get(label), 10**10 - 1)
        if number is not None:
            return number
    return 0
