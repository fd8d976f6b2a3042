"""What a node's NUMA zones would have if some pods were evicted, as far as their zones are known."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from bayplan.model.numa import EvictionUnknown, NodeZones, NumaStalenessPolicy, QosClass, Zone
from bayplan.placement.numa.reports import RunningPod
from bayplan.placement.numa.resources import asks_for_devices, is_exclusive, long_running_containers

ContainerZones = Mapping[tuple[str, str, str], int]


def zones_after_eviction(
    report: NodeZones,
    victims: Collection[RunningPod],
    container_zones: ContainerZones | None,
    policy: NumaStalenessPolicy,
) -> NodeZones | EvictionUnknown:
    """The zones after the eviction of these pods; unchanged if the policy does not evaluate evictions."""
    if not victims or container_zones is None or not policy.simulates_evictions:
        return report
    return zones_without(report, victims, container_zones)


def zones_without(
    report: NodeZones, victims: Collection[RunningPod], container_zones: ContainerZones | None
) -> NodeZones | EvictionUnknown:
    """The zones after the eviction of these pods, each of which releases its exclusive resources."""
    if not victims:
        return EvictionUnknown.NO_VICTIMS
    if container_zones is None:
        return EvictionUnknown.SEATS_UNKNOWN
    if not container_zones:
        return EvictionUnknown.SEATS_EMPTY
    released = freed(report, victims, container_zones)
    if not released:
        return EvictionUnknown.NOTHING_FREED
    zones = []
    for zone in report.zones:
        with_released = _with_released(zone, released.get(zone.number, {}))
        if with_released is None:
            return EvictionUnknown.TOO_MUCH_FREED
        zones.append(with_released)
    return replace(report, zones=tuple(zones))


def freed(
    report: NodeZones, victims: Collection[RunningPod], container_zones: ContainerZones
) -> dict[int, dict[str, int]]:
    """The exclusive amounts that victims release, by zone. Pods without exclusive resources release none."""
    listed = report.resources
    released: dict[int, dict[str, int]] = {}
    for victim in victims:
        if victim.request.qos is not QosClass.GUARANTEED and not asks_for_devices(victim.request):
            continue
        for container in long_running_containers(victim.request):
            zone = container_zones.get((*victim.name, container.name))
            if zone is None:
                continue
            for resource, amount in container.requests:
                if is_exclusive(victim.request.qos, resource, amount, listed):
                    total = released.setdefault(zone, {})
                    total[resource] = total.get(resource, 0) + amount
    return released


def _with_released(zone: Zone, released: Mapping[str, int]) -> Zone | None:
    available = dict(zone.available)
    for resource, amount in released.items():
        if resource in available:
            available[resource] += amount
            if available[resource] > zone.allocatable.get(resource, 0):
                return None
    return replace(zone, available=available)
