"""Why a group waits, in the sentences that users of this family know, and for what upstream only logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from bayplan.dialects.kai.api.gang_tree import DEFAULT, unknown_level
from bayplan.dialects.kai.api.names import POD_GROUP
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.queues import way_up
from bayplan.dialects.kai.api.wire import shown_topology
from bayplan.dialects.kube.encode.fault_messages import (
    INTERNAL_ERROR,
    OUT_OF_TIME,
    internal_error,
    out_of_time,
)
from bayplan.dialects.kube.encode.filter_messages import unavailable
from bayplan.dialects.kube.fields.quantity import spelled
from bayplan.model.assignment import Code, DomainFit, Lack, Misfit
from bayplan.model.gang import Group, Ref
from bayplan.model.scheduling_rejection import RejectionReason, SchedulingRejection

UNSCHEDULABLE = "Unschedulable"
SCHEDULING_ERRORS = "PodSchedulingErrors"
OVER_LIMIT = "OverLimit"
NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
NO_QUEUE = "QueueDoesNotExist"
NO_PARENT = "ParentQueueDoesNotExist"
CIRCLE = "ParentQueuesInCircle"
CONDITION = "UnschedulableOnNodePool"

NOT_ENOUGH = "Not enough resources for the workload"
UNABLE = "Unable to schedule podgroup"
NOT_GROUPED = "it waits to be put into a pod group"
NOT_DECIDED = "the search for a place ran out of time; one may exist all the same"

_RESOURCES = {"nvidia.com/gpu": "GPUs", "cpu": "CPU cores", "memory": "memory"}
_SLICE = "nvidia.com/mig-"  # of a GPU
_ALL_OF_IT = "root"
_WAITS = "Until that is mended, its pod groups wait"
NO_PARENTS: Mapping[str, str] = MappingProxyType({})
QUEUES_TOLD = 5


_REASONS = {
    RejectionReason.NO_QUEUE: NO_QUEUE,
    RejectionReason.OVER_LIMIT: OVER_LIMIT,
    RejectionReason.OVER_QUOTA: NON_PREEMPTIBLE_OVER_QUOTA,
    RejectionReason.INTERNAL: INTERNAL_ERROR,
    RejectionReason.OUT_OF_TIME: OUT_OF_TIME,
}


def reason(why: SchedulingRejection) -> str:
    """The word for machines."""
    return _REASONS.get(why.hindrance, SCHEDULING_ERRORS if why.hindrance.was_tried else UNSCHEDULABLE)


def told_of(
    why: SchedulingRejection, gang: Ref, group: PodGroup | None, tree: Group | None,
    parents: Mapping[str, str] = NO_PARENTS,
) -> str:  # fmt: skip
    """What stands on a group and its pods; its object may be gone. Topologies are told by their names.

    `parents` has the queue above each queue that there is.
    """
    if gang.kind != POD_GROUP.kind and why.hindrance is RejectionReason.NO_CHARTER:
        return NOT_GROUPED
    group = group or PodGroup(gang.name, gang.namespace)
    if why.hindrance is RejectionReason.NO_QUEUE:
        return unusable_queue(group.queue or why.about, parents)
    parts = {one.name: one for one in tree.pod_sets()} if tree is not None else {}
    alone = why.misfit.pod_sets if why.misfit is not None and len(why.misfit.pod_sets) == 1 else ("",)
    sub_group = why.part or alone[0]
    sub_group = "" if sub_group == DEFAULT else sub_group
    if sub_group in parts and why.hindrance.was_tried:
        why = replace(why, minimum=parts[sub_group].minimum)
    if why.misfit is not None:
        why = replace(why, misfit=replace(why.misfit, topology=shown_topology(why.misfit.topology)))
    return told(why, group, sub_group)


def told(why: SchedulingRejection, group: PodGroup, sub_group: str = "") -> str:
    """What stands on a group that waits; the sub-group is the one that has too few places, if it is one."""
    match why.hindrance:
        case RejectionReason.NO_CHARTER:
            return f"{UNABLE}: pod group {group.namespace}/{group.name} does not exist"
        case RejectionReason.NO_GROUP:
            return f"{UNABLE}: it has no sub-group {why.about or sub_group}"
        case RejectionReason.TOO_FEW:
            whose = f" of sub-group {sub_group}" if sub_group else ""
            there = f"{why.there} pods{whose} are there while {why.minimum} are required"
            return f"{UNABLE}: {there} for gang scheduling"
        case RejectionReason.GATED:
            held = f", such as {why.pod}" if why.pod is not None else ""
            return f"{UNABLE}: pods of it are held back by scheduling gates{held}"
        case RejectionReason.FLAWED:
            return why.about or f"{UNABLE}: what it asks for contradicts itself"
        case RejectionReason.OVER_LIMIT | RejectionReason.OVER_QUOTA:
            return _too_much(why, group)
        case RejectionReason.MAKING_ROOM:
            return f"{why.displaced} pods are on their way out to make room for it"
        case RejectionReason.KEPT_FREE:
            return f"{NOT_ENOUGH}: there is room, but it is kept free for one that has waited longer"
        case RejectionReason.TAKEN_BACK:
            return (
                f"{why.fit} of {why.minimum} pods had a place, which is too few for gang scheduling: "
                "they were taken back after the grace period"
            )
        case RejectionReason.INTERNAL:
            return internal_error(f"pod group {group.namespace}/{group.name}", why.about)
        case RejectionReason.OUT_OF_TIME:
            known = why.misfit is not None or why.unfit is not None
            so_far = _no_room(why, group, sub_group) if known else ""
            return out_of_time(f"pod group {group.namespace}/{group.name}", why.about, so_far)
        case _:
            return _no_room(why, group, sub_group)


def _too_much(why: SchedulingRejection, group: PodGroup) -> str:
    excess = why.excess
    if excess is None:
        return f"{UNABLE}: queue {group.queue} has all it may have"
    numbers = (excess.bound, Fraction(excess.used), Fraction(excess.asked))
    bound, used, asked = (_number(excess.resource, number) for number in numbers)
    sentence = over_limit if why.hindrance is RejectionReason.OVER_LIMIT else over_quota
    return sentence(excess.queue, excess.resource, bound, used, asked)


def _no_room(why: SchedulingRejection, group: PodGroup, sub_group: str) -> str:
    if why.misfit is not None and _is_told_by_domain(why.misfit):
        return _in_no_domain(why.misfit, group, sub_group)
    if why.misfit is not None and why.misfit.lacking and not why.misfit.is_too_large:
        return _in_none_of_many(why.misfit, group, sub_group)
    details = _details(why, group, sub_group)
    enough = why.minimum <= 1 or (not sub_group and why.fit >= why.minimum)  # only one beyond has no place
    if why.pod is not None and enough:
        return f"Resources were not found for pod {why.pod} due to: {details}"
    if sub_group:
        return (
            f"Resources were found for {why.fit} pods from all sub-groups while sub-group {sub_group} "
            f"requires {why.minimum} pods for gang scheduling. Additional pods cannot be scheduled in this "
            f"sub-group due to: {details}"
        )
    return (
        f"Resources were found for {why.fit} pods while {why.minimum} are required for gang scheduling. "
        f"Additional pods cannot be scheduled due to: {details}"
    )


def _details(why: SchedulingRejection, group: PodGroup, sub_group: str) -> str:
    if why.misfit is not None:
        return misfit(why.misfit, group, sub_group)
    if why.unfit is not None:
        others = why.unfit.bar is None and sum(why.unfit.counts.values()) < why.unfit.nodes
        elsewhere = "The others are not where its group has to be." if others and group.topologies() else ""
        return unavailable(why.unfit, elsewhere)
    return NOT_ENOUGH


# ── topology ───────────────────────────────────────────────────────────────────────────────────────


def misfit(found: Misfit, group: PodGroup, sub_group: str = "") -> str:
    """Why there is no domain for a group or a sub-group."""
    match found.code:
        case Code.NO_ROOM:
            return _no_domain(found, group, sub_group)
        case Code.NO_DOMAINS:
            return _no_node_in(found, group, sub_group)
        case Code.UNKNOWN_LEVEL | Code.UNKNOWN_SEGMENT_LEVEL | Code.UNKNOWN_INNER_LEVEL:
            who = f"sub-group {sub_group}" if sub_group else f"workload {group.name}"
            return unknown_level(found.topology, found.level, "required", who)
        case Code.SEGMENT_ABOVE_LOCALITY:
            return (
                f"topology constraint error: segments within one '{found.level}' cannot stay within one "
                f"'{found.other_level}', which is narrower"
            )
        case Code.NOT_DECIDED:
            return f"{NOT_ENOUGH}: {NOT_DECIDED}"
        case _:
            return f"{NOT_ENOUGH}: {found.code.value.replace('_', ' ')}"


def _is_told_by_domain(found: Misfit) -> bool:
    """Whether each domain is too small by itself, though not all of them together."""
    asked = found.asked * found.unit
    return bool(found.holds) and not found.is_too_large and all(one.fit < asked for one in found.holds)


def _in_no_domain(found: Misfit, group: PodGroup, sub_group: str) -> str:
    """What each domain holds or lacks, line by line."""
    part = f"subgroup {sub_group}: " if sub_group else ""
    asked = found.asked * found.unit
    lines = [f"<{'.'.join(one.domain)}>: {part}{_too_small(one, asked)}." for one in found.holds]
    job = f"{group.namespace}/{group.name}"
    return "\n".join([f"{UNABLE}.", *lines, f"{unsatisfied(found.topology, found.level, job, sub_group)}."])


def _in_none_of_many(found: Misfit, group: PodGroup, sub_group: str) -> str:
    """How many domains lack what."""
    lacks = {lacking_in_short(resource): count for resource, count in found.lacking}
    sentence = unsatisfied(found.topology, found.level, f"{group.namespace}/{group.name}", sub_group)
    return f"{UNABLE}: {counted({**lacks, sentence: 1})}."


def _too_small(one: DomainFit, asked: int) -> str:
    """Pods are counted if they are alike. Else it is told what is too little for all of them in total."""
    where = ".".join(one.domain)
    return ", ".join(lacking(where, lack) for lack in one.lacks) or too_few(where, one.fit, asked)


def _no_domain(found: Misfit, group: PodGroup, sub_group: str) -> str:
    near = found.nearest
    where = ".".join(near.domain) if near is not None and near.domain else ""
    among = "" if found.is_too_large else where
    sentence = unsatisfied(found.topology, found.level, f"{group.namespace}/{group.name}", sub_group, among)
    if near is None or not where:
        return sentence
    return f"{sentence}. {_too_small(DomainFit(near.domain, near.fit, near.lacks), near.fit + near.short)}"


def _no_node_in(found: Misfit, group: PodGroup, sub_group: str) -> str:
    """Not one node is in the topology."""
    sentence = unsatisfied(found.topology, found.level, f"{group.namespace}/{group.name}", sub_group)
    if not found.unlabelled:
        return (
            f"{sentence}: no node has the labels of all levels of topology {found.topology} at once. "
            "Label the nodes (kubectl label node), or name another topology"
        )
    labels = f"{'labels' if len(found.unlabelled) > 1 else 'label'} {', '.join(found.unlabelled)}"
    return (
        f"{sentence}: no node has the {labels}, and only nodes with the labels of all levels are in topology "
        f"{found.topology}. Label the nodes (kubectl label node), or name another topology"
    )


def unsatisfied(topology: str, level: str, job: str, sub_group: str = "", domain: str | None = None) -> str:
    """No domain of a level holds what is asked; the one given came closest, empty for the cluster."""
    part = f", subgroup {sub_group}" if sub_group else ""
    sentence = f"topology {topology}, requirement {level} couldn't be satisfied for job <{job}>{part}"
    if domain is None:
        return sentence
    where = domain if domain and domain != _ALL_OF_IT else "the cluster"
    return f"{sentence}: not enough resources in {where} to allocate the job"


def too_few(domain: str, fit: int, asked: int) -> str:
    """A domain that holds some of the pods."""
    return f"node-group {domain} can allocate only {fit} of {asked} required pods"


def lacking(domain: str, lack: Lack) -> str:
    """A domain that has too little of something."""
    noun = "resources" if lack.resource in ("cpu", "memory") else "resource"
    asked, free = (_number(lack.resource, Fraction(amount)) for amount in (lack.asked, lack.free))
    what = _RESOURCES.get(lack.resource, lack.resource)
    return f"{domain} didn't have enough {noun}: {what}, requested: {asked}, available: {free}"


def lacking_in_short(resource: str) -> str:
    """The same for many domains."""
    if resource.startswith(_SLICE):
        return f"node-group(s) didn't have enough of mig profile: {resource}"
    return f"node-group(s) didn't have enough resources: {_RESOURCES.get(resource, resource)}"


def no_levels(sub_group: str, topology: str) -> str:
    """A constraint that names a topology and nothing in it."""
    return f"no topology constraints were found for subgroup {sub_group}, with topology name {topology}"


# ── queues ─────────────────────────────────────────────────────────────────────────────────────────


def unusable_queue(name: str, parents: Mapping[str, str]) -> str:
    """A queue that groups cannot be in: it is not there, or holds other queues, or leads to no top."""
    if name not in parents:
        return f"Queue '{name}' does not exist: create it, or let spec.queue of the pod group name another"
    inside = sorted(one for one, above in parents.items() if above == name and one != name)
    fault = queue_fault(name, parents)
    if fault is not None or not inside:
        return fault[1] if fault is not None else f"Queue '{name}' was not there a moment ago"
    named = ", ".join(inside[:QUEUES_TOLD]) + (", …" if len(inside) > QUEUES_TOLD else "")
    return (
        f"Queue '{name}' takes no pod groups, because it holds other queues: let spec.queue of the pod group "
        f"name one of those ({named})"
    )


def queue_fault(name: str, parents: Mapping[str, str]) -> tuple[str, str] | None:
    """Why a queue has no place in the tree: a word for machines and a sentence; None if it has one."""
    *way, last = way_up(name, parents)
    if last in way:
        circle = [*way[way.index(last) :], last]
        whose, where = (
            f"The parents of queue '{name}' go round in a circle: {' → '.join(circle)}",
            "one of these",
        )
        if len(circle) == 2:
            below = f", and queue '{name}' is below it" if name != last else ""
            whose, where = f"Queue '{last}' is its own parent{below}", f"'{last}'"
        return CIRCLE, f"{whose}. {_WAITS}: take spec.parentQueue away from {where}, or name another there"
    if last in parents:
        return None
    below = way[-1]
    whose = f"queue '{below}'" if below == name else f"queue '{below}', which '{name}' is below,"
    return NO_PARENT, (
        f"The parent '{last}' of {whose} does not exist. {_WAITS}: create queue '{last}', or change "
        f"spec.parentQueue of '{below}'"
    )


def queue_details(why: SchedulingRejection) -> dict[str, Any]:
    """The same facts for machines; nothing if no queue has too much."""
    excess = why.excess
    if excess is None:
        return {}

    def amount(number: int) -> dict[str, str]:
        return {excess.resource: spelled(excess.resource, number)}

    limited = why.hindrance is RejectionReason.OVER_LIMIT
    bound, used = (
        ("queueResourceLimits", "queueAllocatedResources")
        if limited
        else ("queueDeservedResources", "queueAllocatedNonPreemptibleResources")
    )
    found = {bound: amount(int(excess.bound)), used: amount(excess.used)}
    return {"name": excess.queue, **found, "podGroupRequestedResources": amount(excess.asked)}


def over_limit(queue: str, resource: str, limit: str, used: str, asked: str) -> str:
    """A queue that has all it may have."""
    what = _RESOURCES.get(resource, resource)
    return (
        f"{queue} quota has reached the allowable limit of {what}. Limit is {limit} {what}, currently "
        f"{used} {what} allocated and workload requested {asked} {what}"
    )


def over_quota(queue: str, resource: str, quota: str, used: str, asked: str) -> str:
    """A group that nobody may displace, and which would therefore need quota."""
    what = _RESOURCES.get(resource, resource)
    return (
        f"Non-preemptible workload is over quota. Workload requested {asked} {what}, but {queue} quota is "
        f"{quota} {what}, while {used} {what} are already allocated for non-preemptible pods. "
        "Use a preemptible workload to go over quota."
    )


def counted(refusals: Mapping[str, int]) -> str:
    """Short reasons with how many domains or nodes they hold for, if they hold for several."""
    told = (f"{count} {reason}" if count > 1 else reason for reason, count in refusals.items())
    return ". \n".join(sorted(told))


def _number(resource: str, amount: Fraction) -> str:
    """CPU is counted in thousandths and told in cores, memory in gigabytes."""
    scale = {"cpu": 1000, "memory": 10**9}.get(resource, 1)
    return f"{float(amount / scale):.3f}".rstrip("0").rstrip(".")
