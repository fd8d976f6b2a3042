"""Validation of PodGroups, Queues and Topologies, and injection of the segment index into pods."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS
from bayplan.dialects.jobs.part import WORKER_INDEX
from bayplan.dialects.jobs.serving_jobs import SET_NAME
from bayplan.dialects.kai.api.hints import advise as advise_on_keys
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
from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.dialects.reviews import FindOwner, LookUps, Reviewed, no_owner

Object = dict[str, Any]
OWNERS_MAX = 16

_CHECKS: Mapping[str, Callable[[Field], object]] = {
    POD_GROUP.kind: check_pod_group,
    QUEUE.kind: check_queue,
    TOPOLOGY.kind: check_topology,
}
VALIDATED = tuple((kind.group, kind.plural) for kind in (POD_GROUP, QUEUE, TOPOLOGY))
"""API group and resource of the validated kinds."""


def reviews(look_ups: LookUps) -> Iterator[Reviewed]:
    """The functions of each resource."""
    for kind in KINDS.values():
        yield Reviewed(kind.group, kind.plural, advise=(advise_on_keys,))
    for group, resource in VALIDATED:
        yield Reviewed(group, resource, validate=(validate,), advise=(advise,), fail_open=True)
    set_segment = partial(set_segment_index, owner=look_ups.owner)
    yield Reviewed("", "pods", ("CREATE",), mutate=(set_segment,), fail_open=True)


def validate(new: Object | None, old: Object | None) -> Sequence[FieldError]:
    """All errors of an object. Errors that an object already had do not prevent updates."""
    if new is None:
        return []
    field = Field(new)
    check = _CHECKS[field.at("kind").text()]
    if old is not None and new.get("spec") == old.get("spec"):
        return []
    check(field)
    if old is None:
        return list(field.errors)
    before = Field(old)
    check(before)
    known = {str(error) for error in before.errors}
    if field.at("kind").text() == TOPOLOGY.kind:
        check_topology_update(field, before)
    return [error for error in field.errors if str(error) not in known]


def advise(new: Object) -> Sequence[str]:
    """Warnings about a PodGroup that is accepted."""
    return warnings(read_pod_group(Field(new))) if new.get("kind") == POD_GROUP.kind else ()


def set_segment_index(new: Object, old: Object | None, owner: FindOwner = no_owner) -> Object:
    """A new pod with the index of its segment; unchanged if it is in none.

    `owner` looks up the pod's owners. If one is unknown, the pod's own labels and annotations decide.
    """
    if old is not None or not _may_be_in_a_segment(new):
        return new
    owners, complete = owner_chain(new, owner)
    if complete:
        return with_segment_index(new, group_pod(new, owners, find=partial(_find_owner, owners)))
    return with_index(new, _segment_of_pod(new))


def _may_be_in_a_segment(pod: Object) -> bool:
    """Whether the pod requests segments itself, or belongs to a LeaderWorkerSet, which may do so."""
    return SEGMENT_SIZE in annotations_of(pod) or SET_NAME in labels_of(pod)


def _find_owner(owners: Sequence[Object], kind: str, namespace: str, name: str) -> object:
    """One of the owners of a pod; they are all in its namespace."""
    return next((one for one in owners if (one["kind"], meta_text(one, "name")) == (kind, name)), None)


def owner_chain(pod: Object, owner: FindOwner) -> tuple[list[Object], bool]:
    """The owners of a pod, nearest first, and whether all that may have been looked up are known."""
    namespace = Field(pod).at("metadata", "namespace").text("default")
    owners: list[Object] = []
    current: Object = pod
    while len(owners) < OWNERS_MAX:
        refs = Field(current).at("metadata", "ownerReferences").items()
        ref = next((one for one in refs if one.at("controller").value is True), next(iter(refs), None))
        if ref is None:
            break
        version, kind, name, uid = (ref.at(key).text() for key in ("apiVersion", "kind", "name", "uid"))
        group = version.rpartition("/")[0]
        obj = owner(group, kind, namespace, name)
        if obj is None or Field(obj).at("metadata", "uid").text() != uid:
            meta = {"name": name, "namespace": namespace, "uid": uid}
            owners.append({"apiVersion": version, "kind": kind, "metadata": meta})
            return owners, (group, kind) not in BY_NAME
        current = {**obj, "apiVersion": version, "kind": kind}
        owners.append(current)
    return owners, True


def _segment_of_pod(pod: Object) -> int | None:
    """The segment of a pod by its own labels and annotations; None if they are invalid."""
    annotations, labels = annotations_of(pod), labels_of(pod)
    named = annotations.get(POD_INDEX_LABEL)
    label = named or next((one for one in INDEX_LABELS.values() if one in labels), "")
    try:
        size = read_size(annotations.get(SEGMENT_SIZE, ""), meta_text(pod, "name"))
        index = read_index(labels, label, meta_text(pod, "name"))
    except WrongSegments:
        return None
    return segment_of(max(index - 1, 0) if label == WORKER_INDEX else index, size)
