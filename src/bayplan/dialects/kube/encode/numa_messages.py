"""Why zones refuse a pod, in upstream's sentence first, then what exactly was missing where."""

from __future__ import annotations

from bayplan.dialects.kube.fields.quantity import spelled
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
    EvictionUnknown.NOBODY: "no victims found, cannot process eviction simulation",
    EvictionUnknown.SEATS_UNKNOWN: "numa placement info not found, cannot process eviction simulation",
    EvictionUnknown.SEATS_EMPTY: "no containers found in numa placement info, cannot process eviction simulation",
    EvictionUnknown.NOTHING_FREED: "no resources to add, cannot process eviction simulation",
    EvictionUnknown.TOO_MUCH_FREED: "resource release request exceeds NUMA allocatable",
}


def sentence(cause: AlignmentTarget) -> str:
    """What upstream would say: the same for all nodes, so that they can be counted."""
    return SENTENCES[cause]


def told(unaligned: Unaligned) -> str:
    """The sentence, and who asked for what, and what each zone of the node lacks."""
    head = f"{sentence(unaligned.cause)}: node {unaligned.node}"
    if unaligned.cause is AlignmentTarget.STALE:
        return f"{head} has not yet reported on the pods that were put there"
    who = f"container {unaligned.container}" if unaligned.container else "the pod"
    asks = f"{who} asks for {_amounts(unaligned.asked)}"
    if unaligned.missing:
        return f"{head}: {asks}; the node has no {unaligned.missing}"
    if not unaligned.shortages:
        return f"{head}: {asks}; the node reports no zone"
    return f"{head}: {asks}; {', '.join(_shortage(one) for one in unaligned.shortages)}"


def _amounts(amounts: Amounts) -> str:
    return " and ".join(f"{spelled(name, amount)} of {name}" for name, amount in amounts) or "nothing"


def _shortage(one: ZoneShortage) -> str:
    if one.available is None:
        return f"zone {one.zone} lists no {one.resource}"
    return f"zone {one.zone} has {spelled(one.resource, one.available)} of {one.resource}"


def no_eviction(why: EvictionUnknown) -> str:
    """Why nobody can say what an eviction would bring."""
    return f"{NO_EVICTION}{WHY_NOT[why]}"
