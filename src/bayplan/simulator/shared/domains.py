"""Slots in domains above the host: whether all pods that are promised a domain can get hosts there.

The search is independent of that of the product: it tries the hosts one by one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache

from bayplan.backends.fake_controllers.manifests import Object
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import domain_text
from bayplan.simulator.core.checkers import allocatable_of, pods_on_nodes, used_by
from bayplan.simulator.core.documents import LastLook
from bayplan.simulator.jobs.checkers import gang_of

NEVER = -float("inf")
Domain = tuple[tuple[str, str], ...]
Vector = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OpenSlots:
    """The slots of a pod set on a host or in a domain that no pod of it uses."""

    workload: str
    pod_set: str
    host: str  # empty: in a domain
    count: int
    each: Mapping[str, int]
    gpus: int = 0  # that a pod needs in one zone
    domain: Domain = ()

    @property
    def where(self) -> str:
        """The host or the domain."""
        return self.host or domain_text(self.domain)


@dataclass(slots=True)
class DomainChecker:
    """Checks domains with slots; remembers when a domain last lost capacity of nodes."""

    sizes: dict[str, Mapping[str, int]] = field(default_factory=dict)  # allocatable by node
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)
    lost_at: dict[str, float] = field(default_factory=dict)  # by node
    seen: dict[str, Domain] = field(default_factory=dict)  # by text
    absent: set[str] = field(default_factory=set)  # nodes that pods are still bound to
    last_look: LastLook = field(default_factory=LastLook)

    def note_nodes(self, nodes: Sequence[Object], pods: Sequence[Object], now: float) -> None:
        """Remember which nodes have become smaller, or have left their domain.

        A node that is gone counts as lost until no pod is bound to it: only then its slots are open again.
        """
        if self.last_look.repeats(nodes, pods) and not self.absent:
            return
        sizes = {node["metadata"]["name"]: allocatable_of(node) for node in nodes}
        labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
        for name, before in self.sizes.items():
            after = sizes.get(name, {})
            moved = name in labels and labels[name] != self.labels[name]
            if moved or any(amount > after.get(resource, 0) for resource, amount in before.items()):
                self.lost_at[name] = now
        absent = {pod["spec"]["nodeName"] for pod in pods_on_nodes(pods)} - sizes.keys()
        self.lost_at |= dict.fromkeys((absent | self.absent) & self.labels.keys(), now)
        self.absent = absent
        self.sizes, self.labels = sizes, {**self.labels, **labels}

    def shrunk(self, where: str) -> float:
        """When a node of this domain was last lost; other pods may have been bound there long before."""
        domain = self.seen.get(where)
        if domain is None:
            return NEVER
        times = (at for name, at in self.lost_at.items() if is_inside(self.labels[name], domain))
        return max(times, default=NEVER)

    def crowded(
        self, nodes: Sequence[Object], pods: Sequence[Object], slots: Sequence[OpenSlots]
    ) -> Iterator[tuple[str, str]]:
        """The domains in which promised pods get no hosts since other pods are in the way, and a sentence."""
        by_domain: dict[Domain, list[OpenSlots]] = {}
        for one in slots:
            if one.domain:
                by_domain.setdefault(one.domain, []).append(one)
        on_nodes = pods_on_nodes(pods) if by_domain else []
        promised = [one for one in slots if one.host]
        used = _beside(used_by(on_nodes), promised, nodes)
        for domain, open_slots in by_domain.items():
            inside = [node for node in nodes if is_inside(node["metadata"]["labels"], domain)]
            if _fit(inside, used, open_slots):
                continue
            gangs = {one.workload for one in open_slots}
            of_gangs = used_by(pod for pod in on_nodes if gang_of(pod) in gangs)
            own = _beside(of_gangs, [one for one in promised if one.workload in gangs], nodes)
            if _fit(inside, own, open_slots):
                where = self.seen_as(domain)
                holders = sorted(f"{one.count} slots of {one.workload}/{one.pod_set}" for one in open_slots)
                names = [node["metadata"]["name"] for node in inside]
                holders += sorted(
                    f"pod {pod['metadata']['name']} on {pod['spec']['nodeName']}"
                    for pod in on_nodes
                    if pod["spec"]["nodeName"] in names
                )
                hosts = {node["metadata"]["labels"].get(HOSTNAME) for node in inside}
                holders += sorted(
                    f"{one.count} slots of {one.workload}/{one.pod_set} on {one.host}"
                    for one in promised
                    if one.host in hosts
                )
                yield where, f"{where} is used and promised: no hosts for all of {', '.join(holders)}"

    def seen_as(self, domain: Domain) -> str:
        text = domain_text(domain)
        self.seen[text] = domain
        return text


def is_inside(labels: Mapping[str, str], domain: Domain) -> bool:
    """Whether a node with these labels is in a domain."""
    return all(labels.get(level) == value for level, value in domain)


def _beside(
    used: Mapping[str, Mapping[str, int]], promised: Iterable[OpenSlots], nodes: Sequence[Object]
) -> dict[str, dict[str, int]]:
    """What pods use by node, with what is promised on hosts."""
    names = {node["metadata"]["labels"].get(HOSTNAME): node["metadata"]["name"] for node in nodes}
    found = {node: dict(amounts) for node, amounts in used.items()}
    for one in promised:
        if one.host in names:
            here = found.setdefault(names[one.host], {})
            for resource, amount in one.each.items():
                here[resource] = here.get(resource, 0) + amount * one.count
    return found


def _fit(nodes: Sequence[Object], used: Mapping[str, Mapping[str, int]], slots: Sequence[OpenSlots]) -> bool:
    """Whether every promised pod finds a host; hosts are tried one by one."""
    resources = sorted({name for one in slots for name, amount in one.each.items() if amount})
    free: list[Vector] = []
    for node in nodes:
        has, uses = allocatable_of(node), used.get(node["metadata"]["name"], {})
        free.append(tuple(has.get(name, 0) - uses.get(name, 0) for name in resources))
    wanted = [tuple(one.each.get(name, 0) for name in resources) for one in slots for _ in range(one.count)]
    wanted.sort(reverse=True)

    @cache
    def place(at: int, left: tuple[Vector, ...]) -> bool:
        if at == len(wanted):
            return True
        pod = wanted[at]
        for number, host in enumerate(left):
            if number and host in left[:number]:
                continue  # the same as one before
            if all(amount <= has for amount, has in zip(pod, host, strict=True)):
                rest = tuple(has - amount for amount, has in zip(pod, host, strict=True))
                if place(at + 1, tuple(sorted((*left[:number], *left[number + 1 :], rest)))):
                    return True
        return False

    return place(0, tuple(sorted(free)))
