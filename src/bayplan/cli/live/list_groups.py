"""Pod groups of the KAI API and their queues, as tables and as JSON records."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from bayplan.cli.live.list_gangs import Starts
from bayplan.cli.live.state import Live, pages
from bayplan.cli.render.expected_start import cell, record
from bayplan.cli.render.tables import TableColumn, age, table
from bayplan.dialects.api import Kind
from bayplan.dialects.errors import NotServed
from bayplan.dialects.kai.api.names import DIALECT, POD_GROUP
from bayplan.dialects.kai.api.wire import POD_GROUPS, QUEUES, KaiPodGroupWire, QueueResourceWire, QueueWire
from bayplan.dialects.kai.status.pod_group import ACTIVE
from bayplan.dialects.kube.fields.times import seconds
from bayplan.model.gang import Ref
from bayplan.simulation.forecast.expected_starts import ExpectedStart

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
UNLIMITED, UNLIMITED_VALUE = "unlimited", -1
RESOURCES = {"cpu": "cpu", "memory": "memory", "gpu": "nvidia.com/gpu"}
UNITS = {"cpu": "m", "memory": "M", "gpu": ""}
"""The API gives quota in milli-CPU, megabytes and GPUs."""


def pod_groups(live: Live, namespace: str) -> list[KaiPodGroupWire]:
    """All groups of a namespace (empty: of all); none if the cluster does not serve the kind."""
    groups: list[KaiPodGroupWire] = _listed(live, POD_GROUPS, namespace)
    return sorted(groups, key=lambda one: (one.metadata.namespace or "", one.metadata.name))


def fair_queues(live: Live) -> list[QueueWire]:
    """All queues; none if the cluster does not serve the kind."""
    queues: list[QueueWire] = _listed(live, QUEUES)
    return sorted(queues, key=lambda one: one.metadata.name)


def group_columns(
    live: Live, user: Callable[[KaiPodGroupWire], object], starts: Starts
) -> tuple[TableColumn[KaiPodGroupWire], ...]:
    """The columns of the table of groups; `user` tells whose group it is."""

    def column(head: str) -> TableColumn[KaiPodGroupWire]:
        return TableColumn(head, lambda one: group_facts(live, one)[head], right=head in COUNTS)

    *first, reason = map(column, GROUP_HEADS)
    expected: TableColumn[KaiPodGroupWire] = TableColumn(
        "EXPECTED START", lambda one: cell(_expected(one, starts), live.now)
    )
    return *first, expected, TableColumn("USER", user, wide=True), reason


def group_records(live: Live, groups: Sequence[KaiPodGroupWire], starts: Starts) -> list[dict[str, Any]]:
    """One JSON record for each group."""
    names = ("namespace", "name", "queue", "state", "age", "minimum", "running", "pending", "message")
    return [
        {
            "kind": "PodGroup",
            **dict(zip(names, group_facts(live, one).values(), strict=True)),
            "expectedStart": record(_expected(one, starts), live.now),
        }
        for one in groups
    ]


def _expected(one: KaiPodGroupWire, starts: Starts) -> ExpectedStart | None:
    """The expected start of a group that does not run; pods beyond its minimum have none."""
    if one.status.running or 0:
        return None
    return starts.get(Ref(DIALECT, POD_GROUP.kind, one.metadata.namespace or "default", one.metadata.name))


def fair_queue_table(queues: Sequence[QueueWire]) -> list[str]:
    """A line for each resource that a queue limits or uses; one line for a queue without any."""
    rows = [tuple(row.values()) for one in queues for row in _uses(one)]
    return table(QUEUE_HEADS, rows, AMOUNTS)


def fair_queue_records(queues: Sequence[QueueWire]) -> list[dict[str, Any]]:
    """The lines of `fair_queue_table` as JSON records."""
    return [{key.lower(): value for key, value in row.items()} for one in queues for row in _uses(one)]


def group_facts(live: Live, one: KaiPodGroupWire) -> dict[str, object]:
    """What the table shows of a group, by column."""
    meta, status = one.metadata, one.status
    condition = next(iter(status.scheduling_conditions or ()), None)
    message = " ".join((condition.message or "").splitlines()) if condition is not None else ""
    reason = f"{condition.reason or ''}: {message}" if condition is not None else ""
    values = (
        meta.namespace or "default",
        meta.name,
        one.spec.queue or "",
        (status.phase or "unknown").lower(),
        age(live.now - seconds(meta.creation_timestamp or "")),
        one.spec.min_member or 1,
        status.running or 0,
        status.pending or 0,
        reason,
    )
    return dict(zip(GROUP_HEADS, values, strict=True))


def _uses(one: QueueWire) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = []
    why = _why_inactive(one)
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
            _amount(name, (wire.limit or wire.quota) if wire else None),  # the limit defaults to the quota
            allocated.get(resource, 0),
            requested.get(resource, 0),
            why,
        )
        rows.append(dict(zip(QUEUE_HEADS, values, strict=True)))
    if not rows:
        known = {"QUEUE": one.metadata.name, "PARENT": one.spec.parent_queue or "", "REASON": why}
        rows.append({**dict.fromkeys(QUEUE_HEADS, ""), **known})
    return rows


def _why_inactive(queue: QueueWire) -> str:
    """Why a queue is not active; empty if it is."""
    active = [condition for condition in queue.status.conditions or () if condition.type == ACTIVE]
    return next(
        (f"{one.reason or ACTIVE}: {one.message or ''}" for one in active if one.status == "False"), ""
    )


def _amount(name: str, value: float | None) -> str:
    if value == UNLIMITED_VALUE:
        return UNLIMITED
    number = value or 0
    shown = f"{number:.3f}".rstrip("0").rstrip(".") if isinstance(number, float) else str(number)
    return f"{shown}{UNITS[name] if value else ''}"


def _listed(live: Live, kind: Kind, namespace: str = "") -> list[Any]:
    if kind in live.lists:
        return [one for one in live.lists[kind] if namespace in ("", one.metadata.namespace or "default")]
    try:
        return [one for page in pages(live.backend, kind, namespace) for one in page]
    except NotServed:
        return []
