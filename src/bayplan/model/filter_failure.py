"""Why a pod fits no node: what each node lacks, counted, or what is wrong with the pod itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.numa import Unaligned


class FilterReason(StrEnum):
    """What keeps a pod off a node, in the order in which it is looked at."""

    OUTSIDE = "outside"  # it names its nodes, and this is none of them
    CORDONED = "cordoned"
    OTHER_NODE = "other_node"
    TAINT = "taint"
    AFFINITY = "affinity"
    PORT = "port"
    LACKING = "lacking"  # with the resource
    UNALIGNED = "unaligned"  # with what could not be aligned
    DISK = "disk"
    ONE_POD = "one_pod"  # a claim for one pod alone is in use
    ATTACHED = "attached"  # no further volume can be attached
    VOLUME_ELSEWHERE = "volume_elsewhere"
    NO_VOLUME = "no_volume"
    NO_STORE_ROOM = "no_store_room"
    VOLUME_GONE = "volume_gone"
    VOLUME_ZONE = "volume_zone"
    SPREAD_LABEL = "spread_label"
    SPREAD = "spread"
    NOT_NEAR = "not_near"
    NOT_APART = "not_apart"
    UNWELCOME = "unwelcome"  # a pod that runs there wants it elsewhere


class PodError(StrEnum):
    """What is wrong with the pod itself: no node need be looked at."""

    AFFINITY_CONFLICT = "affinity_conflict"
    CLAIM_MISSING = "claim_missing"  # with the claim
    CLAIM_AWAITED = "claim_awaited"  # its own claim, not made yet
    CLAIM_LOST = "claim_lost"  # with claim and volume
    CLAIM_LEAVING = "claim_leaving"
    CLAIM_UNBOUND = "claim_unbound"
    CLAIM_FOREIGN = "claim_foreign"  # its own claim was made for another pod
    VOLUME_MISSING = "volume_missing"


Lack = tuple[FilterReason, str]
"""A cause, and the resource or the part of the pod if it is about one."""


@dataclass(frozen=True, slots=True)
class FilterFailure:
    """Why none of the nodes took a pod."""

    nodes: int
    counts: Mapping[Lack, int] = field(default_factory=dict)
    bar: PodError | None = None
    about: tuple[str, ...] = ()  # what the bar is about
    unaligned: Unaligned | None = field(default=None, compare=False)  # the first node that cannot align it
    curable: int = field(default=0, compare=False)  # nodes that might take it if others went
