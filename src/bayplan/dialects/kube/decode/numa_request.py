"""Pods → what they ask of zones: containers in the order of their start, and how much is promised to them."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping

import msgspec

from bayplan.dialects.kube.decode.wire import ContainerResources, PodSpecWire, amounts_of
from bayplan.dialects.kube.decode.wire import ContainerWire as ContainerWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.model.numa import ContainerRequest, ContainerType, NumaRequest, QosClass

PROMISED = ("cpu", "memory")
KNOWN_MAX = 1024
_known: dict[Hashable, NumaRequest | None] = {}
CLASSES = {
    "Guaranteed": QosClass.GUARANTEED,
    "Burstable": QosClass.BURSTABLE,
    "BestEffort": QosClass.BEST_EFFORT,
}


def zone_wants(spec: PodSpecWire, qos_class: str | None = None) -> NumaRequest:
    """What a pod asks of zones. The class in its status counts; without one it is worked out.

    Requests of the pod as a whole are not looked at: nodes do not align them.
    """
    return NumaRequest(
        service=CLASSES.get(qos_class or "") or service_of(spec),
        containers=tuple(_container(one, role) for one, role in _containers(spec)),
        overhead=tuple(amounts_of(spec.overhead).items()),
    )


def pod_zone_wants(spec: PodSpecWire, qos_class: str | None = None) -> NumaRequest | None:
    """The same, and None for a pod that asks for nothing at all: it is aligned wherever it is.

    Pods come by the thousand and are of few sorts: what is known of a sort is worked out once.
    """
    key = (qos_class, _sort(spec))
    if key not in _known:
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        found = zone_wants(spec, qos_class)
        _known[key] = found if any(one.requests for one in found.containers) else None
    return _known[key]


def _sort(spec: PodSpecWire) -> Hashable:
    """All of a pod that zones depend on, as it is written."""
    containers = tuple((one.name, *_written(one.resources)) for one in spec.containers or ())
    first = tuple(
        (one.name, one.restart_policy, *_written(one.resources)) for one in spec.init_containers or ()
    )
    overhead = tuple(spec.overhead.items()) if spec.overhead else ()
    return containers, first, overhead, *_written(spec.resources)


def _written(resources: ContainerResources | None) -> tuple[Hashable, Hashable]:
    if resources is None:
        return ((), ())
    return tuple((resources.requests or {}).items()), tuple((resources.limits or {}).items())


def template_zone_wants(spec: Field) -> NumaRequest | None:
    """What the pods of a template ask of zones. What cannot be read is told by those who read all of it."""
    try:
        return pod_zone_wants(msgspec.convert(spec.value or {}, PodSpecWire, strict=False))
    except (msgspec.ValidationError, ValueError):
        return None


def service_of(spec: PodSpecWire) -> QosClass:
    """The class that the API server would write into the status."""
    whole = spec.resources
    if whole is not None and (whole.requests or whole.limits):
        parts: list[ContainerResources] = [whole]
    else:
        parts = [one.resources or ContainerResources() for one, _ in _containers(spec)]
    requests = _summed(_asked(part) for part in parts)
    limits = _summed(amounts_of(part.limits) for part in parts)
    if not requests and not limits:
        return QosClass.BEST_EFFORT
    limited = all(_promised(amounts_of(part.limits)).keys() == set(PROMISED) for part in parts)
    return QosClass.GUARANTEED if limited and requests == limits else QosClass.BURSTABLE


def _containers(spec: PodSpecWire) -> Iterator[tuple[ContainerWire, ContainerType]]:
    for one in spec.init_containers or ():
        yield one, ContainerType.SIDECAR if one.restart_policy == "Always" else ContainerType.INIT
    for one in spec.containers or ():
        yield one, ContainerType.APP


def _container(wire: ContainerWire, role: ContainerType) -> ContainerRequest:
    return ContainerRequest(
        wire.name, tuple(sorted(_asked(wire.resources or ContainerResources()).items())), role
    )


def _asked(resources: ContainerResources) -> dict[str, int]:
    """Requests; a limit without a request is one too, as the API server has it."""
    return amounts_of(resources.limits) | amounts_of(resources.requests)


def _summed(parts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for part in parts:
        for name, value in _promised(part).items():
            total[name] = total.get(name, 0) + value
    return total


def _promised(amounts: Mapping[str, int]) -> dict[str, int]:
    return {name: value for name, value in amounts.items() if name in PROMISED and value > 0}
