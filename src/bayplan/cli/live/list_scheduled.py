"""Gangs and pods that the scheduler places, as a table and as JSON records.

Each gang is listed once: Workloads of queues and pod groups of the KAI API have tables of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from bayplan.cli.live.gang_explanation import (
    INCOMPLETE,
    PARTLY_RUNNING,
    PENDING,
    RUNNING,
    reason_now,
    state_of,
)
from bayplan.cli.live.list_gangs import Starts
from bayplan.cli.live.scheduled_state import (
    Scheduled,
    finished,
    is_queued,
    is_suspended_job,
    job_ref,
    queue_of,
    queued_owners,
)
from bayplan.cli.live.state import Live, Object
from bayplan.cli.render.expected_start import cell, record
from bayplan.cli.render.tables import TableColumn, age
from bayplan.dialects.kai.api.names import DIALECT as KAI
from bayplan.dialects.kai.api.names import POD_GROUP
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.decode.scheduled_jobs import names_scheduler
from bayplan.dialects.kueue.names.annotations import POD_GROUP as QUEUED_GROUP
from bayplan.dialects.kueue.names.annotations import POD_GROUP_COUNT, WORKLOAD_NAME
from bayplan.explanation.text import shown_name
from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.simulation.forecast.expected_starts import ExpectedStart
from bayplan.state.scheduling.single_pod import single_pod_ref

SUSPENDED = "suspended"
NO_WORKLOAD = "has no Workload yet; `bayplan run` with the role admission creates it"
Name = tuple[str, str, str]
"""Kind, namespace and name."""


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """One gang, or the pods of one controller."""

    kind: str
    namespace: str
    name: str
    state: str
    created: float
    pods: int = 0
    placed: int = 0
    minimum: int = 0  # with fewer pods it does not start; 0: each pod is scheduled on its own
    priority: int = 0
    where: str = ""
    message: str = ""
    expected: ExpectedStart | None = None  # when it is expected to start, if it is pending

    @property
    def order(self) -> tuple[str, ...]:
        return self.namespace, self.kind, self.name


def scheduled_rows(live: Live, scheduled: Scheduled, namespace: str) -> list[ScheduledRow]:
    """Every gang and pod of a namespace (empty: of all) that is in no queue and no other table."""
    rows = [
        *_gangs(live, scheduled),
        *_lone_pods(live, scheduled),
        *_idle_jobs(live, scheduled),
        *_queued_pods(live, scheduled),
    ]
    return sorted((row for row in rows if namespace in ("", row.namespace)), key=lambda row: row.order)


def scheduled_columns(
    live: Live, user: Callable[[ScheduledRow], object]
) -> tuple[TableColumn[ScheduledRow], ...]:
    """The columns of the table of rows; `user` tells whose gang or pods they are."""
    return (
        TableColumn("NAMESPACE", lambda row: row.namespace),
        TableColumn("KIND", lambda row: row.kind),
        TableColumn("NAME", lambda row: row.name),
        TableColumn("STATE", lambda row: row.state),
        TableColumn("AGE", lambda row: age(live.now - row.created)),
        TableColumn("PODS", lambda row: row.pods, right=True),
        TableColumn("WITH NODE", lambda row: row.placed, right=True),
        TableColumn("MINIMUM", lambda row: row.minimum if row.minimum > 1 else "", right=True),
        TableColumn("PRIORITY", lambda row: row.priority, right=True),
        TableColumn("USER", user, wide=True),
        TableColumn("WHERE", lambda row: row.where, wide=True),
        TableColumn("EXPECTED START", lambda row: cell(row.expected, live.now)),
        TableColumn("REASON", lambda row: row.message),
    )


def scheduled_records(rows: Iterable[ScheduledRow], now: float) -> list[dict[str, Any]]:
    """One JSON record for each row."""
    return [_record(row, now) for row in rows]


def with_starts(rows: Iterable[ScheduledRow], starts: Starts) -> list[ScheduledRow]:
    """The rows with the expected starts of those that wait."""
    by_name = {(ref.kind, ref.namespace, shown_name(ref)): start for ref, start in starts.items()}
    return [
        replace(row, expected=by_name.get((row.kind, row.namespace, row.name)))
        if row.state == PENDING
        else row
        for row in rows
    ]


def _record(row: ScheduledRow, now: float) -> dict[str, Any]:
    found = asdict(replace(row, expected=None))
    del found["expected"]
    return found | {"created": timestamp(row.created), "expectedStart": record(row.expected, now)}


def _gangs(live: Live, scheduled: Scheduled) -> Iterator[ScheduledRow]:
    """Gangs of the scheduler; a job whose pods were put into groups is left to those groups."""
    state, queued = scheduled.controller.state, queued_owners(live)
    known = {entry.ref: None for entry in state.entries()} | dict.fromkeys(state.store.specs)
    grouped = {ref for ref in known if (ref.dialect, ref.kind) == (KAI, POD_GROUP.kind)}
    for ref in known:
        members = state.store.members.get(ref, ())
        if ref in grouped or ref.kind == "Pod" or (ref.kind, ref.namespace, ref.name) in queued:
            continue
        if not members and any(_stands_for(scheduled, one, ref) for one in grouped):
            continue
        yield gang_row(scheduled, ref, live.now)


def _stands_for(scheduled: Scheduled, group: Ref, job: Ref) -> bool:
    known = scheduled.controller.groups.groups.get(group)
    same = known is not None and known.group is not None and known.group.is_for_owner(job.name)
    return same and group.namespace == job.namespace


def gang_row(scheduled: Scheduled, ref: Ref, now: float) -> ScheduledRow:
    """The row of one gang."""
    state = scheduled.controller.state
    spec, bound, pending = state.spec_of(ref), state.bound(ref), state.pending(ref)
    pods = [state.store.pods[key] for key in state.store.members.get(ref, ())]
    created = spec.created if spec is not None and spec.created else _oldest(pods)
    priority = spec.priority if spec is not None else None
    if priority is None:
        priority = max((pod.spec.priority for pod in pods), default=0)
    nodes = [pod.node for pod in bound if pod.node]
    state_word = state_of(scheduled.controller, ref)
    return ScheduledRow(
        ref.kind,
        ref.namespace,
        shown_name(ref),
        state_word,
        created,
        sum(not (pod.finished or pod.terminating) for pod in pods),
        len(nodes),
        spec.minimum if spec is not None else 0,
        priority,
        scheduled.where(nodes),
        "" if state_word == RUNNING else _why(scheduled, ref, pending, now),
    )


def _why(scheduled: Scheduled, ref: Ref, pending: Sequence[Pod], now: float) -> str:
    """The message in the pods' conditions; without one, what would be decided now."""
    message = next((pod.message for pod in pending if pod.message), "")
    return " ".join((message or reason_now(scheduled.controller, ref, now)).split())


