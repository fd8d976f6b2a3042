"""Plain pods and groups of pods with their Workload: what has to be done next for them to agree.

Pods cannot be held back again: they are gated until they are admitted, and deleted when they have to leave.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.starting import Injected, InjectionConflict, add
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds, timestamp
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE, prebuilt_name
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.injection import injections
from bayplan.dialects.kueue.jobs.matching import matches
from bayplan.dialects.kueue.jobs.pod_group import group_size, group_workload
from bayplan.dialects.kueue.jobs.pod_group_members import (
    PodGroupMembers,
    gated,
    is_over,
    members,
    notes_of,
    phase,
    role_of,
    runnable,
)
from bayplan.dialects.kueue.jobs.reconcile_job import (
    JobContext,
    eviction,
    leave,
    orphaned,
    queue_followed,
    too_late,
)
from bayplan.dialects.kueue.jobs.workload import job_workload, owner
from bayplan.dialects.kueue.jobs.writes import (
    WriteWithEvents,
    changed,
    created,
    deleted,
    is_leaving,
    key_of,
    owners,
    removed,
    told,
    with_status,
    without_finalizer,
)
from bayplan.dialects.kueue.names.annotations import (
    FAST_ADMISSION,
    MANAGED,
    OF_GROUP,
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
    """Pods that are admitted together; a pod on its own is a group of one without a name."""

    name: str
    pods: tuple[Object, ...]

    @property
    def first(self) -> Object:
        return self.pods[0]

    @property
    def serves(self) -> bool:
        return bool(self.name) and notes_of(self.first).get(SERVING) == "true"

    @property
    def size(self) -> int:
        """How many pods there should be; 0 if nobody can tell."""
        try:
            return group_size(Field(self.first)) if self.name else 1
        except ValueError:
            return 0


def keep_pods(
    group: QueuedPodGroup, workload: Object | None, known: JobContext, now: float
) -> list[WriteWithEvents]:
    """The next writes for pods that name a queue, or whose owner does; there is at least one pod."""
    if not group.name and is_leaving(group.first):
        deeds = orphaned(workload, now) if workload is not None else []
        return deeds or _let_go(group.pods)
    try:
        match, rest, deeds = _matched(group, workload, known, now)
    except ValueError:  # cannot be admitted as it is; what is deleted of it can go
        return _let_go([pod for pod in group.pods if not runnable(pod)])
    if deeds:
        return deeds
    if match is None:
        return _without_workload(rest, workload, known, now)
    if is_true(match, FINISHED):
        return [*_let_go(rest.pods), *without_finalizer(WORKLOADS, match)]
    if is_leaving(match):
        return _with_deleted_workload(rest, match, now)
    return _over(rest, match, now) or _going_on(rest, match, known, now)


def keep_abandoned(workload: Object, alive: bool) -> list[WriteWithEvents]:
    """The Workload of a group that has no pods; `alive`: its owner will make some."""
    return [] if alive and not is_leaving(workload) else without_finalizer(WORKLOADS, workload)


# ── the Workload that stands for the pods ──────────────────────────────────────────────────────────


def _matched(
    group: QueuedPodGroup, workload: Object | None, known: JobContext, now: float
) -> tuple[Object | None, QueuedPodGroup, list[WriteWithEvents]]:
    """The Workload, the pods that count, and what has to be done before anything else."""
    if not group.name:
        return _matched_alone(group, workload, known, now)
    if workload is None:
        return None, group, []
    if prebuilt_name(Field(group.first), known.rules).text():
        return _matched_prebuilt(group, workload, now)
    if notes_of(workload).get(OF_GROUP) != "true":
        raise ValueError(f'Workload "{group.name}" is not one of a group of pods')
    found = members(group.pods, workload, notes_of(group.first).get(FAST_ADMISSION) == "true")
    if not found.kept or not found.fits:
        return None, group, removed(workload)
    rest = QueuedPodGroup(group.name, found.kept)
    status = job_statuses.replacements(workload, found.absent, now)
    deeds = _owned(rest, workload, now) or _excess(found, now) or _let_go(found.replaced)
    if not deeds and status is not None and not is_true(workload, FINISHED):
        deeds = [with_status(workload, status)]
    return workload, rest, deeds


def _matched_alone(
    group: QueuedPodGroup, workload: Object | None, known: JobContext, now: float
) -> tuple[Object | None, QueuedPodGroup, list[WriteWithEvents]]:
    if workload is None or is_true(workload, FINISHED):
        return workload, group, []
    wanted = job_workload(Field(group.first), 0, known.find, known.rules, known.copied)
    if matches(workload, wanted, suspended=gated(group.first)):
        return workload, group, []
    if gated(group.first):
        message = f"Deleted not matching Workload: {key_of(workload)}"
        return None, group, removed(workload, told(group.first, "DeletedWorkload", message, now))
    return workload, group, []


def _matched_prebuilt(
    group: QueuedPodGroup, workload: Object, now: float
) -> tuple[Object | None, QueuedPodGroup, list[WriteWithEvents]]:
    """The owner of the pods made the Workload for them; only one of its own shape can be used."""
    if is_true(workload, FINISHED) or is_leaving(workload):
        return workload, group, []
    found = members(group.pods, workload, True)
    if not found.fits:
        message = "The prebuilt workload is out of sync with its user job"
        status = job_statuses.finished(workload, "OutOfSync", message, now)
        return None, group, [with_status(workload, status)] if status is not None else []
    return workload, group, _owned(group, workload, now)


def _owned(group: QueuedPodGroup, workload: Object, now: float) -> list[WriteWithEvents]:
    """A group's Workload belongs to all its pods, so that it goes with the last of them."""
    known = {one.get("uid") for one in owners(workload)}
    fresh = [pod for pod in group.pods if pod["metadata"].get("uid") not in known]
    if not fresh or is_true(workload, FINISHED) or is_leaving(workload):
        return []
    references = [*owners(workload), *(owner(Field(pod), controls=False) for pod in fresh)]
    after = {**workload, "metadata": {**workload["metadata"], "ownerReferences": references}}
    message = f"Added {len(fresh)} owner reference(s)"
    return [changed(WORKLOADS, workload, after, told(workload, "OwnerReferencesAdded", message, now))]


