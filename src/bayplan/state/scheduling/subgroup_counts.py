"""The pods of one gang by pod set: whether each has as many as it cannot do without."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import Group, is_whole, short_part
from bayplan.placement.subgroups.constraint_tree import mandatory_ranks

Seat = tuple[str, int]
"""A pod set and a rank in it."""
NO_SEAT: Seat = ("", 0)


class MemberState(StrEnum):
    """What a pod is to its gang."""

    NONE = "none"  # it is leaving, or another scheduler looks for its node
    WAITING = "waiting"
    GATED = "gated"  # waiting, but something holds it back
    STANDING = "standing"  # it has a node, or did its part there
    FAILED = "failed"


@dataclass(slots=True)
class PodSetCounts:
    """Counts by pod set, of the pods that its minimum is about: not of segments that may be missing."""

    minima: dict[str, int]
    bounds: dict[str, int]  # ranks from there on do not count
    there: dict[str, int] = field(default_factory=dict)
    gated: dict[str, int] = field(default_factory=dict)
    standing: dict[str, int] = field(default_factory=dict)
    tree: Group | None = None  # if some of its members may be missing

    @staticmethod
    def of(tree: Group, pods: Iterable[tuple[Seat, MemberState]], *, quorum: bool = False) -> PodSetCounts:
        """The roster of a gang whose pods are known."""
        sets = list(tree.pod_sets())
        made = PodSetCounts(
            {one.name: one.minimum for one in sets},
            {one.name: mandatory_ranks(one) for one in sets if one.segments},
            tree=tree if quorum else None,
        )
        for seat, part in pods:
            made.count(seat, part, 1)
        return made

    def count(self, seat: Seat, part: MemberState, more: int) -> None:
        """One more pod, or one less."""
        name, rank = seat
        if rank >= self.bounds.get(name, rank + 1):
            return
        if part in (MemberState.WAITING, MemberState.GATED, MemberState.STANDING):
            self.there[name] = self.there.get(name, 0) + more
        if part is MemberState.GATED:
            self.gated[name] = self.gated.get(name, 0) + more
        elif part is MemberState.STANDING:
            self.standing[name] = self.standing.get(name, 0) + more

    def too_small(self) -> str | None:
        """The first pod set of which too few pods are there, or group of which too few members are."""
        if self.tree is not None:
            part = short_part(self.tree, self.there)
            return None if part is None else part.name
        return next((name for name, least in self.minima.items() if self.there.get(name, 0) < least), None)

    def held_back(self) -> str | None:
        """The first pod set that lacks pods which something holds back."""
        free = {name: there - self.gated.get(name, 0) for name, there in self.there.items()}
        if self.tree is not None and is_whole(self.tree, free):
            return None
        held = (name for name, least in self.minima.items() if free.get(name, 0) < least)
        return next((name for name in held if self.tree is None or self.gated.get(name)), None)

    @property
    def is_whole(self) -> bool:
        """Whether so many stand of every pod set as it cannot do without."""
        if self.tree is not None:
            return is_whole(self.tree, self.standing)
        return all(self.standing.get(name, 0) >= least for name, least in self.minima.items())
