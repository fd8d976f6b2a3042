"""Advice for people whose PodGroup is pending; it complements the upstream messages in the status."""

from __future__ import annotations

from bayplan.dialects.kai.api.names import SEGMENT_SIZE, SUB_GROUP_NAME
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.queues import CPU, GPU, MEMORY
from bayplan.model.assignment import Code, Misfit
from bayplan.model.rejection import QuotaExcess, Rejection, RejectionReason

_FIELDS = {CPU: "cpu", MEMORY: "memory", GPU: "gpu"}
"""The name of a resource in a Queue."""
_AUTOMATIC = "nothing: it is retried automatically"


def advice(why: Rejection, group: PodGroup | None) -> str:
    """One line of advice; empty if the message in the status is sufficient."""
    match why.reason:
        case RejectionReason.NO_SPEC:
            return "create the PodGroup that its pods name, or run the role grouper, which creates PodGroups"
        case RejectionReason.NO_GROUP:
            return f"add the sub-group to the PodGroup, or correct the label {SUB_GROUP_NAME} of the pod"
        case RejectionReason.TOO_FEW:
            return "check why the controller of its pods has not created more, or lower minMember"
        case RejectionReason.GATED:
            return "check which controller set spec.schedulingGates of its pods: it has to remove them"
        case RejectionReason.INVALID:
            return _correct(why.about, group)
        case RejectionReason.UNSUPPORTED:
            return "change its pods, or name a scheduler that supports what they ask for"
        case RejectionReason.OVER_LIMIT | RejectionReason.OVER_QUOTA if why.excess is not None:
            return _over_quota(why.excess, why.reason)
        case (
            RejectionReason.PREEMPTING
            | RejectionReason.RESERVED
            | RejectionReason.NODE_TAKEN
            | RejectionReason.HELD_BACK
            | RejectionReason.UNDONE
        ):
            return _AUTOMATIC
        case RejectionReason.INTERNAL:
            return f"search the Bayplan log for {why.about}, and report the error; the group is retried"
        case RejectionReason.OUT_OF_TIME:
            return "nothing, it is retried; if this persists, raise decisionSeconds or request less"
        case RejectionReason.NO_CAPACITY:
            return _capacity(why)
        case _:
            return ""


def _correct(flaw: str, group: PodGroup | None) -> str:
    what = (
        f"set {SEGMENT_SIZE} to a whole number above 0" if "invalid segment size" in flaw else "correct that"
    )
    return f"{what} in {_origin(group)}; the group is retried when that changes"


def _origin(group: PodGroup | None) -> str:
    """The object in which the spec of a PodGroup was written: its owner, if it has one."""
    if group is None or not group.owner.name:
        return "the PodGroup"
    owner = f"{group.owner.kind} {group.namespace}/{group.owner.name}"
    return f"{owner}, which the group was created for, or recreate that"


def _over_quota(excess: QuotaExcess, reason: RejectionReason) -> str:
    what = "limit" if reason is RejectionReason.OVER_LIMIT else "quota"
    field = f"spec.resources.{_FIELDS.get(excess.resource, excess.resource)}.{what} of queue {excess.queue}"
    if excess.asked > excess.bound:
        return f"raise {field}, or request less: the request is larger than the whole {what}"
    return f"wait until other groups in queue {excess.queue} finish, or raise {field}, or request less"


def _capacity(why: Rejection) -> str:
    misfit = why.misfit
    if misfit is not None and misfit.code in (Code.NO_DOMAINS, Code.UNKNOWN_LEVEL):
        return ""
    if misfit is not None and misfit.level:
        return (
            f"wait until {_domain_needed(misfit)}, or require a wider level, or request fewer or smaller pods"
        )
    return "wait until other pods finish, or add nodes, or request fewer or smaller pods"


def _domain_needed(misfit: Misfit) -> str:
    pods = misfit.unit if misfit.unit > 1 else misfit.asked
    each = "each segment has one" if misfit.unit > 1 else "there is one"
    return f"{each} {misfit.level} with capacity for {pods} pods"
