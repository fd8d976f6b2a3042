"""What can be done for a group that waits; beside the sentences of its status, which users know."""

from __future__ import annotations

from bayplan.dialects.kai.api.names import SEGMENT_SIZE, SUB_GROUP_NAME
from bayplan.dialects.kai.api.pod_group import PodGroup
from bayplan.dialects.kai.api.queues import CPU, GPU, MEMORY
from bayplan.model.assignment import Code, Misfit
from bayplan.model.scheduling_rejection import QuotaExcess, RejectionReason, SchedulingRejection

_FIELDS = {CPU: "cpu", MEMORY: "memory", GPU: "gpu"}
"""What a resource is called in a Queue."""
_BY_ITSELF = "nothing: it is tried again by itself"


def advice(why: SchedulingRejection, group: PodGroup | None) -> str:
    """One line for people; empty if the sentence in the status says it."""
    match why.hindrance:
        case RejectionReason.NO_CHARTER:
            return "create the PodGroup that its pods name, or run the role grouper, which makes them"
        case RejectionReason.NO_GROUP:
            return f"add the sub-group to the PodGroup, or correct the label {SUB_GROUP_NAME} of the pod"
        case RejectionReason.TOO_FEW:
            return "see why what makes its pods has not made more, or lower minMember"
        case RejectionReason.GATED:
            return "see who set spec.schedulingGates of its pods: whoever did takes them away"
        case RejectionReason.FLAWED:
            return _correct(why.about, group)
        case RejectionReason.OVER_LIMIT | RejectionReason.OVER_QUOTA if why.excess is not None:
            return _less_or_more(why.excess, why.hindrance)
        case RejectionReason.MAKING_ROOM | RejectionReason.KEPT_FREE | RejectionReason.TAKEN_BACK:
            return _BY_ITSELF
        case RejectionReason.INTERNAL:
            return f"search the log of bayplan for {why.about}, and report the error; it is tried again"
        case RejectionReason.OUT_OF_TIME:
            return "nothing, as it is tried again; if that goes on, raise decisionSeconds or ask for less"
        case RejectionReason.NO_ROOM:
            return _room(why)
        case _:
            return ""


def _correct(flaw: str, group: PodGroup | None) -> str:
    what = (
        f"set {SEGMENT_SIZE} to a whole number above 0" if "invalid segment size" in flaw else "correct that"
    )
    return f"{what} in {_origin(group)}; it is looked at again as soon as it changes"


def _origin(group: PodGroup | None) -> str:
    """Where somebody wrote what a group says: it may have been made for another object."""
    if group is None or not group.owner.name:
        return "the PodGroup"
    owner = f"{group.owner.kind} {group.namespace}/{group.owner.name}"
    return f"{owner}, which the group was made for, or make that anew"


def _less_or_more(excess: QuotaExcess, hindrance: RejectionReason) -> str:
    what = "limit" if hindrance is RejectionReason.OVER_LIMIT else "quota"
    field = f"spec.resources.{_FIELDS.get(excess.resource, excess.resource)}.{what} of queue {excess.queue}"
    if excess.asked > excess.bound:
        return f"raise {field}, or ask for less: it asks for more than all of that"
    return f"wait until others in queue {excess.queue} end, or raise {field}, or ask for less"


def _room(why: SchedulingRejection) -> str:
    misfit = why.misfit
    if misfit is not None and misfit.code in (Code.NO_DOMAINS, Code.UNKNOWN_LEVEL):
        return ""
    if misfit is not None and misfit.level:
        return f"wait until {_needed(misfit)}, or require a wider level, or ask for fewer or smaller pods"
    return "wait until others end, or add nodes, or ask for fewer or smaller pods"


def _needed(misfit: Misfit) -> str:
    pods = misfit.unit if misfit.unit > 1 else misfit.asked
    each = "each segment finds one" if misfit.unit > 1 else "there is one"
    return f"{each} {misfit.level} with room for {pods} pods"
