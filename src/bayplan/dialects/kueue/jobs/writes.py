"""Writes of the job reconcilers, each with its events and a precondition on the resourceVersion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.api import Kind, Verb, Write
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.names.annotations import IN_USE
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.status.rejection_messages import for_event

NORMAL, WARNING = "Normal", "Warning"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WriteWithEvents:
    """A write, and the events to publish once it is done."""

    write: Write
    events: tuple[Write, ...] = ()


def key_of(obj: Object) -> str:
    """`namespace/name` of an object, for messages."""
    return f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}"


def event_about(obj: Object, reason: str, message: str, now: float, event_type: str = NORMAL) -> Write:
    """The write of an event that regards an object."""
    meta = obj["metadata"]
    regarding = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"]}
    regarding |= {"namespace": meta.get("namespace", "default")} | (
        {"uid": meta["uid"]} if meta.get("uid") else {}
    )
    return event_write(regarding, reason, for_event(message), event_type, timestamp(now))


def create(kind: Kind, body: Object, *events: Write) -> WriteWithEvents:
    """Create an object."""
    meta = body["metadata"]
    return WriteWithEvents(
        Write(Verb.CREATE, kind, meta.get("namespace", "default"), meta["name"], body), events
    )


def patch_object(
    kind: Kind, before: Object, after: Object, *events: Write, subresource: str = ""
) -> WriteWithEvents:
    """Patch an object; only the difference is sent."""
    patch = difference(before, after)
    return WriteWithEvents(_write(Verb.MERGE_PATCH, kind, before, patch, subresource), events)


def with_status(workload: Object, status: Object, *events: Write) -> WriteWithEvents:
    """Replace the status of a Workload."""
    return WriteWithEvents(status_write(workload, status), events)


def status_write(workload: Object, status: Object, tag: object = None) -> Write:
    """The write that replaces the status of a Workload, unless the Workload was changed since."""
    write = _write(Verb.UPDATE, WORKLOADS, workload, {**workload, "status": status}, "status")
    return replace(write, tag=tag)


def delete(kind: Kind, obj: Object, *events: Write) -> WriteWithEvents:
    """Delete an object."""
    meta = obj["metadata"]
    where = (meta.get("namespace", "default"), meta["name"])
    return WriteWithEvents(Write(Verb.DELETE, kind, *where, uid=meta.get("uid", "")), events)


def without_finalizer(kind: Kind, obj: Object, finalizer: str = IN_USE) -> list[WriteWithEvents]:
    """Remove a finalizer from an object; nothing if it does not have it."""
    meta = obj["metadata"]
    if finalizer not in (meta.get("finalizers") or ()):
        return []
    finalizers = [name for name in meta["finalizers"] if name != finalizer]
    return [
        WriteWithEvents(_write(Verb.MERGE_PATCH, kind, obj, {"metadata": {"finalizers": finalizers or None}}))
    ]


def delete_workload(workload: Object, *events: Write) -> list[WriteWithEvents]:
    """Delete a Workload and its finalizer; of a terminating one only the finalizer is removed."""
    finalizer_writes = without_finalizer(WORKLOADS, workload)
    if is_terminating(workload):
        return finalizer_writes
    return [*finalizer_writes, delete(WORKLOADS, workload, *events)]


def is_terminating(obj: Object) -> bool:
    """Whether an object is terminating."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def owners(obj: Object) -> Iterable[Object]:
    """The ownerReferences of an object."""
    references: list[Object] = obj["metadata"].get("ownerReferences") or []
    return references


def controller(obj: Object) -> Object | None:
    """The controlling ownerReference of an object."""
    return next((one for one in owners(obj) if one.get("controller")), None)


def difference(before: Object, after: Object) -> Object:
    """The merge patch that turns `before` into `after`."""
    patch: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(value, dict):
            if inner := difference(old, value):
                patch[key] = inner
        elif key not in before or old != value:
            patch[key] = value
    return patch


def _write(verb: Verb, kind: Kind, obj: Object, body: Object, subresource: str = "") -> Write:
    meta = obj["metadata"]
    return Write(
        verb,
        kind,
        meta.get("namespace", "default"),
        meta["name"],
        body,
        subresource,
        uid=meta.get("uid", ""),
        version=meta.get("resourceVersion", ""),
    )
