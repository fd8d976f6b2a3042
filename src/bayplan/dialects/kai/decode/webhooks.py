"""What is wrong with a PodGroup, Queue or Topology before it is kept, and what pods of segments are told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from bayplan.dialects.jobs.part import WORKER_INDEX
from bayplan.dialects.kai.api.names import POD_GROUP, POD_INDEX_LABEL, QUEUE, SEGMENT_SIZE, TOPOLOGY
from bayplan.dialects.kai.api.pod_group import read_pod_group
from bayplan.dialects.kai.api.segments import INDEX_LABELS, WrongSegments, read_index, read_size, segment_of
from bayplan.dialects.kai.api.validation import (
    check_pod_group,
    check_queue,
    check_topology,
    check_topology_update,
    warnings,
)
from bayplan.dialects.kai.grouper.defaults import annotations_of, labels_of, meta_text
from bayplan.dialects.kai.grouper.dispatch import group_pod
from bayplan.dialects.kai.grouper.injection import with_index, with_segment_index
from bayplan.dialects.kai.grouper.owner_kinds import BY_NAME
from bayplan.dialects.kai.grouper.serving import SET_NAME
from bayplan.dialects.kube.fields.reader import Field, FieldError

Object = dict[str, Any]
FindOwner = Callable[[str, str, str, str], Object | None]
"""What made a pod, by group, kind, namespace and name; None if it is not known."""
OWNERS_MAX = 16

_CHECKS: Mapping[str, Callable[[Field], object]] = {
    POD_GROUP.kind: check_pod_group,
    QUEUE.kind: check_queue,
    TOPOLOGY.kind: check_topology,
}
VALIDATED = tuple((kind.group, kind.plural) for kind in (POD_GROUP, QUEUE, TOPOLOGY))
"""Group and resource of what we look at."""


def no_owner(group: str, kind: str, namespace: str, name: str) -> Object | None:
    """Knows nobody."""
    return None


def validate(new: Object | None, old: Object | None) -> Sequence[FieldError]:
    """Everything wrong with an object; what was wrong already does not keep it from being changed."""
    if new is None:
        return []
    found = Field(new)
    check = _CHECKS[found.at("kind").text()]
    if old is not None and new.get("spec") == old.get("spec"):
        return []
    check(found)
    if old is None:
        return list(found.errors)
    before = Field(old)
    check(before)
    known = {str(error) for error in before.errors}
    if found.at("kind").text() == TOPOLOGY.kind:
        check_topology_update(found, before)
    return [error for error in found.errors if str(error) not in known]


def advise(new: Object) -> Sequence[str]:
    """What is odd about a group that is accepted all the same."""
    return warnings(read_pod_group(Field(new))) if new.get("kind") == POD_GROUP.kind else ()


def tell_segment(new: Object, old: Object | None, owner: FindOwner = no_owner) -> Object:
    """A pod as it is made, told the number of its segment if it is in one.

    `owner` looks up what made it. Where that is not known yet, the number on the pod itself tells.
    """
    if old is not None or not _may_be_in_a_segment(new):
        return new
    owners, complete = chain(new, owner)
    if complete:
        return with_segment_index(new, group_pod(new, owners, find=partial(_among, owners)))
    return with_index(new, _by_itself(new))


def _may_be_in_a_segment(pod: Object) -> bool:
    """Whether to look further: it says so itself, or is of a kind that says so for its pods."""
    return SEGMENT_SIZE in annotations_of(pod) or SET_NAME in labels_of(pod)


def _among(owners: Sequence[Object], kind: str, namespace: str, name: str) -> object:
    """One of those that made a pod; they are all in its namespace."""
    return next((one for one in owners if (one["kind"], meta_text(one, "name")) == (kind, name)), None)


def chain(pod: Object, owner: FindOwner) -> tuple[list[Object], bool]:
    """The owners of a pod, nearest first, and whether all of them that could be are known."""
    namespace = Field(pod).at("metadata", "namespace").text("default")
    found: list[Object] = []
    at: Object = pod
    while len(found) < OWNERS_MAX:
        refs = Field(at).at("metadata", "ownerReferences").items()
        ref = next((one for one in refs if one.at("controller").value is True), next(iter(refs), None))
        if ref is None:
            break
        version, kind, name, uid = (ref.at(key).text() for key in ("apiVersion", "kind", "name", "uid"))
        group = version.rpartition("/")[0]
        known = owner(group, kind, namespace, name)
        if known is None or Field(known).at("metadata", "uid").text() != uid:
            meta = {"name": name, "namespace": namespace, "uid": uid}
            found.append({"apiVersion": version, "kind": kind, "metadata": meta})
            return found, (group, kind) not in BY_NAME
        at = {**known, "apiVersion": version, "kind": kind}
        found.append(at)
    return found, True


def _by_itself(pod: Object) -> int | None:
    """The segment of a pod by its own labels and annotations; None if they make no sense."""
    notes, labels = annotations_of(pod), labels_of(pod)
    named = notes.get(POD_INDEX_LABEL)
    label = named or next((one for one in INDEX_LABELS.values() if one in labels), "")
    try:
        size = read_size(notes.get(SEGMENT_SIZE, ""), meta_text(pod, "name"))
        number = read_index(labels, label, meta_text(pod, "name"))
    except WrongSegments:
        return None
    return segment_of(max(number - 1, 0) if label == WORKER_INDEX else number, size)