def _excess(found: PodGroupMembers, now: float) -> list[WriteWithEvents]:
    deeds = _let_go(found.excess)
    for pod in found.excess:
        if not is_leaving(pod):
            event = told(pod, "ExcessPodDeleted", "Excess pod deleted", now)
            deeds.append(deleted(PODS, pod, event))
    return deeds


def _without_workload(
    group: QueuedPodGroup, other: Object | None, known: JobContext, now: float
) -> list[WriteWithEvents]:
    """Pods that are all there get a Workload; a group that is not complete has to wait."""
    if prebuilt_name(Field(group.first), known.rules).text() or other is not None:
        return []
    if not group.name:
        if is_over(group.first) or not gated(group.first):
            return (
                _let_go(group.pods) if is_over(group.first) else _stop(group, "NoMatchingWorkload", "", now)
            )
        wanted = job_workload(Field(group.first), 0, known.find, known.rules, known.copied)
    else:
        if _active(group, now):
            return []
        lost = [pod for pod in group.pods if not runnable(pod)]
        there = [pod for pod in group.pods if runnable(pod)]
        if deeds := _let_go(lost):
            return deeds
        fast = notes_of(group.first).get(FAST_ADMISSION) == "true"
        if not there or (len(there) < group.size and not fast):
            return []
        try:
            wanted = group_workload([Field(pod) for pod in there], known.find, known.rules, known.copied)
        except ValueError:
            return []
        wanted["metadata"]["ownerReferences"] = wanted["metadata"]["ownerReferences"][: group.size or None]
    event = told(group.first, "CreatedWorkload", f"Created Workload: {key_of(wanted)}", now)
    return [created(WORKLOADS, wanted, event)]


# ── going on ───────────────────────────────────────────────────────────────────────────────────────


def _with_deleted_workload(group: QueuedPodGroup, workload: Object, now: float) -> list[WriteWithEvents]:
    """Whoever deletes a Workload wants its pods to go, too."""
    staying = QueuedPodGroup(group.name, tuple(pod for pod in group.pods if not is_leaving(pod)))
    if staying.pods:
        return _stop(staying, "WorkloadDeleted", "Workload is deleted", now, even_over=True)
    return [*_let_go(group.pods), *without_finalizer(WORKLOADS, workload)]


def _over(group: QueuedPodGroup, workload: Object, now: float) -> list[WriteWithEvents]:
    """Pods that have all succeeded, or will not be tried again, end their Workload."""
    if group.serves:
        return []
    done = sum(phase(pod) == "Succeeded" for pod in group.pods)
    if not group.name:
        if not is_over(group.first):
            return []
        message, good = str((group.first.get("status") or {}).get("message", "")), done == 1
    else:
        final = any(notes_of(pod).get(RETRIABLE) == "false" for pod in group.pods)
        if not group.size or (done != group.size and not (final and all(is_over(pod) for pod in group.pods))):
            return []
        message, good = f"Pods succeeded: {done}/{group.size}.", True
    status = job_statuses.finished(workload, "Succeeded" if good else "Failed", message, now)
    event = told(group.first, "FinishedWorkload", f"Workload '{key_of(workload)}' is declared finished", now)
    return [with_status(workload, status, event)] if status is not None else []


