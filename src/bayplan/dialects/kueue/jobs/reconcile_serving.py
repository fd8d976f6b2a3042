"""StatefulSets and LeaderWorkerSets: their Workloads are there before their pods, which join them later."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.jobs.kinds import copies
from bayplan.dialects.jobs.serving_jobs import GROUPS_MAX
from bayplan.dialects.jobs.soundness import flaws
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.pod_adoption import adopted
from bayplan.dialects.kueue.jobs.reconcile_job import (
    JobContext,
    gate_followed,
    priority_followed,
    queue_followed,
)
from bayplan.dialects.kueue.jobs.reconcile_pods import PODS
from bayplan.dialects.kueue.jobs.workload import job_workload, owner, replica_name
from bayplan.dialects.kueue.jobs.writes import (
    WriteWithEvents,
    changed,
    created,
    difference,
    is_leaving,
    key_of,
    owners,
    removed,
    told,
    with_status,
)
from bayplan.dialects.kueue.names.annotations import MANAGED, SUSPENDED_BY
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.names.job_kinds import PARENTS

Object = dict[str, Any]

SERVING_KINDS = ("StatefulSet", "LeaderWorkerSet")
DEEDS_MAX = 100
"""Writes for one object in one step; it is looked at again once they are made."""
_JOINING = {PARENTS[kind]: kind for kind in SERVING_KINDS}


def keep_serving(
    job: Object, workloads: Sequence[Object], known: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for the Workloads of something that serves and names a queue."""
    if is_leaving(job) or flaws(job, known.find):
        return []  # its Workloads go with it; what cannot be read waits
    try:
        if job["kind"] == "StatefulSet":
            return _keep_set(job, workloads, known, now)
        return _keep_groups(job, workloads, known, now)
    except ValueError:
        return []  # the webhook says what is wrong


def _keep_set(
    job: Object, workloads: Sequence[Object], known: JobContext, now: float
) -> list[WriteWithEvents]:
    """All pods of a StatefulSet are one gang; without any it waits, out of the line."""
    count = Field(job).at("spec", "replicas").integer(default=1)
    wanted = job_workload(Field(job), 0, known.find, known.rules, known.copied)
    found = _named(workloads).get(wanted["metadata"]["name"])
    if found is None:
        return [_created(job, wanted, now)] if count else []
    if is_leaving(found):
        return []
    uid = job["metadata"].get("uid")
    if count and all(one.get("uid") != uid for one in owners(found)):
        references = [*owners(found), owner(Field(job), controls=False)]
        after = {**found, "metadata": {**found["metadata"], "ownerReferences": references}}
        return [changed(WORKLOADS, found, after)]
    if deeds := (queue_followed(job, found) if count else []) or gate_followed(job, found, now):
        return deeds
    status = job_statuses.off_hold(found, now) if count else job_statuses.on_hold(found, now)
    return [with_status(found, status)] if status is not None else []


def _keep_groups(
    job: Object, workloads: Sequence[Object], known: JobContext, now: float
) -> list[WriteWithEvents]:
    """Each group of a LeaderWorkerSet is a gang of its own; who comes first should also be admitted first."""
    there = _named(workloads)
    line = f"{job['kind']} {key_of(job)}"
    first = job_workload(Field(job), 0, known.find, known.rules, known.copied)
    deeds: list[WriteWithEvents] = []
    for index in range(_groups(job)):
        found = there.pop(replica_name(Field(job), index), None)
        if len(deeds) >= DEEDS_MAX:
            continue  # only those that nobody wants any more are still looked for
        if found is None:
            deed = _created(job, job_workload(Field(job), index, known.find, known.rules, known.copied), now)
            deeds.append(replace(deed, write=replace(deed.write, line=line)))
        elif not is_leaving(found):
            deeds += (
                queue_followed(job, found)
                or gate_followed(job, found, now)
                or priority_followed(job, found, first, now)
            )
    return (deeds + [deed for one in there.values() for deed in removed(one)])[:DEEDS_MAX]


def _groups(job: Object) -> int:
    """How many groups there are; more than asked for while newer ones take over."""
    field = Field(job)
    count, there = copies(field), field.at("status", "replicas").integer()
    rolling = field.at("spec", "rolloutStrategy", "rollingUpdateConfiguration")
    surge = rolling.at("maxSurge").value
    updated = field.at("status", "updatedReplicas").integer()
    count = there if there > count and surge not in (None, 0, "0") and updated < count else count
    return min(count, 2 * GROUPS_MAX)


def _created(job: Object, wanted: Object, now: float) -> WriteWithEvents:
    return created(
        WORKLOADS, wanted, told(job, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
    )


def _named(workloads: Sequence[Object]) -> dict[str, Object]:
    return {one["metadata"]["name"]: one for one in workloads}


# ── pods that join ─────────────────────────────────────────────────────────────────────────────────


def parent_kind(pod: PodWire) -> str:
    """The kind of the owner that a pod waits to join; nothing if it waits for none."""
    notes, labels = pod.metadata.annotations or {}, pod.metadata.labels or {}
    leaving = pod.metadata.deletion_timestamp is not None or pod.status.phase in ("Succeeded", "Failed")
    return "" if leaving or MANAGED in labels else _JOINING.get(notes.get(SUSPENDED_BY, ""), "")


def joined(pod: PodWire, parent: Object, rules: FeatureSwitches = RULES) -> list[WriteWithEvents]:
    """Make a pod one of its owner's Workload."""
    meta = pod.metadata
    shown: Object = {
        "metadata": {"name": meta.name, "labels": meta.labels or {}, "annotations": meta.annotations or {}},
        "spec": {"schedulingGates": [{"name": gate.name} for gate in pod.spec.scheduling_gates or ()]},
    }
    change: Mapping[str, Any] = difference(shown, adopted(shown, parent, rules=rules))
    if not change:
        return []
    where = (meta.namespace or "default", meta.name)
    return [
        WriteWithEvents(
            Write(Verb.MERGE_PATCH, PODS, *where, change, uid=meta.uid, version=meta.resource_version)
        )
    ]
