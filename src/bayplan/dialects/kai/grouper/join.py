"""Which pods are put into groups, and how groups are made and pods joined to them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.kai.api.names import (
    ANSWER,
    FLAW,
    POD_GROUP,
    POD_GROUP_NAME,
    POD_INDEX_LABEL,
    SEGMENT_SIZE,
    TOPOLOGY_NAME,
)
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup, merged, written
from bayplan.dialects.kai.api.segments import SEGMENT_NOTES
from bayplan.dialects.kai.grouper.dispatch import Grouped, membership
from bayplan.dialects.kube.decode.wire import PODS_KIND as WIRE_PODS
from bayplan.dialects.kube.decode.wire import OwnerReference, PodWire

Object = dict[str, Any]
PODS = replace(WIRE_PODS, wire=None)
OTHERS = "kueue.x-k8s.io/"
"""Labels and annotations of pods that another family looks after."""
LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"
"""What belongs to the owner's object alone."""
CHOSEN = {
    "queue": "queue",
    "priority_class": "priorityClassName",
    "preemptibility": "preemptibility",
}
"""What people change on a group by hand: our field, and what it is called in the object."""


def wants_group(pod: PodWire) -> bool:
    """Whether it is for us to put a pod into a group: it names none itself, and is of no other family."""
    meta, spec = pod.metadata, pod.spec
    if spec.workload_ref is not None or spec.scheduling_group is not None:
        return False
    return not any(key.startswith(OTHERS) for key in (*(meta.labels or ()), *(meta.annotations or ())))


def group_named(pod: PodWire) -> str:
    """The group that a pod is joined to; empty if none."""
    return (pod.metadata.annotations or {}).get(POD_GROUP_NAME, "")


def flaw_of(pod: PodWire) -> str:
    """Why a pod could not be put into a group; empty if nothing is known of that."""
    return (pod.metadata.annotations or {}).get(FLAW, "")


