"""Pod objects: the requests of a pod, and its usage of the node it is bound to."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from bayplan.dialects.kube.decode.node_fields import amounts
from bayplan.dialects.kube.fields.quantity import REQUEST_MAX
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.node import PODS

Amounts = dict[str, int]

_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class PodUsage:
    """The usage of a bound pod on its node, including its `pods` slot."""

    namespace: str
    name: str
    node: str
    amounts: Mapping[str, int]


def usage_of(pod: Field) -> PodUsage | None:
    """The usage of a pod; None if it is not bound or has finished."""
    if not holds_capacity(pod):
        return None
    meta = pod.at("metadata")
    return PodUsage(
        namespace=meta.at("namespace").text("default"),
        name=meta.at("name").text(),
        node=node_name(pod),
        amounts=pod_requests(pod.at("spec")) | {PODS: 1},
    )


def usage_by_node(uses: Iterable[PodUsage]) -> dict[str, Amounts]:
    """The total usage by node."""
    total: dict[str, Amounts] = {}
    for use in uses:
        _add(total.setdefault(use.node, {}), use.amounts)
    return total


def node_name(pod: Field) -> str:
    """The node that a pod is bound to; empty if none."""
    return pod.at("spec", "nodeName").text()


def is_finished(pod: Field) -> bool:
    """Whether the pod has finished."""
    return pod.at("status", "phase").text() in _FINISHED


def holds_capacity(pod: Field) -> bool:
    """Whether the pod uses resources of a node."""
    return bool(node_name(pod)) and not is_finished(pod)


def pod_requests(spec: Field) -> Amounts:
    """The effective requests of a pod spec, without zero amounts.

    Containers run together; init containers run one after the other before them, together with the sidecars
    (restartable init containers) that started earlier; sidecars keep running.
    """
    running: Amounts = {}
    for container in spec.at("containers").items():
        _add(running, _container_requests(container.at("resources")))
    starting: Amounts = {}
    sidecars: Amounts = {}
    for container in spec.at("initContainers").items():
        own = _container_requests(container.at("resources"))
        if container.at("restartPolicy").text() == "Always":
            _add(sidecars, own)
            _take_max(starting, sidecars)
        else:
            _add(own, sidecars)
            _take_max(starting, own)
    _add(running, sidecars)
    _take_max(running, starting)
    running |= _pod_level_requests(spec.at("resources"), running)
    _add(running, amounts(spec.at("overhead")))
    return {resource: min(amount, REQUEST_MAX) for resource, amount in running.items() if amount}


def _container_requests(resources: Field) -> Amounts:
    """A container's requests; a limit without a request is a request too, as in the API server."""
    return amounts(resources.at("limits")) | amounts(resources.at("requests"))


def _pod_level_requests(resources: Field, containers: Amounts) -> Amounts:
    """Pod-level requests, which override the sum of the containers."""
    limits = amounts(resources.at("limits"))
    defaults = {resource: amount for resource, amount in limits.items() if resource not in containers}
    stated = defaults | amounts(resources.at("requests"))
    return {resource: amount for resource, amount in stated.items() if _is_pod_level(resource)}


def _is_pod_level(resource: str) -> bool:
    return resource in ("cpu", "memory") or resource.startswith("hugepages-")


def _add(total: Amounts, more: Mapping[str, int]) -> None:
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + amount


def _take_max(total: Amounts, other: Mapping[str, int]) -> None:
    for resource, amount in other.items():
        total[resource] = max(total.get(resource, 0), amount)
