"""Why a pod fits no node: counts by filter reason, or an error of the pod itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.numa import Unaligned


class FilterReason(StrEnum):
    """Why a node was filtered out, in the order of the filters."""

    OUTSIDE = "outside"  # the pod names its nodes, and this is none of them
    CORDONED = "cordoned"
    OTHER_NODE = "other_node"
    TAINT = "taint"
    AFFINITY = "affinity"
    PORT = "port"
    INSUFFICIENT = "insufficient"  # with the resource
    UNALIGNED = "unaligned"  # with what could not be aligned
    DISK = "disk"
    CLAIM_IN_USE = "claim_in_use"  # a ReadWriteOncePod claim is in use
    ATTACHED = "attached"  # the volume limit of the node is reached
    VOLUME_NODE_AFFINITY = "volume_node_affinity"
    NO_VOLUME = "no_volume"
    NO_STORAGE_CAPACITY = "no_storage_capacity"
    VOLUME_GONE = "volume_gone"
    VOLUME_ZONE = "volume_zone"
    SPREAD_LABEL = "spread_label"
    SPREAD = "spread"
    POD_AFFINITY = "pod_affinity"
    POD_ANTI_AFFINITY = "pod_anti_affinity"
    EXISTING_ANTI_AFFINITY = "existing_anti_affinity"  # anti-affinity of a running pod
    DEVICES_ELSEWHERE = "devices_elsewhere"  # the node cannot use the devices that a claim has
    DEVICES = "devices"  # with the reason why the claims cannot be allocated


class PodError(StrEnum):
    """An error of the pod itself: no node is tried."""

    AFFINITY_CONFLICT = "affinity_conflict"
    CLAIM_MISSING = "claim_missing"  # with the claim
    CLAIM_PENDING = "claim_pending"  # its own claim, not created yet
    CLAIM_LOST = "claim_lost"  # with claim and volume
    CLAIM_TERMINATING = "claim_terminating"
    CLAIM_UNBOUND = "claim_unbound"
    CLAIM_FOREIGN = "claim_foreign"  # its own claim was created for another pod
    VOLUME_MISSING = "volume_missing"


FILTERED = "filter "
"""Begins the names of the resources that express how many pods a filter lets each node have."""

Lack = tuple[FilterReason, str]
"""A reason, with the resource or container it is about, if any."""


def filter_of(resource: str) -> FilterReason | None:
    """The filter whose caps a resource expresses; None for a real resource."""
    if not resource.startswith(FILTERED):
        return None
    return FilterReason(resource.removeprefix(FILTERED).partition(" ")[0])


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """Why no node passed the filters for a pod."""

    nodes: int
    counts: Mapping[Lack, int] = field(default_factory=dict)
    error: PodError | None = None
    about: tuple[str, ...] = ()  # what the pod error is about
    unaligned: Unaligned | None = field(default=None, compare=False)  # the first node that cannot align it
    preemptible_nodes: int = field(default=0, compare=False)  # nodes that preemption might free
