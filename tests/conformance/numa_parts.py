"""numa/least_numa*, numa_helpers*, nodeconfig*, exclusive*, config*, podfingerprint*: the small parts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from bayplan.dialects.kube.decode.numa_request import CLASSES
from bayplan.dialects.kube.decode.wire import amounts_of
from bayplan.dialects.nrt.fingerprint import fingerprint_with, hash_of
from bayplan.dialects.nrt.topologies import POLICIES, SCOPES, alignment
from bayplan.model.node import Node
from bayplan.model.numa import Alignment, ContainerRequest, FitRule, NodeZones, QosClass, Zone
from bayplan.placement.numa.columns import FAR, NumaColumns, zone_columns
from bayplan.placement.numa.fingerprint import pods_fingerprint
from bayplan.placement.numa.resources import asks_for_devices, is_host_wide, is_pinned, pinned_containers
from bayplan.placement.numa.smallest_set import (
    nodes_listing_any,
    score_of,
    set_distances,
    smallest_zone_sets,
    subtract_from_zones,
    zone_sets,
)
from bayplan.placement.numa.workspace import take, workspace_for
from tests.conformance.numa_objects import Object, topology_of, wants_of
from tests.conformance.registry import Check, ForFile
from tests.support.numa_plugin_arguments import FOREIGN_PODS, PREEMPTION_MODES, RESYNC_METHODS, numa_settings

ROWS = np.zeros(1, dtype=np.int64)
FIRST = {"Scope": "", "Policy": "", "MaxNUMANodes": 0}


def check_part(case: Object) -> list[str]:
    """One function of the peer, by its name."""
    got = PARTS[case["func"]](case)
    return [] if got == case["expected"] else [f"want {case['expected']}, got {got}"]


def _columns(case: Object) -> NumaColumns:
    zones = tuple(
        Zone(
            one["NUMAID"],
            amounts_of(one["Resources"]),
            distances={int(to): value for to, value in (one["Costs"] or {}).items()},
        )
        for one in case["numaNodes"]
    )
    return zone_columns([Node("n", {}, {})], {"n": NodeZones("n", zones)})


def _rooms(columns: NumaColumns, names: Any) -> dict[str, Any]:
    return {name: room.copy() for name in names if (room := columns.room(name)) is not None}


def _required(case: Object) -> Object:
    columns, asked = _columns(case), amounts_of(case["podResources"])
    sets, near = smallest_zone_sets(
        columns, ROWS, _rooms(columns, asked), tuple(asked.items()), np.ones(1, dtype=bool)
    )
    numbers = sorted(int(number) for number in columns.numbers[sets])
    return {"isMinDistance": bool(near[0]), "numaIDs": numbers or None}


def _normalized(case: Object) -> int:
    one = np.asarray([case["numaNodesCount"]]), np.asarray([case["isMinAvgDistance"]])
    return int(score_of(*one, np.asarray([case["maxNUMANodes"]]))[0])


def _least_distance(case: Object) -> float:
    columns, size = _columns(case), len(case["combinations"][0])
    lengths, _ = set_distances(columns.layouts, columns.places, size)
    sets = [tuple(one) for one in zone_sets(columns.places, size).tolist()]
    least = min(lengths[sets.index(tuple(one)), columns.layout[0]] for one in case["combinations"])
    return round(min(float(least) / size**2, FAR), 6)


def _taken(case: Object) -> Object:
    columns, asked = _columns(case), tuple(amounts_of(case["containerResources"]).items())
    service: QosClass = CLASSES[case["qos"]]
    desk = workspace_for(columns, ROWS, [ContainerRequest("", asked)], service, FitRule.STRICT)
    place = np.flatnonzero(columns.numbers[:, 0] == case["numaID"])
    if len(place):
        try:
            take(desk, asked, place, np.ones(1, dtype=bool))
        except AssertionError:
            return case["expected"] if case["expected"]["error"] else {"error": "taken where there is less"}
    return {"error": None, "numaNodes": _left(case, desk.free)}


def _spread(case: Object) -> Object:
    columns, asked = _columns(case), tuple(amounts_of(case["resources"]).items())
    rooms = _rooms(columns, dict(asked))
    subtract_from_zones(columns.numbers, rooms, asked, np.isin(columns.numbers, case["nodes"]))
    return {"numaNodes": _left(case, rooms)}


def _left(case: Object, rooms: dict[str, Any]) -> list[Object]:
    """The expected list if it says what is left in the rooms, otherwise what is left."""
    expected: list[Object] = case["expected"]["numaNodes"]
    found = [
        {name: int(room[place, 0]) for name, room in rooms.items() if room[place, 0] >= 0}
        for place in range(len(expected))
    ]
    wanted = [
        {name: value for name, value in amounts_of(one["Resources"]).items() if name in rooms}
        for one in expected
    ]
    return expected if found == wanted else [{"left": found}]


def _only_others(case: Object) -> bool:
    columns = _columns(case)
    rooms = _rooms(columns, case["resources"])
    return not nodes_listing_any(rooms, tuple(amounts_of(case["resources"]).items()), 1)[0]


def _raw(of: Object) -> Alignment:
    return Alignment(of["Policy"], of["Scope"], of["MaxNUMANodes"])


def _named(found: Alignment) -> Object:
    policies, scopes = {v: k for k, v in POLICIES.items()}, {v: k for k, v in SCOPES.items()}
    return {
        "Scope": scopes.get(found.scope, found.scope),
        "Policy": policies.get(found.policy, found.policy),
        "MaxNUMANodes": found.zones_max,
    }


def _aligned(case: Object) -> Object:
    wire = topology_of(
        {"attributes": case.get("attributes"), "topologyPolicies": case.get("topologyPolicies")}
    )
    return _named(alignment(wire.topology_policies or (), wire.attributes or (), [], _raw(FIRST)))


def _aligned_whole(case: Object) -> Object:
    wire = topology_of(case["nodeResourceTopology"])
    return _named(alignment(wire.topology_policies or (), wire.attributes or (), []))


def _args(case: Object) -> Object:
    """Go writes fields with a capital; the API does not."""
    given: Object = _small(case.get("args") or {"cache": case["cacheConfig"]})
    return given


def _small(value: Any) -> Any:
    if isinstance(value, dict):
        return {key[0].lower() + key[1:]: _small(inner) for key, inner in value.items()}
    return value


def _word(words: dict[str, Any], value: object) -> str:
    return next(name for name, one in words.items() if one == value)


PARTS: dict[str, Callable[[Object], Any]] = {
    "numaNodesRequired": _required,
    "normalizeScore": _normalized,
    "minAvgDistanceInCombinations": _least_distance,
    "isHostLevelResource": lambda case: is_host_wide(case["resource"]),
    "isNUMAAffineResource": lambda case: is_pinned(case["resource"]),
    "subtractResourcesFromNUMANodeList": _taken,
    "subtractFromNUMAs": _spread,
    "onlyNonNUMAResources": _only_others,
    "IsValidScope": lambda case: case["scope"] in SCOPES,
    "IsValidPolicy": lambda case: case["policy"] in POLICIES,
    "TopologyManager.Equal": lambda case: _raw(case["a"]) == _raw(case["b"]),
    "updateFromAttributes": _aligned,
    "updateFromPolicies": _aligned,
    "TopologyManagerFromNodeResourceTopology": _aligned_whole,
    "IncludeNonNative": lambda case: asks_for_devices(wants_of(case["pod"])),
    "AreExclusiveForPod": lambda case: bool(pinned_containers(wants_of(case["pod"]), case["nrtResources"])),
    "getForeignPodsDetectMode": lambda case: _word(FOREIGN_PODS, numa_settings(_args(case))[1].foreign_pods),
    "getCacheResyncMethod": lambda case: _word(RESYNC_METHODS, numa_settings(_args(case))[1].counted),
    "getPreemptionMode": lambda case: _word(
        PREEMPTION_MODES, numa_settings(_args(case))[1].simulate_evictions
    ),
}


def fingerprint_check(path: Path) -> Check:
    """Signs of sets of pods; and of the last set, what is said about signs that are not its own."""
    whole = json.loads(path.read_text())

    def check(case: Object) -> list[str]:
        pods = [(namespace, name) for namespace, name in case["pods"]]
        sign = pods_fingerprint(pods)
        wrong = [] if fingerprint_with(sign) == case["expected"] else [f"got {fingerprint_with(sign)}"]
        if pods_fingerprint(reversed(pods)) != sign:
            wrong.append("the order of pods matters")
        if case["name"] != whole["cases"][-1]["name"]:
            return wrong
        return wrong + [
            f"{other['fingerprint']}: want {other['error']}, got {said}"
            for other in whole.get("checkErrors", ())
            if (said := compared(other["fingerprint"], sign)) != other["error"]
        ]

    return check


def compared(fingerprint: str, sign: int) -> str:
    """What is wrong with a fingerprint, beside the sign of the pods that are there."""
    try:
        return "" if hash_of(fingerprint) == sign else "fingerprint mismatch"
    except ValueError as wrong:
        return str(wrong)


FILES: dict[str, Check | ForFile] = {
    "numa/least_numa*": check_part,
    "numa/numa_helpers*": check_part,
    "numa/nodeconfig*": check_part,
    "numa/exclusive_resources*": check_part,
    "numa/config*": check_part,
    "numa/podfingerprint*": ForFile(fingerprint_check),
}
