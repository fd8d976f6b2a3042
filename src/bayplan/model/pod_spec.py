"""The scheduling-relevant spec of a pod: requests, labels, affinity, spread, ports, volumes, priority."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from bayplan.model.devices.claims import DeviceClaimKey, PodDevices
from bayplan.model.node_rules import ANY_NODE, NodeRules, Requirement
from bayplan.model.numa import NumaRequest

ANY_ADDRESS = "0.0.0.0"
Labels = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Selector:
    """Label requirements that must all hold. An empty tuple selects everything, None nothing."""

    requirements: tuple[Requirement, ...] | None = None

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Whether it selects an object with these labels."""
        if self.requirements is None:
            return False
        return all(requirement.accepts(labels.get(requirement.key)) for requirement in self.requirements)

    def narrowed(self, requirements: Iterable[Requirement]) -> Selector:
        """The same with additional requirements, each kept once; a selector of nothing stays one."""
        if self.requirements is None:
            return self
        return Selector(tuple(dict.fromkeys((*self.requirements, *requirements))))

    @property
    def keys(self) -> frozenset[str]:
        """The labels it reads."""
        return frozenset(requirement.key for requirement in self.requirements or ())


NOTHING = Selector(None)
EVERYTHING = Selector(())


@dataclass(frozen=True, slots=True)
class HostPort:
    """A port of the node."""

    port: int
    protocol: str = "TCP"
    address: str = ANY_ADDRESS


@dataclass(frozen=True, slots=True)
class PodAffinityTerm:
    """A pod affinity term: other pods, and the topology key that defines their domains."""

    key: str
    selector: Selector
    namespaces: tuple[str, ...] = ()
    namespace_selector: Selector = NOTHING

    def selects(self, namespace: str, namespace_labels: Mapping[str, str], labels: Mapping[str, str]) -> bool:
        """Whether it selects a pod with these labels in this namespace."""
        if namespace not in self.namespaces and not self.namespace_selector.accepts(namespace_labels):
            return False
        return self.selector.accepts(labels)

    def in_namespace(self, namespace: str) -> PodAffinityTerm:
        """The term of a template without a namespace (its own is empty), for pods in this namespace."""
        if "" not in self.namespaces:
            return self
        return replace(self, namespaces=tuple(sorted(name or namespace for name in self.namespaces)))


Weighted = tuple[int, PodAffinityTerm]


@dataclass(frozen=True, slots=True)
class PodAffinity:
    """Pod affinity and anti-affinity, required and preferred."""

    required: tuple[PodAffinityTerm, ...] = ()
    required_anti: tuple[PodAffinityTerm, ...] = ()
    preferred: tuple[Weighted, ...] = ()
    preferred_anti: tuple[Weighted, ...] = ()

    def terms(self) -> Iterator[PodAffinityTerm]:
        """All terms."""
        yield from self.required
        yield from self.required_anti
        yield from (term for _, term in self.preferred)
        yield from (term for _, term in self.preferred_anti)

    def in_namespace(self, namespace: str) -> PodAffinity:
        """The terms of a template without a namespace, for pods in this namespace."""
        return PodAffinity(
            tuple(term.in_namespace(namespace) for term in self.required),
            tuple(term.in_namespace(namespace) for term in self.required_anti),
            tuple((weight, term.in_namespace(namespace)) for weight, term in self.preferred),
            tuple((weight, term.in_namespace(namespace)) for weight, term in self.preferred_anti),
        )

    def __bool__(self) -> bool:
        return bool(self.required or self.required_anti or self.preferred or self.preferred_anti)


NO_POD_AFFINITY = PodAffinity()


@dataclass(frozen=True, slots=True)
class TopologySpread:
    """A topology spread constraint over the values of a node label."""

    key: str
    max_skew: int
    selector: Selector
    required: bool = True  # DoNotSchedule; otherwise ScheduleAnyway
    min_domains: int = 1
    honor_affinity: bool = True  # count only nodes that the pod's node affinity accepts
    honor_taints: bool = False  # count only nodes whose taints the pod tolerates


