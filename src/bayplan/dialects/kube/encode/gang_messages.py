"""Why a gang or a pod is pending: kube-scheduler's messages first, then details and what to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bayplan.dialects.kube.encode.fault_messages import (
    INTERNAL_ERROR,
    OUT_OF_TIME,
    because_of_others,
    internal_error,
    out_of_time,
    unsupported,
)
from bayplan.dialects.kube.encode.filter_messages import (
    NEVER_PREEMPTS,
    NO_CLAIMS,
    NO_HELP,
    NO_VICTIMS,
    PAUSED,
    node_reason,
    preemption_message,
    unavailable,
)
from bayplan.dialects.kube.encode.numa_messages import message_for as numa_details
from bayplan.dialects.kube.gang.composite_groups import TOPOLOGIES
from bayplan.dialects.kube.gang.objects import COMPOSITE, POD_GROUP, WORKLOAD
from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FilterReason
from bayplan.model.gang import Ref
from bayplan.model.rejection import PreemptionSearchOutcome, Rejection, RejectionReason

UNSCHEDULABLE, WAITING, ERROR = "Unschedulable", "WaitingForGang", "SchedulerError"
NOT_EXHAUSTIVE = (
    "A placement may still exist: not all combinations were tried, because its pods differ or depend on "
    "each other. For equal pods without affinity or spread constraints the search is exhaustive."
)
FAULTS = {RejectionReason.INTERNAL: INTERNAL_ERROR, RejectionReason.OUT_OF_TIME: OUT_OF_TIME}
"""Reasons of pods that no additional node can help."""
Sentence = Callable[[Misfit], str]


def reason(why: Rejection) -> str:
    """The condition reason. Unschedulable only if more nodes may help: cluster autoscalers act on it."""
    if why.reason in FAULTS:
        return FAULTS[why.reason]
    if why.reason in (RejectionReason.INVALID, RejectionReason.UNSUPPORTED) or _is_split(why):
        return ERROR
    return UNSCHEDULABLE if why.reason.was_tried else WAITING


def _is_split(why: Rejection) -> bool:
    """Whether bound pods are in different domains although one is required: no node can help."""
    return why.misfit is not None and why.misfit.code is Code.STALE_ASSIGNMENT


def message_for(why: Rejection, gang: Ref, of_misfit: Sentence) -> str:
    """The message in the condition of a pod and in its event."""
    match why.reason:
        case RejectionReason.NO_SPEC:
            return _no_gang_spec(gang)
        case RejectionReason.NO_GROUP:
            name, group = (*gang.name.split("/"), "")[:2]
            return f'pod group "{why.about or group}" doesn\'t exist for a workload "{name}"'
        case RejectionReason.TOO_FEW:
            if gang.kind == COMPOSITE:
                return _no_quorum(why, gang)
            counts = f"{why.existing} of {why.minimum} are there"
            return f"waiting for minCount pods from a gang to appear in scheduling queue: {counts}"
        case RejectionReason.GATED:
            example = f", such as {why.pod.name}" if why.pod is not None else ""
            return f"waiting for pods of its gang that have scheduling gates{example}"
        case RejectionReason.INVALID:
            return why.about or "its spec is contradictory"
        case RejectionReason.UNSUPPORTED:
            return unsupported(why.pod, why.about)
        case RejectionReason.PREEMPTING:
            return _preempting(why, gang)
        case RejectionReason.RESERVED:
            reserved_for = f": {why.about}" if why.about else ""
            return f"free capacity is reserved for a larger gang that has been pending longer{reserved_for}"
        case RejectionReason.NODE_TAKEN | RejectionReason.HELD_BACK:
            return because_of_others(why)
        case RejectionReason.UNDONE:
            return (
                f"the gang could not start completely: {why.fit} of {why.minimum} pods were bound, and were "
                "evicted to free their capacity; the gang is retried"
            )
        case RejectionReason.INTERNAL:
            return internal_error(_title(gang), why.about)
        case RejectionReason.OUT_OF_TIME:
            has_details = why.misfit is not None or why.filter_failure is not None
            return out_of_time(_title(gang), why.about, _no_room(why, gang, of_misfit) if has_details else "")
        case _:
            return _no_room(why, gang, of_misfit)


def _title(gang: Ref) -> str:
    return f"{gang.kind} {gang.namespace}/{gang.name}"


def _no_gang_spec(gang: Ref) -> str:
    match gang.kind:
        case "Workload":
            name = gang.name.partition("/")[0]
            return f'waiting for pods\'s workload "{name}" to appear in scheduling queue: create it'
        case "PodGroup":
            return f'waiting for pods\'s pod group "{gang.name}" to appear in scheduling queue: create it'
        case "CompositePodGroup":
            return f'waiting for composite pod group "{gang.name}" to appear in scheduling queue: create it'
        case _:
            return f'waiting for {gang.kind} "{gang.name}", which is suspended, finished or missing'


def _no_quorum(why: Rejection, gang: Ref) -> str:
    if "/" in why.part:
        shortage = f"{_part_title(why.part)} has too few groups"
    else:
        shortage = f"of {_part_title(why.part)}, {why.existing} of {why.minimum} pods are there"
    return f'waiting for composite pod group "{gang.name}" tree to meet quorum: {shortage}'


def _preempting(why: Rejection, gang: Ref) -> str:
    pods = "1 pod is" if why.victims == 1 else f"{why.victims or 'other'} pods are"
    subject = "pod group is " if gang.kind in (POD_GROUP, COMPOSITE, WORKLOAD) else ""
    return f"{subject}waiting for preemption to complete: {pods} terminating"


def _no_room(why: Rejection, gang: Ref, of_misfit: Sentence) -> str:
    if why.misfit is not None and why.misfit.level and _is_by_node_label(why.misfit):
        parts = _no_domain(why, why.misfit)
    elif why.misfit is not None:
        parts = [of_misfit(why.misfit), *_no_devices(why)]
    elif why.filter_failure is not None:
        parts = [unavailable(why.filter_failure, _preemption_result(why))]
    else:
        parts = ["no node fits"]
    pod_suffix = f" (pod {why.pod.name})" if why.pod is not None else ""
    if gang.kind == COMPOSITE and why.part and why.misfit is None:
        parts = _no_place_for_part(why, pod_suffix, parts)
    elif why.minimum > 1 and why.misfit is None:
        parts.insert(0, f"pod group is unschedulable: {why.fit} of {why.minimum} pods fit{pod_suffix}:")
    if why.filter_failure is not None and why.filter_failure.unaligned is not None:
        parts[-1] = parts[-1].removesuffix(".") + "."
        parts.append(f"For example: {numa_details(why.filter_failure.unaligned)}.")
    if why.incomplete:
        parts.append(NOT_EXHAUSTIVE)
    return " ".join(parts)


def _no_devices(why: Rejection) -> Iterator[str]:
    """How many nodes have no devices for a pod, if its claims ask for some."""
    unfit = why.filter_failure
    for lack, count in unfit.counts.items() if unfit is not None else ():
        if unfit is not None and lack[0] in (FilterReason.DEVICES, FilterReason.DEVICES_ELSEWHERE):
            yield f"Devices of {count}/{unfit.nodes} nodes: {node_reason(lack)}."


def _no_place_for_part(why: Rejection, pod: str, parts: list[str]) -> list[str]:
    """One of the groups of a tree does not fit, or has too few pods or groups to be tried."""
    if why.filter_failure is not None:
        return [
            f"pod group is unschedulable: there is no placement for {_part_title(why.part)}{pod}:",
            *parts,
        ]
    what = "groups" if "/" in why.part else "pods"
    shortage = f"{_part_title(why.part)} needs {why.minimum} {what} at once, and fewer are there"
    return [f"pod group is unschedulable: {shortage}"]


def _part_title(name: str) -> str:
    """A group of a tree for messages."""
    above, _, name = name.rpartition("/")
    return f'{"composite " if above else ""}pod group "{name}"'


def _is_by_node_label(misfit: Misfit) -> bool:
    """Whether the domains are values of a node label, and not of a Topology object."""
    return not misfit.topology or misfit.topology.startswith(TOPOLOGIES)


def _no_domain(why: Rejection, misfit: Misfit) -> list[str]:
    """All pods must share one value of a node label, and no value has enough capacity."""
    if misfit.code is Code.NO_DOMAINS:
        return [f'pod group is unschedulable: no node that it may use has the label "{misfit.level}"']
    if misfit.code is Code.STALE_ASSIGNMENT:
        problem = f'they do not share a value of node label "{misfit.level}"'
        return [f"cannot determine domain for already scheduled pods: {problem}"]
    where = f", {misfit.nearest.domain[-1]}," if misfit.nearest is not None and misfit.nearest.domain else ""
    best = f'the best value of node label "{misfit.level}"{where} has room for'
    message = [f"pod group is unschedulable: {best} {misfit.fit} of {misfit.asked} pods:"]
    if why.filter_failure is None or not why.filter_failure.counts:  # each node fits a single pod
        return [message[0][:-1]]
    return [*message, unavailable(why.filter_failure, _preemption_result(why))]


def _preemption_result(why: Rejection) -> str:
    """The result of the search for preemption victims."""
    unfit = why.filter_failure
    if unfit is None or why.preemption in (
        PreemptionSearchOutcome.NOT_SEARCHED,
        PreemptionSearchOutcome.FOUND,
    ):
        return ""
    if why.preemption is PreemptionSearchOutcome.NOT_ALLOWED:
        return f"{NO_CLAIMS}, preemption: {NEVER_PREEMPTS}"
    if why.preemption is PreemptionSearchOutcome.PAUSED:
        return f"{NO_CLAIMS}, preemption: {PAUSED}"
    helpful = unfit.preemptible_nodes if why.preemption is PreemptionSearchOutcome.NO_CANDIDATES else 0
    counts = {NO_VICTIMS: helpful, NO_HELP: unfit.nodes - helpful}
    reasons = {text: count for text, count in counts.items() if count}
    return f"{NO_CLAIMS}, {preemption_message(unfit.nodes, reasons)}"