def as_object(pod: PodWire) -> Object:
    """The pod as far as grouping cares."""
    meta = pod.metadata
    refs = [_reference(ref) for ref in meta.owner_references or ()]
    found: Object = {
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
        found["metadata"]["deletionTimestamp"] = meta.deletion_timestamp
    if pod.spec.priority_class_name:
        found["spec"]["priorityClassName"] = pod.spec.priority_class_name
    if pod.spec.node_name:
        found["spec"]["nodeName"] = pod.spec.node_name
    return found


def size_asked(pod: PodWire) -> str:
    """The size of segments that stands on a pod; empty if none does."""
    return (pod.metadata.annotations or {}).get(SEGMENT_SIZE, "")


def told_to_wait(pod: PodWire, elder: PodWire) -> str:
    """What is said if a pod comes with another size of segments than one that runs; empty if it does not."""
    size, runs = size_asked(pod), size_asked(elder)
    if not runs or size == runs:
        return ""
    asked = f"{SEGMENT_SIZE}: {size}" if size else f"that {SEGMENT_SIZE} is taken away"
    return f"{asked} counts once the job is started anew, because pods run in segments of {runs}"


def cut_like(pod: PodWire, elder: PodWire) -> Object:
    """The pod as if it asked for the same segments as another one."""
    found, theirs = as_object(pod), elder.metadata.annotations or {}
    meta = found["metadata"]
    asked = {key: theirs[key] for key in SEGMENT_NOTES if key in theirs}
    own = {key: text for key, text in meta["annotations"].items() if key not in SEGMENT_NOTES}
    needed = {key: theirs[key] for key in (TOPOLOGY_NAME, POD_INDEX_LABEL) if key in theirs}
    meta["annotations"] = needed | own | asked
    return found


def same_parts(known: PodGroup, made: PodGroup) -> bool:
    """Whether a group that is made again has the sub-groups that it had."""
    return _parts(known.sub_groups) == _parts(merged(known, made).sub_groups)


def is_ready(pod: PodWire) -> bool:
    """Whether a pod says that it is ready."""
    return any(one.type == "Ready" and one.status == "True" for one in pod.status.conditions or ())


def _ready(pod: PodWire) -> list[Object]:
    return [{"type": "Ready", "status": "True"}] if is_ready(pod) else []


def wanted_group(known: PodGroup | None, made: PodGroup, flaw: str) -> PodGroup:
    """The group as it should be: with what earlier pods opened, and with what is wrong with any of them.

    What somebody changed on it by hand stays until its owner asks for something else.
    """
    answer = {key: getattr(made, name) for name, key in CHOSEN.items()}
    made = made if known is None else replace(merged(known, made), **_kept(known, answer))
    notes = {key: text for key, text in made.annotations.items() if key not in (LAST_APPLIED, FLAW)}
    notes[ANSWER] = json.dumps(answer, separators=(",", ":"))
    bare = tuple(replace(one, pods=()) if one.pods else one for one in made.sub_groups)
    return replace(made, sub_groups=bare, annotations=notes, flaw=flaw)


def _kept(known: PodGroup, answer: Mapping[str, str]) -> dict[str, Any]:
    """Of what people change by hand, what stays as it is: all for which the owner says what it said before.

    Who made a group that does not tell that is not known; what stands in it is left there.
    """
    before = _answered(known)
    found = {name: getattr(known, name) for name in CHOSEN}
    if before is None:
        return {name: text for name, text in found.items() if text}
    return {name: text for name, text in found.items() if before.get(CHOSEN[name]) == answer[CHOSEN[name]]}


def _answered(known: PodGroup) -> dict[str, Any] | None:
    try:
        found = json.loads(known.annotations.get(ANSWER, ""))
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def group_write(known: PodGroup | None, wanted: PodGroup) -> Write | None:
    """How the group is made, or changed to what is wanted; None if it is that already."""
    name, namespace = wanted.name, wanted.namespace
    if known is None:
        return Write(Verb.CREATE, POD_GROUP, namespace, name, written(wanted))
    if _same(known, wanted):
        return None
    spec = written(wanted)["spec"]
    lacking = {key: None for key in ("preemptibility", "topologyConstraint", "subGroups") if key not in spec}
    for field, key in CHOSEN.items():  # what is to stay is not sent: it may be changed at this moment
        if getattr(known, field) == getattr(wanted, field):
            spec.pop(key, None)
            lacking.pop(key, None)
    notes: Object = {**wanted.annotations, FLAW: wanted.flaw or None}
    meta = {"labels": dict(wanted.labels), "annotations": notes}
    body = {"metadata": meta, "spec": {**spec, **lacking}}
    return Write(Verb.MERGE_PATCH, POD_GROUP, namespace, name, body, uid=known.uid)


def join_write(pod: PodWire, found: Grouped) -> Write | None:
    """How a pod is joined to its group; None if it is."""
    labels, notes = membership(found)
    meta = pod.metadata
    joined = _within(labels, meta.labels or {}) and _within(notes, meta.annotations or {})
    if joined and not flaw_of(pod):
        return None
    gone = {FLAW: None} if flaw_of(pod) else {}
    return _pod_write(pod, {"metadata": {"labels": labels, "annotations": {**notes, **gone}}})


def flaw_write(pod: PodWire, why: str) -> Write | None:
    """How it is said on a pod that it cannot be put into a group; None if it is said."""
    return None if flaw_of(pod) == why else _pod_write(pod, {"metadata": {"annotations": {FLAW: why}}})


def _pod_write(pod: PodWire, body: Object) -> Write:
    meta = pod.metadata
    return Write(Verb.MERGE_PATCH, PODS, meta.namespace or "default", meta.name, body, uid=meta.uid)


def _same(known: PodGroup, wanted: PodGroup) -> bool:
    asked = ("queue", "priority_class", "preemptibility", "minimum", "constraint", "flaw")
    return (
        all(getattr(known, name) == getattr(wanted, name) for name in asked)
        and _parts(known.sub_groups) == _parts(wanted.sub_groups)
        and _within(wanted.labels, known.labels)
        and _within(wanted.annotations, known.annotations)
    )


def _parts(sub_groups: tuple[SubGroup, ...]) -> list[tuple[object, ...]]:
    return [(one.name, one.minimum, one.parent, one.constraint) for one in sub_groups]


def _within(some: Mapping[str, str], all_: Mapping[str, str]) -> bool:
    return all(all_.get(key) == value for key, value in some.items())


def _reference(ref: OwnerReference) -> Object:
    found: Object = {"apiVersion": ref.api_version, "kind": ref.kind, "name": ref.name, "uid": ref.uid}
    return found | ({"controller": True} if ref.controller else {})
