"""Why a gang or a pod waits, as sentences: first the words that Kubernetes users know, then what to do."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.dialects.kube.encode.fault_messages import (
    INTERNAL_ERROR,
    OUT_OF_TIME,
    internal_error,
    out_of_time,
)
from bayplan.dialects.kube.encode.filter_messages import (
    NEVER_PREEMPTS,
    NO_CLAIMS,
    NO_HELP,
    NO_VICTIMS,
    no_room_made,
    unavailable,
)
from bayplan.dialects.kube.encode.numa_messages import told as of_zones
from bayplan.dialects.kube.gang.composite_groups import TOPOLOGIES
from bayplan.dialects.kube.gang.objects import COMPOSITE, POD_GROUP, WORKLOAD
from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import Ref
from bayplan.model.scheduling_rejection import PreemptionSearchOutcome, RejectionReason, SchedulingRejection

UNSCHEDULABLE, WAITING, ERROR = "Unschedulable", "WaitingForGang", "SchedulerError"
UNSURE = (
    "A place may exist all the same: not every combination was tried, because its pods differ or depend on "
    "each other. Pods that are alike, without affinity or spread between them, are placed for certain."
)
FAULTS = {RejectionReason.INTERNAL: INTERNAL_ERROR, RejectionReason.OUT_OF_TIME: OUT_OF_TIME}
"""No node can help against these either."""
Sentence = Callable[[Misfit], str]


def reason(why: SchedulingRejection) -> str:
    """The word for machines. Only pods that more nodes may help are unschedulable: autoscalers act on it."""
    if why.hindrance in FAULTS:
        return FAULTS[why.hindrance]
    if why.hindrance is RejectionReason.FLAWED or _is_torn(why):
        return ERROR
    return UNSCHEDULABLE if why.hindrance.was_tried else WAITING


def _is_torn(why: SchedulingRejection) -> bool:
    """Whether pods of it stand apart that had to be together: no node can mend that."""
    return why.misfit is not None and why.misfit.code is Code.STALE_ASSIGNMENT


def told(why: SchedulingRejection, gang: Ref, of_misfit: Sentence) -> str:
    """What stands on a pod, and in its event."""
    match why.hindrance:
        case RejectionReason.NO_CHARTER:
            return _no_charter(gang)
        case RejectionReason.NO_GROUP:
            name, group = (*gang.name.split("/"), "")[:2]
            return f'pod group "{why.about or group}" doesn\'t exist for a workload "{name}"'
        case RejectionReason.TOO_FEW:
            if gang.kind == COMPOSITE:
                return _no_quorum(why, gang)
            there = f"{why.there} of {why.minimum} are there"
            return f"waiting for minCount pods from a gang to appear in scheduling queue: {there}"
        case RejectionReason.GATED:
            about = f", such as {why.pod.name}" if why.pod is not None else ""
            return f"waiting for pods of its gang that are held back by scheduling gates{about}"
        case RejectionReason.FLAWED:
            return why.about or "what it asks for contradicts itself"
        case RejectionReason.MAKING_ROOM:
            return _making_room(why, gang)
        case RejectionReason.KEPT_FREE:
            named = f", {why.about}," if why.about else ""
            return f"there is room, but it is kept free for one that has waited longer{named} and is larger"
        case RejectionReason.TAKEN_BACK:
            return (
                f"the gang could not be started whole: {why.fit} of {why.minimum} pods had a node, and were "
                "taken back so that others can use the room; it is tried again"
            )
        case RejectionReason.INTERNAL:
            return internal_error(_named(gang), why.about)
        case RejectionReason.OUT_OF_TIME:
            known = why.misfit is not None or why.unfit is not None
            return out_of_time(_named(gang), why.about, _no_room(why, gang, of_misfit) if known else "")
        case _:
            return _no_room(why, gang, of_misfit)


def _named(gang: Ref) -> str:
    return f"{gang.kind} {gang.namespace}/{gang.name}"


def _no_charter(gang: Ref) -> str:
    match gang.kind:
        case "Workload":
            name = gang.name.partition("/")[0]
            return f'waiting for pods\'s workload "{name}" to appear in scheduling queue: create it'
        case "PodGroup":
            return f'waiting for pods\'s pod group "{gang.name}" to appear in scheduling queue: create it'
        case "CompositePodGroup":
            return f'waiting for composite pod group "{gang.name}" to appear in scheduling queue: create it'
        case _:
            return f'waiting for {gang.kind} "{gang.name}", which is suspended, over or not there'


def _no_quorum(why: SchedulingRejection, gang: Ref) -> str:
    if "/" in why.part:
        lack = f"{_part(why.part)} has too few groups"
    else:
        lack = f"of {_part(why.part)}, {why.there} of {why.minimum} pods are there"
    return f'waiting for composite pod group "{gang.name}" tree to meet quorum: {lack}'


def _making_room(why: SchedulingRejection, gang: Ref) -> str:
    going = "1 pod is" if why.displaced == 1 else f"{why.displaced or 'other'} pods are"
    whose = "pod group is " if gang.kind in (POD_GROUP, COMPOSITE, WORKLOAD) else ""
    return f"{whose}waiting for preemption to complete: {going} on the way out"


def _no_room(why: SchedulingRejection, gang: Ref, of_misfit: Sentence) -> str:
    if why.misfit is not None and why.misfit.level and _is_of_labels(why.misfit):
        parts = _no_domain(why, why.misfit)
    elif why.misfit is not None:
        parts = [of_misfit(why.misfit)]
    elif why.unfit is not None:
        parts = [unavailable(why.unfit, _afterwards(why))]
    else:
        parts = ["no node was found"]
    named = f" (pod {why.pod.name})" if why.pod is not None else ""
    if gang.kind == COMPOSITE and why.part and why.misfit is None:
        parts = _no_place_for_part(why, named, parts)
    elif why.minimum > 1 and why.misfit is None:
        parts.insert(0, f"pod group is unschedulable: {why.fit} of {why.minimum} pods fit{named}:")
    if why.unfit is not None and why.unfit.unaligned is not None:
        parts[-1] = parts[-1].removesuffix(".") + "."
        parts.append(f"For example: {of_zones(why.unfit.unaligned)}.")
    if why.unsure:
        parts.append(UNSURE)
    return " ".join(parts)


def _no_place_for_part(why: SchedulingRejection, pod: str, parts: list[str]) -> list[str]:
    """One of the groups in a tree has no place; or it was not looked for, since too little of it is there."""
    if why.unfit is not None:
        return [f"pod group is unschedulable: there is no place for {_part(why.part)}{pod}:", *parts]
    what = "groups" if "/" in why.part else "pods"
    lack = f"{_part(why.part)} needs {why.minimum} {what} at once, and fewer are there"
    return [f"pod group is unschedulable: {lack}"]


def _part(name: str) -> str:
    """A group in a tree, in words."""
    above, _, name = name.rpartition("/")
    return f'{"composite " if above else ""}pod group "{name}"'


def _is_of_labels(misfit: Misfit) -> bool:
    """Whether domains are values of node labels, and nobody has defined a topology of them."""
    return not misfit.topology or misfit.topology.startswith(TOPOLOGIES)


def _no_domain(why: SchedulingRejection, misfit: Misfit) -> list[str]:
    """All pods are to share one value of a node label, and no value has room for them."""
    if misfit.code is Code.NO_DOMAINS:
        return [f'pod group is unschedulable: no node that it may use has the label "{misfit.level}"']
    if misfit.code is Code.STALE_ASSIGNMENT:
        apart = f'they do not share a value of node label "{misfit.level}"'
        return [f"cannot determine domain for already scheduled pods: {apart}"]
    where = f", {misfit.nearest.domain[-1]}," if misfit.nearest is not None and misfit.nearest.domain else ""
    best = f'the best value of node label "{misfit.level}"{where} has room for'
    told = [f"pod group is unschedulable: {best} {misfit.fit} of {misfit.asked} pods:"]
    if why.unfit is None or not why.unfit.counts:  # each node would take one alone
        return [told[0][:-1]]
    return [*told, unavailable(why.unfit, _afterwards(why))]


def _afterwards(why: SchedulingRejection) -> str:
    """What came of looking for others who could go."""
    unfit = why.unfit
    if unfit is None or why.sought in (PreemptionSearchOutcome.NOTHING, PreemptionSearchOutcome.FOUND):
        return ""
    if why.sought is PreemptionSearchOutcome.NEVER:
        return f"{NO_CLAIMS}, preemption: {NEVER_PREEMPTS}"
    helpful = unfit.curable if why.sought is PreemptionSearchOutcome.NOBODY else 0
    counts = {NO_VICTIMS: helpful, NO_HELP: unfit.nodes - helpful}
    reasons = {text: count for text, count in counts.items() if count}
    return f"{NO_CLAIMS}, {no_room_made(unfit.nodes, reasons)}"
