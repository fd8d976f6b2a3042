"""Index of pods by label, by group, and by their number in a subgroup."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TypeVar

from bayplan.dialects.kai.api.names import POD_INDEX_LABEL
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.segments import INDEX_LABELS
from bayplan.dialects.kai.grouper.join import group_named, segment_size_of
from bayplan.dialects.kai.grouper.serving import GROUP_INDEX, REVISION, SET_NAME
from bayplan.dialects.kai.grouper.training import JOB_NAME, JOB_ROLE
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey

LOOKUP_LABELS = (JOB_NAME, JOB_ROLE, SET_NAME, GROUP_INDEX, REVISION)
"""Labels by which groupers look up other pods."""
JOINED = (REVISION,)
"""Of those, the labels by which only grouped pods are looked up."""
_INDEX_LABELS = tuple(dict.fromkeys(INDEX_LABELS.values()))
Position = tuple[Ref, str, str]
"""A group, a subgroup of it, and the number of a pod there."""
T = TypeVar("T")


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
