"""The cache of the pod grouper: pods with our scheduler names, their owners and groups, as last seen."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TypeVar

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.part import WORKER_INDEX
from bayplan.dialects.jobs.serving_jobs import GROUP_INDEX, SET_NAME
from bayplan.dialects.kai.api import wire
from bayplan.dialects.kai.api.names import POD_GROUP, POD_GROUP_NAME, POD_INDEX_LABEL, SUB_GROUP_NAME
from bayplan.dialects.kai.api.pod_group import PodGroup, pod_group_object
from bayplan.dialects.kai.api.segments import INDEX_LABELS
from bayplan.dialects.kai.decode.events import PRIORITY_CLASSES
from bayplan.dialects.kai.decode.webhooks import owner_chain
from bayplan.dialects.kai.grouper.dispatch import Grouped, membership
from bayplan.dialects.kai.grouper.join import (
    as_object,
    group_named,
    is_ready,
    same_sub_groups,
    segment_size_of,
    wants_group,
)
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME, LOOKED_UP, NAMING_PODS, OWNER_KINDS
from bayplan.dialects.kai.grouper.serving import REVISION
from bayplan.dialects.kai.grouper.training import JOB_NAME, JOB_ROLE
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.runtime.core.object_cache import DELETED_MAX, Object

Name = tuple[str, str, str]
"""Kind, namespace and name."""
WATCHED: tuple[Kind, ...] = (PODS_KIND, wire.POD_GROUPS, PRIORITY_CLASSES, *OWNER_KINDS)
OVER = ("Succeeded", "Failed")
LOOKUP_LABELS = (JOB_NAME, JOB_ROLE, SET_NAME, GROUP_INDEX, REVISION)
"""Labels by which groupers look up other pods."""
JOINED = (REVISION,)
"""Of those, the labels by which only grouped pods are looked up."""
_INDEX_LABELS = tuple(dict.fromkeys(INDEX_LABELS.values()))
Position = tuple[Ref, str, str]
"""A group, a subgroup of it, and the number of a pod there."""
T = TypeVar("T")


class PodGrouperCache:
    """Objects by name. Of pods only those with one of our scheduler names are kept."""

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        self.pods: dict[PodKey, PodWire] = {}
        self.owners: dict[Name, Object] = {}
        self.groups: dict[Ref, PodGroup] = {}
        self.index = GrouperPodIndex()
        self.classes: set[str] = set()
        # pods by each of their owners and other objects they depend on
        self.dependents: dict[Name, dict[PodKey, None]] = {}
        self.owners_of: dict[PodKey, dict[Name, None]] = {}
        self.home_of: dict[PodKey, tuple[dict[str, str], dict[str, str]]] = {}  # labels and annotations
        self._deleted: deque[str] = deque(maxlen=DELETED_MAX)  # uids of groups
        self.reshaped: set[Ref] = set()  # groups whose owner changed its request

    def note(self, event: Event) -> Iterator[PodKey]:
        """Apply an event; returns the pods it affects."""
        if event.happened is Happened.SYNCED:
            return
        gone, found = event.happened is Happened.GONE, event.object
        if event.kind == PODS_KIND:
            yield from self._pod(found, gone)
        elif event.kind == wire.POD_GROUPS:
            yield from self.put_group(wire.pod_group(found), gone)
        elif event.kind == PRIORITY_CLASSES:
            (self.classes.discard if gone else self.classes.add)(found.metadata.name)
        else:
            yield from self._owner(event.kind, found, gone)

    # ── events ─────────────────────────────────────────────────────────────────────────────────────

    def _pod(self, pod: PodWire, gone: bool) -> Iterator[PodKey]:
        key = PodKey(pod.metadata.namespace or "default", pod.metadata.name)
        before = self.pods.get(key)
        ours = pod.spec.scheduler_name in self.names and wants_group(pod)
        over = pod.status.phase in OVER or pod.metadata.deletion_timestamp is not None
        if before is not None and (gone or not ours or over or before.metadata.uid != pod.metadata.uid):
            yield from self._forget(key, before)
            before = None
        if gone or not ours or over:
            return
        self.pods[key] = pod
        same = before is not None and _relevant_fields(before) == _relevant_fields(pod)
        if same and before is not None and _joined(before) == _joined(pod):
            return
        if before is not None:
            self.index.drop(key, before)
        self.index.put(key, pod)
        self.index.set_position(key, pod, *(_home(self.home_of.get(key)) or _joined(pod)))
        if not same or _joined(pod) != _home(self.home_of.get(key)):
            yield key  # it is not joined to the group we chose

    def _forget(self, key: PodKey, pod: PodWire) -> Iterator[PodKey]:
        """Forget a deleted pod; other pods of its group may succeed without it."""
        del self.pods[key]
        self.home_of.pop(key, None)
        alike = self.index.others_at_position(key)
        self.index.drop(key, pod)
        yield key
        for owner in self.owners_of.pop(key, ()):
            self.dependents[owner].pop(key)
            if not self.dependents[owner]:
                del self.dependents[owner]
        if name := group_named(pod):
            ref = group_ref(key.namespace, name)
            if self.index.has_other_segment_size(ref, segment_size_of(pod)):
                yield from list(self.index.members[ref])  # they may have waited for this one to end
            elif ref in self.groups and self.groups[ref].flaw:
                yield from alike
                mates = self.index.members.get(ref, ())
                yield from list(islice(mates, 1))  # it reports the current problem, if any

    def put_group(self, group: PodGroup, gone: bool = False) -> Iterator[PodKey]:
        """Add or remove a group; a removed group is created again by one of its pods."""
        ref, before = group.ref, self.groups.get(group.ref)
        members = self.index.members.get(ref, {})
        if gone:
            self._deleted.append(group.uid)
            self.groups.pop(ref, None)
            self.reshaped.discard(ref)
            yield from list(islice(members, 1))
            return
        self.groups[ref] = group
        if ref in self.reshaped and before is not None and _leaves(before) - _leaves(group):
            self.reshaped.discard(ref)
            yield from list(members)  # the subgroups of some of them are gone

    def take_answer(self, group: PodGroup) -> Iterator[PodKey]:
        """Take the response of a write, unless the watch has reported a deletion since."""
        if group.uid not in self._deleted:
            yield from self.put_group(group)

    def _owner(self, kind: Kind, obj: Object, gone: bool) -> Iterator[PodKey]:
        meta = obj["metadata"]
        name = kind.kind, meta.get("namespace", "default"), meta["name"]
        before = self.owners.get(name)
        if gone:
            self.owners.pop(name, None)
            return
        slim = {key: value for key, value in meta.items() if key != "managedFields"}
        self.owners[name] = now = {
            **obj,
            "apiVersion": obj.get("apiVersion") or kind.api_version,
            "kind": obj.get("kind") or kind.kind,
            "metadata": slim,
        }
        concerned = self.dependents.get(name, ())
        if before is None or (kind.kind in NAMING_PODS and _owner_fields(before) != _owner_fields(now)):
            yield from list(concerned)  # it was unknown before, or names each pod by itself
        elif _owner_fields(before) != _owner_fields(now):
            yield from self._one_of_each(concerned)

    def _one_of_each(self, keys: Iterable[PodKey]) -> Iterator[PodKey]:
        """Of pods joined to one group, one: it updates the group for all.

        If the group has problems, all of them: each pod may succeed now, and only the pod itself can tell.
        """
        seen: set[Ref] = set()
        for key in keys:
            ref = group_ref(key.namespace, group_named(self.pods[key]))
            known = self.groups.get(ref)
            if not ref.name or ref not in seen or (known is not None and known.flaw):
                seen.add(ref)
                yield key
        self.reshaped |= {ref for ref in seen if ref.name}

    # ── queries ────────────────────────────────────────────────────────────────────────────────────

    def chain(self, key: PodKey, pod: PodWire) -> tuple[list[Object], bool]:
        """The owners of a pod, nearest first, and whether all of them are known."""
        found, complete = owner_chain(as_object(pod), self.owner)
        for one in found:
            self._needs(key, (one["kind"], key.namespace, one["metadata"]["name"]))
        return found, complete

    def _needs(self, key: PodKey, name: Name) -> None:
        """Reconcile the pod again when this object appears or changes."""
        self.dependents.setdefault(name, {})[key] = None
        self.owners_of.setdefault(key, {})[name] = None

    def owner(self, group: str, kind: str, namespace: str, name: str) -> Object | None:
        """The owner of a pod, which may be a pod itself. May be called from other threads."""
        if (group, kind) == ("", "Pod"):
            pod = self.pods.get(PodKey(namespace, name))
            return None if pod is None else as_object(pod)
        return self.owners.get((kind, namespace, name)) if (group, kind) in BY_NAME else None

    def find(self, key: PodKey, kind: str, namespace: str, name: str) -> object:
        """An object that the group of a pod depends on; None if it does not exist."""
        if kind in LOOKED_UP:
            self._needs(key, (kind, namespace, name))
        if kind == "PriorityClass":
            return {} if name in self.classes else None
        if kind == POD_GROUP.kind:
            known = self.groups.get(group_ref(namespace, name))
            return None if known is None else pod_group_object(known)
        return self.owners.get((kind, namespace, name)) if kind in LOOKED_UP else None

    def pods_with(self, namespace: str, labels: Mapping[str, str]) -> Iterator[Object]:
        """Pods with our scheduler names that have these labels."""
        for key in self.index.with_labels(namespace, labels):
            mine = self.pods[key].metadata.labels or {}
            if all(mine.get(name) == text for name, text in labels.items()):
                yield as_object(self.pods[key])

    def belongs(self, key: PodKey, found: Grouped) -> None:
        """Note the subgroup that a pod belongs to, joined or not yet."""
        if found.group is None:
            self.home_of.pop(key, None)
            self.index.clear_position(key)
        else:
            self.home_of[key] = membership(found)
            self.index.set_position(key, self.pods[key], found.group.name, found.sub_group)

    def alike(self, group: PodGroup, sub_group: str, number: str) -> Iterator[Object]:
        """Pods of a subgroup with the same number."""
        for key in self.index.pods_at((group.ref, sub_group, number)):
            yield self._members_at(key)

    def oldest_with_other_segments(self, found: Grouped) -> PodWire | None:
        """The oldest running pod of a group whose segments differ from those this pod asks for."""
        made = found.group
        known = None if made is None else self.groups.get(made.ref)
        if made is None or known is None or same_sub_groups(known, made):
            return None
        whole = next((one.parent for one in made.sub_groups if one.name == found.sub_group), "")
        whole = whole or found.sub_group  # it no longer asks for segments
        parts = {one.name for one in known.sub_groups if whole and one.parent == whole}
        mine = (self.pods[key] for key in self.index.members.get(made.ref, ()))
        runs = [pod for pod in mine if pod.spec.node_name and _joined(pod)[1] in parts]
        return min(runs, key=lambda pod: pod.metadata.creation_timestamp or "", default=None)

    def _members_at(self, key: PodKey) -> Object:
        found = as_object(self.pods[key])
        labels, notes = self.home_of.get(key, ({}, {}))
        meta = found["metadata"]
        meta["labels"], meta["annotations"] = meta["labels"] | labels, meta["annotations"] | notes
        return found


def _relevant_fields(pod: PodWire) -> tuple[object, ...]:
    """The fields that the group of a pod depends on; a leader with a node, or ready, may have followers."""
    meta, spec = pod.metadata, pod.spec
    leads = (meta.labels or {}).get(WORKER_INDEX) == "0" and (bool(spec.node_name), is_ready(pod))
    labels, notes = (
        {key: text for key, text in (found or {}).items() if key not in (POD_GROUP_NAME, SUB_GROUP_NAME)}
        for found in (meta.labels, meta.annotations)
    )
    return meta.uid, labels, notes, meta.owner_references, spec.priority_class_name, leads


def _joined(pod: PodWire) -> tuple[str, str]:
    """The group and subgroup that a pod is joined to."""
    return group_named(pod), (pod.metadata.labels or {}).get(SUB_GROUP_NAME, "")


def _home(found: tuple[dict[str, str], dict[str, str]] | None) -> tuple[str, str] | None:
    """The group and subgroup that a pod belongs to."""
    return None if found is None else (found[1][POD_GROUP_NAME], found[0].get(SUB_GROUP_NAME, ""))


def _owner_fields(obj: Object) -> tuple[object, ...]:
    """The fields of an owner that its groups depend on; its status changes all the time."""
    meta, said = obj["metadata"], obj.get("status")
    status = said if isinstance(said, dict) else {}
    clusters = [status.get(key) for key in ("rayClusterName", "activeServiceStatus", "pendingServiceStatus")]
    names = [one.get("rayClusterName") if isinstance(one, dict) else one for one in clusters]
    return meta.get("uid"), obj.get("spec"), meta.get("labels"), meta.get("annotations"), names


def _leaves(group: PodGroup) -> set[str]:
    """Subgroups that can hold pods: those without children, or the group itself."""
    parents = {one.parent for one in group.sub_groups}
    return {one.name for one in group.sub_groups if one.name not in parents} or {""}


class GrouperPodIndex:
    """Where each pod is indexed. No lookup scans all pods."""

    def __init__(self) -> None:
        self.members: dict[Ref, dict[PodKey, None]] = {}  # joined pods
        self._sizes: dict[Ref, Counter[str]] = {}  # of segments, as those pods request them
        self._labelled: dict[tuple[str, str, str], dict[PodKey, None]] = {}  # by namespace, label and value
        self._pods_at: dict[Position, dict[PodKey, None]] = {}
        self._position_of: dict[PodKey, Position] = {}

    def put(self, key: PodKey, pod: PodWire) -> None:
        """Index a pod by its fields; its number is set separately."""
        if name := group_named(pod):
            ref = group_ref(key.namespace, name)
            self.members.setdefault(ref, {})[key] = None
            self._sizes.setdefault(ref, Counter())[segment_size_of(pod)] += 1
        for where in _index_keys(key, pod):
            self._labelled.setdefault(where, {})[key] = None

    def drop(self, key: PodKey, pod: PodWire) -> None:
        """Remove a pod that was deleted or changed."""
        ref = group_ref(key.namespace, group_named(pod))
        if key in self.members.get(ref, ()):
            _remove(self.members, ref, key)
            self._sizes[ref] -= Counter([segment_size_of(pod)])  # removes zero counts
            if not self._sizes[ref]:
                del self._sizes[ref]
        for where in _index_keys(key, pod):
            _remove(self._labelled, where, key)
        self.clear_position(key)

    def set_position(self, key: PodKey, pod: PodWire, group: str, sub_group: str) -> None:
        """Note the subgroup and number of a pod, joined or not yet."""
        self.clear_position(key)
        if group and (number := number_of(pod)):
            self._position_of[key] = position = group_ref(key.namespace, group), sub_group, number
            self._pods_at.setdefault(position, {})[key] = None

    def clear_position(self, key: PodKey) -> None:
        """Forget the subgroup of a pod."""
        if position := self._position_of.pop(key, None):
            _remove(self._pods_at, position, key)

    def others_at_position(self, key: PodKey) -> list[PodKey]:
        """Other pods with the same subgroup and number."""
        position = self._position_of.get(key)
        return [] if position is None else [one for one in self._pods_at[position] if one != key]

    def pods_at(self, position: Position) -> list[PodKey]:
        """The pods with this subgroup and number."""
        return list(self._pods_at.get(position, ()))

    def has_other_segment_size(self, ref: Ref, size: str) -> bool:
        """Whether a pod of the group asks for another segment size."""
        return any(other != size for other in self._sizes.get(ref, ()))

    def with_labels(self, namespace: str, labels: Mapping[str, str]) -> Iterator[PodKey]:
        """Pods with one of these labels: the label that the fewest pods have."""
        found = [
            self._labelled.get((namespace, *one), {}) for one in labels.items() if one[0] in LOOKUP_LABELS
        ]
        assert found, f"pods are not indexed by any of {sorted(labels)}"
        yield from min(found, key=len)


def number_of(pod: PodWire) -> str:
    """The number of a pod; empty if it has none."""
    labels = pod.metadata.labels or {}
    named = (pod.metadata.annotations or {}).get(POD_INDEX_LABEL, "")
    return next((labels[label] for label in (named, *_INDEX_LABELS) if label in labels), "")


def group_ref(namespace: str, name: str) -> Ref:
    """The reference of a group."""
    return PodGroup(name, namespace).ref


def _index_keys(key: PodKey, pod: PodWire) -> list[tuple[str, str, str]]:
    labels = pod.metadata.labels or {}
    listed = LOOKUP_LABELS if group_named(pod) else [label for label in LOOKUP_LABELS if label not in JOINED]
    return [(key.namespace, label, labels[label]) for label in listed if label in labels]


def _remove(lists: dict[T, dict[PodKey, None]], where: T, key: PodKey) -> None:
    lists.get(where, {}).pop(key, None)
    if where in lists and not lists[where]:
        del lists[where]
