"""Checks of the files kueue/encoding*: assignments written for the wire and read off it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any

from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.conversion.workload import V1BETA1, V1BETA2, convert_workload
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.assignment_encode import (
    ROOTS_MAX,
    SLICES_MAX,
    encode_domains,
    encode_slices,
    node_of,
    pods_inside,
    pods_on_node,
)
from bayplan.dialects.kueue.fields.name_prefixes import fewer_parts, run_lengths, shared_prefixes, split_runs
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.node import HOSTNAME

Case = dict[str, Any]
BYTES_MAX = 1_500_000
GATE = "TASAssignmentsEncodingByHostnamePrefix"


def check_table(case: Case) -> list[str]:
    """A case of the peer's own tables, by the name of its test."""
    check = TABLES.get(case["test"])
    return check(case["case"], case.get("gates") or {}) if check else [f"no check for {case['test']}"]


def check_oracle(case: Case) -> list[str]:
    """A random list of domains: both encodings, and back from each."""
    assignment = _plain(case["levels"], case["domains"])
    differences = []
    for key, by_node_prefix in (("v1beta2_default", True), ("v1beta2_single_slice", False)):
        got = encode_slices(assignment, by_node_prefix=by_node_prefix)
        differences += _compare(key, case[key], got)
        differences += _compare(f"{key} read", assignment, _read(case[key]))
    return differences + _compare("v1beta1 read", assignment, _read(encode_domains(assignment)))


def _written(case: Case, gates: Case) -> list[str]:
    got = encode_slices(_internal(case["internal"]), by_node_prefix=gates.get(GATE, True))
    return _compare("v1beta2", case.get("want", case.get("v1beta2")), got)


def _written_in_runs(case: Case, gates: Case) -> list[str]:
    """The peer's table is of the cut alone, before the smaller of two encodings is taken."""
    assignment = _internal(case["internal"])
    runs = _cut([share.values[-1] for share in assignment.shares])
    parts, start = [], 0
    for length in runs:
        part = Assignment(assignment.levels, assignment.shares[start : start + length])
        parts += encode_slices(part, by_node_prefix=False)["slices"]
        start += length
    return _compare("slices", case["want"]["slices"], parts) + _compare(
        "read", assignment, _read(case["want"])
    )


def _cut(names: list[str]) -> list[int]:
    return split_runs(run_lengths(fewer_parts(shared_prefixes(names), SLICES_MAX, ROOTS_MAX)), ROOTS_MAX)


def _read_back(case: Case, gates: Case) -> list[str]:
    return _compare("domains", _internal(case["internal"]), _read(case["v1beta2"]))


def _pod_counts(case: Case, gates: Case) -> list[str]:
    return _compare("pod counts", case["podCounts"], [share.count for share in _read(case["v1beta2"]).shares])


def _domain_count(case: Case, gates: Case) -> list[str]:
    return _compare("domain count", case["totalDomainCount"], len(_read(case["v1beta2"]).shares))


def _smaller_of_two(case: Case, gates: Case) -> list[str]:
    count = case["domainCount"]
    half = count // 2
    names = [f"pool-a-node-{i:05d}" for i in range(half)] + [
        f"pool-b-node-{i:05d}" for i in range(count - half)
    ]
    got = encode_slices(_on_nodes(names), by_node_prefix=case["enabled"])
    want = len(_cut(names)) if case["wantHostnamePrefixEncoding"] else 1
    return _compare("slices", want, len(got["slices"])) + _compare("read", _on_nodes(names), _read(got))


def _prefixes(case: Case, gates: Case) -> list[str]:
    names = [domain["Values"][-1] for domain in case["domains"]]
    want = case.get("want") or [""] * len(
        names
    )  # the peer tells "no dash" from "nothing shared"; we need not
    return _compare("prefixes", want, fewer_parts(shared_prefixes(names), SLICES_MAX, ROOTS_MAX))


def _runs(case: Case, gates: Case) -> list[str]:
    keys = case.get("prefixKeys") or [""] * len(case.get("domains") or [])
    return _compare("runs", case.get("want") or [], run_lengths(keys))


def _chunks(case: Case, gates: Case) -> list[str]:
    return _compare("chunks", case["want"], len(split_runs([case["length"]], case["chunkSize"])))


def _has_node(case: Case, gates: Case) -> list[str]:
    pod_sets = (case.get("admission") or {}).get("podSetAssignments") or []
    pod_sets = pod_sets + ([case["psa"]] if case.get("psa") else [])
    wires = [pod_set["topologyAssignment"] for pod_set in pod_sets if pod_set.get("topologyAssignment")]
    read = [decode_assignment(Field(wire)) for wire in wires]
    got = any(pods_on_node(assignment, case["nodeName"]) for assignment in read if assignment)
    return _compare("on node", case["want"], got)


def _belongs_to(case: Case, gates: Case) -> list[str]:
    values, target = (
        tuple(case[key].split(",")) if case[key] else () for key in ("domainID", "targetDomain")
    )
    one = Assignment(tuple(f"level-{i}" for i in range(len(values))), (DomainAssignment(values, 1),))
    return _compare("inside", case["want"], pods_inside(one, target) == 1)


def _node_name(case: Case, gates: Case) -> list[str]:
    got = node_of(case.get("levels") or [], tuple(case["domainID"].split(",")))
    return _compare("node", case["wantNodeName"] if case["wantOK"] else None, got)


