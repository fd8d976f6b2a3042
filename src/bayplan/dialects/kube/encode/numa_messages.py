"""Why NUMA zones reject a pod: the upstream message, then the missing resources of each zone."""

from __future__ import annotations

from bayplan.dialects.kube.fields.quantity import formatted
from bayplan.model.numa import AlignmentTarget, Amounts, EvictionUnknown, Unaligned, ZoneShortage

SENTENCES = {
    AlignmentTarget.STALE: "invalid node topology data",
    AlignmentTarget.CONTAINER: "cannot align container",
    AlignmentTarget.INIT_CONTAINER: "cannot align init container",
    AlignmentTarget.SIDECAR: "cannot align sidecar container",
    AlignmentTarget.POD: "cannot align pod",
}
NO_EVICTION = "eviction simulation in NRT is not possible:"
WHY_NOT = {
    EvictionUnknown.NO_VICTIMS: "no victims found, cannot process eviction simulation",
    EvictionUnknown.SEATS_UNKNOWN: "numa placement info not found, cannot process eviction simulation",
    EvictionUnknown.SEATS_EMPTY: "no containers found in numa placement info,"
    " cannot process eviction simulation",
    EvictionUnknown.NOTHING_FREED: "no resources to add, cannot process eviction simulation",
    EvictionUnknown.TOO_MUCH_FREED: "resource release request exceeds NUMA allocatable",
}


def sentence(cause: AlignmentTarget) -> str:
    """The upstream message: the same for all nodes, so that nodes can be counted by it."""
    return SENTENCES[cause]


def message_for(unaligned: Unaligned) -> str:
    """The upstream message, with the request and what each zone of the node lacks."""
    head = f"{sentence(unaligned.cause)}: node {unaligned.node}"
    if unaligned.cause is AlignmentTarget.STALE:
        return f"{head} has not yet reported the pods that were bound to it"
    subject = f"container {unaligned.container}" if unaligned.container else "the pod"
    request = f"{subject} asks for {_amounts(unaligned.asked)}"
    if unaligned.missing:
        return f"{head}: {request}; the node has no {unaligned.missing}"
    if not unaligned.shortages:
        return f"{head}: {request}; the node reports no zone"
    return f"{head}: {request}; {', '.join(_shortage(one) for one in unaligned.shortages)}"


def _amounts(amounts: Amounts) -> str:
    return " and ".join(f"{formatted(name, amount)} of {name}" for name, amount in amounts) or "nothing"


def _shortage(one: ZoneShortage) -> str:
    if one.available is None:
        return f"zone {one.zone} lists no {one.resource}"
    return f"zone {one.zone} has {formatted(one.resource, one.available)} of {one.resource}"


def no_eviction(why: EvictionUnknown) -> str:
    """Why the effect of an eviction is unknown."""
    return f"{NO_EVICTION}{WHY_NOT[why]}"
