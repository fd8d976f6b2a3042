"""Messages for a gang that is not admitted, in the exact words of Kueue.

`details` adds what Kueue does not report: where the gang nearly fits, which gangs occupy that domain, and
which change would help.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from bayplan.dialects.kube.encode.fault_messages import (
    INTERNAL_ERROR,
    OUT_OF_TIME,
    internal_error,
    out_of_time,
)
from bayplan.dialects.kube.encode.filter_messages import filter_advice, filter_name
from bayplan.dialects.kube.encode.numa_messages import message_for as numa_message
from bayplan.dialects.kube.fields.quantity import formatted
from bayplan.dialects.kueue.status import misfit_messages
from bayplan.dialects.kueue.status.misfit_messages import quoted
from bayplan.model.assignment import Exclusions, Misfit, NearMiss, Oversized
from bayplan.model.filter_failure import FilterReason, filter_of
from bayplan.model.node_rules import Taint
from bayplan.model.numa import ALIGNED
from bayplan.model.rejection import (
    AdmissionRemark,
    FlavorAttempt,
    FlavorMode,
    Obstacle,
    ObstacleKind,
    PodSetAttempts,
    Rejection,
    RejectionDetail,
    RejectionReason,
)

CONDITION_BYTES_MAX = 32 * 1024
EVENT_BYTES_MAX = 1024
HOLDERS_MAX = 3
NO_DEVICES: Mapping[str, str] = MappingProxyType({})
_CUT = " ..."

_REASONS = {
    RejectionReason.TO_BE_EVALUATED: "PendingEvaluation",
    RejectionReason.NO_PLACE: "TopologyPlacementFailed",
    RejectionReason.NO_QUOTA_NOW: "WaitingForQuota",
    RejectionReason.NEVER_ENOUGH_QUOTA: "ExceedsMaxQuota",
    RejectionReason.NO_FLAVOR: "NoMatchingFlavor",
    RejectionReason.VICTIMS_LEAVING: "WaitingForPreemptedWorkloads",
    RejectionReason.MISCONFIGURED: "Misconfigured",
    RejectionReason.CLOSED: "Suspended",
    RejectionReason.ON_HOLD: "OnHold",
    RejectionReason.OTHERS_STARTING: "WaitingForPodsReady",
    RejectionReason.GATED: "AdmissionGated",
    RejectionReason.INTERNAL: INTERNAL_ERROR,
    RejectionReason.OUT_OF_TIME: OUT_OF_TIME,
}


def reason(token: RejectionReason) -> str:
    """The reason of a condition or event."""
    return _REASONS[token]


def rejection_message(rejection: Rejection) -> str:
    """Why a gang is not admitted, in the words of Kueue."""
    about, name = rejection.about, f"workload {rejection.gang}"
    match rejection.reason:
        case RejectionReason.INTERNAL:
            return internal_error(name, about)
        case RejectionReason.OUT_OF_TIME:
            return out_of_time(name, about, attempts_message(rejection.tried))
    match rejection.remark:
        case AdmissionRemark.TRIED:
            return attempts_message(rejection.tried)
        case AdmissionRemark.PREEMPTING:
            attempts = attempts_message(rejection.tried)
            return f"{attempts}. Pending the preemption of {rejection.victims} workload(s)"
        case AdmissionRemark.OTHERS_ENDING:
            attempts = attempts_message(rejection.tried)
            return f"{attempts}. Other workloads finish at the moment; preempts if they do not make room soon"
        case AdmissionRemark.PREEMPTION_FAILED:
            what = f"Preempting {rejection.victims} workload(s) failed, will retry."
            return f"{attempts_message(rejection.tried)}. {what}"
        case AdmissionRemark.REFUSED:
            return about
        case remark:
            return _REMARKS[remark].format(queue=rejection.queue)


_OVERLAP = "Workload has overlapping preemption targets with another workload"
_REMARKS = {
    AdmissionRemark.OVERTAKEN: "Workload no longer fits after processing another workload",
    AdmissionRemark.SAME_VICTIMS: _OVERLAP,
    AdmissionRemark.SAME_VICTIMS_WILL_FIT: f"{_OVERLAP}, but will fit after these preemptions complete",
    AdmissionRemark.CHECKS_FAILED: "The workload has failed admission checks",
    AdmissionRemark.QUEUE_INACTIVE: "ClusterQueue {queue} is inactive",
    AdmissionRemark.QUEUE_MISSING: "ClusterQueue {queue} not found",
    AdmissionRemark.NAMESPACE: "workload namespace doesn't match ClusterQueue selector",
    AdmissionRemark.NAMESPACE_QUEUE_MISSING: "LocalQueue {queue} doesn't exist",
    AdmissionRemark.NAMESPACE_QUEUE_STOPPED: "LocalQueue {queue} is inactive",
    AdmissionRemark.OTHERS_STARTING: "waiting for all admitted workloads to be in PodsReady condition",
    AdmissionRemark.RESERVED: "Workload fits, but the capacity is reserved for an older pending workload",
    AdmissionRemark.EQUIVALENT: "Bypassed scheduling evaluation because an equivalent workload recently"
    " failed",
}


def attempts_message(tried: Iterable[PodSetAttempts]) -> str:
    """The obstacles of each pod set. A fatal obstacle is reported alone."""
    messages = []
    for part in tried:
        if part.fatal is not None:
            return f"failed to assign flavors to pod set {part.pod_set}: {_obstacle(part.fatal)}"
        if part.obstacles:
            obstacles = ", ".join(sorted(map(_obstacle, part.obstacles)))
            messages.append(f"couldn't assign flavors to pod set {part.pod_set}: {obstacles}")
    return "; ".join(messages)


def flavors_considered(tried: Iterable[PodSetAttempts]) -> str:
    """Every flavor that was tried, except those that fit without borrowing."""
    messages = []
    for part in tried:
        attempts = [
            _attempt(attempt)
            for attempt in part.attempts
            if attempt.mode is not FlavorMode.FIT or attempt.borrow
        ]
        if attempts:
            messages.append(f"{part.pod_set}: {', '.join(attempts)}")
    return " | ".join(messages)


def for_condition(message: str) -> str:
    """A message cut to the limit of a condition."""
    return _cut(message, CONDITION_BYTES_MAX)


def for_event(message: str) -> str:
    """A message cut to the limit of an event."""
    return _cut(message, EVENT_BYTES_MAX)


def details(
    rejection: Rejection, holders: Iterable[str] = (), devices: Mapping[str, str] = NO_DEVICES
) -> str:
    """Where the gang nearly fits, which gangs occupy that domain (`namespace/name`), and the smallest fix.

    `devices` is what the pods of each pod set claim.

    Empty unless the placement is the only obstacle.
    """
    obstacles = [obstacle for part in rejection.tried for obstacle in part.obstacles]
    misfits = [obstacle for obstacle in obstacles if isinstance(obstacle, Misfit)]
    by_quota = (
        rejection.reason is RejectionReason.NO_QUOTA_NOW and rejection.remark is AdmissionRemark.TRIED
    )  # would fit if other gangs were preempted
    if not misfits or not (
        rejection.reason is RejectionReason.NO_PLACE or (by_quota and len(misfits) == len(obstacles))
    ):
        return ""
    claimed = devices.get(misfits[0].pod_sets[0], "") if misfits[0].pod_sets else ""
    return " ".join(f"{text}." for text in _details(misfits[0], sorted(set(holders)), claimed))


def _cut(message: str, limit: int) -> str:
    encoded = message.encode()
    if len(encoded) <= limit:
        return message
    return encoded[: limit - len(_CUT)].decode(errors="ignore") + _CUT


def _attempt(attempt: FlavorAttempt) -> str:
    parts = [_MODES[attempt.mode]]
    if attempt.preemption_mode is not None:
        parts = [f"preemptionMode={_PREEMPTION_MODES[attempt.preemption_mode]}"]
    if attempt.borrow > 0:
        parts.append(f"borrow={attempt.borrow}")
    parts += sorted({_obstacle(obstacle) for obstacle in attempt.obstacles})
    return f"{attempt.flavor}({';'.join(parts)})"


_MODES = {
    FlavorMode.NONE: "NoFit",
    FlavorMode.NO_VICTIMS: "Preempt",
    FlavorMode.PREEMPT: "Preempt",
    FlavorMode.RECLAIM: "Preempt",
    FlavorMode.FIT: "Fit",
}
_PREEMPTION_MODES = {
    FlavorMode.NO_VICTIMS: "NoCandidates",
    FlavorMode.PREEMPT: "Preempt",
    FlavorMode.RECLAIM: "Reclaim",
}


def _obstacle(obstacle: RejectionDetail) -> str:
    if isinstance(obstacle, Misfit):
        return misfit_messages.misfit_message(obstacle)
    return _OBSTACLES[obstacle.kind](obstacle)


def _short(obstacle: Obstacle) -> str:
    more = formatted(obstacle.resource, obstacle.amounts[0])
    return (
        f"insufficient unused quota for {obstacle.resource} in flavor {obstacle.flavor}, {more} more needed"
    )


def _too_much(obstacle: Obstacle) -> str:
    before, asked, limit = (formatted(obstacle.resource, amount) for amount in obstacle.amounts)
    return (
        f"insufficient quota for {obstacle.resource} in flavor {obstacle.flavor}, previously considered "
        f"podsets requests ({before}) + current podset request ({asked}) > maximum capacity ({limit})"
    )


def _taint(taint: Taint | None) -> str:
    assert taint is not None
    return f"{{{taint.key} {taint.value} {taint.effect} <nil>}}"  # the last is timeAdded, which is unset


_OBSTACLES: dict[ObstacleKind, Callable[[Obstacle], str]] = {
    ObstacleKind.NOT_COVERED: lambda o: f"resource {o.resource} unavailable in ClusterQueue",
    ObstacleKind.FLAVOR_UNKNOWN: lambda o: f"flavor {o.flavor} not found",
    ObstacleKind.TAINT: lambda o: f"untolerated taint {_taint(o.taint)} in flavor {o.flavor}",
    ObstacleKind.AFFINITY: lambda o: f"flavor {o.flavor} doesn't match node affinity",
    ObstacleKind.WITHOUT_TOPOLOGY: lambda o: (
        f"Flavor {quoted(o.flavor)} does not support TopologyAwareScheduling"
    ),
    ObstacleKind.ONLY_TOPOLOGY: lambda o: f"Flavor {quoted(o.flavor)} supports only TopologyAwareScheduling",
    ObstacleKind.LEVEL_MISSING: lambda o: f"Flavor {quoted(o.flavor)} does not contain the requested level",
    ObstacleKind.TOPOLOGY_UNKNOWN: lambda o: f"Flavor {quoted(o.flavor)} information missing in TAS cache",
    ObstacleKind.SHORT: _short,
    ObstacleKind.TOO_MUCH: _too_much,
    ObstacleKind.NOT_NOMINATED: lambda o: (
        f"skipping flavor {o.flavor} as it is not found in the nomination mapping for resource {o.resource}"
    ),
    ObstacleKind.OTHER_FLAVOR_BEFORE: lambda o: (
        f"could not assign {o.flavor} flavor since the original workload is assigned: {', '.join(o.flavors)}"
    ),
    ObstacleKind.NO_TOPOLOGY_FLAVOR: lambda o: "no TAS flavor assigned",
    ObstacleKind.SEVERAL_TOPOLOGY_FLAVORS: lambda o: (
        f"more than one TAS flavor assigned: {', '.join(o.flavors)}"
    ),
    ObstacleKind.NO_TOPOLOGY_AT_ALL: lambda o: (
        "workload requires Topology, but there is no TAS cache information"
    ),
    ObstacleKind.GROWS_AND_REQUIRES: lambda o: (
        "required topology is not supported with ElasticJobsViaWorkloadSlices"
    ),
    ObstacleKind.GROWS_AND_PREFERS: lambda o: (
        "preferred topology is not supported with ElasticJobsViaWorkloadSlices"
    ),
}


def _devices(misfit: Misfit, claimed: str) -> Iterator[str]:
    """What the pods claim, if devices are what nodes lack, and how many nodes have none for one pod."""
    counts = misfit.filter_failure.counts if misfit.filter_failure is not None else {}
    lacking = [nodes for (reason, _), nodes in counts.items() if reason is FilterReason.DEVICES]
    by_resource = misfit.excluded.resources.items()
    lacking += [nodes for resource, nodes in by_resource if filter_of(resource) is FilterReason.DEVICES]
    is_nearest = misfit.nearest is not None and filter_of(misfit.nearest.resource) is FilterReason.DEVICES
    if claimed and (lacking or is_nearest):
        few = f"; {sum(lacking)} node(s) have too few free devices for one pod" if sum(lacking) else ""
        yield f"Each pod claims {claimed}{few}"


def _details(misfit: Misfit, holders: Sequence[str], claimed: str) -> Iterator[str]:
    near, failure = misfit.nearest, misfit.filter_failure
    yield from _devices(misfit, claimed)
    if failure is not None and failure.counts:
        reason, _ = max(failure.counts, key=lambda lack: failure.counts[lack])
        yield f"To be admitted: {filter_advice(reason)}"
    if near is None:
        return
    yield _closest(misfit, near) if misfit.oversized is None else _too_large(misfit.oversized)
    if misfit.unaligned is not None:
        yield f"For example: {numa_message(misfit.unaligned)}"
    if holders and misfit.oversized is None:
        more = f" and {len(holders) - HOLDERS_MAX} more" if len(holders) > HOLDERS_MAX else ""
        yield f"Held there by {', '.join(holders[:HOLDERS_MAX])}{more}"
    changes = list(_changes(misfit, near))
    if changes:
        yield f"To be admitted: {', or '.join(changes)}"


def _too_large(oversized: Oversized) -> str:
    lacks = [
        f"{formatted(name, has)} of {formatted(name, asked)} {name}" for name, asked, has in oversized.lacks
    ]
    return (
        f"No node that it may use is large enough for one pod of {oversized.pod_set}: "
        f"the largest, {oversized.node}, has {' and '.join(lacks)}"
    )


def _closest(misfit: Misfit, near: NearMiss) -> str:
    where = f"{near.level} {'/'.join(near.domain)}" if near.domain else "the whole topology"
    units = f", in whole slices of {misfit.unit}" if misfit.unit > 1 else ""
    message = f"Closest is {where}: {near.fit} of {near.fit + near.short} pod(s) fit{units}"
    if not near.resource or _none_is_eligible(misfit.excluded):
        return message
    if near.resource.startswith(ALIGNED):
        return f"{message}, limited by the NUMA alignment on its nodes"
    if (rejected_by := filter_of(near.resource)) is not None:
        return f"{message}, limited by {filter_name(rejected_by)}"
    return f"{message}, limited by {near.resource}: {formatted(near.resource, near.lacking)} more needed"


def _changes(misfit: Misfit, near: NearMiss) -> Iterator[str]:
    """The smallest changes, each of which would let the gang be admitted."""
    excluded = misfit.excluded
    rejected_by = filter_of(near.resource)
    by_amount = near.resource and not near.resource.startswith(ALIGNED) and rejected_by is None
    if misfit.oversized is not None:
        yield "ask for less in each pod, or add larger nodes"
    elif by_amount and near.lacking and not _none_is_eligible(excluded):
        yield f"free or add {formatted(near.resource, near.lacking)} {near.resource} there"
    elif rejected_by is not None:
        yield filter_advice(rejected_by)
    if near.fit > 0:
        yield f"ask for {near.fit} pod(s)"
    taint = max(excluded.taints, key=lambda name: (excluded.taints[name], name), default="")
    if taint and excluded.taints[taint]:
        yield f"tolerate the taint {taint} of {excluded.taints[taint]} node(s)"
    elif excluded.selector or excluded.affinity:
        nodes = excluded.selector + excluded.affinity
        yield f"loosen the node selector or affinity that {nodes} node(s) miss"


def _none_is_eligible(excluded: Exclusions) -> bool:
    """Whether all nodes are excluded by selectors, affinity or taints rather than by capacity."""
    ineligible = excluded.selector + excluded.affinity + excluded.outside + sum(excluded.taints.values())
    return 0 < excluded.nodes <= ineligible
