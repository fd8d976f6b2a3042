"""Which resources belong to a NUMA zone, which to the whole node, and which are exclusive to a pod."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from bayplan.model.numa import (
    Amounts,
    ContainerRequest,
    ContainerType,
    FitRule,
    NumaRequest,
    QosClass,
    TopologyManagerScope,
    ZoneRules,
)

CPU, MEMORY = "cpu", "memory"
HUGE_PAGES = "hugepages-"
STORED = ("ephemeral-storage", "storage")
ALWAYS_OFFERED = frozenset({"cpu", "memory", "pods", "ephemeral-storage"})
"""Every node has these, even if it does not list them."""


def is_device(resource: str) -> bool:
    """Whether a resource is an extended resource of a vendor."""
    return "/" in resource and "kubernetes.io/" not in resource


def is_pinned(resource: str) -> bool:
    """Whether a resource always belongs to some zone."""
    return resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES)


def is_host_wide(resource: str) -> bool:
    """Whether a resource may belong to no zone."""
    return resource in STORED or is_device(resource)


def is_compared(resource: str, service: QosClass, rule: FitRule = FitRule.STRICT) -> bool:
    """Whether the amount of a resource must fit a zone, or the zone only has to list it."""
    if rule is FitRule.PLAIN:
        if resource == CPU:
            return service is QosClass.GUARANTEED
        return not is_pinned(resource)
    return service is QosClass.GUARANTEED or not is_pinned(resource)


def is_exclusive(service: QosClass, resource: str, amount: int, listed: Collection[str]) -> bool:
    """Whether an amount is exclusive: listed devices; for Guaranteed pods also whole CPUs and memory."""
    if is_device(resource):
        return resource in listed
    if service is not QosClass.GUARANTEED or amount <= 0:
        return False
    if resource == CPU:
        return amount % 1000 == 0
    return is_pinned(resource)


def long_running_containers(request: NumaRequest) -> tuple[ContainerRequest, ...]:
    """The containers that run as long as the pod: all but init containers."""
    return tuple(container for container in request.containers if container.type is not ContainerType.INIT)


def pinned_containers(request: NumaRequest, listed: Collection[str]) -> tuple[str, ...]:
    """The names of the containers with exclusive resources."""
    return tuple(
        container.name
        for container in long_running_containers(request)
        if any(is_exclusive(request.qos, name, amount, listed) for name, amount in container.requests)
    )


def asks_for_devices(request: NumaRequest) -> bool:
    """Whether any container requests a device."""
    return any(is_device(name) for container in request.containers for name, _ in container.requests)


def is_indifferent(request: NumaRequest, rules: ZoneRules) -> bool:
    """Whether zones do not matter: a BestEffort pod that requests no device."""
    if request.qos is not QosClass.BEST_EFFORT:
        return False
    return rules.fit is FitRule.PLAIN or not asks_for_devices(request)


def whole_pod(request: NumaRequest, *, sidecars_stay: bool) -> Amounts:
    """The peak requests of the pod over its start and its run."""
    running: dict[str, int] = {}
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in request.containers:
        if container.type is ContainerType.APP:
            _add(running, container.requests)
        elif container.type is ContainerType.SIDECAR and sidecars_stay:
            _add(sidecars, container.requests)
            _raise(starting, sidecars.items())
        else:
            with_sidecars = dict(sidecars)
            _add(with_sidecars, container.requests)
            _raise(starting, with_sidecars.items())
    _add(running, sidecars.items())
    _raise(running, starting.items())
    _add(running, request.overhead)
    return tuple(running.items())


def aligned_requests(
    request: NumaRequest, scope: TopologyManagerScope, rules: ZoneRules
) -> tuple[ContainerRequest, ...]:
    """The requests to assign to zones in order: each container, or the pod as a whole."""
    if rules.fit is FitRule.PLAIN:
        return tuple(container for container in request.containers if container.type is ContainerType.APP)
    if scope is TopologyManagerScope.CONTAINER:
        return request.containers
    return (ContainerRequest("", whole_pod(request, sidecars_stay=rules.sidecars_stay)),)


def keeps_resources(container: ContainerRequest, rules: ZoneRules) -> bool:
    """Whether a container keeps its resources while later containers are assigned."""
    if rules.fit is FitRule.PLAIN or container.type is ContainerType.INIT:
        return False
    return container.type is ContainerType.APP or rules.sidecars_stay


def _add(total: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for resource, amount in more:
        total[resource] = total.get(resource, 0) + amount


def _raise(total: dict[str, int], minimum: Iterable[tuple[str, int]]) -> None:
    for resource, amount in minimum:
        total[resource] = max(total.get(resource, 0), amount)
