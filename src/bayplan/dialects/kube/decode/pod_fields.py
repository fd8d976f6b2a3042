"""Pod objects: what a pod asks for, and what it takes from the node it is bound to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bayplan.dialects.kube.decode.node_fields import amounts
from bayplan.dialects.kube.fields.quantity import REQUEST_MAX
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.node import PODS

Amounts = dict[str, int]

_OVER = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodUse:
    """What one bound pod takes from its node, its own `pods` slot included."""

    namespace: str
    name: str
    node: str
    amounts: Mapping[str, int]


def pod_use(pod: Field) -> PodUse | None:
    """What the pod takes, or None if it takes nothing: not bound yet, or over."""
    if not holds_capacity(pod):
        return None
    meta = pod.at("metadata")
    return PodUse(
        namespace=meta.at("namespace").text("default"),
        name=meta.at("name").text(),
        node=node_name(pod),
        amounts=pod_requests(pod.at("spec")) | {PODS: 1},
    )


def usage_by_node(uses: Iterable[PodUse]) -> dict[str, Amounts]:
    """The sum of what pods take, by node."""
    total: dict[str, Amounts] = {}
    for use in uses:
        _add(total.setdefault(use.node, {}), use.amounts)
    return total


def node_name(pod: Field) -> str:
    """The node a pod is bound to, or nothing."""
    return pod.at("spec", "nodeName").text()


def is_over(pod: Field) -> bool:
    """Whether all containers have ended for good."""
    return pod.at("status", "phase").text() in _OVER


def holds_capacity(pod: Field) -> bool:
    """Whether the pod takes room on a node."""
    return bool(node_name(pod)) and not is_over(pod)


def pod_requests(spec: Field) -> Amounts:
    """What one pod of this spec asks for at its most demanding moment. Zero amounts are left out.

    Containers run together; init containers run before them one by one, each beside the sidecars
    (init containers that are restarted forever) that started earlier; sidecars stay.
    """
    running: Amounts = {}
    for container in spec.at("containers").items():
        _add(running, _own(container.at("resources")))
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.at("initContainers").items():
        own = _own(container.at("resources"))
        if container.at("restartPolicy").text() == "Always":
            _add(sidecars, own)
            _raise_to(starting, sidecars)
        else:
            _add(own, sidecars)
            _raise_to(starting, own)
    _add(running, sidecars)
    _raise_to(running, starting)
    running |= _of_whole_pod(spec.at("resources"), running)
    _add(running, amounts(spec.at("overhead")))
    return {resource: min(amount, REQUEST_MAX) for resource, amount in running.items() if amount}


def _own(resources: Field) -> Amounts:
    """A container's requests; a limit without a request is one too, as the API server has it."""
    return amounts(resources.at("limits")) | amounts(resources.at("requests"))


def _of_whole_pod(resources: Field, containers: Amounts) -> Amounts:
    """Requests stated for the pod as a whole, which stand above the sum of its containers."""
    limits = amounts(resources.at("limits"))
    defaults = {resource: amount for resource, amount in limits.items() if resource not in containers}
    stated = defaults | amounts(resources.at("requests"))
    return {resource: amount for resource, amount in stated.items() if _is_pod_level(resource)}


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _raise_to(total: Amounts, floor: Mapping[str, int]) -> None:
    for resource, amount in floor.items():
        total[resource] = max(total.get(resource, 0), amount)
