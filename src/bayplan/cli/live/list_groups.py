"""Pod groups and the queues they share nodes by, as tables and as records for machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.cli.live.state import Live, pages
from bayplan.cli.render.tables import age, table
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import NotServed
from bayplan.dialects.kai.api.wire import POD_GROUPS, QUEUES, KaiPodGroupWire, QueueResourceWire, QueueWire
from bayplan.dialects.kai.status.pod_group import ACTIVE
from bayplan.dialects.kube.fields.times import seconds

GROUP_HEADS = ("NAMESPACE", "PODGROUP", "QUEUE", "STATE", "AGE", "MINIMUM", "RUNNING", "PENDING", "REASON")
QUEUE_HEADS = (
    "QUEUE",
    "PARENT",
    "PRIORITY",
    "RESOURCE",
    "QUOTA",
    "LIMIT",
    "ALLOCATED",
    "REQUESTED",
    "REASON",
)
COUNTS = ("MINIMUM", "RUNNING", "PENDING")
AMOUNTS = ("PRIORITY", "QUOTA", "LIMIT", "ALLOCATED", "REQUESTED")
NO_LIMIT, UNLIMITED = "none", -1
RESOURCES = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}
UNITS = {"cpu": "m", "memory": "M", "gpu": ""}
"""Quota is written in milli-CPU, megabytes and GPUs."""


def pod_groups(live: Live, namespace: str) -> list[KaiPodGroupWire]:
    """All groups of a namespace (empty: of all); none if the cluster does not know the kind."""
    found: list[KaiPodGroupWire] = _listed(live, POD_GROUPS, namespace)
    return sorted(found, key=lambda one: (one.metadata.namespace or "", one.metadata.name))


def fair_queues(live: Live) -> list[QueueWire]:
    """All queues; none if the cluster does not know the kind."""
    found: list[QueueWire] = _listed(live, QUEUES)
    return sorted(found, key=lambda one: one.metadata.name)


def group_table(live: Live, found: Sequence[KaiPodGroupWire]) -> list[str]:
    """One line for each group."""
    return table(GROUP_HEADS, (tuple(_facts(live, one).values()) for one in found), COUNTS)


def group_records(live: Live, found: Sequence[KaiPodGroupWire]) -> list[dict[str, Any]]:
    """The same for machines, and in its words."""
    names = ("namespace", "name", "queue", "state", "age", "minimum", "running", "pending", "message")
    return [
        {"kind": "PodGroup", **dict(zip(names, _facts(live, one).values(), strict=True))} for one in found
    ]


def fair_queue_table(found: Sequence[QueueWire]) -> list[str]:
    """A line for each resource of each queue that it has a say on, or uses; one if there is none."""
    rows = [tuple(row.values()) for one in found for row in _uses(one)]
    return table(QUEUE_HEADS, rows, AMOUNTS)


def fair_queue_records(found: Sequence[QueueWire]) -> list[dict[str, Any]]:
    """The same for machines."""
    return [{key.lower(): value for key, value in row.items()} for one in found for row in _uses(one)]


def _facts(live: Live, one: KaiPodGroupWire) -> dict[str, object]:
    meta, status = one.metadata, one.status
    said = next(iter(status.scheduling_conditions or ()), None)
    waits = "" if said is None else f"{said.reason or ''}: {' '.join((said.message or '').splitlines())}"
    values = (
        meta.namespace or "default",
        meta.name,
        one.spec.queue or "",
        (status.phase or "unknown").lower(),
        age(live.now - seconds(meta.creation_timestamp or "")),
        one.spec.min_member or 1,
        status.running or 0,
        status.pending or 0,
        waits,
    )
    return dict(zip(GROUP_HEADS, values, strict=True))


def _uses(one: QueueWire) -> list[dict[str, object]]:
    found: list[dict[str, object]] = []
    why = _why_closed(one)
    allocated, requested = one.status.allocated or {}, one.status.requested or {}
    for name, resource in RESOURCES.items():
        wire: QueueResourceWire | None = getattr(one.spec.resources, name, None)
        if wire is None and resource not in requested:
            continue
        values = (
            one.metadata.name,
            one.spec.parent_queue or "",
            100 if one.spec.priority is None else one.spec.priority,
            resource,
            _amount(name, wire.quota if wire else None),
            _amount(name, (wire.limit or wire.quota) if wire else None),  # unless given, it is the quota
            allocated.get(resource, 0),
            requested.get(resource, 0),
            why,
        )
        found.append(dict(zip(QUEUE_HEADS, values, strict=True)))
    if not found:
        known = {"QUEUE": one.metadata.name, "PARENT": one.spec.parent_queue or "", "REASON": why}
        found.append({**dict.fromkeys(QUEUE_HEADS, ""), **known})
    return found


def _why_closed(one: QueueWire) -> str:
    """Why groups in a queue are not served, whatever it has."""
    said = [condition for condition in one.status.conditions or () if condition.type == ACTIVE]
    return next(
        (f"{about.reason or ACTIVE}: {about.message or ''}" for about in said if about.status == "False"), ""
    )


def _amount(name: str, value: float | None) -> str:
    if value == UNLIMITED:
        return NO_LIMIT
    number = value or 0
    shown = f"{number:.3f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
    return f"{shown}{UNITS[name] if value else ''}"


def _listed(live: Live, kind: Kind, namespace: str = "") -> list[Any]:
    try:
        return [one for page in pages(live.backend, kind, namespace) for one in page]
    except NotServed:
        return []
