"""NUMA oracle in plain Python: one pod, node and zone at a time, and a search of all assignments."""

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

FreeByZone = dict[int, dict[str, int]]
ALWAYS = ("cpu", "memory", "pods", "ephemeral-storage")
PINNED = ("cpu", "memory", "hugepages-2Mi")


def is_device(resource: str) -> bool:
    return "/" in resource


def matters(resource: str, service: QosClass) -> bool:
    return service is QosClass.GUARANTEED or resource not in PINNED


def free_of(report: NodeZones) -> FreeByZone:
    return {zone.number: dict(zone.available) for zone in report.zones}


def host_wide(free: FreeByZone, resource: str) -> bool:
    unlisted = all(resource not in zone_free for zone_free in free.values())
    return unlisted and (is_device(resource) or resource == "ephemeral-storage")


def holds(free: FreeByZone, zone: int, requests: Mapping[str, int], service: QosClass, node: Node) -> bool:
    for resource, amount in requests.items():
        if amount == 0:
            continue
        if resource not in node.allocatable and resource not in ALWAYS:
            return False
        if host_wide(free, resource):
            continue
        zone_free = free.get(zone, {})
        if resource not in zone_free or (matters(resource, service) and zone_free[resource] < amount):
            return False
    return True


def needs_no_zone(free: FreeByZone, requests: Mapping[str, int], node: Node) -> bool:
    """Whether no requested resource belongs to a zone and the node has all of them."""
    requested = [resource for resource, amount in requests.items() if amount]
    return all(
        (resource in node.allocatable or resource in ALWAYS) and host_wide(free, resource)
        for resource in requested
    )


def assign(free: FreeByZone, zone: int, requests: Mapping[str, int], service: QosClass) -> None:
    for resource, amount in requests.items():
        if resource in free.get(zone, {}) and matters(resource, service):
            free[zone][resource] -= amount


def total(request: NumaRequest, *, sidecars_stay: bool) -> dict[str, int]:
    """The peak requests of the pod: at the start of each init container, or when all the others run."""
    moments: list[list[ContainerRequest]] = []
    running: list[ContainerRequest] = []
    for one in request.containers:
        if one.type is ContainerType.APP:
            continue
        moments.append([*running, one])
        if one.type is ContainerType.SIDECAR and sidecars_stay:
            running.append(one)
    moments.append(running + [one for one in request.containers if one.type is ContainerType.APP])
    sums = [_sum(moment) for moment in moments]
    peak = {name: max(one.get(name, 0) for one in sums) for one in sums for name in one}
    for name, amount in request.overhead:
        peak[name] = peak.get(name, 0) + amount
    return peak


def _sum(containers: list[ContainerRequest]) -> dict[str, int]:
    totals: dict[str, int] = {}
    for one in containers:
        for name, amount in one.requests:
            totals[name] = totals.get(name, 0) + amount
    return totals


def relevant(request: NumaRequest, report: NodeZones | None) -> bool:
    names = [name for one in request.containers for name, _ in one.requests]
    if request.qos is QosClass.BEST_EFFORT and not any(map(is_device, names)):
        return False
    return report is not None and report.alignment.policy is TopologyManagerPolicy.SINGLE_ZONE


def first_fit(
    free: FreeByZone, request: NumaRequest, report: NodeZones, node: Node, *, sidecars_stay: bool
) -> list[int] | None:
    """The zones that the kubelet would choose, subtracted from `free`; None if a container fits none."""
    if report.alignment.scope is TopologyManagerScope.POD:
        whole = tuple(total(request, sidecars_stay=sidecars_stay).items())
        containers: tuple[ContainerRequest, ...] = (ContainerRequest("", whole),)
    else:
        containers = request.containers
    chosen = []
    for one in containers:
        requests = dict(one.requests)
        fitting = [zone for zone in sorted(free) if holds(free, zone, requests, request.qos, node)]
        if not fitting and not needs_no_zone(free, requests, node):
            return None
        if fitting:
            chosen.append(fitting[0])
            if one.type is ContainerType.APP or (one.type is ContainerType.SIDECAR and sidecars_stay):
                assign(free, fitting[0], requests, request.qos)
    return chosen


def copies(request: NumaRequest, report: NodeZones, node: Node, limit: int, *, sidecars_stay: bool) -> int:
    free = free_of(report)
    for count in range(limit):
        if first_fit(free, request, report, node, sidecars_stay=sidecars_stay) is None:
            return count
    return limit


