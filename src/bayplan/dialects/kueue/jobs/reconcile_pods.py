"""Reconciliation of plain pods and pod groups with their Workload.

Pods cannot be suspended: they are gated until they are admitted, and deleted when they are evicted.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.injection import Injected, InjectionConflict, add
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE, prebuilt_name
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.evictions import enforce_deadlines, eviction_message, finish_eviction
from bayplan.dialects.kueue.jobs.injection import injections
from bayplan.dialects.kueue.jobs.matching import matches
from bayplan.dialects.kueue.jobs.pod_group import group_size, group_workload
from bayplan.dialects.kueue.jobs.pod_group_members import (
    PodGroupMembers,
    annotations_of,
    is_finished,
    is_gated,
    is_runnable,
    phase,
    role_of,
    sort_members,
)
from bayplan.dialects.kueue.jobs.reconcile_job import (
    JobContext,
    reconcile_orphan,
    sync_queue_name,
)
from bayplan.dialects.kueue.jobs.workload import job_workload, owner
from bayplan.dialects.kueue.jobs.writes import (
    WriteWithEvents,
    create,
    delete,
    delete_workload,
    event_about,
    is_terminating,
    key_of,
    owners,
    patch_object,
    with_status,
    without_finalizer,
)
from bayplan.dialects.kueue.names.annotations import (
    FAST_ADMISSION,
    IS_GROUP_WORKLOAD,
    MANAGED,
    RETRIABLE,
    SERVING,
    TOPOLOGY_GATE,
)
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.status.conditions import ADMITTED, EVICTED, FINISHED, condition_of, is_true

PODS = Kind("", "v1", "Pod", "pods", label_selector=f"{MANAGED}=true")
TERMINATION_TARGET = "TerminationTarget"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class QueuedPodGroup:
    """Pods that are admitted together; a single pod is a group without a name."""

    name: str
    pods: tuple[Object, ...]

    @property
    def first(self) -> Object:
        return self.pods[0]

    @property
    def is_serving(self) -> bool:
        return bool(self.name) and annotations_of(self.first).get(SERVING) == "true"

    @property
    def size(self) -> int:
        """How many pods the group has; 0 if its annotation is invalid."""
        try:
            return group_size(Field(self.first)) if self.name else 1
        except ValueError:
            return 0


def reconcile_pods(
    group: QueuedPodGroup, workload: Object | None, context: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for queued pods; there is at least one pod."""
    if not group.name and is_terminating(group.first):
        writes = reconcile_orphan(workload, now) if workload is not None else []
        return writes or _remove_finalizers(group.pods)
    try:
        match, rest, writes = _matched(group, workload, context, now)
    except ValueError:  # invalid: not admitted, but deleted pods may terminate
        return _remove_finalizers([pod for pod in group.pods if not is_runnable(pod)])
    if writes:
        return writes
    if match is None:
        return _create_workload(rest, workload, context, now)
    if is_true(match, FINISHED):
        return [*_remove_finalizers(rest.pods), *without_finalizer(WORKLOADS, match)]
    if is_terminating(match):
        return _delete_pods(rest, match, now)
    return _finish(rest, match, now) or _advance(rest, match, context, now)


def reconcile_without_pods(workload: Object, alive: bool) -> list[WriteWithEvents]:
    """The writes for the Workload of a group without pods; `alive`: its owner will create some."""
    return [] if alive and not is_terminating(workload) else without_finalizer(WORKLOADS, workload)


# ── the Workload of the pods ───────────────────────────────────────────────────────────────────────


