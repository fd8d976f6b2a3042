"""What one pod asks of a node besides being let in: amounts, labels, neighbours, spread, ports, volumes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.node_rules import ANY_NODE, NodeRules, Requirement
from bayplan.model.numa import NumaRequest

ANY_ADDRESS = "0.0.0.0"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """Requirements on labels that must all hold. None of them: everything; None at all: nothing."""

    requirements: tuple[Requirement, ...] | None = None

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether an object with these labels is meant."""
        if self.requirements is None:
            return False
        return all(requirement.accepts(labels.get(requirement.key)) for requirement in self.requirements)

    def narrowed(self, requirements: Iterable[Requirement]) -> Selector:
        """The same with more to hold; what selects nothing still does. Each requirement is kept once."""
        if self.requirements is None:
            return self
        return Selector(tuple(dict.fromkeys((*self.requirements, *requirements))))

    @property
    def keys(self) -> frozenset[str]:
        """The labels it looks at."""
        return frozenset(requirement.key for requirement in self.requirements or ())


NOTHING = Selector(None)
EVERYTHING = Selector(())


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node itself."""

    port: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """Other pods, and the node label within whose value they count as near."""

    key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector = NOTHING

    def means(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels, in this namespace, is meant."""
        if namespace not in self.namespaces and not self.namespace_selector.accepts(namespace_labels):
            return False
        return self.selector.accepts(labels)


Weighted = tuple[int, PodAffinityTerm]


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """Which pods it must, must not, would like to, would rather not be near."""

    near: tuple[PodAffinityTerm, ...] = ()
    apart: tuple[PodAffinityTerm, ...] = ()
    rather_near: tuple[Weighted, ...] = ()
    rather_apart: tuple[Weighted, ...] = ()

    def terms(self) -> Iterator[PodAffinityTerm]:
        """All of them."""
        yield from self.near
        yield from self.apart
        yield from (term for _, term in self.rather_near)
        yield from (term for _, term in self.rather_apart)

    def __bool__(self) -> bool:
        return bool(self.near or self.apart or self.rather_near or self.rather_apart)


NO_NEIGHBOURS = PodAffinity()


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """How evenly the selected pods are to lie over the values of a node label."""

    key: str
    max_skew: int
    selector: Selector
    must: bool = True  # or else: would like to
    min_domains: int = 1
    heed_affinity: bool = True  # count only nodes that the pod's node affinity accepts
    heed_taints: bool = False  # count only nodes whose taints the pod tolerates


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk mounted by name, without a claim. Those that conflict share kind and name."""

    kind: str
    name: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim for a volume, by its name in the pod's namespace."""

    name: str
    owner: str = ""  # uid of the pod, if the claim is made for it and goes with it
    pod: str = ""  # its name, then


@dataclass(frozen=True, slots=True)
class PodSignature:
    """All that decides on which nodes a pod fits and how well. Equal shapes share one answer.

    `amounts` is what it takes at its most demanding moment, its own slot included; `weighs` is CPU and
    memory as far as nodes are ranked by them, where a container that says nothing counts for a little.
    """

    namespace: str = ""
    labels: Labels = ()
    amounts: tuple[tuple[str, int], ...] = ()
    weighs: tuple[int, int] = (0, 0)
    rules: NodeRules = ANY_NODE
    node: str = ""  # the one node it insists on
    ports: tuple[HostPort, ...] = ()
    neighbours: PodAffinity = NO_NEIGHBOURS
    spread: tuple[TopologySpread, ...] = ()
    company: Selector | None = None  # pods it belongs with by service or owner: spread if `spread` is empty
    images: tuple[str, ...] = ()  # one per container
    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    zones: NumaRequest | None = None  # of the zones inside nodes; None: it fits any
    code: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        everything = (
            self.namespace, self.labels, self.amounts, self.weighs, self.rules, self.node, self.ports,
            self.neighbours, self.spread, self.company, self.images, self.claims, self.disks, self.zones,
        )  # fmt: skip
        object.__setattr__(self, "code", hash(everything))  # deep, and asked for often: worked out once

    def __hash__(self) -> int:
        return self.code

    def own_keys(self) -> frozenset[str]:
        """The labels that its own terms look at."""
        selectors = [term.selector for term in self.neighbours.terms()]
        selectors += [spread.selector for spread in self.spread]
        if self.company is not None:
            selectors.append(self.company)
        return frozenset(key for selector in selectors for key in selector.keys)

    def signature(self, keys: Collection[str]) -> PodSignature:
        """The same without labels that nobody looks at: neither it nor anyone who looks at `keys`."""
        telling = self.own_keys() | frozenset(keys)
        labels = tuple(pair for pair in self.labels if pair[0] in telling)
        return self if labels == self.labels else replace(self, labels=labels)


@dataclass(frozen=True, slots=True)
class PodSpec:
    """A pod's shape, and how it stands against other pods."""

    shape: PodSignature
    priority: int = 0
    preempts: bool = True  # it may make others go
    nominated: str = ""  # the node that room is being made on for it
    gates: tuple[str, ...] = ()  # what it waits for before it may be looked at


NO_WANTS = PodSpec(PodSignature())
