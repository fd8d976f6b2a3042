"""The NUMA request of a pod: its QoS class, and its containers in start order with their requests."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

import msgspec

from bayplan.dialects.kube.decode.wire import ContainerResources, ContainerWire, PodSpecWire, amounts_of
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.numa import ContainerRequest, ContainerType, NumaRequest, QosClass

QOS_RESOURCES = ("cpu", "memory")
CACHED_MAX = 1024
_cache: dict[Hashable, NumaRequest | None] = {}
CLASSES = {
    "Guaranteed": QosClass.GUARANTEED,
    "Burstable": QosClass.BURSTABLE,
    "BestEffort": QosClass.BEST_EFFORT,
}


def numa_request(spec: PodSpecWire, qos_class: str | None = None) -> NumaRequest:
    """The NUMA request of a pod. The QoS class in its status wins; without one it is computed.

    Pod-level requests are ignored: kubelets do not align them.
    """
    return NumaRequest(
        qos=CLASSES.get(qos_class or "") or qos_class_of(spec),
        containers=tuple(_container(one, role) for one, role in _containers(spec)),
        overhead=tuple(amounts_of(spec.overhead).items()),
    )


def pod_numa_request(spec: PodSpecWire, qos_class: str | None = None) -> NumaRequest | None:
    """The same, or None for a pod without requests, which is aligned on any zone.

    The result is cached, since many pods have equal specs.
    """
    key = (qos_class, _cache_key(spec))
    if key not in _cache:
        if len(_cache) >= CACHED_MAX:
            _cache.clear()
        request = numa_request(spec, qos_class)
        _cache[key] = request if any(one.requests for one in request.containers) else None
    return _cache[key]


def _cache_key(spec: PodSpecWire) -> Hashable:
    """The fields of a pod spec that the NUMA request depends on."""
    containers = tuple((one.name, *_resource_items(one.resources)) for one in spec.containers or ())
    init_containers = tuple(
        (one.name, one.restart_policy, *_resource_items(one.resources)) for one in spec.init_containers or ()
    )
    overhead = tuple(spec.overhead.items()) if spec.overhead else ()
    return containers, init_containers, overhead, *_resource_items(spec.resources)


def _resource_items(resources: ContainerResources | None) -> tuple[Hashable, Hashable]:
    if resources is None:
        return ((), ())
    return tuple((resources.requests or {}).items()), tuple((resources.limits or {}).items())


def template_numa_request(spec: Field) -> NumaRequest | None:
    """The NUMA request of a pod template; None if it is invalid, which is reported elsewhere."""
    try:
        return pod_numa_request(msgspec.convert(spec.value or {}, PodSpecWire, strict=False))
    except (msgspec.ValidationError, ValueError):
        return None


def qos_class_of(spec: PodSpecWire) -> QosClass:
    """The QoS class that the API server would set in the status."""
    pod_level = spec.resources
    if pod_level is not None and (pod_level.requests or pod_level.limits):
        parts: list[ContainerResources] = [pod_level]
    else:
        parts = [one.resources or ContainerResources() for one, _ in _containers(spec)]
    requests = _summed(_requests(part) for part in parts)
    limits = _summed(amounts_of(part.limits) for part in parts)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    limited = all(_qos_resources(amounts_of(part.limits)).keys() == set(QOS_RESOURCES) for part in parts)
    return QosClass.GUARANTEED if limited and requests == limits else QosClass.BURSTABLE


def _containers(spec: PodSpecWire) -> Iterator[tuple[ContainerWire, ContainerType]]:
    for one in spec.init_containers or ():
        yield one, ContainerType.SIDECAR if one.restart_policy == "Always" else ContainerType.INIT
    for one in spec.containers or ():
        yield one, ContainerType.APP


def _container(wire: ContainerWire, role: ContainerType) -> ContainerRequest:
    return ContainerRequest(
        wire.name, tuple(sorted(_requests(wire.resources or ContainerResources()).items())), role
    )


def _requests(resources: ContainerResources) -> dict[str, int]:
    """Requests; a limit without a request is a request too, as in the API server."""
    return amounts_of(resources.limits) | amounts_of(resources.requests)


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in _qos_resources(part).items():
            total[name] = total.get(name, 0) + value
    return total


def _qos_resources(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in amounts.items() if name in QOS_RESOURCES and value > 0}
