"""Writes with what is announced once they are done, each under the precondition that nobody was faster."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
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
    """A write, and the events that follow it."""

    write: Write
    told: tuple[Write, ...] = ()


def key_of(obj: Object) -> str:
    """Namespace and name, as messages have them."""
    return f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}"


def told(obj: Object, why: str, message: str, now: float, kind: str = NORMAL) -> Write:
    """An event about an object."""
    meta = obj["metadata"]
    about = {"apiVersion": obj["apiVersion"], "kind": obj["kind"], "name": meta["name"]}
    about |= {"namespace": meta.get("namespace", "default")} | (
        {"uid": meta["uid"]} if meta.get("uid") else {}
    )
    return event_write(about, why, for_event(message), kind, timestamp(now))


def created(kind: Kind, body: Object, *events: Write) -> WriteWithEvents:
    """An object that was not there."""
    meta = body["metadata"]
    return WriteWithEvents(
        Write(Verb.CREATE, kind, meta.get("namespace", "default"), meta["name"], body), events
    )


def changed(
    kind: Kind, before: Object, after: Object, *events: Write, subresource: str = ""
) -> WriteWithEvents:
    """An object that becomes another; only what differs is sent."""
    patch = difference(before, after)
    return WriteWithEvents(_write(Verb.MERGE_PATCH, kind, before, patch, subresource), events)


def with_status(workload: Object, status: Object, *events: Write) -> WriteWithEvents:
    """A Workload's status."""
    return WriteWithEvents(
        _write(Verb.UPDATE, WORKLOADS, workload, {**workload, "status": status}, "status"), events
    )


def deleted(kind: Kind, obj: Object, *events: Write) -> WriteWithEvents:
    """An object that goes."""
    meta = obj["metadata"]
    where = (meta.get("namespace", "default"), meta["name"])
    return WriteWithEvents(Write(Verb.DELETE, kind, *where, uid=meta.get("uid", "")), events)


def without_finalizer(kind: Kind, obj: Object, finalizer: str = IN_USE) -> list[WriteWithEvents]:
    """Nothing keeps an object from going, as far as we are concerned."""
    meta = obj["metadata"]
    if finalizer not in (meta.get("finalizers") or ()):
        return []
    kept = [one for one in meta["finalizers"] if one != finalizer]
    return [WriteWithEvents(_write(Verb.MERGE_PATCH, kind, obj, {"metadata": {"finalizers": kept or None}}))]


def removed(workload: Object, *events: Write) -> list[WriteWithEvents]:
    """A Workload that is no longer wanted; one that is on its way already is only let go."""
    free = without_finalizer(WORKLOADS, workload)
    if is_leaving(workload):
        return free
    return [*free, deleted(WORKLOADS, workload, *events)]


def is_leaving(obj: Object) -> bool:
    """Whether an object is being deleted."""
    return bool(obj["metadata"].get("deletionTimestamp"))


def owners(obj: Object) -> Iterable[Object]:
    """The references of an object to whom it belongs."""
    found: list[Object] = obj["metadata"].get("ownerReferences") or []
    return found


def controller(obj: Object) -> Object | None:
    """The one owner that controls an object."""
    return next((one for one in owners(obj) if one.get("controller")), None)


def difference(before: Object, after: Object) -> Object:
    """The merge patch that makes one object of another."""
    patch: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        known = before.get(key)
        if isinstance(known, dict) and isinstance(value, dict):
            if inner := difference(known, value):
                patch[key] = inner
        elif key not in before or known != value:
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
