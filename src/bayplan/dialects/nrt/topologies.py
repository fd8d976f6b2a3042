"""NodeResourceTopology objects → zones of nodes. What makes no sense is told, and then taken as not said."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import lru_cache

from bayplan.dialects.kube.fields.quantity import amount
from bayplan.dialects.nrt import fingerprint as prints
from bayplan.dialects.nrt.seating import METADATA, seating, vector_of
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
NUMBER_MAX = 64  # no kubelet can align with zones beyond

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
SILENT_POLICIES = ("None", "BestEffort", "Restricted")
"""They are known, and say nothing that the defaults do not."""

_ZONE_NAME = re.compile(r"node-\+?(\d{1,9})", re.ASCII)
_WHOLE = re.compile(r"[+-]?\d{1,18}", re.ASCII)

Problems = list[str]
USUAL = Alignment()


def node_zones(topology: NodeTopologyWire) -> tuple[NodeZones, tuple[str, ...]]:
    """A node's zones, and a sentence for everything in the report that could not be used."""
    problems: Problems = []
    numbered = _numbered(topology.zones or (), problems)
    zones = tuple(_zone(number, zone, problems) for number, zone in numbered.items())
    text, method = prints.fingerprint_of(topology)
    report = NodeZones(
        node=topology.metadata.name,
        zones=zones,
        alignment=alignment(topology.topology_policies or (), topology.attributes or (), problems),
        sign=_sign(text, problems),
        exclusive_only=method == prints.EXCLUSIVE,
        seating=_seating(topology.attributes or (), numbered, problems),
    )
    if method not in (prints.ALL, prints.EXCLUSIVE):
        problems.append(f"attribute {prints.METHOD} is {method!r}; {prints.ALL} is assumed")
    return report, tuple(problems)


def alignment(
    policies: Iterable[str],
    attributes: Iterable[Attribute],
    problems: Problems,
    start: Alignment = USUAL,
) -> Alignment:
    """How the node aligns: by the first of the older policies, then by attributes, which know better."""
    found = start
    first = next(iter(policies), None)
    if first in OLDER_POLICIES:
        policy, scope = OLDER_POLICIES[first]
        found = replace(found, policy=policy, scope=scope)
    elif first is not None and first not in SILENT_POLICIES:
        problems.append(f"topologyPolicies[0] is {first!r}, which is not known")
    for one in attributes:
        found = _with_attribute(found, one, problems)
    return found


def _with_attribute(found: Alignment, one: Attribute, problems: Problems) -> Alignment:
    match one.name:
        case "topologyManagerPolicy" if one.value in POLICIES:
            return replace(found, policy=POLICIES[one.value])
        case "topologyManagerScope" if one.value in SCOPES:
            return replace(found, scope=SCOPES[one.value])
        case "topologyManagerMaxNUMANodes" if _WHOLE.fullmatch(one.value) and int(one.value) > 1:
            return replace(found, zones_max=min(int(one.value), ZONES_LIMIT))
        case "topologyManagerPolicy" | "topologyManagerScope" | "topologyManagerMaxNUMANodes":
            problems.append(f"attribute {one.name} is {one.value!r}, which is not known")
    return found


@lru_cache(maxsize=1024)
def zone_number(name: str) -> int | None:
    """The number in the name of a zone, if it is one that a node can align with."""
    match = _ZONE_NAME.fullmatch(name)
    number = NUMBER_MAX + 1 if match is None else int(match[1])
    return number if number <= NUMBER_MAX else None


def _numbered(zones: Iterable[ZoneWire], problems: Problems) -> dict[int, ZoneWire]:
    """Zones that hold memory and CPUs, by number, in the order listed; other kinds are groups of these."""
    found: dict[int, ZoneWire] = {}
    for zone in zones:
        if zone.type != ZONE_TYPE:
            continue
        number = zone_number(zone.name)
        if number is None:
            problems.append(
                f"zone {zone.name!r} is left out: the name must be node- and a number up to {NUMBER_MAX}"
            )
        elif number in found:
            problems.append(f"zone {zone.name!r} is listed twice; the first counts")
        else:
            found[number] = zone
    return found


def _zone(number: int, wire: ZoneWire, problems: Problems) -> Zone:
    available: dict[str, int] = {}
    allocatable: dict[str, int] = {}
    for resource in wire.resources or ():
        left = _amount(wire, resource, "available", problems)
        given = _amount(wire, resource, "allocatable", problems)
        left = given if left is None else left  # the oldest reports know nothing else
        if left is None:
            problems.append(f"zone {wire.name!r} says nothing usable of {resource.name}")
            continue
        available[resource.name] = max(left, 0)
        if given is not None:
            allocatable[resource.name] = given
    distances = {to: cost.value for cost in wire.costs or () if (to := zone_number(cost.name)) is not None}
    return Zone(number, available, allocatable, distances)


def _amount(zone: ZoneWire, resource: ZoneResourceWire, field: str, problems: Problems) -> int | None:
    value: Quantity = getattr(resource, field)
    if value is None:
        return None
    try:
        return min(amount(resource.name, value), ROOM_MAX - 1)
    except ValueError as wrong:
        problems.append(f"zone {zone.name!r}: {field} of {resource.name} is {value!r}: {wrong}")
        return None


def _sign(text: str, problems: Problems) -> int | None:
    if not text:
        return None
    try:
        return prints.sign_of(text)
    except ValueError as wrong:
        problems.append(f"the fingerprint of its pods is {text!r}: {wrong}")
        return None


def _seating(
    attributes: Iterable[Attribute], zones: Mapping[int, ZoneWire], problems: Problems
) -> ZoneAssignment | None:
    metadata = next((one.value for one in attributes if one.name == METADATA), None)
    if metadata is None:
        return None
    try:
        return seating(
            metadata, ((number, vector_of(zone.attributes or ())) for number, zone in zones.items())
        )
    except ValueError as wrong:
        problems.append(f"attribute {METADATA}: {wrong}")
        return None


def news(told: dict[str, tuple[str, ...]], node: str, problems: tuple[str, ...]) -> tuple[str, ...]:
    """The problems of a node that were not told of before; `told` is brought up to date."""
    before = told.pop(node, ())
    if problems:
        told[node] = problems
    return tuple(problem for problem in problems if problem not in before)
