"""What a decision of the queue makes of a Workload's status. None means: as it is, nothing to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bayplan.dialects.kube.fields.quantity import spelled
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.fields.assignment_encode import encode_slices, hosts_only
from bayplan.dialects.kueue.fields.hints import workload_hints
from bayplan.dialects.kueue.status.conditions import (
    EVICTED,
    GATED,
    PENDING,
    PREEMPTED,
    QUOTA_RESERVED,
    READY,
    RETRY,
    Draft,
    Object,
    is_true,
)
from bayplan.dialects.kueue.status.rejection_messages import details, reason, sentence
from bayplan.model.plan import Admit, EvictGang, EvictionReason, ReportNotAdmitted
from bayplan.model.queued_gang import Admission, Delayed, PodSetAdmission, QueuedGang

JOB_UID = "kueue.x-k8s.io/job-uid"
NODE_FAILURES = "NodeFailures"
NO_PLACE_IN_TIME = "TopologyPlacementFailed"

PREEMPTIONS = {
    EvictionReason.PRIORITY: ("InClusterQueue", "prioritization in the ClusterQueue"),
    EvictionReason.RECLAIM: ("InCohortReclamation", "reclamation within the cohort"),
    EvictionReason.RECLAIM_WHILE_BORROWING: (
        "InCohortReclaimWhileBorrowing",
        "reclamation within the cohort while borrowing",
    ),
    EvictionReason.FAIR_SHARE: ("InCohortFairSharing", "Fair Sharing within the cohort"),
}
"""Grounds on which one gang makes another leave: the reason of the condition, and in words."""


def admitted(workload: Object, action: Admit, now: float) -> Object | None:
    """Quota is reserved; if every check agrees and every place is found, the gang is admitted."""
    draft = Draft.of(workload, now)
    before = draft.status.get("admission") if draft.holds(QUOTA_RESERVED) else None
    written = encode_admission(action.admission)
    draft.status["admission"] = written if before is None else _with_quota_of(before, written)
    told = f"Quota reserved in ClusterQueue {action.admission.queue}"
    draft.mark(QUOTA_RESERVED, True, "QuotaReserved", told)
    for kind in (EVICTED, PREEMPTED, GATED):
        past = draft.condition(kind)
        if past is not None and draft.holds(kind):
            draft.mark(kind, False, "QuotaReserved", f"Previously: {past.get('message', '')}")
    draft.require_checks(action.checks)
    draft.sync_admitted()
    draft.put("resourceRequests", None)  # the admission says it better
    draft.put("unhealthyNodes", None)  # they were replaced
    return draft.done()


def _with_quota_of(before: Object, after: Object) -> Object:
    """Other places for a gang that has its quota: that stays as written, also of pods that are over."""
    known = {part.get("name"): part for part in before.get("podSetAssignments") or ()}
    kept = ("count", "flavors", "resourceUsage")
    parts = [
        {**part, **{key: known[part["name"]][key] for key in kept if key in known.get(part["name"], {})}}
        for part in after["podSetAssignments"]
    ]
    return {**after, "podSetAssignments": parts}


def declined(
    workload: Object,
    action: ReportNotAdmitted,
    now: float,
    holders: Iterable[str] = (),
    levels: Collection[str] = (),
) -> Object | None:
    """No quota, and why. A gang that holds quota and found no place keeps what it has.

    `levels` are those of all topologies: one that is not among them may be misspelt, and that is told.
    """
    if keeps_quota(workload, action):
        return None
    draft = Draft.of(workload, now)
    told, more = sentence(action.refusal), details(action.refusal, holders)
    message = f"{told}. {more}" if more else told
    if hints := workload_hints(workload, levels):
        message = f"{message.rstrip('.')}. {'; '.join(hints)}"
    draft.lose_quota(reason(action.refusal.token), message)
    draft.put("resourceRequests", _requests(action.demand))
    return draft.done()


def evicted(workload: Object, action: EvictGang, now: float) -> Object | None:
    """The gang has to leave; it holds its quota until it has."""
    if is_true(workload, EVICTED):
        return None
    draft = Draft.of(workload, now)
    message = eviction_message(action)
    if action.why in PREEMPTIONS:
        draft.mark(PREEMPTED, True, PREEMPTIONS[action.why][0], message, observed=False)
    send_away(draft, eviction_reason(action), message)
    return draft.done()


def keeps_quota(workload: Object, action: ReportNotAdmitted) -> bool:
    """Whether a gang that was declined only failed to find a place for the quota it has."""
    return action.demand.admission is not None or is_true(workload, QUOTA_RESERVED)


def eviction_reason(action: EvictGang) -> str:
    """Why a gang leaves, as the reason of a condition."""
    if action.why in PREEMPTIONS:
        return "Preempted"
    return NODE_FAILURES if action.why is EvictionReason.NODES_FAILED else NO_PLACE_IN_TIME


def eviction_message(action: EvictGang) -> str:
    """Why a gang leaves, in a sentence."""
    match action.why:
        case EvictionReason.NODES_FAILED:
            nodes = ",".join(action.demand.failed_nodes)
            return f"Workload was evicted as there was no replacement for unhealthy node(s): {nodes}"
        case EvictionReason.NO_PLACE_IN_TIME:
            return "Workload was evicted as no place was found in time for its delayed topology requests"
        case why:
            uid = action.by.gang.uid if action.by is not None else ""
            job = action.by.labels.get(JOB_UID, "") if action.by is not None else ""
            return (
                f"Preempted to accommodate a workload (UID: {uid or 'UNKNOWN'}, JobUID: {job or 'UNKNOWN'}) "
                f"due to {PREEMPTIONS[why][1]}; preemptor path: {_path(action.by_path)}; "
                f"preemptee path: {_path(action.path)}"
            )


def send_away(draft: Draft, why: str, message: str, cause: str = "", *, tell_cause: bool = True) -> None:
    """Mark a gang as leaving, count it, and forget what was agreed for its stay."""
    draft.mark(EVICTED, True, f"{why}DueTo{cause}" if cause and tell_cause else why, message)
    for key in ("clusterName", "nominatedClusterNames", "unhealthyNodes"):
        draft.put(key, None)
    draft.put("admissionChecks", [_pending_again(check, draft.now) for check in draft.checks])
    if draft.holds(GATED):
        draft.mark(GATED, False, why, message)
    for gate in draft.status.get("preemptionGates") or ():
        gate |= {"position": "Closed", "lastTransitionTime": timestamp(draft.now)}
    draft.status["schedulingStats"] = _counted(draft.status.get("schedulingStats") or {}, why, cause)


def encode_admission(admission: Admission) -> Object:
    """What a gang was given, as v1beta2 has it."""
    return {
        "clusterQueue": admission.queue,
        "podSetAssignments": [_given(given) for given in admission.given],
    }


def _given(given: PodSetAdmission) -> Object:
    told: Object = {"name": given.name, "count": given.count}
    if given.flavors:
        told["flavors"] = dict(given.flavors)
        usage = {name: given.usage.get(name, 0) for name in given.flavors}
        told["resourceUsage"] = {name: spelled(name, amount) for name, amount in usage.items()}
    if given.place is not None:
        told["topologyAssignment"] = encode_slices(hosts_only(given.place))
    if given.delayed is not None:
        told["delayedTopologyRequest"] = READY if given.delayed is Delayed.READY else PENDING
    return told


def _requests(demand: QueuedGang) -> list[Object]:
    found: list[Object] = []
    for ask in demand.asks:
        resources = {name: spelled(name, each * ask.count) for name, each in ask.each.items()}
        found.append({"name": ask.name} | ({"resources": resources} if resources else {}))
    return found


def _path(names: tuple[str, ...]) -> str:
    return f"/{'/'.join(names)}" if names else "UNKNOWN"


def _pending_again(check: Object, now: float) -> Object:
    """A check has to be asked anew when its gang comes back."""
    state = check.get("state")
    if state == PENDING:
        return check
    again = {
        "name": check.get("name"),
        "state": PENDING,
        "message": f"Reset to Pending after eviction. Previously: {state}",
        "lastTransitionTime": timestamp(now),
    }
    if "requeueAfterSeconds" in check:
        again["requeueAfterSeconds"] = check["requeueAfterSeconds"]
    if state == RETRY:
        again["retryCount"] = check.get("retryCount", 0) + 1
    return again


def _counted(stats: Object, why: str, cause: str) -> Object:
    """The statistics with one more eviction for this reason."""
    evictions = [dict(entry) for entry in stats.get("evictions") or ()]
    for entry in evictions:
        if (entry.get("reason"), entry.get("underlyingCause", "")) == (why, cause):
            entry["count"] = entry.get("count", 0) + 1
            break
    else:
        evictions.append({"reason": why, "underlyingCause": cause, "count": 1})
    return {**stats, "evictions": evictions}