def _matched(
    group: QueuedPodGroup, workload: Object | None, context: JobContext, now: float
) -> tuple[Object | None, QueuedPodGroup, list[WriteWithEvents]]:
    """The matching Workload, the pods that count, and writes that have to be made first."""
    if not group.name:
        return _matched_alone(group, workload, context, now)
    if workload is None:
        return None, group, []
    if prebuilt_name(Field(group.first), context.rules).text():
        return _matched_prebuilt(group, workload, now)
    if annotations_of(workload).get(IS_GROUP_WORKLOAD) != "true":
        raise ValueError(f'Workload "{group.name}" does not belong to a pod group')
    members = sort_members(group.pods, workload, annotations_of(group.first).get(FAST_ADMISSION) == "true")
    if not members.kept or not members.fits:
        return None, group, delete_workload(workload)
    rest = QueuedPodGroup(group.name, members.kept)
    status = job_statuses.waiting_for_replacements(workload, members.missing, now)
    writes = (
        _add_owners(rest, workload, now)
        or _delete_excess(members, now)
        or _remove_finalizers(members.replaced)
    )
    if not writes and status is not None and not is_true(workload, FINISHED):
        writes = [with_status(workload, status)]
    return workload, rest, writes


def _matched_alone(
    group: QueuedPodGroup, workload: Object | None, context: JobContext, now: float
) -> tuple[Object | None, QueuedPodGroup, list[WriteWithEvents]]:
    if workload is None or is_true(workload, FINISHED):
        return workload, group, []
    wanted = job_workload(Field(group.first), 0, context.find, context.rules, context.copied_metadata)
    if matches(workload, wanted, suspended=is_gated(group.first)):
        return workload, group, []
    if is_gated(group.first):
        message = f"Deleted not matching Workload: {key_of(workload)}"
        return (
            None,
            group,
            delete_workload(workload, event_about(group.first, "DeletedWorkload", message, now)),
        )
    return workload, group, []


def _matched_prebuilt(
    group: QueuedPodGroup, workload: Object, now: float
) -> tuple[Object | None, QueuedPodGroup, list[WriteWithEvents]]:
    """A Workload that the owner of the pods created; its pod sets must fit the pods."""
    if is_true(workload, FINISHED) or is_terminating(workload):
        return workload, group, []
    members = sort_members(group.pods, workload, True)
    if not members.fits:
        message = "The prebuilt workload is out of sync with its user job"
        status = job_statuses.finished(workload, "OutOfSync", message, now)
        return None, group, [with_status(workload, status)] if status is not None else []
    return workload, group, _add_owners(group, workload, now)


def _add_owners(group: QueuedPodGroup, workload: Object, now: float) -> list[WriteWithEvents]:
    """Make every pod an owner of the Workload, so that it is garbage-collected with the last pod."""
    uids = {one.get("uid") for one in owners(workload)}
    new = [pod for pod in group.pods if pod["metadata"].get("uid") not in uids]
    if not new or is_true(workload, FINISHED) or is_terminating(workload):
        return []
    references = [*owners(workload), *(owner(Field(pod), controls=False) for pod in new)]
    after = {**workload, "metadata": {**workload["metadata"], "ownerReferences": references}}
    message = f"Added {len(new)} owner reference(s)"
    return [
        patch_object(WORKLOADS, workload, after, event_about(workload, "OwnerReferencesAdded", message, now))
    ]


def _delete_excess(members: PodGroupMembers, now: float) -> list[WriteWithEvents]:
    writes = _remove_finalizers(members.excess)
    for pod in members.excess:
        if not is_terminating(pod):
            event = event_about(pod, "ExcessPodDeleted", "Excess pod deleted", now)
            writes.append(delete(PODS, pod, event))
    return writes


