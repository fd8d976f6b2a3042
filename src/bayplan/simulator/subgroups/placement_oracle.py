"""Exhaustive search whether the minimums of a group fit on free nodes, independent of the scheduler."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.kube.decode.wire import amounts_of
from bayplan.simulator.core.checkers import pod_requests, pods_on_nodes, used_by
from bayplan.simulator.subgroups.group_view import GroupView, SharedDomain, domain_of
from bayplan.simulator.subgroups.queue_view import Amounts

Object = dict[str, Any]
STEPS_MAX = 20_000


class OutOfSteps(Exception):
    """The search was cut short; the answer is unknown."""


@dataclass(slots=True)
class FreeHosts:
    """Hosts with their free resources."""

    nodes: Mapping[str, Object]
    free: dict[str, Amounts]
    steps: int = STEPS_MAX

    @staticmethod
    def of(nodes: Sequence[Object], pods: Sequence[Object]) -> FreeHosts:
        """The current free resources; terminating pods still use theirs."""
        used = used_by(pods_on_nodes(pods))
        free = {}
        for node in nodes:
            name = node["metadata"]["name"]
            allocatable = amounts_of(node["status"].get("allocatable"))
            free[name] = {key: amount - used.get(name, {}).get(key, 0) for key, amount in allocatable.items()}
        return FreeHosts({node["metadata"]["name"]: node for node in nodes}, free)

    def step(self) -> None:
        self.steps -= 1
        if self.steps < 0:
            raise OutOfSteps

    def fits(self, requests: Amounts, name: str) -> bool:
        return all(amount <= self.free[name].get(key, 0) for key, amount in requests.items())

    def take(self, requests: Amounts, name: str, sign: int = 1) -> None:
        for key, amount in requests.items():
            self.free[name][key] = self.free[name].get(key, 0) - sign * amount


@dataclass(slots=True)
class _MissingPod:
    """A missing pod, and the nodes that it may use by itself."""

    leaf: str
    requests: Amounts
    nodes: tuple[str, ...]
    key: tuple[Any, ...] = field(default=())


def fits_on_free_hosts(view: GroupView, hosts: FreeHosts) -> bool | None:
    """Whether all missing pods of a group could be bound now; None if unknown."""
    missing_pods, missing = view.missing_pods(view.bound_pods()), list[_MissingPod]()
    pending = view.pending_pods()
    for leaf, count in missing_pods.items():
        own_pods = [pod for pod in pending if view.leaf_of(pod) == leaf]
        if len(own_pods) < count:
            return False
        signatures = {str((pod["spec"]["containers"][0]["resources"], _rules(pod))) for pod in own_pods}
        if len(own_pods) > count and len(signatures) > 1:
            return None
        missing += [_missing_pod(leaf, pod, hosts) for pod in own_pods[:count]]
    if not missing or not all(pod_need.nodes for pod_need in missing):
        return False
    missing.sort(key=lambda pod_need: (-pod_need.requests.get("cpu", 0), pod_need.key))
    try:
        return any(_fits_from(missing, allowed, hosts, 0, -1) for allowed in _choices(view, hosts))
    except OutOfSteps:
        return None


def _rules(pod: Object) -> tuple[Any, Any]:
    return pod["spec"].get("nodeSelector"), pod["spec"].get("tolerations")


def _missing_pod(leaf: str, pod: Object, hosts: FreeHosts) -> _MissingPod:
    nodes = tuple(name for name, node in hosts.nodes.items() if _may_use(pod, node))
    requests = dict(pod_requests(pod))
    return _MissingPod(leaf, requests, nodes, (leaf, tuple(sorted(requests.items())), nodes))


def _may_use(pod: Object, node: Object) -> bool:
    """Whether a pod may use a node: readiness, taints and node selector."""
    spec, labels = node.get("spec") or {}, node["metadata"].get("labels") or {}
    tolerated = {one.get("key") for one in pod["spec"].get("tolerations") or ()}
    bad = [one for one in spec.get("taints") or () if one["effect"] != "PreferNoSchedule"]
    wanted = pod["spec"].get("nodeSelector") or {}
    ready = any(
        one["type"] == "Ready" and one["status"] == "True" for one in node["status"].get("conditions") or ()
    )
    return (
        ready
        and not spec.get("unschedulable")
        and all(one["key"] in tolerated for one in bad)
        and wanted.items() <= labels.items()
    )


def _choices(view: GroupView, hosts: FreeHosts) -> Iterator[dict[str, frozenset[str]]]:
    """Every choice of a domain for each constraint, as the allowed nodes by leaf."""
    every = frozenset(hosts.nodes)
    start = dict.fromkeys(view.minimums, every)
    shared_domains = sorted(view.shared_domains, key=lambda domain: -len(domain.leaves))
    yield from _choose(view, hosts, shared_domains, start)


def _choose(
    view: GroupView,
    hosts: FreeHosts,
    shared_domains: Sequence[SharedDomain],
    allowed: dict[str, frozenset[str]],
) -> Iterator[dict[str, frozenset[str]]]:
    if not shared_domains:
        yield allowed
        return
    shared = shared_domains[0]
    pinned = [pod["spec"]["nodeName"] for pod in view.bound_pods() if view.leaf_of(pod) in shared.leaves]
    for domain, nodes in _domains(shared.level, hosts).items():
        hosts.step()
        if all(node in nodes for node in pinned):
            inner = {
                leaf: before & nodes if leaf in shared.leaves else before for leaf, before in allowed.items()
            }  # fmt: skip
            if domain and any(inner[leaf] for leaf in shared.leaves if leaf in inner):
                yield from _choose(view, hosts, shared_domains[1:], inner)


def _domains(level: str, hosts: FreeHosts) -> dict[tuple[str, ...], frozenset[str]]:
    found: dict[tuple[str, ...], set[str]] = {}
    for name, node in hosts.nodes.items():
        domain = domain_of(node["metadata"].get("labels") or {}, level)
        if domain is not None:
            found.setdefault(domain, set()).add(name)
    return {domain: frozenset(nodes) for domain, nodes in found.items()}


def _fits_from(
    missing: Sequence[_MissingPod],
    allowed: Mapping[str, frozenset[str]],
    hosts: FreeHosts,
    at: int,
    last: int,
) -> bool:
    """Whether all pods from `at` on fit; of equal pods, later ones use later nodes."""
    if at == len(missing):
        return True
    pod_need = missing[at]
    for number, name in enumerate(pod_need.nodes):
        if number < last or name not in allowed[pod_need.leaf] or not hosts.fits(pod_need.requests, name):
            continue
        hosts.step()
        hosts.take(pod_need.requests, name)
        equal = at + 1 < len(missing) and missing[at + 1].key == pod_need.key
        found = _fits_from(missing, allowed, hosts, at + 1, number if equal else -1)
        hosts.take(pod_need.requests, name, -1)
        if found:
            return True
    return False
