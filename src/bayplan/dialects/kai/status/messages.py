"""Why a PodGroup is pending: the upstream KAI messages, and our own for what KAI only logs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from types import MappingProxyType
from typing import Any

from bayplan.dialects.kai.api.gang_tree import DEFAULT, unknown_level
from bayplan.dialects.kai.api.names import POD_GROUP
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.queues import ancestors
from bayplan.dialects.kai.api.wire import shown_topology
from bayplan.dialects.kube.encode.fault_messages import (
    INTERNAL_ERROR,
    OUT_OF_TIME,
    because_of_others,
    internal_error,
    out_of_time,
    unsupported,
)
from bayplan.dialects.kube.encode.filter_messages import unavailable
from bayplan.dialects.kube.fields.quantity import formatted
from bayplan.model.assignment import Code, DomainFit, Lack, Misfit
from bayplan.model.gang import Group, Ref
from bayplan.model.quota import QUEUE_DEPTH_MAX
from bayplan.model.rejection import Rejection, RejectionReason

UNSCHEDULABLE = "Unschedulable"
SCHEDULING_ERRORS = "PodSchedulingErrors"
OVER_LIMIT = "OverLimit"
NON_PREEMPTIBLE_OVER_QUOTA = "NonPreemptibleOverQuota"
NO_QUEUE = "QueueDoesNotExist"
NO_PARENT = "ParentQueueDoesNotExist"
IN_CYCLE = "ParentQueuesInCircle"
TOO_DEEP = "ParentQueuesTooDeep"
CONDITION = "UnschedulableOnNodePool"

NOT_ENOUGH = "Not enough resources for the workload"
UNABLE = "Unable to schedule podgroup"
NOT_GROUPED = "the pod is waiting for the pod grouper to create its pod group"
NOT_DECIDED = "the search for a placement ran out of time; a placement may still exist"

_RESOURCES = {"nvidia.com/gpu": "GPUs", "cpu": "CPU cores", "memory": "memory"}
_MIG_PROFILE = "nvidia.com/mig-"
_ROOT = "root"
_STAY_PENDING = "Until this is fixed, its pod groups stay pending"
NO_PARENTS: Mapping[str, str] = MappingProxyType({})
QUEUES_SHOWN = 5


_REASONS = {
    RejectionReason.NO_QUEUE: NO_QUEUE,
    RejectionReason.OVER_LIMIT: OVER_LIMIT,
    RejectionReason.OVER_QUOTA: NON_PREEMPTIBLE_OVER_QUOTA,
    RejectionReason.INTERNAL: INTERNAL_ERROR,
    RejectionReason.OUT_OF_TIME: OUT_OF_TIME,
}


def reason(why: Rejection) -> str:
    """The condition reason."""
    return _REASONS.get(why.reason, SCHEDULING_ERRORS if why.reason.was_tried else UNSCHEDULABLE)


def message_for(
    why: Rejection, gang: Ref, group: PodGroup | None, tree: Group | None,
    parents: Mapping[str, str] = NO_PARENTS,
) -> str:  # fmt: skip
    """The message on a PodGroup and its pods; the PodGroup may have been deleted.

    Topologies appear under the names of their objects. `parents` has the parent of each existing queue.
    """
    if gang.kind != POD_GROUP.kind and why.reason is RejectionReason.NO_SPEC:
        return NOT_GROUPED
    group = group or PodGroup(gang.name, gang.namespace)
    if why.reason is RejectionReason.NO_QUEUE:
        return unusable_queue(group.queue or why.about, parents)
    pod_sets = {one.name: one for one in tree.pod_sets()} if tree is not None else {}
    misfit_pod_set = (
        why.misfit.pod_sets if why.misfit is not None and len(why.misfit.pod_sets) == 1 else ("",)
    )
    sub_group = why.part or misfit_pod_set[0]
    sub_group = "" if sub_group == DEFAULT else sub_group
    if sub_group in pod_sets and why.reason.was_tried:
        why = replace(why, minimum=pod_sets[sub_group].minimum)
    if why.misfit is not None:
        why = replace(why, misfit=replace(why.misfit, topology=shown_topology(why.misfit.topology)))
    return group_message(why, group, sub_group)


def group_message(why: Rejection, group: PodGroup, sub_group: str = "") -> str:
    """The message on a pending PodGroup; `sub_group` is the one that has too few nodes, if it is known."""
    match why.reason:
        case RejectionReason.NO_SPEC:
            return f"{UNABLE}: pod group {group.namespace}/{group.name} does not exist"
        case RejectionReason.NO_GROUP:
            return f"{UNABLE}: it has no sub-group {why.about or sub_group}"
        case RejectionReason.TOO_FEW:
            part = f" of sub-group {sub_group}" if sub_group else ""
            counts = f"{why.existing} pods{part} are there while {why.minimum} are required"
            return f"{UNABLE}: {counts} for gang scheduling"
        case RejectionReason.GATED:
            example = f", such as {why.pod}" if why.pod is not None else ""
            return f"{UNABLE}: some of its pods have scheduling gates{example}"
        case RejectionReason.INVALID:
            return why.about or f"{UNABLE}: its spec is contradictory"
        case RejectionReason.UNSUPPORTED:
            return f"{UNABLE}: {unsupported(why.pod, why.about)}"
        case RejectionReason.OVER_LIMIT | RejectionReason.OVER_QUOTA:
            return _over_limit_or_quota(why, group)
        case RejectionReason.PREEMPTING:
            return f"{why.victims} pods are terminating to make room for it"
        case RejectionReason.RESERVED:
            return f"{NOT_ENOUGH}: free capacity is reserved for a pod group that has been pending longer"
        case RejectionReason.NODE_TAKEN | RejectionReason.HELD_BACK:
            return because_of_others(why)
        case RejectionReason.UNDONE:
            return (
                f"{why.fit} of {why.minimum} pods were scheduled, which is too few for gang scheduling: "
                "they were evicted after the grace period"
            )
        case RejectionReason.INTERNAL:
            return internal_error(f"pod group {group.namespace}/{group.name}", why.about)
        case RejectionReason.OUT_OF_TIME:
            known = why.misfit is not None or why.filter_failure is not None
            so_far = _no_room(why, group, sub_group) if known else ""
            return out_of_time(f"pod group {group.namespace}/{group.name}", why.about, so_far)
        case _:
            return _no_room(why, group, sub_group)


def _over_limit_or_quota(why: Rejection, group: PodGroup) -> str:
    excess = why.excess
    if excess is None:
        return f"{UNABLE}: queue {group.queue} has reached its limit"
    numbers = (excess.bound, Fraction(excess.used), Fraction(excess.asked))
    bound, used, asked = (_number(excess.resource, number) for number in numbers)
    sentence = over_limit if why.reason is RejectionReason.OVER_LIMIT else over_quota
    return sentence(excess.queue, excess.resource, bound, used, asked)


def _no_room(why: Rejection, group: PodGroup, sub_group: str) -> str:
    if why.misfit is not None and _every_domain_is_too_small(why.misfit):
        return _by_domain(why.misfit, group, sub_group)
    if why.misfit is not None and why.misfit.lacking and not why.misfit.is_too_large:
        return _by_shortage(why.misfit, group, sub_group)
    details = _details(why, group, sub_group)
    # If the minimum fits, the message is about the pod beyond it.
    enough = why.minimum <= 1 or (not sub_group and why.fit >= why.minimum)
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


def _details(why: Rejection, group: PodGroup, sub_group: str) -> str:
    if why.misfit is not None:
        return misfit(why.misfit, group, sub_group)
    if why.filter_failure is not None:
        has_more_nodes = (
            why.filter_failure.error is None
            and sum(why.filter_failure.counts.values()) < why.filter_failure.nodes
        )
        outside = (
            "The remaining nodes are outside the topology domain of its group."
            if has_more_nodes and group.topologies()
            else ""
        )
        return unavailable(why.filter_failure, outside)
    return NOT_ENOUGH


# ── topology ───────────────────────────────────────────────────────────────────────────────────────


def misfit(failure: Misfit, group: PodGroup, sub_group: str = "") -> str:
    """Why no domain fits a PodGroup or sub-group."""
    match failure.code:
        case Code.NO_ROOM:
            return _no_domain(failure, group, sub_group)
        case Code.NO_DOMAINS:
            return _no_node_in(failure, group, sub_group)
        case Code.UNKNOWN_LEVEL | Code.UNKNOWN_SEGMENT_LEVEL | Code.UNKNOWN_INNER_LEVEL:
            subject = f"sub-group {sub_group}" if sub_group else f"workload {group.name}"
            return unknown_level(failure.topology, failure.level, "required", subject)
        case Code.SEGMENT_ABOVE_LOCALITY:
            return (
                f"topology constraint error: segments within one '{failure.level}' cannot stay within one "
                f"'{failure.other_level}', which is narrower"
            )
        case Code.NOT_DECIDED:
            return f"{NOT_ENOUGH}: {NOT_DECIDED}"
        case _:
            return f"{NOT_ENOUGH}: {failure.code.value.replace('_', ' ')}"


def _every_domain_is_too_small(failure: Misfit) -> bool:
    """Whether each domain by itself is too small, though not the cluster as a whole."""
    asked = failure.asked * failure.unit
    return (
        bool(failure.domains) and not failure.is_too_large and all(one.fit < asked for one in failure.domains)
    )


def _by_domain(failure: Misfit, group: PodGroup, sub_group: str) -> str:
    """The message with what each domain holds or lacks, line by line."""
    part = f"subgroup {sub_group}: " if sub_group else ""
    asked = failure.asked * failure.unit
    lines = [f"<{'.'.join(one.domain)}>: {part}{_too_small(one, asked)}." for one in failure.domains]
    job = f"{group.namespace}/{group.name}"
    sentence = unsatisfied(failure.topology, failure.level, job, sub_group)
    return "\n".join([f"{UNABLE}.", *lines, f"{sentence}."])


def _by_shortage(failure: Misfit, group: PodGroup, sub_group: str) -> str:
    """The message with the number of domains that lack each resource."""
    lacks = {lacking_in_short(resource): count for resource, count in failure.lacking}
    sentence = unsatisfied(failure.topology, failure.level, f"{group.namespace}/{group.name}", sub_group)
    return f"{UNABLE}: {counted({**lacks, sentence: 1})}."


def _too_small(one: DomainFit, asked: int) -> str:
    """Why one domain is too small: resources missing in total, else the number of pods that fit."""
    name = ".".join(one.domain)
    return ", ".join(lacking(name, lack) for lack in one.lacks) or too_few(name, one.fit, asked)


def _no_domain(failure: Misfit, group: PodGroup, sub_group: str) -> str:
    nearest = failure.nearest
    name = ".".join(nearest.domain) if nearest is not None and nearest.domain else ""
    domain = "" if failure.is_too_large else name
    job = f"{group.namespace}/{group.name}"
    sentence = unsatisfied(failure.topology, failure.level, job, sub_group, domain)
    if nearest is None or not name:
        return sentence
    fit = DomainFit(nearest.domain, nearest.fit, nearest.lacks)
    return f"{sentence}. {_too_small(fit, nearest.fit + nearest.short)}"


def _no_node_in(failure: Misfit, group: PodGroup, sub_group: str) -> str:
    """The message if no node belongs to the topology."""
    sentence = unsatisfied(failure.topology, failure.level, f"{group.namespace}/{group.name}", sub_group)
    if not failure.unlabelled:
        return (
            f"{sentence}: no node has the labels of all levels of topology {failure.topology} at once. "
            "Label the nodes (kubectl label node), or name another topology"
        )
    labels = f"{'labels' if len(failure.unlabelled) > 1 else 'label'} {', '.join(failure.unlabelled)}"
    return (
        f"{sentence}: no node has the {labels}, and only nodes with the labels of all levels are in topology "
        f"{failure.topology}. Label the nodes (kubectl label node), or name another topology"
    )


def unsatisfied(topology: str, level: str, job: str, sub_group: str = "", domain: str | None = None) -> str:
    """No domain of a level has enough resources; `domain` is the nearest one, empty for the cluster."""
    part = f", subgroup {sub_group}" if sub_group else ""
    sentence = f"topology {topology}, requirement {level} couldn't be satisfied for job <{job}>{part}"
    if domain is None:
        return sentence
    where = domain if domain and domain != _ROOT else "the cluster"
    return f"{sentence}: not enough resources in {where} to allocate the job"


def too_few(domain: str, fit: int, asked: int) -> str:
    """A domain that holds only some of the pods."""
    return f"node-group {domain} can allocate only {fit} of {asked} required pods"


def lacking(domain: str, lack: Lack) -> str:
    """A domain that has too little of one resource."""
    noun = "resources" if lack.resource in ("cpu", "memory") else "resource"
    asked, free = (_number(lack.resource, Fraction(amount)) for amount in (lack.asked, lack.free))
    what = _RESOURCES.get(lack.resource, lack.resource)
    return f"{domain} didn't have enough {noun}: {what}, requested: {asked}, available: {free}"


def lacking_in_short(resource: str) -> str:
    """The same for a number of domains."""
    if resource.startswith(_MIG_PROFILE):
        return f"node-group(s) didn't have enough of mig profile: {resource}"
    return f"node-group(s) didn't have enough resources: {_RESOURCES.get(resource, resource)}"


def no_levels(sub_group: str, topology: str) -> str:
    """A constraint that names a topology but no level."""
    return f"no topology constraints were found for subgroup {sub_group}, with topology name {topology}"


# ── queues ─────────────────────────────────────────────────────────────────────────────────────────


def unusable_queue(name: str, parents: Mapping[str, str]) -> str:
    """Why a queue cannot hold PodGroups: it does not exist, has child queues, or has no path to a root."""
    if name not in parents:
        return (
            f"Queue '{name}' does not exist: create it, or set spec.queue of the pod group to another queue"
        )
    child_queues = sorted(one for one, above in parents.items() if above == name and one != name)
    fault = queue_fault(name, parents)
    if fault is not None or not child_queues:
        return fault[1] if fault is not None else f"Queue '{name}' did not exist at the last attempt"
    shown = ", ".join(child_queues[:QUEUES_SHOWN]) + (", …" if len(child_queues) > QUEUES_SHOWN else "")
    return (
        f"Queue '{name}' cannot hold pod groups, because it has child queues: set spec.queue of the pod "
        f"group to one of them ({shown})"
    )


def queue_fault(name: str, parents: Mapping[str, str]) -> tuple[str, str] | None:
    """Why a queue is not part of the queue tree: reason and message; None if it is."""
    *above, last = ancestors(name, parents)
    if last in above:
        cycle = [*above[above.index(last) :], last]
        problem, where = (
            f"The parents of queue '{name}' form a cycle: {' → '.join(cycle)}",
            "one of these",
        )
        if len(cycle) == 2:
            below = f", and queue '{name}' is below it" if name != last else ""
            problem, where = f"Queue '{last}' is its own parent{below}", f"'{last}'"
        return (
            IN_CYCLE,
            f"{problem}. {_STAY_PENDING}: remove spec.parentQueue of {where}, or set it to another queue",
        )
    if last in parents and len(above) < QUEUE_DEPTH_MAX:
        return None
    if last in parents:
        return TOO_DEEP, (
            f"Queue '{name}' is nested more than {QUEUE_DEPTH_MAX} levels deep. {_STAY_PENDING}: set "
            f"spec.parentQueue of it, or of a queue above it, to a queue nearer to the root"
        )
    below = above[-1]
    child = f"queue '{below}'" if below == name else f"queue '{below}', which '{name}' is below,"
    return NO_PARENT, (
        f"The parent '{last}' of {child} does not exist. {_STAY_PENDING}: create queue '{last}', or change "
        f"spec.parentQueue of '{below}'"
    )


def queue_details(why: Rejection) -> dict[str, Any]:
    """The queue details of the condition; empty if no queue is over its limit or quota."""
    excess = why.excess
    if excess is None:
        return {}

    def amount(number: int) -> dict[str, str]:
        return {excess.resource: formatted(excess.resource, number)}

    limited = why.reason is RejectionReason.OVER_LIMIT
    bound, used = (
        ("queueResourceLimits", "queueAllocatedResources")
        if limited
        else ("queueDeservedResources", "queueAllocatedNonPreemptibleResources")
    )
    bounds = {bound: amount(int(excess.bound)), used: amount(excess.used)}
    return {"name": excess.queue, **bounds, "podGroupRequestedResources": amount(excess.asked)}


def over_limit(queue: str, resource: str, limit: str, used: str, asked: str) -> str:
    """The message for a queue that reached its limit."""
    what = _RESOURCES.get(resource, resource)
    return (
        f"{queue} quota has reached the allowable limit of {what}. Limit is {limit} {what}, currently "
        f"{used} {what} allocated and workload requested {asked} {what}"
    )


def over_quota(queue: str, resource: str, quota: str, used: str, asked: str) -> str:
    """The message for a non-preemptible group, which must stay within the quota."""
    what = _RESOURCES.get(resource, resource)
    return (
        f"Non-preemptible workload is over quota. Workload requested {asked} {what}, but {queue} quota is "
        f"{quota} {what}, while {used} {what} are already allocated for non-preemptible pods. "
        "Use a preemptible workload to go over quota."
    )


def counted(reasons: Mapping[str, int]) -> str:
    """Short reasons with the number of domains or nodes, if it is more than one."""
    lines = (f"{count} {reason}" if count > 1 else reason for reason, count in reasons.items())
    return ". \n".join(sorted(lines))


def _number(resource: str, amount: Fraction) -> str:
    """An amount for people: CPU in cores, memory in gigabytes."""
    scale = {"cpu": 1000, "memory": 10**9}.get(resource, 1)
    return f"{float(amount / scale):.3f}".rstrip("0").rstrip(".")