def _lone_pods(live: Live, scheduled: Scheduled) -> Iterator[ScheduledRow]:
    """Pods without a gang, one row for each owner."""
    kinds: dict[Name, list[Pod]] = {}
    for pod in scheduled.controller.state.store.pods.values():
        wire = scheduled.pods[pod.key]
        is_single = pod.gang is None or (pod.gang.dialect == KAI and pod.gang.kind == "Pod")
        if (
            not pod.ours
            or pod.finished
            or not is_single
            or is_queued(wire)
            or _has_workload(live, wire.metadata)
        ):
            continue
        owner = scheduled.owner(pod.key)
        kind, name = ("Pod", pod.key.name) if owner is None else (owner.kind, owner.name)
        kinds.setdefault((kind, pod.key.namespace, name), []).append(pod)
    for (kind, namespace, name), pods in kinds.items():
        yield pods_row(scheduled, (kind, namespace, name), pods, live.now)


def pods_row(scheduled: Scheduled, name: Name, pods: Sequence[Pod], now: float) -> ScheduledRow:
    """Pods that belong to no gang, in one row."""
    placed = [pod for pod in pods if pod.node]
    pending = [pod for pod in pods if pod.pending]
    word = PENDING if not placed else RUNNING if not pending else PARTLY_RUNNING
    why = ""
    if pending:
        why = _why(scheduled, pending[0].gang or single_pod_ref(pending[0].key), pending, now)
    nodes = [pod.node for pod in placed]
    priority = max(pod.spec.priority for pod in pods)
    return ScheduledRow(
        *name, word, _oldest(pods), len(pods), len(placed), 0, priority, scheduled.where(nodes), why
    )


def _idle_jobs(live: Live, scheduled: Scheduled) -> Iterator[ScheduledRow]:
    """Suspended jobs, and jobs that name a queue and have no Workload yet."""
    queued = queued_owners(live)
    for ref, job in scheduled.jobs.items():
        if (ref.kind, ref.namespace, ref.name) in queued or finished(job) is not None:
            continue
        queue = queue_of(job)
        if queue:
            yield _job_row(job, PENDING, f"names the queue {queue} and {NO_WORKLOAD}")
        elif is_suspended_job(job) and names_scheduler(Field(job), live.settings.profiles):
            yield _job_row(job, SUSPENDED, "spec.suspend is true")


def _job_row(job: Object, state: str, why: str) -> ScheduledRow:
    ref = job_ref(job)
    created = seconds(Field(job).at("metadata", "creationTimestamp").text())
    return ScheduledRow(ref.kind, ref.namespace, ref.name, state, created, message=why)


def _queued_pods(live: Live, scheduled: Scheduled) -> Iterator[ScheduledRow]:
    """Pods that name a queue themselves and have no Workload yet; a group gets one when it is complete."""
    queued, groups = queued_owners(live), dict[Name, list[tuple[PodKey, Any]]]()
    for key, wire in scheduled.pods.items():
        meta, over = wire.metadata, wire.status.phase in ("Succeeded", "Failed")
        if not is_queued(wire) or over or ("Pod", key.namespace, key.name) in queued:
            continue
        if _has_workload(live, meta) or any(one.controller for one in meta.owner_references or ()):
            continue
        labels, notes = meta.labels or {}, meta.annotations or {}
        group = notes.get(QUEUED_GROUP) or labels.get(QUEUED_GROUP) or ""
        groups.setdefault(("Pods" if group else "Pod", key.namespace, group or key.name), []).append(
            (key, wire)
        )
    for name, pods in groups.items():
        notes = pods[0][1].metadata.annotations or {}
        total = notes.get(POD_GROUP_COUNT, "1")
        created = min(seconds(wire.metadata.creation_timestamp or "") for _, wire in pods)
        why = f"{len(pods)} of {total} pods of the group exist" if name[0] == "Pods" else NO_WORKLOAD
        yield ScheduledRow(
            *name, INCOMPLETE if name[0] == "Pods" else PENDING, created, len(pods), message=why
        )


def _has_workload(live: Live, meta: Any) -> bool:
    name = (meta.annotations or {}).get(WORKLOAD_NAME, "")
    return bool(name) and Ref("kueue", "Workload", meta.namespace or "default", name) in live.workloads


def _oldest(pods: Iterable[Pod]) -> float:
    return min((pod.created for pod in pods), default=0.0)
