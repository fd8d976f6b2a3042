"""What a gang whose pods come one by one asks for as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bayplan.model.gang import Group, Locality, Ref
from bayplan.model.pod_spec import Selector


@dataclass(frozen=True, slots=True)
class GangSpec:
    """The rules of one gang; its pods are known by themselves and name it.

    A gang made from a template also knows its tree: pod sets with counts and localities. It starts when every
    pod set has its minimum; the pods beyond follow where there is room.
    """

    source: Ref
    minimum: int = 0  # with fewer it is not started; 0: each pod stands for itself
    desired: int = 0  # it is not looked at before so many pods are there; 0: nobody says
    priority: int | None = None  # None: as its pods say
    preempts: bool | None = None  # whether it may make others go; None: as its pods say
    leaves_whole: bool = False  # if one of its pods has to go, all go
    locality: Locality = field(default_factory=Locality)  # levels here are labels of nodes
    tree: Group | None = None
    topology: str = ""  # whose levels the tree names; empty: the first that has all of them
    queue: str = ""  # whose share it uses; empty: it answers to no queue
    lasting: bool = False  # once it runs it is not made to go, neither by its queue nor by others
    created: float = 0.0
    uid: str = ""
    flaw: str = ""  # what is wrong with it; such a gang is never placed
    quorum: bool = False  # each of its groups does with as many members as its minimum; others may follow
    leave_together: Mapping[str, str] = field(default_factory=dict)  # by pod set: the part that goes with it
    strict: bool = False  # each pod set has a locality of its own, and the gang goes if one stays too small
    started: bool = False  # it is on record that it had its minimum once

    @property
    def has_minima(self) -> bool:
        """Whether each of its pod sets has a minimum of its own, and a locality of its own.

        Other gangs with a tree are placed whole.
        """
        if self.tree is None:
            return False
        if self.is_strict or self.quorum:
            return True
        return self.minimum < sum(pod_set.count for pod_set in self.tree.pod_sets())

    @property
    def is_strict(self) -> bool:
        """Whether it does not last if it falls below its minimum; so do all who share nodes by queue."""
        return self.strict or bool(self.queue)

    @property
    def is_gang(self) -> bool:
        """Whether its pods start together or not at all."""
        return self.minimum > 0


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many of the selected pods may be made to go now."""

    namespace: str
    name: str
    selector: Selector
    allowed: int = 0
    spent: frozenset[str] = frozenset()  # pods that already go on its account, by name
