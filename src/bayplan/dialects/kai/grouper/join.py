"""Which pods are grouped, and the writes that create PodGroups and assign pods to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.kai.api.names import (
    FLAW,
    OWNER_FIELDS,
    POD_GROUP,
    POD_GROUP_NAME,
    POD_INDEX_LABEL,
    SEGMENT_SIZE,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup, merged, pod_group_object
from bayplan.dialects.kai.api.segments import SEGMENT_ANNOTATIONS
from bayplan.dialects.kai.grouper.dispatch import Grouped, membership
from bayplan.dialects.kube.decode.wire import PODS_KIND as WIRE_PODS
from bayplan.dialects.kube.decode.wire import OwnerReference, PodWire

Object = dict[str, Any]
PODS = replace(WIRE_PODS, wire=None)
KUEUE_PREFIX = "kueue.x-k8s.io/"
"""Pods with labels or annotations of this prefix are managed by the Kueue dialect."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""An annotation that belongs to the owner's object alone."""
USER_FIELDS = {
    "queue": "queue",
    "priority_class": "priorityClassName",
    "preemptibility": "preemptibility",
}
"""Fields of a PodGroup that users may change: our name, and the name in the object."""


def wants_group(pod: PodWire) -> bool:
    """Whether the pod grouper has to group a pod: it names no gang, and no other dialect manages it."""
    meta, spec = pod.metadata, pod.spec
    if spec.workload_ref is not None or spec.scheduling_group is not None:
        return False
    return not any(key.startswith(KUEUE_PREFIX) for key in (*(meta.labels or ()), *(meta.annotations or ())))


def group_named(pod: PodWire) -> str:
    """The PodGroup that a pod is assigned to; empty if none."""
    return (pod.metadata.annotations or {}).get(POD_GROUP_NAME, "")


def flaw_of(pod: PodWire) -> str:
    """Why a pod could not be grouped; empty if it could, or was not tried."""
    return (pod.metadata.annotations or {}).get(FLAW, "")


def as_object(pod: PodWire) -> Object:
    """The fields of a pod that grouping depends on, as an API object."""
    meta = pod.metadata
    refs = [_reference(ref) for ref in meta.owner_references or ()]
    obj: Object = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": meta.name,
            "namespace": meta.namespace or "default",
            "uid": meta.uid,
            "labels": meta.labels or {},
            "annotations": meta.annotations or {},
            "ownerReferences": refs,
        },
        "spec": {},
        "status": {"phase": pod.status.phase or "", "conditions": _ready(pod)},
    }
    if meta.deletion_timestamp:
        obj["metadata"]["deletionTimestamp"] = meta.deletion_timestamp
    if pod.spec.priority_class_name:
        obj["spec"]["priorityClassName"] = pod.spec.priority_class_name
    if pod.spec.node_name:
        obj["spec"]["nodeName"] = pod.spec.node_name
    return obj


def segment_size_of(pod: PodWire) -> str:
    """The segment size in the annotations of a pod; empty if it has none."""
    return (pod.metadata.annotations or {}).get(SEGMENT_SIZE, "")


def segment_size_message(pod: PodWire, running: PodWire) -> str:
    """The message if the segment size of a pod differs from that of a running pod; empty if it does not."""
    new_size, current_size = segment_size_of(pod), segment_size_of(running)
    if not current_size or new_size == current_size:
        return ""
    change = f"{SEGMENT_SIZE}: {new_size}" if new_size else f"removal of {SEGMENT_SIZE}"
    return f"{change} takes effect when the job is restarted, because pods run in segments of {current_size}"


def with_segments_of(pod: PodWire, running: PodWire) -> Object:
    """The pod with the segment annotations of a running pod."""
    obj, inherited = as_object(pod), running.metadata.annotations or {}
    meta = obj["metadata"]
    segments = {key: inherited[key] for key in SEGMENT_ANNOTATIONS if key in inherited}
    own = {key: text for key, text in meta["annotations"].items() if key not in SEGMENT_ANNOTATIONS}
    defaults = {key: inherited[key] for key in (TOPOLOGY_NAME, POD_INDEX_LABEL) if key in inherited}
    meta["annotations"] = defaults | own | segments
    return obj


def same_sub_groups(known: PodGroup, generated: PodGroup) -> bool:
    """Whether a regenerated PodGroup has the same sub-groups."""
    return _parts(known.sub_groups) == _parts(merged(known, generated).sub_groups)


