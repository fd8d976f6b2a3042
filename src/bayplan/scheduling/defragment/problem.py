"""What a defragmentation is asked for, which gangs may move, and the plan that is found."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bayplan.model.gang import GangSpec, Group, PodSet, Ref
from bayplan.model.pod import Pod, PodKey

AGAIN = " again"
"""Appended to the name of a pod for the pod that replaces it. No pod has such a name."""


@dataclass(frozen=True, slots=True, eq=False)
class RoomRequest:
    """Pods that shall fit together: all of them in one domain of the last of `levels`, if there are any.

    `levels` are node labels, the outermost first, so that domains of equal name are told apart.
    """

    spec: GangSpec
    pods: tuple[Pod, ...]
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        assert self.pods, self.spec.source


@dataclass(frozen=True, slots=True, eq=False)
class MovableGang:
    """A running gang that may move: whole, to another place.

    `fresh` are the pods that its controller creates after its eviction, in the order of `pods`.
    """

    spec: GangSpec
    pods: tuple[Pod, ...]
    fresh: tuple[Pod, ...]
    cost: int  # weighted; what the search adds up and compares
    lost: int = 0  # GPU-seconds of work that are done again
    levels: tuple[str, ...] = ()  # as in a request
    budgets: tuple[str, ...] = ()  # disruption budgets that count its pods, as namespace/name

    def __post_init__(self) -> None:
        assert self.pods and len(self.pods) == len(self.fresh), self.spec.source
        assert all(pod.node for pod in self.pods), self.spec.source
        assert self.cost > 0, self.spec.source

    @property
    def ref(self) -> Ref:
        return self.spec.source

    @property
    def request(self) -> RoomRequest:
        """The place it needs before it is evicted."""
        return RoomRequest(self.spec, self.fresh, self.levels)


@dataclass(frozen=True, slots=True, eq=False)
class Move:
    """A gang leaves its nodes for others, which are free at its turn while it still runs."""

    gang: MovableGang
    nodes: tuple[str, ...]  # the new node of each pod, in the order of the gang's pods


@dataclass(frozen=True, slots=True, eq=False)
class DefragmentPlan:
    """The moves in order, and where the gang that asked for room fits after them."""

    moves: tuple[Move, ...]
    nodes: tuple[str, ...]  # of the request's pods, in their order
    cheapest: bool  # no cheaper set of gangs was left untried
    tries: int = 0  # placements that were tried

    @property
    def cost(self) -> int:
        return sum(move.gang.cost for move in self.moves)

    @property
    def lost(self) -> int:
        """GPU-seconds of work that are done again."""
        return sum(move.gang.lost for move in self.moves)


@dataclass(frozen=True, slots=True)
class NoPlan:
    """No moves make the gang fit, or none were found in time."""

    searched_all: bool
    tries: int
    nearest: tuple[str, ...] = ()  # the values of the domain that came closest
    fit: int = 0  # pods that would fit there if every movable gang left it


def fresh_pods(pods: tuple[Pod, ...]) -> tuple[Pod, ...]:
    """The pods that replace running ones: the same without their nodes, under other names."""
    return tuple(
        replace(pod, key=PodKey(pod.key.namespace, pod.key.name + AGAIN), node="", started=0.0, slot=None)
        for pod in pods
    )


def required_level(spec: GangSpec) -> str:
    """The level of the one domain that all pods of a gang need; empty if there is none."""
    if spec.tree is None:
        return spec.locality.required or ""
    member: Group | PodSet = spec.tree
    while True:
        if member.locality.required:
            return member.locality.required
        if isinstance(member, PodSet) or len(member.members) != 1:
            return ""
        member = member.members[0]
