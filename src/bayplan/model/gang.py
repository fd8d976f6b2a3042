"""Gangs: pods that are placed together or not at all, their spec, and their minimum.

Every API family decodes to these types. A gang is a tree: groups inside, pod sets at the leaves. Any node of
the tree may ask to stay within one topology domain (its locality). Nothing here knows which API it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import NumaRequest
from bayplan.model.pod_spec import PodSignature, Selector

AUTO = "auto"
"""A level name that means the lowest level whose domains can hold the pods."""


@dataclass(frozen=True, slots=True)
class Locality:
    """Stay within one domain: of the required level, or if possible of the preferred one.

    Without a level, pods may be in any domain, and still get a topology assignment.
    """

    required: str | None = None
    preferred: str | None = None

    def __post_init__(self) -> None:
        assert not (self.required and self.preferred), self


@dataclass(frozen=True, slots=True)
class Segment:
    """An equal part of a pod set: every `size` pods are within one domain of `level`."""

    size: int
    level: str


@dataclass(frozen=True, slots=True)
class PodSet:
    """Interchangeable pods, a leaf of the gang. `requests` is for one pod, without its own `pods` slot."""

    name: str
    count: int
    minimum: int
    requests: Mapping[str, int] = field(default_factory=dict)
    locality: Locality = Locality()
    segments: tuple[Segment, ...] = ()  # outermost first
    rules: NodeRules = ANY_NODE
    zones: NumaRequest | None = None  # NUMA alignment of each pod
    template: PodSignature | None = None  # labels, ports, volumes, pod affinity and spread; no namespace

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
        """Every pod set of the subtree, in order."""
        for member in self.members:
            if isinstance(member, PodSet):
                yield member
            else:
                yield from member.pod_sets()


@dataclass(frozen=True, slots=True)
class Ref:
    """The object a gang was decoded from. Only its own dialect interprets it."""

    dialect: str
    kind: str
    namespace: str
    name: str


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that are admitted and placed together or not at all."""

    source: Ref
    root: Group
    queue: str = ""
    priority: int = 0
    uid: str = ""  # distinguishes gangs that had the same name one after the other


@dataclass(frozen=True, slots=True)
class GangSpec:
    """The spec of a gang whose pods are created one by one and name the gang.

    A gang made from a template also has its tree: pod sets with counts and localities. It starts when every
    pod set has its minimum; the pods beyond the minimum follow where there is capacity.
    """

    source: Ref
    minimum: int = 0  # the gang does not start with fewer pods; 0: each pod is scheduled by itself
    desired: int = 0  # not tried before this many pods exist; 0: unspecified
    priority: int | None = None  # None: from its pods
    preempts: bool | None = None  # whether it may preempt; None: from its pods
    disrupt_together: bool = False  # if one pod is preempted, all are
    locality: Locality = field(default_factory=Locality)  # levels here are node labels
    tree: Group | None = None
    topology: str = ""  # whose levels the tree names; empty: the first that has all of them
    queue: str = ""  # the fair-share queue; empty: none
    non_preemptible: bool = False  # not preemptible once it runs
    created: float = 0.0
    uid: str = ""
    flaw: str = ""  # an invalid spec: the gang is never placed
    quorum: bool = False  # each group needs only its minimum of members; the others may follow
    disrupted_with: Mapping[str, str] = field(default_factory=dict)  # pod set → part preempted with it
    strict: bool = False  # each pod set has its own locality, and the gang is undone below its minimum
    started: bool = False  # it is recorded that the gang had its minimum once

    @property
    def has_minima(self) -> bool:
        """Whether each pod set has its own minimum and its own locality.

        Other gangs with a tree are placed as a whole.
        """
        if self.tree is None:
            return False
        if self.is_strict or self.quorum:
            return True
        return self.minimum < sum(pod_set.count for pod_set in self.tree.pod_sets())

    @property
    def is_strict(self) -> bool:
        """Whether the gang is undone below its minimum, as all gangs of fair-share queues are."""
        return self.strict or bool(self.queue)

    @property
    def is_gang(self) -> bool:
        """Whether its pods start together or not at all."""
        return self.minimum > 0


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """How many of the selected pods may be evicted now."""

    namespace: str
    name: str
    selector: Selector
    allowed: int = 0
    spent: frozenset[str] = frozenset()  # names of pods whose eviction already counts against it


def has_minimum(member: Group | PodSet, counts: Mapping[str, int]) -> bool:
    """Whether these pod counts satisfy the minimum of a pod set or group."""
    if isinstance(member, PodSet):
        return counts.get(member.name, 0) >= member.minimum
    return members_with_minimum(member, counts) >= member.minimum


def members_with_minimum(group: Group, counts: Mapping[str, int]) -> int:
    """How many direct members of a group have their minimum."""
    return sum(has_minimum(member, counts) for member in group.members)


def part_below_minimum(member: Group | PodSet, counts: Mapping[str, int]) -> Group | PodSet | None:
    """The first part below its minimum: a pod set that lacks pods, or a group that lacks members."""
    if has_minimum(member, counts):
        return None
    if isinstance(member, PodSet) or len(member.members) < member.minimum:
        return member
    return next(part for one in member.members if (part := part_below_minimum(one, counts)) is not None)


def pods_to_minimum(member: Group | PodSet, counts: Mapping[str, int]) -> int | None:
    """The smallest number of additional pods to reach the minimum; None if members are missing."""
    if isinstance(member, PodSet):
        return max(member.minimum - counts.get(member.name, 0), 0)
    each = (pods_to_minimum(one, counts) for one in member.members)
    found = sorted(more for more in each if more is not None)
    return sum(found[: member.minimum]) if len(found) >= member.minimum else None


def with_minimum(group: Group, counts: Mapping[str, int]) -> Group:
    """The same tree with these pod counts as minimum, and with all members required."""

    def needs(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return with_minimum(member, counts)
        count = counts.get(member.name, 0)
        return replace(member, count=max(member.count, count), minimum=count)

    return replace(group, members=tuple(map(needs, group.members)), minimum=len(group.members))
