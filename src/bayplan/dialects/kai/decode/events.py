"""Events of PodGroups, Queues, Topologies and PriorityClasses, and the pods that join groups → changes.

What a group asks for is known by its object and its pods together. So pods that are new, or are another
than before, are kept until everything that happened at once was heard; then each group is read again once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kai.api import queues, wire
from bayplan.dialects.kai.api.gang_tree import BadTree, Decoded, charter, decode
from bayplan.dialects.kai.api.members import known_pods, seats
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

USUAL_PRIORITIES = {TRAIN: 50, INTERACTIVE_PREEMPTIBLE: 75, BUILD: 100, INFERENCE: 125}
"""What the classes that groups get by default mean where nobody has defined them."""
USUAL_PRIORITY = 50
ALONE = "Pod"
"""The kind of what a pod belongs to that is not in a group yet."""
_INDEX_LABELS = tuple(dict.fromkeys(INDEX_LABELS.values()))
Seats = dict[PodKey, tuple[str, int]]
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
    """One group: its object, and the pods that name it as they say themselves."""

    group: PodGroup | None = None
    created: float = 0.0
    status: wire.PodGroupStatusWire = wire.PodGroupStatusWire()  # noqa: RUF009 - it is frozen
    priority: int = 0
    pods: dict[PodKey, Pod] = field(default_factory=dict)
    seats: Seats = field(default_factory=dict)


class GroupDecoder:
    """Remembers what several objects say together: groups, their pods, topologies, priority classes."""

    def __init__(self, awaits_grouper: bool = False) -> None:
        self.awaits_grouper = awaits_grouper  # pods that nobody has put into a group wait for that
        self.flaws: dict[Ref, str] = {}  # why that was not possible, by the pod that stands for itself
        self.groups: dict[Ref, KnownGroup] = {}
        self.group_of: dict[PodKey, Ref] = {}
        self.queues: dict[str, wire.QueueWire] = {}
        self.topologies: dict[str, tuple[str, ...]] = {}
        self.priorities: dict[str, PriorityClassWire] = {}
        self.news: dict[Ref, None] = {}  # groups whose status may be another than what is written
        self.queue_news: set[str] = set()
        self.parents: dict[str, str] = {}  # the queue above each; empty for one on top
        self.moved_queues: set[str] = set()  # that came, went, or got another parent
        self._dirty: dict[Ref, None] = {}  # to be read again
        self._kept: dict[PodKey, None] = {}  # pods that were not handed on yet

    def decode(self, event: Event) -> Iterator[Change]:
        """What an event means to us."""
        if event.happened is Happened.SYNCED:
            return
        gone, found = event.happened is Happened.GONE, event.object
        match event.kind.kind:
            case "PodGroup":
                yield from self._group(found, gone)
            case "Queue":
                yield from self._queue(found, gone)
            case "Topology":
                yield from self._topology(found, gone)
            case "PriorityClass":
                self._priority_class(found, gone)

    def follow(self, changes: Iterable[Change]) -> Iterator[Change]:
        """The same changes with each pod where it belongs in its group; those still unsure are kept."""
        for change in changes:
            match change:
                case PodSeen(pod):
                    yield from self._pod(pod)
                    continue
                case PodLost(key):
                    self._leave(key)
            yield change

    def gathered(self) -> Iterator[Change]:
        """What only all that happened says together. Asked once after many events.

        After a failure, asked again, it goes on with the others.
        """
        dirty, self._dirty = list(self._dirty), {}
        begun = 0
        try:
            for ref in dirty:
                begun += 1
                yield from self._read(ref)
            self._kept.clear()
        finally:
            self._dirty |= dict.fromkeys(dirty[begun:])

    # ── pods ───────────────────────────────────────────────────────────────────────────────────────

    def membership(self, pod: PodWire) -> tuple[Ref, str, int] | None:
        """The group, the sub-group and the number of a pod that is joined to a group, or will be."""
        found = wire.group_of(pod)
        if found is not None:
            return *found, _number(pod)
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
            self._leave(key)
        if gang is None or gang.dialect != DIALECT:
            yield PodSeen(pod)
            return
        known = self.groups.setdefault(gang, KnownGroup())
        self.group_of[key], before = gang, known.pods.get(key)
        known.pods[key] = pod
        self.news[gang] = None
        if before is None or _identity(before) != _identity(pod):
            self._dirty[gang] = self._kept[key] = None
        elif key not in self._kept:
            yield PodSeen(_seated(pod, known))

    def _leave(self, key: PodKey) -> None:
        ref = self.group_of.pop(key, None)
        self._kept.pop(key, None)
        if ref is None:
            return
        known = self.groups[ref]
        known.pods.pop(key, None)
        known.seats.pop(key, None)
        self._dirty[ref] = self.news[ref] = None

    # ── objects ────────────────────────────────────────────────────────────────────────────────────

    def _group(self, found: wire.KaiPodGroupWire, gone: bool) -> Iterator[Change]:
        group = wire.pod_group(found)
        known = self.groups.setdefault(group.ref, KnownGroup())
        self.news[group.ref] = None
        if gone:
            known.group, known.status = None, wire.PodGroupStatusWire()
            if known.pods:
                self._dirty[group.ref] = None
            else:
                del self.groups[group.ref]
            yield GangSpecLost(group.ref)
            return
        known.status = found.status
        if group != known.group:
            known.group, known.created = group, seconds(found.metadata.creation_timestamp or "")
            self._dirty[group.ref] = None

    def _queue(self, found: wire.QueueWire, gone: bool) -> Iterator[Change]:
        name, had_any = found.metadata.name, bool(self.queues)
        before = self.queues.get(name)
        if gone:
            self.queues.pop(name, None)
            yield FairQueueLost(name)
        else:
            self.queues[name] = found
            if before is None or queues.queue(before) != queues.queue(found):
                yield FairQueueSeen(queues.queue(found))
        self.queue_news.add(name)
        was, now = self.parents.pop(name, None), None if gone else found.spec.parent_queue or ""
        if now is not None:
            self.parents[name] = now
        if was != now:
            self.moved_queues.add(name)
            for above in (was, now):  # they tell what is below them
                self.queue_news |= set(queues.way_up(above or "", self.parents))
        if had_any != bool(self.queues):
            self._dirty |= dict.fromkeys(self.groups)

    def _topology(self, found: wire.KaiTopologyWire, gone: bool) -> Iterator[Change]:
        name = found.metadata.name
        made = None if gone else wire.topology(found)
        before = self.topologies.get(name)
        if made is None:
            if self.topologies.pop(name, None) is not None:
                yield TopologyLost(wire.topology_name(name))
        elif made.levels != before:
            self.topologies[name] = made.levels
            yield TopologySeen(Topology(wire.topology_name(name), made.levels))
        if self.topologies.get(name) != before:
            for ref, known in self.groups.items():
                if known.group is not None and known.group.names(name):
                    self._dirty[ref] = None

    def _priority_class(self, found: PriorityClassWire, gone: bool) -> None:
        name = found.metadata.name
        if gone:
            self.priorities.pop(name, None)
        else:
            self.priorities[name] = found
        for ref, known in self.groups.items():
            if known.group is not None and self.priority_of(known.group) != known.priority:
                self._dirty[ref] = None

    # ── groups ─────────────────────────────────────────────────────────────────────────────────────

    def priority_of(self, group: PodGroup) -> int:
        """How important a group is, by its class, or by the one for everybody that names none."""
        found = self.priorities.get(group.priority_class)
        if found is not None:
            return found.value
        if group.priority_class in USUAL_PRIORITIES:
            return USUAL_PRIORITIES[group.priority_class]
        usual = [one.value for one in self.priorities.values() if one.global_default]
        return min(usual, default=USUAL_PRIORITY)

    def _read(self, ref: Ref) -> Iterator[Change]:
        known = self.groups.get(ref)
        if known is None:
            return
        if known.group is None and not known.pods:
            del self.groups[ref]
            if self.flaws.pop(ref, None) is not None:
                yield GangSpecLost(ref)
            return
        found: Decoded | None = None
        members: dict[str, list[Pod]] = {}
        if known.group is not None:
            members = _by_sub_group(known.pods.values())
            made, found = self._charter(known.group, known, members)
            yield GangSpecSeen(made)
        elif ref in self.flaws:
            flaw = self.flaws[ref]
            yield GangSpecSeen(GangSpec(ref, 1, flaw=flaw)) if flaw else GangSpecLost(ref)
        before, known.seats = known.seats, {}
        if found is not None:
            known.seats = seats(found, members) | _of_no_account(known.pods, found, before)
        for key, pod in known.pods.items():
            if key in self._kept or before.get(key) != known.seats.get(key):
                yield PodSeen(_seated(pod, known))

    def _charter(
        self, group: PodGroup, known: KnownGroup, members: dict[str, list[Pod]]
    ) -> tuple[GangSpec, Decoded | None]:
        known.priority = priority = self.priority_of(group)
        found: Decoded | None = None
        try:
            found = decode(group, known_pods(members))
        except BadTree as bad:
            group = replace(group, flaw=group.flaw or str(bad))
        made = charter(group, found, priority, known.created, self.topologies)
        asked = group.topologies()
        plain = not group.sub_groups and not asked
        pods = 0 if made.tree is None else sum(one.count for one in made.tree.pod_sets())
        made = replace(
            made,
            tree=None if plain else made.tree,  # then nothing but a number of pods is asked for
            topology=wire.topology_name(asked[0]) if asked else "",
            queue=group.queue if self.queues else "",  # nobody has set up any: all share alike
            lasting=not group.is_preemptible(priority),
            leaves_whole=1 < made.minimum == pods,
        )
        return made, found


def _seated(pod: Pod, known: KnownGroup) -> Pod:
    seat = known.seats.get(pod.key)
    return pod if seat is None else replace(pod, pod_set=seat[0], rank=seat[1])


def _by_sub_group(pods: Iterable[Pod]) -> dict[str, list[Pod]]:
    """The pods that have a share in their group; in whatever order they came, the answer is the same."""
    found: dict[str, list[Pod]] = {}
    for pod in sorted(pods, key=lambda pod: (pod.pod_set, pod.key.name)):
        if _counts(pod):
            found.setdefault(pod.pod_set, []).append(pod)
    return found


def _of_no_account(pods: Mapping[PodKey, Pod], found: Decoded, before: Seats) -> Seats:
    """Pods that have no share any more stay where they were."""
    homes = ((pod.key, found.home(pod.pod_set)) for pod in pods.values() if not _counts(pod))
    return {key: before.get(key, (home.pod_set, home.first)) for key, home in homes}


def _counts(pod: Pod) -> bool:
    """Whether a pod has a share in its group; another takes the place of one that failed or leaves."""
    return not pod.leaving and (not pod.over or pod.succeeded)


def _identity(pod: Pod) -> tuple[object, ...]:
    """What makes a pod another one to its group. Merely getting a node does not."""
    return pod.uid, pod.pod_set, pod.rank, pod.amounts, pod.wants.shape.rules, _counts(pod)


def _number(pod: PodWire) -> int:
    labels = pod.metadata.labels or {}
    named = (pod.metadata.annotations or {}).get(POD_INDEX_LABEL, "")
    for label in (named, *_INDEX_LABELS):
        number = whole_number(labels.get(label), 10**10 - 1)
        if number is not None:
            return number
    return 0
