"""Zones by plain Python: one pod, one node, one zone after the other; and every way to seat a pod at all."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import combinations, product

from bayplan.model.node import Node
from bayplan.model.numa import (
    ContainerRequest,
    ContainerType,
    NodeZones,
    NumaRequest,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    ZoneScore,
)

Rooms = dict[int, dict[str, int]]
ALWAYS = ("cpu", "memory", "pods", "ephemeral-storage")
PINNED = ("cpu", "memory", "hugepages-2Mi")


def vendors(resource: str) -> bool:
    return "/" in resource


def matters(resource: str, service: QosClass) -> bool:
    return service is QosClass.GUARANTEED or resource not in PINNED


def rooms_of(report: NodeZones) -> Rooms:
    return {zone.number: dict(zone.available) for zone in report.zones}


def host_wide(rooms: Rooms, resource: str) -> bool:
    homeless = all(resource not in room for room in rooms.values())
    return homeless and (vendors(resource) or resource == "ephemeral-storage")


def holds(rooms: Rooms, zone: int, requests: Mapping[str, int], service: QosClass, node: Node) -> bool:
    for resource, amount in requests.items():
        if amount == 0:
            continue
        if resource not in node.allocatable and resource not in ALWAYS:
            return False
        if host_wide(rooms, resource):
            continue
        room = rooms.get(zone, {})
        if resource not in room or (matters(resource, service) and room[resource] < amount):
            return False
    return True


def carefree(rooms: Rooms, requests: Mapping[str, int], node: Node) -> bool:
    """Whether nothing that is asked for has to do with zones, and the node has all of it."""
    asked = [resource for resource, amount in requests.items() if amount]
    return all(
        (resource in node.allocatable or resource in ALWAYS) and host_wide(rooms, resource)
        for resource in asked
    )


def seat(rooms: Rooms, zone: int, requests: Mapping[str, int], service: QosClass) -> None:
    for resource, amount in requests.items():
        if resource in rooms.get(zone, {}) and matters(resource, service):
            rooms[zone][resource] -= amount


def total(wants: NumaRequest, *, sidecars_stay: bool) -> dict[str, int]:
    """What the pod takes at its peak: at the start of each init container, or when all the others run."""
    moments: list[list[ContainerRequest]] = []
    running: list[ContainerRequest] = []
    for one in wants.containers:
        if one.role is ContainerType.APP:
            continue
        moments.append([*running, one])
        if one.role is ContainerType.SIDECAR and sidecars_stay:
            running.append(one)
    moments.append(running + [one for one in wants.containers if one.role is ContainerType.APP])
    sums = [_sum(moment) for moment in moments]
    peak = {name: max(one.get(name, 0) for one in sums) for one in sums for name in one}
    for name, amount in wants.overhead:
        peak[name] = peak.get(name, 0) + amount
    return peak


def _sum(containers: list[ContainerRequest]) -> dict[str, int]:
    found: dict[str, int] = {}
    for one in containers:
        for name, amount in one.requests:
            found[name] = found.get(name, 0) + amount
    return found


def relevant(wants: NumaRequest, report: NodeZones | None) -> bool:
    names = [name for one in wants.containers for name, _ in one.requests]
    if wants.service is QosClass.BEST_EFFORT and not any(map(vendors, names)):
        return False
    return report is not None and report.alignment.policy is TopologyManagerPolicy.SINGLE_ZONE


def first_fit(
    rooms: Rooms, wants: NumaRequest, report: NodeZones, node: Node, *, sidecars_stay: bool
) -> list[int] | None:
    """The zones that the node would choose, taken out of the rooms; None at the first that finds none."""
    if report.alignment.scope is TopologyManagerScope.POD:
        whole = tuple(total(wants, sidecars_stay=sidecars_stay).items())
        containers: tuple[ContainerRequest, ...] = (ContainerRequest("", whole),)
    else:
        containers = wants.containers
    chosen = []
    for one in containers:
        requests = dict(one.requests)
        fitting = [zone for zone in sorted(rooms) if holds(rooms, zone, requests, wants.service, node)]
        if not fitting and not carefree(rooms, requests, node):
            return None
        if fitting:
            chosen.append(fitting[0])
            if one.role is ContainerType.APP or (one.role is ContainerType.SIDECAR and sidecars_stay):
                seat(rooms, fitting[0], requests, wants.service)
    return chosen


def copies(wants: NumaRequest, report: NodeZones, node: Node, most: int, *, sidecars_stay: bool) -> int:
    rooms = rooms_of(report)
    for count in range(most):
        if first_fit(rooms, wants, report, node, sidecars_stay=sidecars_stay) is None:
            return count
    return most


def any_seating(wants: NumaRequest, report: NodeZones, node: Node) -> bool:
    """Whether the containers that run together can be seated in zones in any way at all."""
    apps = [dict(one.requests) for one in wants.containers if one.role is ContainerType.APP]
    numbers = [zone.number for zone in report.zones] or [0]
    for zones in product(numbers, repeat=len(apps)):
        rooms = rooms_of(report)
        for requests, zone in zip(apps, zones, strict=True):
            if carefree(rooms, requests, node):
                continue
            if not holds(rooms, zone, requests, wants.service, node):
                break
            seat(rooms, zone, requests, wants.service)
        else:
            return True
    return False


# ── scores ─────────────────────────────────────────────────────────────────────────────────────────


def units(resource: str, amount: int) -> int:
    return -(-amount // 1000) if resource == "cpu" else amount


def worth(wants: NumaRequest, report: NodeZones, score: ZoneScore, weights: Mapping[str, int]) -> int:
    """The score of one node for a guaranteed pod; sidecars are looked at like any init container."""
    if report.alignment.scope is TopologyManagerScope.POD:
        parts = [total(wants, sidecars_stay=False)]
    else:
        parts = [dict(one.requests) for one in wants.containers]
    if score is ZoneScore.FEWEST_ZONES:
        return _fewest(parts, report)
    if report.alignment.policy is not TopologyManagerPolicy.SINGLE_ZONE:
        return 0
    parts = [part for part in parts if part]
    each = [
        _worst([_zone_worth(part, zone.available, score, weights) for zone in report.zones]) for part in parts
    ]
    return sum(each) // len(each) if each else 0


def _worst(scores: list[int]) -> int:
    return min((score for score in scores if score), default=0)


def _zone_worth(
    part: Mapping[str, int], room: Mapping[str, int], score: ZoneScore, weights: Mapping[str, int]
) -> int:
    if score is ZoneScore.BALANCED:
        shares = []
        for resource, amount in part.items():
            have = units(resource, room.get(resource, 0))
            shares.append(units(resource, amount) / have if have else 1.0)
        if max(shares) > 1:
            return 0
        mean = sum(shares) / len(shares)
        spread = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) if len(shares) > 1 else 0.0
        return int((1 - spread) * 100)
    points = 0
    for resource, amount in part.items():
        left = room.get(resource, 0)
        if 0 < left >= amount:
            have, asked = units(resource, left), units(resource, amount)
            used = have - asked if score is ZoneScore.LEAST_ALLOCATED else asked
            points += used * 100 // have * max(weights.get(resource, 1), 1)
    return points // sum(max(weights.get(resource, 1), 1) for resource in part)


def _fewest(parts: list[dict[str, int]], report: NodeZones) -> int:
    rooms = rooms_of(report)
    listed = [zone.number for zone in report.zones]
    distances = {zone.number: zone.distances for zone in report.zones}
    widest, near = 0, True
    for part in parts:
        if not any(resource in room for resource in part for room in rooms.values()):
            continue
        found = _smallest(part, rooms, listed, distances)
        if found is None:
            return 0
        zones, nearest = found
        widest, near = max(widest, len(zones)), near and nearest
        for resource, amount in part.items():
            for zone in sorted(zones):
                used = min(rooms[zone][resource], amount)
                rooms[zone][resource] -= used
                amount -= used
    step = 100 // report.alignment.zones_max
    return max(100 - widest * step + (step // 2 if near else 0), 0) if widest else 100


def _smallest(
    part: dict[str, int], rooms: Rooms, listed: list[int], distances: Mapping[int, Mapping[int, int]]
) -> tuple[tuple[int, ...], bool] | None:
    def length(zones: tuple[int, ...]) -> int:
        return sum(distances[one].get(other, 255) for one in zones for other in zones)

    def fits(zones: tuple[int, ...]) -> bool:
        return all(
            all(resource in rooms[zone] for zone in zones)
            and sum(rooms[z][resource] for z in zones) >= amount
            for resource, amount in part.items()
        )

    for size in range(1, len(listed) + 1):
        sets = list(combinations(listed, size))
        good = [zones for zones in sets if fits(zones)]
        if good:
            chosen = min(good, key=length)
            return chosen, length(chosen) == min(length(zones) for zones in sets)
    return None
