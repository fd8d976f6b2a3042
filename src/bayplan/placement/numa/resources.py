"""Which resources belong to a zone, which to the whole node, and which a pod has to itself."""

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
"""Every node has these, even if it does not say how much."""


def is_device(resource: str) -> bool:
    """Whether the name is a vendor's: all that Kubernetes itself does not know."""
    return "/" in resource and "kubernetes.io/" not in resource


def is_pinned(resource: str) -> bool:
    """Whether it always has a home in some zone."""
    return resource in (CPU, MEMORY) or resource.startswith(HUGE_PAGES)


def is_host_wide(resource: str) -> bool:
    """Whether it may have no home in any zone."""
    return resource in STORED or is_device(resource)


def is_compared(resource: str, service: QosClass, rule: FitRule = FitRule.STRICT) -> bool:
    """Whether its amount matters in a zone, or only that the zone has some."""
    if rule is FitRule.PLAIN:
        if resource == CPU:
            return service is QosClass.GUARANTEED
        return not is_pinned(resource)
    return service is QosClass.GUARANTEED or not is_pinned(resource)


def is_exclusive(service: QosClass, resource: str, amount: int, listed: Collection[str]) -> bool:
    """Whether this much is nobody else's: devices that are listed; if guaranteed, whole CPUs and memory."""
    if is_device(resource):
        return resource in listed
    if service is not QosClass.GUARANTEED or amount <= 0:
        return False
    if resource == CPU:
        return amount % 1000 == 0
    return is_pinned(resource)


def lasting(wants: NumaRequest) -> tuple[ContainerRequest, ...]:
    """The containers that stay: not those of the start."""
    return tuple(container for container in wants.containers if container.role is not ContainerType.INIT)


def pinned_containers(wants: NumaRequest, listed: Collection[str]) -> tuple[str, ...]:
    """The names of the containers that have something to themselves."""
    return tuple(
        container.name
        for container in lasting(wants)
        if any(is_exclusive(wants.service, name, amount, listed) for name, amount in container.requests)
    )


def asks_for_devices(wants: NumaRequest) -> bool:
    """Whether any container names a device."""
    return any(is_device(name) for container in wants.containers for name, _ in container.requests)


def is_indifferent(wants: NumaRequest, rules: ZoneRules) -> bool:
    """Whether zones do not matter at all: nothing is promised, and no device asked for."""
    if wants.service is not QosClass.BEST_EFFORT:
        return False
    return rules.fit is FitRule.PLAIN or not asks_for_devices(wants)


def whole_pod(wants: NumaRequest, *, sidecars_stay: bool) -> Amounts:
    """What the pod takes at its most demanding moment."""
    running: dict[str, int] = {}
    starting: dict[str, int] = {}
    sidecars: dict[str, int] = {}
    for container in wants.containers:
        if container.role is ContainerType.APP:
            _add(running, container.requests)
        elif container.role is ContainerType.SIDECAR and sidecars_stay:
            _add(sidecars, container.requests)
            _raise(starting, sidecars.items())
        else:
            beside = dict(sidecars)
            _add(beside, container.requests)
            _raise(starting, beside.items())
    _add(running, sidecars.items())
    _raise(running, starting.items())
    _add(running, wants.overhead)
    return tuple(running.items())


def portions(
    wants: NumaRequest, scope: TopologyManagerScope, rules: ZoneRules
) -> tuple[ContainerRequest, ...]:
    """What has to find a zone, one after the other: each container, or the pod as a whole."""
    if rules.fit is FitRule.PLAIN:
        return tuple(container for container in wants.containers if container.role is ContainerType.APP)
    if scope is TopologyManagerScope.CONTAINER:
        return wants.containers
    return (ContainerRequest("", whole_pod(wants, sidecars_stay=rules.sidecars_stay)),)


def stays(container: ContainerRequest, rules: ZoneRules) -> bool:
    """Whether those that come after it find less room."""
    if rules.fit is FitRule.PLAIN or container.role is ContainerType.INIT:
        return False
    return container.role is ContainerType.APP or rules.sidecars_stay


def _add(total: dict[str, int], more: Iterable[tuple[str, int]]) -> None:
    for resource, amount in more:
        total[resource] = total.get(resource, 0) + amount


def _raise(total: dict[str, int], floor: Iterable[tuple[str, int]]) -> None:
    for resource, amount in floor:
        total[resource] = max(total.get(resource, 0), amount)
