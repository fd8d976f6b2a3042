"""A gang: pods that are placed together or not at all, and what its pods ask for as a whole.

Every API family decodes to these types. A gang is a tree: groups inside, pod sets at the leaves. Any node of
the tree may ask to stay within one topology domain (its locality). Nothing here knows which API it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import NumaRequest
from bayplan.model.pod_spec import Selector

AUTO = "auto"
"""A level name that means: the lowest level whose domains can hold the pods."""


@dataclass(frozen=True, slots=True)
class Locality:
    """Stay within one domain: of the required level, or if possible of the preferred one.

    Neither level set means "anywhere, but account for it".
    """

    required: str | None = None
    preferred: str | None = None

    def __post_init__(self) -> None:
        assert not (self.required and self.preferred), self


@dataclass(frozen=True, slots=True)
class Segment:
    """An equal share of a pod set: every `size` pods within one domain of `level`."""

    size: int
    level: str


@dataclass(frozen=True, slots=True)
class PodSet:
    """Interchangeable pods, the leaf of a gang. `requests` is for one pod, without its own `pods` slot."""

    name: str
    count: int
    minimum: int
    requests: Mapping[str, int] = field(default_factory=dict)
    locality: Locality = Locality()
    segments: tuple[Segment, ...] = ()  # outermost first
    rules: NodeRules = ANY_NODE
    zones: NumaRequest | None = None  # of the zones inside nodes, pod by pod

    def __post_init__(self) -> None:
        assert 0 <= self.minimum <= self.count, self
        assert all(amount >= 0 for amount in self.requests.values()), self


@dataclass(frozen=True, slots=True)
class Group:
    """Members that share a locality. `minimum` counts direct members."""

    name: str
    members: tuple[Group | PodSet, ...]
    minimum: int
    locality: Locality = Locality()

    def pod_sets(self) -> Iterator[PodSet]:
        """Every pod set below, in order."""
        for member in self.members:
            if isinstance(member, PodSet):
                yield member
            else:
                yield from member.pod_sets()


@dataclass(frozen=True, slots=True)
class Ref:
    """Where a gang came from. Only its own dialect reads this."""

    dialect: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Gang:
    """The unit of all-or-nothing."""

    source: Ref
    root: Group
    queue: str = ""
    priority: int = 0
    uid: str = ""  # tells apart two that had the same name one after the other


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


def is_whole(member: Group | PodSet, counts: Mapping[str, int]) -> bool:
    """Whether so many pods, by pod set, are enough."""
    if isinstance(member, PodSet):
        return counts.get(member.name, 0) >= member.minimum
    return whole_members(member, counts) >= member.minimum


def whole_members(group: Group, counts: Mapping[str, int]) -> int:
    """How many of a group's members are whole."""
    return sum(is_whole(member, counts) for member in group.members)


def short_part(member: Group | PodSet, counts: Mapping[str, int]) -> Group | PodSet | None:
    """The first part that keeps a gang from being whole: a pod set that lacks pods, or a group members."""
    if is_whole(member, counts):
        return None
    if isinstance(member, PodSet) or len(member.members) < member.minimum:
        return member
    return next(part for one in member.members if (part := short_part(one, counts)) is not None)


def fewest_more(member: Group | PodSet, counts: Mapping[str, int]) -> int | None:
    """With how few more pods it is whole; None if that takes members which it does not have."""
    if isinstance(member, PodSet):
        return max(member.minimum - counts.get(member.name, 0), 0)
    each = (fewest_more(one, counts) for one in member.members)
    found = sorted(more for more in each if more is not None)
    return sum(found[: member.minimum]) if len(found) >= member.minimum else None


def all_of(group: Group, counts: Mapping[str, int]) -> Group:
    """The same tree, where as many pods as these are needed, and all members."""

    def needs(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return all_of(member, counts)
        count = counts.get(member.name, 0)
        return replace(member, count=max(member.count, count), minimum=count)

    return replace(group, members=tuple(map(needs, group.members)), minimum=len(group.members))
