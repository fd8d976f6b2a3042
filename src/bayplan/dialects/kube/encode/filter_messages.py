"""Why a pod fits no node, in the words that Kubernetes users know."""

from __future__ import annotations

from collections.abc import Mapping

from bayplan.dialects.kube.encode.numa_messages import sentence as of_zones
from bayplan.model.filter_failure import Bar, Cause, Lack, Unfit
from bayplan.model.node import PODS
from bayplan.model.numa import Cause as ZoneCause

NO_NODES = "no nodes available to schedule pods"
NO_VICTIMS = "No preemption victims found for incoming pod"
NO_HELP = "Preemption is not helpful for scheduling"
NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
NO_CLAIMS = "no new claims to deallocate"

_CAUSES = {
    Cause.OUTSIDE: "node(s) didn't satisfy plugin(s) [NodeAffinity]",
    Cause.CORDONED: "node(s) were unschedulable",
    Cause.OTHER_NODE: "node(s) didn't match the requested node name",
    Cause.TAINT: "node(s) had untolerated taint(s)",
    Cause.AFFINITY: "node(s) didn't match Pod's node affinity/selector",
    Cause.PORT: "node(s) didn't have free ports for the requested pod ports",
    Cause.DISK: "node(s) had no available disk",
    Cause.ONE_POD: "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode"
    " already in-use by another pod",
    Cause.ATTACHED: "node(s) exceed max volume count",
    Cause.VOLUME_ELSEWHERE: "node(s) didn't match PersistentVolume's node affinity",
    Cause.NO_VOLUME: "node(s) didn't find available persistent volumes to bind",
    Cause.NO_STORE_ROOM: "node(s) did not have enough free storage",
    Cause.VOLUME_GONE: "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)",
    Cause.VOLUME_ZONE: "node(s) had no available volume zone",
    Cause.SPREAD_LABEL: "node(s) didn't match pod topology spread constraints (missing required label)",
    Cause.SPREAD: "node(s) didn't match pod topology spread constraints",
    Cause.NOT_NEAR: "node(s) didn't match pod affinity rules",
    Cause.NOT_APART: "node(s) didn't match pod anti-affinity rules",
    Cause.UNWELCOME: "node(s) didn't satisfy existing pods anti-affinity rules",
}
_BARS = {
    Bar.AFFINITY_CONFLICT: "pod affinity terms conflict",
    Bar.CLAIM_MISSING: 'persistentvolumeclaim "{}" not found',
    Bar.CLAIM_AWAITED: 'waiting for ephemeral volume controller to create the persistentvolumeclaim "{}"',
    Bar.CLAIM_LOST: 'persistentvolumeclaim "{}" bound to non-existent persistentvolume "{}"',
    Bar.CLAIM_LEAVING: 'persistentvolumeclaim "{}" is being deleted',
    Bar.CLAIM_UNBOUND: "pod has unbound immediate PersistentVolumeClaims",
    Bar.CLAIM_FOREIGN: "PVC {} was not created for pod {} (pod is not owner)",
    Bar.VOLUME_MISSING: 'persistentvolume "{}" not found',
}


def cause(lack: Lack) -> str:
    """What one node lacks."""
    found, resource = lack
    if found is Cause.LACKING:
        return "Too many pods" if resource == PODS else f"Insufficient {resource}"
    if found is Cause.UNALIGNED:
        return of_zones(ZoneCause(resource))
    return _CAUSES[found]


def bar(unfit: Unfit) -> str:
    """What is wrong with the pod itself; nothing if nothing is."""
    return _BARS[unfit.bar].format(*unfit.about) if unfit.bar is not None else ""


def unavailable(unfit: Unfit, afterwards: str = "") -> str:
    """How many nodes refuse a pod for what; `afterwards` says what became of making room."""
    if not unfit.nodes:
        return NO_NODES
    told = bar(unfit) or _counted({cause(lack): count for lack, count in unfit.counts.items()})
    sentence = f"0/{unfit.nodes} nodes are available:"
    if told:
        sentence += f" {told}."
    return f"{sentence} {afterwards}" if afterwards else sentence


def no_room_made(nodes: int, reasons: Mapping[str, int]) -> str:
    """Why making others go would not help, by reason and number of nodes."""
    return f"preemption: 0/{nodes} nodes are available: {_counted(reasons)}."


def _counted(reasons: Mapping[str, int]) -> str:
    """Sorted as text, the numbers in front: that is how users know it."""
    return ", ".join(sorted(f"{count} {reason}" for reason, count in reasons.items()))