def is_ready(pod: PodWire) -> bool:
    """Whether the Ready condition of a pod is true."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def _ready(pod: PodWire) -> list[Object]:
    return [{"type": "Ready", "status": "True"}] if is_ready(pod) else []


def desired_group(known: PodGroup | None, generated: PodGroup, flaw: str) -> PodGroup:
    """The desired PodGroup: with sub-groups that earlier pods added, and the flaw of any pod.

    What users changed on it stays until its owner changes the same field.
    """
    owner_fields = {key: getattr(generated, name) for name, key in USER_FIELDS.items()}
    generated = (
        generated
        if known is None
        else replace(merged(known, generated), **_user_changes(known, owner_fields))
    )
    annotations = {
        key: text for key, text in generated.annotations.items() if key not in (LAST_APPLIED, FLAW)
    }
    annotations[OWNER_FIELDS] = json.dumps(owner_fields, separators=(",", ":"))
    bare = tuple(replace(one, pods=()) if one.pods else one for one in generated.sub_groups)
    return replace(generated, sub_groups=bare, annotations=annotations, flaw=flaw)


def _user_changes(known: PodGroup, owner_fields: Mapping[str, str]) -> dict[str, Any]:
    """The user fields that keep their present value: those that the owner has not changed since.

    A PodGroup without the annotation was created by another writer; its values stay.
    """
    before = _last_owner_fields(known)
    current = {name: getattr(known, name) for name in USER_FIELDS}
    if before is None:
        return {name: text for name, text in current.items() if text}
    return {
        name: text
        for name, text in current.items()
        if before.get(USER_FIELDS[name]) == owner_fields[USER_FIELDS[name]]
    }


def _last_owner_fields(known: PodGroup) -> dict[str, Any] | None:
    try:
        fields = json.loads(known.annotations.get(OWNER_FIELDS, ""))
    except (ValueError, RecursionError):
        return None
    return fields if isinstance(fields, dict) else None


def group_write(known: PodGroup | None, wanted: PodGroup) -> Write | None:
    """The write that creates or updates a PodGroup; None if it is as desired."""
    name, namespace = wanted.name, wanted.namespace
    if known is None:
        return Write(Verb.CREATE, POD_GROUP, namespace, name, pod_group_object(wanted))
    if _same(known, wanted):
        return None
    spec = pod_group_object(wanted)["spec"]
    removed = {key: None for key in ("preemptibility", "topologyConstraint", "subGroups") if key not in spec}
    for field, key in USER_FIELDS.items():  # unchanged fields are not sent: a user may be changing them
        if getattr(known, field) == getattr(wanted, field):
            spec.pop(key, None)
            removed.pop(key, None)
    annotations: Object = {**wanted.annotations, FLAW: wanted.flaw or None}
    meta = {"labels": dict(wanted.labels), "annotations": annotations}
    body = {"metadata": meta, "spec": {**spec, **removed}}
    return Write(Verb.MERGE_PATCH, POD_GROUP, namespace, name, body, uid=known.uid)


def join_write(pod: PodWire, result: Grouped) -> Write | None:
    """The write that assigns a pod to its PodGroup; None if it is assigned."""
    labels, annotations = membership(result)
    meta = pod.metadata
    joined = _contains_all(labels, meta.labels or {}) and _contains_all(annotations, meta.annotations or {})
    if joined and not flaw_of(pod):
        return None
    cleared = {FLAW: None} if flaw_of(pod) else {}
    return _pod_write(pod, {"metadata": {"labels": labels, "annotations": {**annotations, **cleared}}})


def flaw_write(pod: PodWire, why: str) -> Write | None:
    """The write that records why a pod cannot be grouped; None if it is recorded."""
    return None if flaw_of(pod) == why else _pod_write(pod, {"metadata": {"annotations": {FLAW: why}}})


def _pod_write(pod: PodWire, body: Object) -> Write:
    meta = pod.metadata
    return Write(Verb.MERGE_PATCH, PODS, meta.namespace or "default", meta.name, body, uid=meta.uid)


def _same(known: PodGroup, wanted: PodGroup) -> bool:
    fields = ("queue", "priority_class", "preemptibility", "minimum", "constraint", "flaw")
    return (
        all(getattr(known, name) == getattr(wanted, name) for name in fields)
        and _parts(known.sub_groups) == _parts(wanted.sub_groups)
        and _contains_all(wanted.labels, known.labels)
        and _contains_all(wanted.annotations, known.annotations)
    )


def _parts(sub_groups: tuple[SubGroup, ...]) -> list[tuple[object, ...]]:
    return [(one.name, one.minimum, one.parent, one.constraint) for one in sub_groups]


def _contains_all(subset: Mapping[str, str], present: Mapping[str, str]) -> bool:
    return all(present.get(key) == value for key, value in subset.items())


def _reference(ref: OwnerReference) -> Object:
    reference: Object = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return reference | ({"controller": True} if ref.controller else {})