def _going_on(
    group: QueuedPodGroup, workload: Object, known: JobContext, now: float
) -> list[WriteWithEvents]:
    counts: dict[str, int] = {}
    if group.name and not group.serves:
        for pod in group.pods:
            if phase(pod) == "Succeeded":
                counts[role_of(pod)] = counts.get(role_of(pod), 0) + 1
    status = job_statuses.reclaimed(workload, counts)
    if status is None and known.patience is not None:
        status = job_statuses.pods_ready(workload, _ready(group), now)
    if status is not None:
        return [with_status(workload, status)]
    if is_true(workload, EVICTED):
        why = f"WorkloadEvictedDueTo{(condition_of(workload, EVICTED) or {}).get('reason', '')}"
        return leave(_stop(group, why, eviction(workload), now), workload, _active(group, now), now)
    if late := too_late(workload, known.patience, now):
        return late
    admitted = is_true(workload, ADMITTED)
    if any(gated(pod) or is_over(pod) for pod in group.pods):
        if admitted:
            return _start(group, workload, known, now)
        return [] if group.serves else queue_followed(group.first, workload)
    return [] if admitted else _stop(group, "NotAdmitted", "Not admitted by cluster queue", now)


def _start(group: QueuedPodGroup, workload: Object, known: JobContext, now: float) -> list[WriteWithEvents]:
    """Each pod that is gated gets what its role was given, and loses the gate."""
    try:
        extras = {one.name: one for one in injections(workload, known.flavors, known.rules)}
        waiting = [pod for pod in group.pods if gated(pod) and not is_leaving(pod)]
        queue = workload["status"]["admission"].get("clusterQueue", "")
        message = f"Admitted by clusterQueue {queue}"
        return [
            changed(PODS, pod, _freed(pod, _extra(group, pod, extras)), told(pod, "Started", message, now))
            for pod in waiting
        ]
    except KeyError:
        return []  # a flavor is not there (yet)
    except InjectionConflict as wrong:
        status = job_statuses.finished(workload, "FailedToStart", str(wrong), now)
        return [with_status(workload, status)] if status is not None else []


def _extra(group: QueuedPodGroup, pod: Object, extras: dict[str, Injected]) -> Injected:
    name = role_of(pod) if group.name else next(iter(extras), "")
    if name not in extras:
        raise InjectionConflict(f"invalid podset infos: podSetInfo with the name '{name}' is not found")
    return extras[name]


def _freed(pod: Object, extra: Injected) -> Object:
    found: Object = copy.deepcopy(pod)
    add(found, extra)
    gone = {SCHEDULING_GATE} | (set() if TOPOLOGY_GATE in extra.gates else {TOPOLOGY_GATE})
    gates = [one for one in found["spec"].get("schedulingGates") or () if one.get("name") not in gone]
    found["spec"]["schedulingGates"] = gates
    if not gates:
        del found["spec"]["schedulingGates"]
    return found


def _stop(
    group: QueuedPodGroup, why: str, message: str, now: float, *, even_over: bool = False
) -> list[WriteWithEvents]:
    """Pods that run are told why, and deleted; pods that are gated have nothing to stop."""
    deeds: list[WriteWithEvents] = []
    for pod in group.pods:
        if is_leaving(pod) or (not even_over and (is_over(pod) or gated(pod))):
            continue
        conditions = (pod.get("status") or {}).get("conditions") or []
        target = {
            "type": TERMINATION_TARGET,
            "status": "True",
            "reason": why,
            "message": message,
            "lastTransitionTime": timestamp(now),
        }
        kept = [one for one in conditions if one.get("type") != TERMINATION_TARGET]
        after = {**pod, "status": {**(pod.get("status") or {}), "conditions": [*kept, target]}}
        deeds.append(changed(PODS, pod, after, subresource="status"))
        deeds.append(deleted(PODS, pod, told(pod, "Stopped", message, now)))
    return deeds


def _let_go(pods: Sequence[Object]) -> list[WriteWithEvents]:
    return [deed for pod in pods for deed in without_finalizer(PODS, pod, MANAGED)]


def _active(group: QueuedPodGroup, now: float) -> bool:
    """Whether pods of a group run; those that should be gone by now do not count."""
    if not group.name:
        return False
    for pod in group.pods:
        meta = pod["metadata"]
        gone = seconds(str(meta.get("deletionTimestamp") or ""))
        late = gone and now > gone + float(meta.get("deletionGracePeriodSeconds") or 0)
        if phase(pod) == "Running" and not late:
            return True
    return False


def _ready(group: QueuedPodGroup) -> bool:
    there = [
        any(one.get("type") == "Ready" and one.get("status") == "True" for one in _conditions(pod))
        for pod in group.pods
    ]
    return all(there) and len(there) >= group.size


def _conditions(pod: Object) -> list[Object]:
    found: list[Object] = (pod.get("status") or {}).get("conditions") or []
    return found
