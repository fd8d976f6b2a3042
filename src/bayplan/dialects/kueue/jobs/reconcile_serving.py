"""Reconciliation of StatefulSets and LeaderWorkerSets: their pods join Workloads that exist before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.jobs.kinds import KINDS, copies
from bayplan.dialects.jobs.serving_rules import GROUPS_MAX
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.pod_adoption import with_workload_metadata
from bayplan.dialects.kueue.jobs.reconcile_job import (
    JobContext,
    sync_admission_gate,
    sync_priority_class,
    sync_queue_name,
)
from bayplan.dialects.kueue.jobs.reconcile_pods import PODS
from bayplan.dialects.kueue.jobs.workload import job_workload, owner, replica_name
from bayplan.dialects.kueue.jobs.writes import (
    WriteWithEvents,
    create,
    delete_workload,
    difference,
    event_about,
    is_terminating,
    key_of,
    owners,
    patch_object,
    with_status,
)
from bayplan.dialects.kueue.names.annotations import MANAGED, SUSPENDED_BY
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches

Object = dict[str, Any]

WRITES_MAX = 100
"""Writes for one object in one step; it is reconciled again once they are made."""
_KIND_OF_PARENT = {
    entry.serving.parent: entry.kind
    for entry in KINDS.values()
    if entry.serving is not None and entry.serving.ahead
}


def reconcile_serving(
    job: Object, workloads: Sequence[Object], context: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for the Workloads of a queued StatefulSet or LeaderWorkerSet."""
    if is_terminating(job) or context.errors(job):
        return []  # its Workloads are garbage-collected; an invalid object stays pending
    try:
        if KINDS[job["kind"]].copies is None:
            return _reconcile_one(job, workloads, context, now)
        return _reconcile_copies(job, workloads, context, now)
    except ValueError:
        return []  # reported by the webhook


def _reconcile_one(
    job: Object, workloads: Sequence[Object], context: JobContext, now: float
) -> list[WriteWithEvents]:
    """All pods of a StatefulSet are one gang; scaled to zero, its Workload is on hold."""
    count = Field(job).at("spec", "replicas").integer(default=1)
    wanted = context.workload(job)
    workload = _by_name(workloads).get(wanted["metadata"]["name"])
    if workload is None:
        return [_created(job, wanted, now)] if count else []
    if is_terminating(workload):
        return []
    uid = job["metadata"].get("uid")
    if count and all(one.get("uid") != uid for one in owners(workload)):
        references = [*owners(workload), owner(Field(job), controls=False)]
        after = {**workload, "metadata": {**workload["metadata"], "ownerReferences": references}}
        return [patch_object(WORKLOADS, workload, after)]
    if writes := (sync_queue_name(job, workload) if count else []) or sync_admission_gate(job, workload, now):
        return writes
    status = job_statuses.off_hold(workload, now) if count else job_statuses.on_hold(workload, now)
    return [with_status(workload, status)] if status is not None else []


def _reconcile_copies(
    job: Object, workloads: Sequence[Object], context: JobContext, now: float
) -> list[WriteWithEvents]:
    """Each group of a LeaderWorkerSet is a gang; Workloads are created in the order of the groups."""
    by_name = _by_name(workloads)
    order_key = f"{job['kind']} {key_of(job)}"
    first = context.workload(job)
    writes: list[WriteWithEvents] = []
    for index in range(_group_count(job)):
        workload = by_name.pop(replica_name(Field(job), index), None)
        if len(writes) >= WRITES_MAX:
            continue  # only surplus Workloads are still collected
        if workload is None:
            write = _created(
                job,
                job_workload(Field(job), index, context.find, context.rules, context.copied_metadata),
                now,
            )
            writes.append(replace(write, write=replace(write.write, order_key=order_key)))
        elif not is_terminating(workload):
            writes += (
                sync_queue_name(job, workload)
                or sync_admission_gate(job, workload, now)
                or sync_priority_class(job, workload, first, now)
            )
    return (writes + [write for one in by_name.values() for write in delete_workload(one)])[:WRITES_MAX]


def _group_count(job: Object) -> int:
    """How many groups there are; more than `replicas` during a rolling update with surge."""
    field = Field(job)
    count, existing = copies(field), field.at("status", "replicas").integer()
    rolling = field.at("spec", "rolloutStrategy", "rollingUpdateConfiguration")
    surge = rolling.at("maxSurge").value
    updated = field.at("status", "updatedReplicas").integer()
    count = existing if existing > count and surge not in (None, 0, "0") and updated < count else count
    return min(count, 2 * GROUPS_MAX)


def _created(job: Object, wanted: Object, now: float) -> WriteWithEvents:
    return create(
        WORKLOADS, wanted, event_about(job, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
    )


def _by_name(workloads: Sequence[Object]) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in workloads}


# ── joining pods ───────────────────────────────────────────────────────────────────────────────────


def parent_kind(pod: PodWire) -> str:
    """The kind of the owner whose Workload a pod has yet to join; empty if none."""
    annotations, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    terminating = pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed")
    return (
        "" if terminating or MANAGED in labels else _KIND_OF_PARENT.get(annotations.get(SUSPENDED_BY, ""), "")
    )


def join_workload(pod: PodWire, parent: Object, rules: FeatureSwitches = RULES) -> list[WriteWithEvents]:
    """Add a pod to the Workload of its owner."""
    meta = pod.metadata
    current: Object = {
        "metadata": {"name": meta.name, "labels": meta.labels or {}, "annotations": meta.annotations or {}},
        "spec": {"schedulingGates": [{"name": gate.name} for gate in pod.spec.scheduling_gates or ()]},
    }
    change: Mapping[str, Any] = difference(current, with_workload_metadata(current, parent, rules=rules))
    if not change:
        return []
    where = (meta.namespace or "default", meta.name)
    return [
        WriteWithEvents(
            Write(Verb.MERGE_PATCH, PODS, *where, change, uid=meta.uid, version=meta.resource_version)
        )
    ]
