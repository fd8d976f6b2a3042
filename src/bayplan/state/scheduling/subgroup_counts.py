"""Pod counts of a gang by pod set: whether each pod set has its minimum."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from bayplan.model.gang import Group, has_minimum, part_below_minimum
from bayplan.placement.subgroups.constraint_tree import mandatory_ranks

PodSetRank = tuple[str, int]
"""A pod set and a rank in it."""
NO_RANK: PodSetRank = ("", 0)


class MemberState(StrEnum):
    """State of a pod in its gang."""

    NONE = "none"  # terminating, or of another scheduler
    PENDING = "pending"
    GATED = "gated"  # pending, with scheduling gates
    BOUND = "bound"  # bound, or succeeded on its node
    FAILED = "failed"


@dataclass(slots=True)
class PodSetCounts:
    """Counts by pod set, limited to the pods its minimum is about: optional segments do not count."""

    minimums: dict[str, int]
    bounds: dict[str, int]  # ranks from here on do not count
    existing: dict[str, int] = field(default_factory=dict)
    gated: dict[str, int] = field(default_factory=dict)
    bound: dict[str, int] = field(default_factory=dict)
    tree: Group | None = None  # for quorum gangs: some members may be missing

    @staticmethod
    def of(
        tree: Group, pods: Iterable[tuple[PodSetRank, MemberState]], *, quorum: bool = False
    ) -> PodSetCounts:
        """The counts of a gang with these pods."""
        sets = list(tree.pod_sets())
        counts = PodSetCounts(
            {one.name: one.minimum for one in sets},
            {one.name: mandatory_ranks(one) for one in sets if one.segments},
            tree=tree if quorum else None,
        )
        for rank, part in pods:
            counts.count(rank, part, 1)
        return counts

    def count(self, slot: PodSetRank, part: MemberState, more: int) -> None:
        """Add or remove one pod."""
        name, rank = slot
        if rank >= self.bounds.get(name, rank + 1):
            return
        if part in (MemberState.PENDING, MemberState.GATED, MemberState.BOUND):
            self.existing[name] = self.existing.get(name, 0) + more
        if part is MemberState.GATED:
            self.gated[name] = self.gated.get(name, 0) + more
        elif part is MemberState.BOUND:
            self.bound[name] = self.bound.get(name, 0) + more

    def too_small(self) -> str | None:
        """The first pod set with too few pods, or group with too few members."""
        if self.tree is not None:
            part = part_below_minimum(self.tree, self.existing)
            return None if part is None else part.name
        return next(
            (name for name, minimum in self.minimums.items() if self.existing.get(name, 0) < minimum), None
        )

    def lacks_ungated(self) -> str | None:
        """The first pod set that lacks ungated pods."""
        free = {name: there - self.gated.get(name, 0) for name, there in self.existing.items()}
        if self.tree is not None and has_minimum(self.tree, free):
            return None
        held = (name for name, minimum in self.minimums.items() if free.get(name, 0) < minimum)
        return next((name for name in held if self.tree is None or self.gated.get(name)), None)

    @property
    def has_minimum(self) -> bool:
        """Whether the minimum of every pod set is bound."""
        if self.tree is not None:
            return has_minimum(self.tree, self.bound)
        return all(self.bound.get(name, 0) >= minimum for name, minimum in self.minimums.items())
