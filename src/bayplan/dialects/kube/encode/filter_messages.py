"""Why a pod fits on no node, in the messages of kube-scheduler."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.dialects.kube.encode.numa_messages import sentence as numa_reason
from bayplan.model.filter_failure import FilterFailure, FilterReason, Lack, PodError
from bayplan.model.node import PODS
from bayplan.model.numa import AlignmentTarget as ZoneCause

NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"
NO_HELP = "Preemption is not helpful for scheduling"
NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
PAUSED = "paused for up to five minutes, because several in a row got it no node."
NO_CLAIMS = "no new claims to deallocate"

_REASONS = {
    FilterReason.OUTSIDE: "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    FilterReason.CORDONED: "node(s) were unschedulable",
    FilterReason.OTHER_NODE: "node(s) didn't match the requested node name",
    FilterReason.TAINT: "node(s) had untolerated taint(s)",
    FilterReason.AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    FilterReason.PORT: "node(s) didn't have free ports for the requested pod ports",
    FilterReason.DISK: "node(s) had no available disk",
    FilterReason.CLAIM_IN_USE: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod"
    " access mode"
    " already in-use by another pod",
    FilterReason.ATTACHED: "node(s) exceed max volume count",
    FilterReason.VOLUME_NODE_AFFINITY: "node(s) didn't match PersistentVolume's node affinity",
    FilterReason.NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    FilterReason.NO_STORAGE_CAPACITY: "node(s) did not have enough free storage",
    FilterReason.VOLUME_GONE: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    FilterReason.VOLUME_ZONE: "node(s) had no available volume zone",
    FilterReason.SPREAD_LABEL: "node(s) didn't match pod topology spread constraints"
    " (missing required label)",
    FilterReason.SPREAD: "node(s) didn't match pod topology spread constraints",
    FilterReason.POD_AFFINITY: "node(s) didn't match pod affinity rules",
    FilterReason.POD_ANTI_AFFINITY: "node(s) didn't match pod anti-affinity rules",
    FilterReason.EXISTING_ANTI_AFFINITY: "node(s) didn't satisfy existing pods anti-affinity rules",
    FilterReason.DEVICES_ELSEWHERE: "resourceclaim not available on the node",
}
_PORTS = "use other host ports, or add nodes where they are free"
_VOLUMES = "ask for nodes that reach its volumes, or use other volumes"
_AFFINITY = "change the pod affinity, or start the pods that it selects"
_ANTI_AFFINITY = "loosen the pod anti-affinity, or add nodes in other domains"
_SPREAD = "allow a larger skew, or add nodes in the domains with too few pods"
_FILTERS = {
    FilterReason.OUTSIDE: ("node affinity", "name other nodes"),
    FilterReason.CORDONED: ("cordoned nodes", "uncordon nodes"),
    FilterReason.OTHER_NODE: ("node name", "remove the node name from the pods"),
    FilterReason.TAINT: ("taints", "tolerate the taints of the nodes"),
    FilterReason.AFFINITY: ("node affinity", "loosen the node selector or affinity"),
    FilterReason.PORT: ("host ports", _PORTS),
    FilterReason.INSUFFICIENT: ("what single nodes have left", "free or add capacity on single nodes"),
    FilterReason.UNALIGNED: ("zone alignment", "free zones of nodes"),
    FilterReason.DISK: ("disks", "mount the disk read-only, or use other disks"),
    FilterReason.CLAIM_IN_USE: ("ReadWriteOncePod claims", "use a claim that several pods may use"),
    FilterReason.ATTACHED: ("volume limits", "use fewer volumes, or add nodes"),
    FilterReason.VOLUME_NODE_AFFINITY: ("volume node affinity", _VOLUMES),
    FilterReason.NO_VOLUME: ("volumes", _VOLUMES),
    FilterReason.NO_STORAGE_CAPACITY: ("storage capacity", "free or add storage"),
    FilterReason.VOLUME_GONE: ("missing volumes", _VOLUMES),
    FilterReason.VOLUME_ZONE: ("volume zones", _VOLUMES),
    FilterReason.SPREAD_LABEL: ("topology spread", "label the nodes with the topology key"),
    FilterReason.SPREAD: ("topology spread", _SPREAD),
    FilterReason.POD_AFFINITY: ("pod affinity", _AFFINITY),
    FilterReason.POD_ANTI_AFFINITY: ("pod anti-affinity", _ANTI_AFFINITY),
    FilterReason.EXISTING_ANTI_AFFINITY: ("anti-affinity of other pods", _ANTI_AFFINITY),
    FilterReason.DEVICES_ELSEWHERE: ("resource claims", "release the devices of the claims"),
    FilterReason.DEVICES: ("devices", "ask for fewer or other devices, or free or add some"),
}
"""What people call each filter, and what would help where it rejects all nodes."""
_POD_ERRORS = {
    PodError.AFFINITY_CONFLICT: "pod affinity terms conflict",
    PodError.CLAIM_MISSING: 'persistentvolumeclaim "{}" not found',
    PodError.CLAIM_PENDING: "waiting for ephemeral volume controller to create the"
    ' persistentvolumeclaim "{}"',
    PodError.CLAIM_LOST: 'persistentvolumeclaim "{}" bound to non-existent persistentvolume "{}"',
    PodError.CLAIM_TERMINATING: 'persistentvolumeclaim "{}" is being deleted',
    PodError.CLAIM_UNBOUND: "pod has unbound immediate PersistentVolumeClaims",
    PodError.CLAIM_FOREIGN: "PVC {} was not created for pod {} (pod is not owner)",
    PodError.VOLUME_MISSING: 'persistentvolume "{}" not found',
}


def node_reason(lack: Lack) -> str:
    """Why one node does not fit."""
    reason, resource = lack
    if reason is FilterReason.INSUFFICIENT:
        return "Too many pods" if resource == PODS else f"Insufficient {resource}"
    if reason is FilterReason.UNALIGNED:
        return numa_reason(ZoneCause(resource))
    if reason is FilterReason.DEVICES:
        return resource
    return _REASONS[reason]


def filter_name(reason: FilterReason) -> str:
    """What people call a filter."""
    return _FILTERS[reason][0]


def filter_advice(reason: FilterReason) -> str:
    """What would help where a filter rejects too many nodes."""
    return _FILTERS[reason][1]


def failure_text(unfit: FilterFailure) -> str:
    """Why pods cannot be bound to nodes that were found for them."""
    return pod_error(unfit) or _counted({node_reason(lack): count for lack, count in unfit.counts.items()})


def pod_error(unfit: FilterFailure) -> str:
    """What is wrong with the pod itself; empty if nothing is."""
    return _POD_ERRORS[unfit.error].format(*unfit.about) if unfit.error is not None else ""


def unavailable(unfit: FilterFailure, afterwards: str = "") -> str:
    """How many nodes failed for which reason; `afterwards` is the result of preemption."""
    if not unfit.nodes:
        return NO_NODES
    reasons = failure_text(unfit)
    sentence = f"0/{unfit.nodes} nodes are available:"
    if reasons:
        sentence += f" {reasons}."
    return f"{sentence} {afterwards}" if afterwards else sentence


def preemption_message(nodes: int, reasons: Mapping[str, int]) -> str:
    """Why preemption does not help, by reason and number of nodes."""
    return f"preemption: 0/{nodes} nodes are available: {_counted(reasons)}."


def _counted(reasons: Mapping[str, int]) -> str:
    """Sorted as text with the numbers in front, as kube-scheduler does."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