def _create_workload(
    group: QueuedPodGroup, other: Object | None, context: JobContext, now: float
) -> list[WriteWithEvents]:
    """Create the Workload of a complete group; an incomplete group stays pending."""
    if prebuilt_name(Field(group.first), context.rules).text() or other is not None:
        return []
    if not group.name:
        if is_finished(group.first) or not is_gated(group.first):
            return (
                _remove_finalizers(group.pods)
                if is_finished(group.first)
                else _stop(group, "NoMatchingWorkload", "", now)
            )
        wanted = job_workload(Field(group.first), 0, context.find, context.rules, context.copied_metadata)
    else:
        if _active(group, now):
            return []
        terminated = [pod for pod in group.pods if not is_runnable(pod)]
        running = [pod for pod in group.pods if is_runnable(pod)]
        if writes := _remove_finalizers(terminated):
            return writes
        fast = annotations_of(group.first).get(FAST_ADMISSION) == "true"
        if not running or (len(running) < group.size and not fast):
            return []
        try:
            wanted = group_workload(
                [Field(pod) for pod in running], context.find, context.rules, context.copied_metadata
            )
        except ValueError:
            return []
        wanted["metadata"]["ownerReferences"] = wanted["metadata"]["ownerReferences"][: group.size or None]
    event = event_about(group.first, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
    return [create(WORKLOADS, wanted, event)]


# ── running ────────────────────────────────────────────────────────────────────────────────────────


def _delete_pods(group: QueuedPodGroup, workload: Object, now: float) -> list[WriteWithEvents]:
    """Delete the pods of a deleted Workload."""
    remaining = QueuedPodGroup(group.name, tuple(pod for pod in group.pods if not is_terminating(pod)))
    if remaining.pods:
        return _stop(remaining, "WorkloadDeleted", "Workload is deleted", now, include_finished=True)
    return [*_remove_finalizers(group.pods), *without_finalizer(WORKLOADS, workload)]


def _finish(group: QueuedPodGroup, workload: Object, now: float) -> list[WriteWithEvents]:
    """Finish the Workload of pods that all succeeded, or that are not to be retried."""
    if group.is_serving:
        return []
    succeeded = sum(phase(pod) == "Succeeded" for pod in group.pods)
    if not group.name:
        if not is_finished(group.first):
            return []
        message, good = str((group.first.get("status") or {}).get("message", "")), succeeded == 1
    else:
        final = any(annotations_of(pod).get(RETRIABLE) == "false" for pod in group.pods)
        if not group.size or (
            succeeded != group.size and not (final and all(is_finished(pod) for pod in group.pods))
        ):
            return []
        message, good = f"Pods succeeded: {succeeded}/{group.size}.", True
    status = job_statuses.finished(workload, "Succeeded" if good else "Failed", message, now)
    event = event_about(
        group.first, "FinishedWorkload", f"Workload '{key_of(workload)}' is declared finished", now
    )
    return [with_status(workload, status, event)] if status is not None else []


def _advance(
    group: QueuedPodGroup, workload: Object, context: JobContext, now: float
) -> list[WriteWithEvents]:
    counts: dict[str, int] = {}
    if group.name and not group.is_serving:
        for pod in group.pods:
            if phase(pod) == "Succeeded":
                counts[role_of(pod)] = counts.get(role_of(pod), 0) + 1
    status = job_statuses.reclaimed(workload, counts)
    if status is None and context.pods_ready_policy is not None:
        status = job_statuses.pods_ready(workload, _ready(group), now)
    if status is not None:
        return [with_status(workload, status)]
    if is_true(workload, EVICTED):
        reason = f"WorkloadEvictedDueTo{(condition_of(workload, EVICTED) or {}).get('reason', '')}"
        return finish_eviction(
            _stop(group, reason, eviction_message(workload), now), workload, _active(group, now), now
        )
    if deadline_writes := enforce_deadlines(workload, context.pods_ready_policy, now):
        return deadline_writes
    admitted = is_true(workload, ADMITTED)
    if any(is_gated(pod) or is_finished(pod) for pod in group.pods):
        if admitted:
            return _start(group, workload, context, now)
        return [] if group.is_serving else sync_queue_name(group.first, workload)
    return [] if admitted else _stop(group, "NotAdmitted", "Not admitted by cluster queue", now)


def _start(group: QueuedPodGroup, workload: Object, context: JobContext, now: float) -> list[WriteWithEvents]:
    """Inject the admission of its role into each gated pod, and remove its gate."""
    try:
        extras = {one.name: one for one in injections(workload, context.flavors, context.rules)}
        gated_pods = [pod for pod in group.pods if is_gated(pod) and not is_terminating(pod)]
        queue = workload["status"]["admission"].get("clusterQueue", "")
        message = f"Admitted by clusterQueue {queue}"
        return [
            patch_object(
                PODS,
                pod,
                _ungated(pod, _extra(group, pod, extras)),
                event_about(pod, "Started", message, now),
            )
            for pod in gated_pods
        ]
    except KeyError:
        return []  # a flavor does not exist (yet)
    except InjectionConflict as wrong:
        status = job_statuses.finished(workload, "FailedToStart", str(wrong), now)
        return [with_status(workload, status)] if status is not None else []


def _extra(group: QueuedPodGroup, pod: Object, extras: dict[str, Injected]) -> Injected:
    name = role_of(pod) if group.name else next(iter(extras), "")
    if name not in extras:
        raise InjectionConflict(f"invalid podset infos: podSetInfo with the name '{name}' is not found")
    return extras[name]


def _ungated(pod: Object, extra: Injected) -> Object:
    started: Object = copy.deepcopy(pod)
    add(started, extra)
    removed_gates = {SCHEDULING_GATE} | (set() if TOPOLOGY_GATE in extra.gates else {TOPOLOGY_GATE})
    gates = [
        one for one in started["spec"].get("schedulingGates") or () if one.get("name") not in removed_gates
    ]
    started["spec"]["schedulingGates"] = gates
    if not gates:
        del started["spec"]["schedulingGates"]
    return started


def _stop(
    group: QueuedPodGroup, reason: str, message: str, now: float, *, include_finished: bool = False
) -> list[WriteWithEvents]:
    """Set the TerminationTarget condition of running pods and delete them; gated pods stay."""
    writes: list[WriteWithEvents] = []
    for pod in group.pods:
        if is_terminating(pod) or (not include_finished and (is_finished(pod) or is_gated(pod))):
            continue
        conditions = (pod.get("status") or {}).get("conditions") or []
        target = {
            "type": TERMINATION_TARGET,
            "status": "True",
            "reason": reason,
            "message": message,
            "lastTransitionTime": timestamp(now),
        }
        others = [one for one in conditions if one.get("type") != TERMINATION_TARGET]
        after = {**pod, "status": {**(pod.get("status") or {}), "conditions": [*others, target]}}
        writes.append(patch_object(PODS, pod, after, subresource="status"))
        writes.append(delete(PODS, pod, event_about(pod, "Stopped", message, now)))
    return writes


def _remove_finalizers(pods: Sequence[Object]) -> list[WriteWithEvents]:
    return [write for pod in pods for write in without_finalizer(PODS, pod, MANAGED)]


def _active(group: QueuedPodGroup, now: float) -> bool:
    """Whether pods of a group run, except those past their deletion grace period."""
    if not group.name:
        return False
    for pod in group.pods:
        meta = pod["metadata"]
        deadline = seconds(str(meta.get("deletionTimestamp") or ""))
        overdue = deadline and now > deadline + float(meta.get("deletionGracePeriodSeconds") or 0)
        if phase(pod) == "Running" and not overdue:
            return True
    return False


def _ready(group: QueuedPodGroup) -> bool:
    """Whether as many pods as the group has are ready or have succeeded, as for Jobs.

    A pod that succeeded is never ready again: a group that is started again would be evicted for ever.
    """
    ready = sum(phase(pod) == "Succeeded" or _is_ready(pod) for pod in group.pods)
    return ready >= max(group.size, 1)


def _is_ready(pod: Object) -> bool:
    return any(one.get("type") == "Ready" and one.get("status") == "True" for one in _conditions(pod))


def _conditions(pod: Object) -> list[Object]:
    conditions: list[Object] = (pod.get("status") or {}).get("conditions") or []
    return conditions