@dataclass(frozen=True, slots=True)
class Disk:
    """A disk mounted by name, without a claim. Disks with the same kind and name conflict."""

    kind: str
    name: str
    read_only: bool = False


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A volume claim, by its name in the pod's namespace."""

    name: str
    owner: str = ""  # uid of the pod, if the claim is ephemeral and belongs to it
    pod: str = ""  # name of that pod


@dataclass(frozen=True, slots=True)
class PodSignature:
    """All that decides on which nodes a pod fits, and their scores. Equal signatures share one result.

    `amounts` is the effective request, its own slot included; `score_requests` is CPU and memory for
    scoring, where a container without requests counts with a small default.
    """

    namespace: str = ""
    labels: Labels = ()
    amounts: tuple[tuple[str, int], ...] = ()
    score_requests: tuple[int, int] = (0, 0)
    rules: NodeRules = ANY_NODE
    node: str = ""  # spec.nodeName: the only node it may use
    ports: tuple[HostPort, ...] = ()
    affinity: PodAffinity = NO_POD_AFFINITY
    spread: tuple[TopologySpread, ...] = ()
    default_spread: Selector | None = None  # pods of the same service or owner, for the default spread
    images: tuple[str, ...] = ()  # one per container
    claims: tuple[ClaimUse, ...] = ()
    disks: tuple[Disk, ...] = ()
    zones: NumaRequest | None = None  # NUMA alignment; None: any node
    devices: PodDevices | None = None  # by claim
    code: int = field(default=0, init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        everything = (
            self.namespace, self.labels, self.amounts, self.score_requests, self.rules, self.node, self.ports,
            self.affinity, self.spread, self.default_spread, self.images, self.claims, self.disks, self.zones,
            self.devices,
        )  # fmt: skip
        object.__setattr__(self, "code", hash(everything))  # deep, and used often: computed once

    def __hash__(self) -> int:
        return self.code

    @property
    def constrains_nodes(self) -> bool:
        """Whether other pods, ports or volumes decide on the nodes that fit, beside resources."""
        if self.ports or self.claims or self.disks or self.affinity.required or self.affinity.required_anti:
            return True
        if self.devices is not None and self.devices.shared:
            return True
        return any(spread.required for spread in self.spread)

    @property
    def needs_trial(self) -> bool:
        """Whether anything beside amounts and node rules decides on the nodes that fit: devices, too."""
        return self.devices is not None or self.constrains_nodes

    def in_namespace(self, namespace: str) -> PodSignature:
        """The signature of a pod that is created from this template, which has no namespace, in one."""
        affinity = self.affinity.in_namespace(namespace) if self.affinity else self.affinity
        return replace(self, namespace=namespace, affinity=affinity)

    def own_keys(self) -> frozenset[str]:
        """The labels that its own terms read."""
        selectors = [term.selector for term in self.affinity.terms()]
        selectors += [spread.selector for spread in self.spread]
        if self.default_spread is not None:
            selectors.append(self.default_spread)
        return frozenset(key for selector in selectors for key in selector.keys)

    def reduced(self, keys: Collection[str]) -> PodSignature:
        """The same without labels that neither its own terms nor `keys` read."""
        telling = self.own_keys() | frozenset(keys)
        labels = tuple(pair for pair in self.labels if pair[0] in telling)
        return self if labels == self.labels else replace(self, labels=labels)


@dataclass(frozen=True, slots=True)
class PodSpec:
    """A pod's signature, and its priority relative to other pods."""

    signature: PodSignature
    priority: int = 0
    preempts: bool = True  # whether it may preempt
    nominated: str = ""  # the nominated node
    gates: tuple[str, ...] = ()  # scheduling gates
    unsupported: str = ""  # what it asks for that we cannot give: it is not scheduled, and this is the reason
    device_claims: tuple[DeviceClaimKey, ...] = ()  # all its claims for devices, in their order
    new_claims: tuple[DeviceClaimKey, ...] = ()  # those without devices yet, as in its signature


EMPTY_SPEC = PodSpec(PodSignature())
