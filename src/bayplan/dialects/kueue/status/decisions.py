"""The status of a Workload after an admission decision. None: unchanged, nothing to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bayplan.dialects.kube.fields.quantity import formatted
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.fields.assignment_encode import encode_slices, hosts_only
from bayplan.dialects.kueue.fields.claim_requests import NAMED_CLAIMS, NAMED_CLAIMS_REQUEUED, described
from bayplan.dialects.kueue.fields.hints import workload_hints
from bayplan.dialects.kueue.status.conditions import (
    EVICTED,
    GATED,
    INADMISSIBLE,
    PENDING,
    PREEMPTED,
    QUOTA_RESERVED,
    READY,
    REQUEUED,
    RETRY,
    Draft,
    Object,
    is_true,
)
from bayplan.dialects.kueue.status.rejection_messages import details, reason, rejection_message
from bayplan.model.plan import Admit, EvictGang, EvictionReason, ReportNotAdmitted
from bayplan.model.queued_gang import Admission, Delayed, PodSetAdmission, QueuedGang
from bayplan.model.rejection import AdmissionRemark

JOB_UID = "kueue.x-k8s.io/job-uid"
NODE_FAILURES = "NodeFailures"
NODES_TAKEN = "NodesTaken"
PODS_RESTARTED = "PodsRestarted"
PLACEMENT_TIMED_OUT = "TopologyPlacementFailed"
_EVICTION_REASONS = {
    EvictionReason.NODES_FAILED: NODE_FAILURES,
    EvictionReason.NODES_TAKEN: NODES_TAKEN,
    EvictionReason.NO_PLACE_IN_TIME: PLACEMENT_TIMED_OUT,
}

PREEMPTIONS = {
    EvictionReason.PRIORITY: ("InClusterQueue", "prioritization in the ClusterQueue"),
    EvictionReason.RECLAIM: ("InCohortReclamation", "reclamation within the cohort"),
    EvictionReason.RECLAIM_WHILE_BORROWING: (
        "InCohortReclaimWhileBorrowing",
        "reclamation within the cohort while borrowing",
    ),
    EvictionReason.FAIR_SHARE: ("InCohortFairSharing", "Fair Sharing within the cohort"),
}
"""Reasons for preemption: the reason of the Preempted condition, and the words of its message."""


def admitted(workload: Object, action: Admit, now: float) -> Object | None:
    """Quota is reserved; if all checks are ready and all pod sets are placed, the gang is admitted."""
    draft = Draft.of(workload, now)
    before = draft.status.get("admission") if draft.holds(QUOTA_RESERVED) else None
    admission = encode_admission(action.admission)
    draft.status["admission"] = admission if before is None else _with_quota_of(before, admission)
    message = f"Quota reserved in ClusterQueue {action.admission.queue}"
    draft.mark(QUOTA_RESERVED, True, "QuotaReserved", message)
    for kind in (EVICTED, PREEMPTED, GATED):
        past = draft.condition(kind)
        if past is not None and draft.holds(kind):
            draft.mark(kind, False, "QuotaReserved", f"Previously: {past.get('message', '')}")
    _readmit(draft)
    draft.require_checks(action.checks)
    draft.sync_admitted()
    draft.put("resourceRequests", None)  # the admission has the usage
    draft.put("unhealthyNodes", None)  # they were replaced
    return draft.done()


def _readmit(draft: Draft) -> None:
    """A Workload that was refused as it was is not refused any more."""
    if (draft.condition(REQUEUED) or {}).get("reason") == INADMISSIBLE:
        draft.remove(REQUEUED)


def _with_quota_of(before: Object, after: Object) -> Object:
    """A new placement of a gang that holds quota; the quota stays as written, also of finished pods."""
    parts_before = {part.get("name"): part for part in before.get("podSetAssignments") or ()}
    fields = ("count", "flavors", "resourceUsage")
    parts = [
        {
            **part,
            **{
                key: parts_before[part["name"]][key]
                for key in fields
                if key in parts_before.get(part["name"], {})
            },
        }
        for part in after["podSetAssignments"]
    ]
    return {**after, "podSetAssignments": parts}


def not_admitted(
    workload: Object,
    action: ReportNotAdmitted,
    now: float,
    holders: Iterable[str] = (),
    levels: Collection[str] = (),
) -> Object | None:
    """No quota, with the reason. A gang that holds quota and could not be placed keeps its quota.

    `levels` are those of all topologies: the message hints at a requested level that does not exist.
    """
    if keeps_quota(workload, action):
        return None
    draft = Draft.of(workload, now)
    message_head = rejection_message(action.rejection)
    more_details = details(action.rejection, holders, _claimed(action.queued_gang))
    message = f"{message_head}. {more_details}" if more_details else message_head
    if hints := workload_hints(workload, levels):
        message = f"{message.rstrip('.')}. {'; '.join(hints)}"
    draft.release_quota(reason(action.rejection.reason), message)
    if action.rejection.remark is AdmissionRemark.REFUSED:
        why = NAMED_CLAIMS_REQUEUED if message_head == NAMED_CLAIMS else message_head
        draft.mark(REQUEUED, False, INADMISSIBLE, why)
    else:
        _readmit(draft)
    draft.put("resourceRequests", _requests(action.queued_gang))
    return draft.done()


def _claimed(queued_gang: QueuedGang) -> dict[str, str]:
    """By pod set: the devices that its pods claim, in words."""
    return {
        pod_set.name: described(pod_set.template.devices.claims)
        for pod_set in queued_gang.gang.root.pod_sets()
        if pod_set.template is not None and pod_set.template.devices is not None
    }


def evicted(workload: Object, action: EvictGang, now: float) -> Object | None:
    """The gang is evicted; it holds its quota until its pods are removed."""
    if is_true(workload, EVICTED):
        return None
    draft = Draft.of(workload, now)
    message = eviction_message(action)
    if action.reason in PREEMPTIONS:
        draft.mark(PREEMPTED, True, PREEMPTIONS[action.reason][0], message, observed=False)
    mark_evicted(draft, eviction_reason(action), message)
    return draft.done()


def keeps_quota(workload: Object, action: ReportNotAdmitted) -> bool:
    """Whether a gang that was not admitted holds quota, and only its placement failed."""
    return action.queued_gang.admission is not None or is_true(workload, QUOTA_RESERVED)


def eviction_reason(action: EvictGang) -> str:
    """The reason of the Evicted condition."""
    if action.reason in PREEMPTIONS:
        return "Preempted"
    return _EVICTION_REASONS[action.reason]


def eviction_message(action: EvictGang) -> str:
    """The message of the Evicted condition."""
    match action.reason:
        case EvictionReason.NODES_FAILED:
            nodes = ",".join(action.queued_gang.failed_nodes)
            return f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}"
        case EvictionReason.NODES_TAKEN:
            nodes = ",".join(action.queued_gang.failed_nodes)
            if " " in nodes:  # domains, given as level and name
                return (
                    f"Other pods were bound to nodes of {nodes} before the pods of this Workload, and too "
                    "little is left there for them. It is evicted as a whole and queued again"
                )
            return (
                f"Other pods were bound to node(s) {nodes} of the topology assignment before the pods of "
                "this Workload. It is evicted as a whole and queued again"
            )
        case EvictionReason.NO_PLACE_IN_TIME:
            return "Workload was evicted as its delayed topology requests could not be placed in time"
        case why:
            uid = action.by.gang.uid if action.by is not None else ""
            job = action.by.labels.get(JOB_UID, "") if action.by is not None else ""
            return (
                f"Preempted to accommodate a workload (UID: {uid or 'UNKNOWN'}, JobUID: {job or 'UNKNOWN'}) "
                f"due to {PREEMPTIONS[why][1]}; preemptor path: {_path(action.by_path)}; "
                f"preemptee path: {_path(action.path)}"
            )


def mark_evicted(draft: Draft, why: str, message: str, cause: str = "", *, tell_cause: bool = True) -> None:
    """Set Evicted, count the eviction, and reset checks, nominated clusters and preemption gates."""
    draft.mark(EVICTED, True, f"{why}DueTo{cause}" if cause and tell_cause else why, message)
    for key in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
        draft.put(key, None)
    draft.put("admissionChecks", [_reset_check(check, draft.now) for check in draft.checks])
    if draft.holds(GATED):
        draft.mark(GATED, False, why, message)
    for gate in draft.status.get("preemptionGates") or ():
        gate |= {"position": "Closed", "lastTransitionTime": timestamp(draft.now)}
    draft.status["schedulingStats"] = _with_eviction(draft.status.get("schedulingStats") or {}, why, cause)


def encode_admission(admission: Admission) -> Object:
    """The admission of a gang in v1beta2."""
    return {
        "clusterQueue": admission.queue,
        "podSetAssignments": [_pod_set_assignment(given) for given in admission.pod_sets],
    }


def _pod_set_assignment(granted: PodSetAdmission) -> Object:
    assignment: Object = {"name": granted.name, "count": granted.count}
    if granted.flavors:
        assignment["flavors"] = dict(granted.flavors)
        usage = {name: granted.usage.get(name, 0) for name in granted.flavors}
        assignment["resourceUsage"] = {name: formatted(name, amount) for name, amount in usage.items()}
    if granted.assignment is not None:
        assignment["topologyAssignment"] = encode_slices(hosts_only(granted.assignment))
    if granted.delayed is not None:
        assignment["delayedTopologyRequest"] = READY if granted.delayed is Delayed.READY else PENDING
    return assignment


def _requests(queued_gang: QueuedGang) -> list[Object]:
    requests: list[Object] = []
    for request in queued_gang.requests:
        resources = {name: formatted(name, each * request.count) for name, each in request.per_pod.items()}
        requests.append({"name": request.name} | ({"resources": resources} if resources else {}))
    return requests


def _path(names: tuple[str, ...]) -> str:
    return f"/{'/'.join(names)}" if names else "UNKNOWN"


def _reset_check(check: Object, now: float) -> Object:
    """The check reset to Pending: it is evaluated again when the gang is requeued."""
    state = check.get("state")
    if state == PENDING:
        return check
    reset = {
        "name": check.get("name"),
        "state": PENDING,
        "message": f"Reset to Pending after eviction. Previously: {state}",
        "lastTransitionTime": timestamp(now),
    }
    if "requeueAfterSeconds" in check:
        reset["requeueAfterSeconds"] = check["requeueAfterSeconds"]
    if state == RETRY:
        reset["retryCount"] = check.get("retryCount", 0) + 1
    return reset


def _with_eviction(stats: Object, why: str, cause: str) -> Object:
    """The statistics with one more eviction for this reason."""
    evictions = [dict(entry) for entry in stats.get("evictions") or ()]
    for entry in evictions:
        if (entry.get("reason"), entry.get("underlyingCause", "")) == (why, cause):
            entry["count"] = entry.get("count", 0) + 1
            break
    else:
        evictions.append({"reason": why, "underlyingCause": cause, "count": 1})
    return {**stats, "evictions": evictions}
