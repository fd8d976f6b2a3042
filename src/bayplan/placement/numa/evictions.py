"""What a node's zones would hold if some pods left: as much as is known of where they sit."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from bayplan.model.numa import EvictionUnknown, NodeZones, NumaStalenessPolicy, QosClass, Zone
from bayplan.placement.numa.reports import RunningPod
from bayplan.placement.numa.resources import asks_for_devices, is_exclusive, lasting

Seats = Mapping[tuple[str, str, str], int]


def imagined(
    report: NodeZones, victims: Collection[RunningPod], seats: Seats | None, care: NumaStalenessPolicy
) -> NodeZones | EvictionUnknown:
    """The zones to try a pod on if these pods were to leave; as they are, if that is not imagined at all."""
    if not victims or seats is None or not care.thinks_ahead:
        return report
    return without(report, victims, seats)


def without(
    report: NodeZones, victims: Collection[RunningPod], seats: Seats | None
) -> NodeZones | EvictionUnknown:
    """The zones after these pods left, each giving back what it had to itself where it sat."""
    if not victims:
        return EvictionUnknown.NOBODY
    if seats is None:
        return EvictionUnknown.SEATS_UNKNOWN
    if not seats:
        return EvictionUnknown.SEATS_EMPTY
    gained = freed(report, victims, seats)
    if not gained:
        return EvictionUnknown.NOTHING_FREED
    zones = []
    for zone in report.zones:
        more = _with_more(zone, gained.get(zone.number, {}))
        if more is None:
            return EvictionUnknown.TOO_MUCH_FREED
        zones.append(more)
    return replace(report, zones=tuple(zones))


def freed(report: NodeZones, victims: Collection[RunningPod], seats: Seats) -> dict[int, dict[str, int]]:
    """Amounts by zone. Pods that pinned nothing give nothing back."""
    listed = report.resources
    found: dict[int, dict[str, int]] = {}
    for victim in victims:
        if victim.wants.service is not QosClass.GUARANTEED and not asks_for_devices(victim.wants):
            continue
        for container in lasting(victim.wants):
            zone = seats.get((*victim.name, container.name))
            if zone is None:
                continue
            for resource, amount in container.requests:
                if is_exclusive(victim.wants.service, resource, amount, listed):
                    total = found.setdefault(zone, {})
                    total[resource] = total.get(resource, 0) + amount
    return found


def _with_more(zone: Zone, freed: Mapping[str, int]) -> Zone | None:
    left = dict(zone.available)
    for resource, amount in freed.items():
        if resource in left:
            left[resource] += amount
            if left[resource] > zone.allocatable.get(resource, 0):
                return None
    return replace(zone, available=left)
