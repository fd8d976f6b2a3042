"""What a user asks for: a gang of pods, placed together or not at all.

Every API family decodes to this one shape. A gang is a tree: groups inside, pod sets at the leaves.
Any node of the tree may ask to stay within one topology domain (its locality). Nothing here knows
which API it came from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from bayplan.model.node_rules import ANY_NODE, NodeRules
from bayplan.model.numa import NumaRequest

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
