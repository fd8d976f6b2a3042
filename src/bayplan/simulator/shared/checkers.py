"""Invariants of nodes that gangs of all APIs share, checked against the objects in the API after every step.

A node is used by the pods that are bound to it, and promised to the slots of admitted Workloads that have no
pod there yet. Both together never exceed what is allocatable. Slots in a domain above the host (`domains.py`)
always have hosts that their pods can get. Where admission and binding run in two processes, each may decide
before it has seen what the other one did; then the excess ends soon, and no gang starts in part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from bayplan.backends.fake_controllers.manifests import GPU, Object
from bayplan.backends.fake_controllers.objects import is_terminating
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import PodKey
from bayplan.simulator.core.checkers import pods_on_nodes, use_of, used_by
from bayplan.simulator.core.documents import LastLook, once_per_document, once_per_listing
from bayplan.simulator.jobs.checkers import gang_of, pod_set_of
from bayplan.simulator.queues.workload_view import PodSetPlacement, conditions_of, read
from bayplan.simulator.shared.domains import Domain, DomainChecker, OpenSlots, is_inside
from bayplan.simulator.shared.pod_groups import key_of
from bayplan.simulator.shared.zones import ZoneActors

List = Callable[[str], Sequence[Object]]
Amounts = dict[str, int]
ZONES_KEY, HOSTS_KEY = "zones", "hosts"  # in the place of a resource
TAKEN_SECONDS = 30.0
"""So long after the last fault a slot that a pod of another gang has taken may still be promised."""


@dataclass(slots=True)
class ClaimChecker:
    """Checks what is used and promised on each node; remembers since when it is too much."""

    processes: int
    zones: ZoneActors | None = None
    over_since: dict[tuple[str, str], float] = field(default_factory=dict)  # by node and resource
    bound: Mapping[str, str] = field(default_factory=dict)  # bound pods of queued gangs: gang by uid
    last_look: LastLook = field(default_factory=LastLook)
    over: dict[tuple[str, str], str] = field(default_factory=dict)  # what was too much at the last look
    last_over: dict[str, float] = field(default_factory=dict)  # by node or domain
    domains: DomainChecker = field(default_factory=DomainChecker)
    crossed: int = 0  # how often two processes gave away the same capacity

    def check(
        self,
        objects: List,
        now: float,
        last_fault: float,
        seen: Mapping[PodKey, Any] | None = None,
        is_admitted: Callable[[str], bool] = lambda workload: True,
    ) -> Iterator[str]:
        """Yield a sentence for each violation in the current state.

        `seen` has the pods that the scheduler has seen (None: all of them), and `is_admitted` tells whether
        it has seen the admission of a Workload: what it has not seen it cannot respect.
        """
        nodes, pods = objects("nodes"), objects("pods")
        slots = open_slots(objects("workloads"), pods, nodes)
        self.domains.note_nodes(nodes, pods, now)
        over = self._all_over(nodes, pods, slots)
        self.crossed += sum(key not in self.over_since for key in over)
        self.over_since = {key: self.over_since.get(key, now) for key in over}
        self.last_over |= {node: now for node, _ in over}
        yield from self._refused()
        for key, sentence in over.items():
            since = max(self.over_since[key], last_fault, self.domains.shrunk(key[0]))
            if self.processes == 1 and self.domains.shrunk(key[0]) < self.over_since[key]:
                yield sentence
            elif now - since > TAKEN_SECONDS:
                yield f"{sentence}, for {now - since:.0f} s"
        held = [one for one in slots if is_admitted(one.workload)]
        unseen = frozenset() if seen is None else _keys(pods).difference(seen)
        known_over: Collection[tuple[str, str]] = over
        if unseen or len(held) < len(slots):
            known = [pod for pod in pods if key_of(pod) not in unseen] if unseen else pods
            known_over = dict(self._over(nodes, known, held))
        yield from self._check_starts(pods, slots, {node for node, _ in known_over})

    def _refused(self) -> Iterator[str]:
        """No kubelet refuses a pod since its zones are in use."""
        if self.zones is not None and self.zones.refused:
            yield from self.zones.refused
            self.zones.refused = []

    def taken(self, now: float) -> set[str]:
        """The nodes that were used and promised twice a short time ago."""
        return {node for node, when in self.last_over.items() if now - when < TAKEN_SECONDS}

    def check_end(self, objects: List) -> Iterator[str]:
        """At the end no node is used or promised twice, however many processes there are."""
        slots = open_slots(objects("workloads"), objects("pods"), objects("nodes"))
        for _, sentence in self._over(objects("nodes"), objects("pods"), slots):
            yield f"at the end {sentence}"

    def _all_over(
        self, nodes: Sequence[Object], pods: Sequence[Object], slots: Sequence[OpenSlots]
    ) -> dict[tuple[str, str], str]:
        """As `_over`, but looked at again only after a change. Zones change without these objects."""
        has_zones = self.zones is not None and bool(self.zones.sizes)
        if not self.last_look.repeats(nodes, pods, slots) or has_zones:
            self.over = dict(self._over(nodes, pods, slots))
        return self.over

    def _over(
        self, nodes: Sequence[Object], pods: Sequence[Object], slots: Iterable[OpenSlots]
    ) -> Iterator[tuple[tuple[str, str], str]]:
        """Nodes and resources of which more is used and promised than there is."""
        used = used_by(pods_on_nodes(pods))
        slots = list(slots)
        for domain, sentence in self.domains.crowded(nodes, pods, slots):
            yield (domain, HOSTS_KEY), sentence
        slots = [one for one in slots if one.host]
        promised = promised_by_host(slots)
        names = {node["metadata"]["labels"].get(HOSTNAME): node["metadata"]["name"] for node in nodes}
        claims = {node: dict(amounts) for node, amounts in used.items()}
        for host, amounts in promised.items():
            if host in names:
                _add(claims.setdefault(names[host], {}), amounts)
        for name, resource, amount, limit in use_of(nodes, claims):
            if amount > limit:
                holders = sorted(_holders(name, pods, slots))
                yield (
                    (name, resource),
                    f"node {name} has {amount} {resource} used and promised of {limit}: {', '.join(holders)}",
                )
        promised_pods: dict[str, list[int]] = {}
        for one in slots:
            if one.gpus and one.host in names:
                promised_pods.setdefault(names[one.host], []).extend([one.gpus] * one.count)
        for name, sentence in self.zones.crowded(promised_pods) if self.zones is not None else ():
            yield (name, ZONES_KEY), f"{sentence}: {', '.join(sorted(_holders(name, pods, slots)))}"

    def _check_starts(
        self, pods: Sequence[Object], slots: Sequence[OpenSlots], taken: set[str]
    ) -> Iterator[str]:
        """No gang starts while one of its slots is taken by a pod that is not of this gang."""
        bound = _bound_queued(pods)
        if bound is self.bound:
            return
        running = {gang for uid, gang in bound.items() if uid in self.bound}
        for gang in sorted({gang for uid, gang in bound.items() if uid not in self.bound} - running):
            lost = sorted({one.where for one in slots if one.workload == gang and one.where in taken})
            if lost:
                yield f"gang {gang} starts in part: its slots on {', '.join(lost)} are taken"
        self.bound = bound


@once_per_listing
def _bound_queued(pods: Sequence[Object]) -> Mapping[str, str]:
    """The pods of queued gangs that use a node: the gang by uid."""
    return {pod["metadata"]["uid"]: gang_of(pod) for pod in pods_on_nodes(pods) if gang_of(pod)}


@once_per_listing
def _keys(pods: Sequence[Object]) -> frozenset[PodKey]:
    return frozenset([key_of(pod) for pod in pods])


@once_per_listing
def open_slots(
    workloads: Sequence[Object], pods: Sequence[Object], nodes: Sequence[Object]
) -> tuple[OpenSlots, ...]:
    """The slots of all admitted Workloads that are promised to pods that are not bound yet.

    A gang may have more slots than it still needs, since pods are over: then only those count that cannot be
    spared.
    """
    labels = {node["metadata"]["name"]: node["metadata"]["labels"] for node in nodes}
    bound: Counter[tuple[str, str, str]] = Counter()
    for pod in pods_on_nodes(pods):
        if gang_of(pod):
            bound[gang_of(pod), pod_set_of(pod), pod["spec"]["nodeName"]] += 1
    found = []
    for workload in workloads:
        name = workload["metadata"]["name"]
        for placement in _placements(workload):
            counts: Counter[Domain] = Counter()
            for values, count in placement.shares:
                counts[_domain(placement.levels, values)] += count
            left = {
                domain: open_count
                for domain, count in sorted(counts.items())
                if (open_count := count - _bound_in(domain, name, placement.pod_set, bound, labels)) > 0
            }
            spare = max(0, sum(left.values()) - _missing(workload, placement, bound))
            gpus = placement.each.get(GPU, 0)
            for domain, count in left.items():
                if count > spare:
                    made = OpenSlots(name, placement.pod_set, "", count - spare, placement.each, gpus, domain)
                    if domain[0][0] == HOSTNAME:
                        made = replace(made, host=domain[0][1], domain=())
                    found.append(made)
    return tuple(found)


def _domain(levels: Sequence[str], values: Sequence[str]) -> Domain:
    """A host by its name alone, and a wider domain by all its values."""
    if levels[-1] == HOSTNAME:
        return ((HOSTNAME, values[-1]),)
    return tuple(zip(levels, values, strict=True))


def _bound_in(
    domain: Domain,
    gang: str,
    pod_set: str,
    bound: Counter[tuple[str, str, str]],
    labels: Mapping[str, Mapping[str, str]],
) -> int:
    if domain[0][0] == HOSTNAME:
        return bound[gang, pod_set, domain[0][1]]
    return sum(
        count
        for (of, part, node), count in bound.items()
        if (of, part) == (gang, pod_set) and is_inside(labels.get(node, {}), domain)
    )


def _missing(workload: Object, placement: PodSetPlacement, bound: Counter[tuple[str, str, str]]) -> int:
    """How many pods of a pod set are still to be bound."""
    over = {one["name"]: one["count"] for one in workload["status"].get("reclaimablePods") or ()}
    wanted = {one["name"]: one["count"] for one in workload["spec"]["podSets"]}
    name, pod_set = workload["metadata"]["name"], placement.pod_set
    running = sum(count for (gang, of, _), count in bound.items() if (gang, of) == (name, pod_set))
    return int(wanted[pod_set]) - int(over.get(pod_set, 0)) - running


def promised_by_host(slots: Iterable[OpenSlots]) -> dict[str, Amounts]:
    """The sum of open slots by host."""
    promised: dict[str, Amounts] = {}
    for one in slots:
        _add(promised.setdefault(one.host, {}), one.each, one.count)
    return promised


@once_per_document
def _placements(workload: Object) -> tuple[PodSetPlacement, ...]:
    """Placements of a Workload that is admitted, and neither evicted nor finished."""
    conditions = conditions_of(workload)
    if (
        conditions.get("Finished")
        or conditions.get("Evicted")
        or "admission" not in workload.get("status", {})
    ):
        return ()
    return read(workload, {}).placements


def _holders(node: str, pods: Sequence[Object], slots: Iterable[OpenSlots]) -> Iterator[str]:
    """What uses a node, or is promised to be there, for people who read a violation."""
    for pod in pods_on_nodes(pods):
        if pod["spec"]["nodeName"] == node:
            yield f"pod {pod['metadata']['name']}{' (terminating)' if is_terminating(pod) else ''}"
    for one in slots:
        if one.host == node:
            yield f"{one.count} slots of {one.workload}/{one.pod_set}"


def _add(total: Amounts, amounts: Mapping[str, int], times: int = 1) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount * times