def _byte_size(case: Case, gates: Case) -> list[str]:
    names = _node_names(case["naming"], case["targetNodeCount"])
    assignment = _on_nodes(sorted(names) if case["sortNodeNames"] else names)
    wire = encode_slices(assignment)
    differences = _compare("read", assignment, _read(wire))
    size = len(json.dumps(wire, separators=(",", ":")))
    slices, roots = len(wire["slices"]), max(part["domainCount"] for part in wire["slices"])
    limits = (
        (size, BYTES_MAX, "bytes"),
        (slices, SLICES_MAX, "slices"),
        (roots, ROOTS_MAX, "domains a slice"),
    )
    return differences + [f"{got} {unit}, not at most {limit}" for got, limit, unit in limits if got > limit]


def _node_names(naming: dict[str, int], count: int) -> list[str]:
    """Names as a cloud gives them, of the lengths that the case asks for."""
    rng = random.Random(0)

    def distinct(number: int, digits: int) -> list[str]:
        found: dict[str, None] = {}
        while len(found) < number:
            found[f"{rng.getrandbits(4 * digits):0{digits}x}"] = None
        return list(found)

    fixed = "a" * naming.get("fixedPrefixAndSuffixLength", 0)
    if naming.keys() == {"pools"}:
        places = [divmod(i, naming["pools"])[::-1] for i in range(count)]
        return [f"gke-cluster-pool-{pool:04d}-{pool:08x}-{node:04x}" for pool, node in places]
    if "regions" in naming:
        regions = distinct(naming["regions"], naming["regionIDLength"])
        middle = [f"100.{100 + (i >> 16)}.{i >> 8 & 255}.{i & 255}" for i in range(count)]
        return [f"{fixed}-{regions[i % len(regions)]}-{middle[i]}-{fixed}" for i in range(count)]
    nodes = distinct(count, naming["nodeIDLength"])
    if "pools" not in naming:
        return [f"{fixed}-{node}-{fixed}" for node in nodes]
    pools = distinct(naming["pools"], naming["poolIDLength"])
    return [f"{fixed}-{pools[i % len(pools)]}-{node}-{fixed}" for i, node in enumerate(nodes)]


def _to_v1beta2(case: Case, gates: Case) -> list[str]:
    return _converted(case["input"], V1BETA2, case["expected"], gates)


def _to_v1beta1(case: Case, gates: Case) -> list[str]:
    return _converted(case["input"], V1BETA1, case["expected"], gates)


def _there_and_back(case: Case, gates: Case) -> list[str]:
    there, errors = convert_workload(case["v1beta1Obj"], V1BETA2, by_node_prefix=gates.get(GATE, True))
    return [str(error) for error in errors] + _converted(there, V1BETA1, case["v1beta1Obj"], gates)


def _converted(workload: Case, version: str, want: Case, gates: Case) -> list[str]:
    got, errors = convert_workload(workload, version, by_node_prefix=gates.get(GATE, True))
    return [str(error) for error in errors] + _compare(version, want, got)


def _internal(value: Case) -> Assignment:
    domains = [{"values": d["Values"], "count": d["Count"]} for d in value.get("Domains") or []]
    return _plain(value["Levels"], domains)


def _plain(levels: list[str], domains: list[Case] | None) -> Assignment:
    return Assignment(
        tuple(levels), tuple(DomainAssignment(tuple(d["values"]), d["count"]) for d in domains or [])
    )


def _on_nodes(names: list[str]) -> Assignment:
    return Assignment((HOSTNAME,), tuple(DomainAssignment((name,), 1) for name in names))


def _read(wire: Case) -> Assignment:
    field = Field(wire)
    assignment = decode_assignment(field)
    assert assignment is not None, field.errors
    return assignment


def _compare(what: str, want: object, got: object) -> list[str]:
    """The difference as a list; an empty list or mapping is as good as none, as on the wire."""
    want, got = _bare(want), _bare(got)
    return [] if want == got else [f"{what}\n  want {want}\n  got  {got}"]


def _bare(value: object) -> object:
    if isinstance(value, dict):
        return {key: _bare(below) for key, below in value.items() if below not in (None, [], {})}
    return [_bare(item) for item in value] if isinstance(value, list) else value


TABLES: dict[str, Callable[[Case, Case], list[str]]] = {
    "TestV1Beta2FromInternal": _written,
    "TestCompactTopologyAssignmentEncodingWithHostnamePrefixRuns": _written_in_runs,
    "TestV1Beta2FromInternal_hostnamePrefixFeatureGateAndFallback": _smaller_of_two,
    "TestInternalFromV1Beta2": _read_back,
    "TestInternalSeqFromV1Beta2": _read_back,
    "TestPodCounts": _pod_counts,
    "TestTotalDomainCount": _domain_count,
    "TestReusableHostnamePrefixKeys": _prefixes,
    "TestCompactDomainRuns": _runs,
    "TestChunkCount": _chunks,
    "TestHasNodeInPodSetAssignment": _has_node,
    "TestHasTASAssignmentOnNode": _has_node,
    "TestBelongsTo": _belongs_to,
    "TestNodeNameFromDomainID": _node_name,
    "TestByteSizeLimit": _byte_size,
    "TestWorkloadConvertTo": _to_v1beta2,
    "TestWorkloadConvertFrom": _to_v1beta1,
    "TestWorkloadConversion_RoundTrip": _there_and_back,
}

FILES = {"kueue/encoding*": check_table, "kueue/encoding_oracle*": check_oracle}
