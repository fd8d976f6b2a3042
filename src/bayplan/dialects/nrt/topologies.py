"""NodeResourceTopology objects as the NUMA zones of nodes. Invalid parts are reported and then ignored."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from bayplan.dialects.kube.fields.quantity import amount
from bayplan.dialects.nrt import fingerprint as prints
from bayplan.dialects.nrt.seating import METADATA, vector_of, zone_assignment
from bayplan.dialects.nrt.wire import Attribute, NodeTopologyWire, Quantity, ZoneResourceWire, ZoneWire
from bayplan.model.node import ROOM_MAX
from bayplan.model.numa import (
    Alignment,
    NodeZones,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Zone,
    ZoneAssignment,
)

POLICY, SCOPE, ZONES_MAX = "topologyManagerPolicy", "topologyManagerScope", "topologyManagerMaxNUMANodes"
ZONE_TYPE = "Node"
ZONES_LIMIT = 1024
NUMBER_MAX = 64  # kubelets cannot align with zones of a higher number

POLICIES = {
    "none": TopologyManagerPolicy.NONE,
    "best-effort": TopologyManagerPolicy.BEST_EFFORT,
    "restricted": TopologyManagerPolicy.RESTRICTED,
    "single-numa-node": TopologyManagerPolicy.SINGLE_ZONE,
}
SCOPES = {"container": TopologyManagerScope.CONTAINER, "pod": TopologyManagerScope.POD}
OLDER_POLICIES = {
    f"{name}{level}Level": (policy, scope)
    for name, policy in (
        ("SingleNUMANode", TopologyManagerPolicy.SINGLE_ZONE),
        ("Restricted", TopologyManagerPolicy.RESTRICTED),
        ("BestEffort", TopologyManagerPolicy.BEST_EFFORT),
    )
    for level, scope in (("Container", TopologyManagerScope.CONTAINER), ("Pod", TopologyManagerScope.POD))
}
DEFAULT_POLICIES = ("None", "BestEffort", "Restricted")
"""Known policies that are equal to the defaults."""

_ZONE_NAME = re.compile(r"node-\+?(\d{1,9})", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)

Problems = list[str]
DEFAULT_ALIGNMENT = Alignment()


def node_zones(topology: NodeTopologyWire) -> tuple[NodeZones, tuple[str, ...]]:
    """The zones of a node, and an error message for each part of the report that could not be used."""
    problems: Problems = []
    numbered = _numbered(topology.zones or (), problems)
    zones = tuple(_zone(number, zone, problems) for number, zone in numbered.items())
    text, method = prints.fingerprint_of(topology)
    report = NodeZones(
        node=topology.metadata.name,
        zones=zones,
        alignment=alignment(topology.topology_policies or (), topology.attributes or (), problems),
        fingerprint=_sign(text, problems),
        exclusive_only=method == prints.EXCLUSIVE,
        assignment=_seating(topology.attributes or (), numbered, problems),
    )
    if method not in (prints.ALL, prints.EXCLUSIVE):
        problems.append(f"attribute {prints.METHOD} is {method!r}; {prints.ALL} is assumed")
    return report, tuple(problems)


def alignment(
    policies: Iterable[str],
    attributes: Iterable[Attribute],
    problems: Problems,
    start: Alignment = DEFAULT_ALIGNMENT,
) -> Alignment:
    """The topology manager policy: from the first older policy, overridden by attributes."""
    current = start
    first = next(iter(policies), None)
    if first in OLDER_POLICIES:
        policy, scope = OLDER_POLICIES[first]
        current = replace(current, policy=policy, scope=scope)
    elif first is not None and first not in DEFAULT_POLICIES:
        problems.append(f"topologyPolicies[0] is {first!r}, which is not known")
    for attribute in attributes:
        current = _with_attribute(current, attribute, problems)
    return current


def _with_attribute(current: Alignment, attribute: Attribute, problems: Problems) -> Alignment:
    match attribute.name:
        case "topologyManagerPolicy" if attribute.value in POLICIES:
            return replace(current, policy=POLICIES[attribute.value])
        case "topologyManagerScope" if attribute.value in SCOPES:
            return replace(current, scope=SCOPES[attribute.value])
        case "topologyManagerMaxNUMANodes" if _WHOLE.fullmatch(attribute.value) and int(attribute.value) > 1:
            return replace(current, zones_max=min(int(attribute.value), ZONES_LIMIT))
        case "topologyManagerPolicy" | "topologyManagerScope" | "topologyManagerMaxNUMANodes":
            problems.append(f"attribute {attribute.name} is {attribute.value!r}, which is not known")
    return current


@lru_cache(maxsize=1024)
def zone_number(name: str) -> int | None:
    """The number in a zone name; None if it is invalid or beyond the highest that a node can align with."""
    match = _ZONE_NAME.fullmatch(name)
    number = NUMBER_MAX + 1 if match is None else int(match[1])
    return number if number <= NUMBER_MAX else None


def _numbered(zones: Iterable[ZoneWire], problems: Problems) -> dict[int, ZoneWire]:
    """NUMA zones by number, in the order listed; zones of other types only group these."""
    by_number: dict[int, ZoneWire] = {}
    for zone in zones:
        if zone.type != ZONE_TYPE:
            continue
        number = zone_number(zone.name)
        if number is None:
            problems.append(
                f"zone {zone.name!r} is left out: the name must be node- and a number up to {NUMBER_MAX}"
            )
        elif number in by_number:
            problems.append(f"zone {zone.name!r} is listed twice; the first counts")
        else:
            by_number[number] = zone
    return by_number


def _zone(number: int, wire: ZoneWire, problems: Problems) -> Zone:
    available: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    for resource in wire.resources or ():
        free = _amount(wire, resource, "available", problems)
        limit = _amount(wire, resource, "allocatable", problems)
        free = limit if free is None else free  # the oldest reports have only allocatable
        if free is None:
            problems.append(f"zone {wire.name!r} has no valid amount of {resource.name}")
            continue
        available[resource.name] = max(free, 0)
        if limit is not None:
            allocatable[resource.name] = limit
    distances = {to: cost.value for cost in wire.costs or () if (to := zone_number(cost.name)) is not None}
    return Zone(number, available, allocatable, distances)


def _amount(zone: ZoneWire, resource: ZoneResourceWire, field: str, problems: Problems) -> int | None:
    value: Quantity = getattr(resource, field)
    if value is None:
        return None
    try:
        return min(amount(resource.name, value), ROOM_MAX - 1)
    except ValueError as error:
        problems.append(f"zone {zone.name!r}: {field} of {resource.name} is {value!r}: {error}")
        return None


def _sign(text: str, problems: Problems) -> int | None:
    if not text:
        return None
    try:
        return prints.hash_of(text)
    except ValueError as error:
        problems.append(f"the pod fingerprint is {text!r}: {error}")
        return None


def _seating(
    attributes: Iterable[Attribute], zones: Mapping[int, ZoneWire], problems: Problems
) -> ZoneAssignment | None:
    metadata = next((one.value for one in attributes if one.name == METADATA), None)
    if metadata is None:
        return None
    try:
        return zone_assignment(
            metadata, ((number, vector_of(zone.attributes or ())) for number, zone in zones.items())
        )
    except ValueError as error:
        problems.append(f"attribute {METADATA}: {error}")
        return None


def new_problems(
    reported: dict[str, tuple[str, ...]], node: str, problems: tuple[str, ...]
) -> tuple[str, ...]:
    """The problems of a node that were not reported before; `reported` is updated."""
    previous = reported.pop(node, ())
    if problems:
        reported[node] = problems
    return tuple(problem for problem in problems if problem not in previous)