def any_assignment(request: NumaRequest, report: NodeZones, node: Node) -> bool:
    """Whether any assignment of the app containers to zones fits."""
    apps = [dict(one.requests) for one in request.containers if one.type is ContainerType.APP]
    numbers = [zone.number for zone in report.zones] or [0]
    for zones in product(numbers, repeat=len(apps)):
        free = free_of(report)
        for requests, zone in zip(apps, zones, strict=True):
            if needs_no_zone(free, requests, node):
                continue
            if not holds(free, zone, requests, request.qos, node):
                break
            assign(free, zone, requests, request.qos)
        else:
            return True
    return False


# ── scores ─────────────────────────────────────────────────────────────────────────────────────────


def units(resource: str, amount: int) -> int:
    return -(-amount // 1000) if resource == "cpu" else amount


def score_of(request: NumaRequest, report: NodeZones, score: ZoneScore, weights: Mapping[str, int]) -> int:
    """The score of one node for a Guaranteed pod; sidecars count like init containers."""
    if report.alignment.scope is TopologyManagerScope.POD:
        parts = [total(request, sidecars_stay=False)]
    else:
        parts = [dict(one.requests) for one in request.containers]
    if score is ZoneScore.FEWEST_ZONES:
        return _fewest(parts, report)
    if report.alignment.policy is not TopologyManagerPolicy.SINGLE_ZONE:
        return 0
    parts = [part for part in parts if part]
    each = [
        _lowest([_zone_score(part, zone.available, score, weights) for zone in report.zones])
        for part in parts
    ]
    return sum(each) // len(each) if each else 0


def _lowest(scores: list[int]) -> int:
    return min((score for score in scores if score), default=0)


def _zone_score(
    part: Mapping[str, int], zone_free: Mapping[str, int], score: ZoneScore, weights: Mapping[str, int]
) -> int:
    if score is ZoneScore.BALANCED:
        shares = []
        for resource, amount in part.items():
            have = units(resource, zone_free.get(resource, 0))
            shares.append(units(resource, amount) / have if have else 1.0)
        if max(shares) > 1:
            return 0
        mean = sum(shares) / len(shares)
        spread = sum((share - mean) ** 2 for share in shares) / (len(shares) - 1) if len(shares) > 1 else 0.0
        return int((1 - spread) * 100)
    points = 0
    for resource, amount in part.items():
        left = zone_free.get(resource, 0)
        if 0 < left >= amount:
            have, requested = units(resource, left), units(resource, amount)
            used = have - requested if score is ZoneScore.LEAST_ALLOCATED else requested
            points += used * 100 // have * max(weights.get(resource, 1), 1)
    return points // sum(max(weights.get(resource, 1), 1) for resource in part)


def _fewest(parts: list[dict[str, int]], report: NodeZones) -> int:
    free = free_of(report)
    listed = [zone.number for zone in report.zones]
    distances = {zone.number: zone.distances for zone in report.zones}
    widest, near = 0, True
    for part in parts:
        if not any(resource in zone_free for resource in part for zone_free in free.values()):
            continue
        smallest = _smallest(part, free, listed, distances)
        if smallest is None:
            return 0
        zones, nearest = smallest
        widest, near = max(widest, len(zones)), near and nearest
        for resource, amount in part.items():
            for zone in sorted(zones):
                used = min(free[zone][resource], amount)
                free[zone][resource] -= used
                amount -= used
    step = 100 // report.alignment.zones_max
    return max(100 - widest * step + (step // 2 if near else 0), 0) if widest else 100


def _smallest(
    part: dict[str, int], free: FreeByZone, listed: list[int], distances: Mapping[int, Mapping[int, int]]
) -> tuple[tuple[int, ...], bool] | None:
    def length(zones: tuple[int, ...]) -> int:
        return sum(distances[one].get(other, 255) for one in zones for other in zones)

    def fits(zones: tuple[int, ...]) -> bool:
        return all(
            all(resource in free[zone] for zone in zones) and sum(free[z][resource] for z in zones) >= amount
            for resource, amount in part.items()
        )

    for size in range(1, len(listed) + 1):
        sets = list(combinations(listed, size))
        good = [zones for zones in sets if fits(zones)]
        if good:
            chosen = min(good, key=length)
            return chosen, length(chosen) == min(length(zones) for zones in sets)
    return None
