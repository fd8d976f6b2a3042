"""An admitted Workload as the API shows it: its quota, its placements, and violations in its own status."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from bayplan.dialects.kube.decode.wire import PodWire, amounts_of, pod_amounts
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.model.node import HOSTNAME
from bayplan.model.quota import Cell
from bayplan.simulator.core.documents import once_per_document

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodSetPlacement:
    """The placement of a pod set, and the requests of each pod."""

    pod_set: str
    flavors: tuple[str, ...]
    levels: tuple[str, ...]
    shares: tuple[tuple[tuple[str, ...], int], ...]
    each: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Admitted:
    """The quota and placements of a Workload."""

    name: str
    queue: str
    quota: Mapping[Cell, int]
    placements: tuple[PodSetPlacement, ...]
    violations: tuple[str, ...]


@once_per_document
def conditions_of(workload: Object) -> Mapping[str, bool]:
    """The conditions of a Workload, and whether each is true."""
    found = (workload.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition["status"] == "True" for condition in found}


def read(workload: Object, labels: Mapping[str, Mapping[str, str]]) -> Admitted:
    """Read a Workload that has an admission; `labels` are those of nodes."""
    name, admission = workload["metadata"]["name"], workload["status"]["admission"]
    assignments = {part["name"]: part for part in admission["podSetAssignments"]}
    pod_sets = {pod_set["name"]: pod_set for pod_set in workload["spec"]["podSets"]}
    violations = (
        [f"workload {name} is admitted with {sorted(assignments)} of {sorted(pod_sets)}"]
        if set(assignments) != set(pod_sets)
        else []
    )
    admitted = conditions_of(workload).get("Admitted", False)
    quota: dict[Cell, int] = {}
    placements = []
    succeeded = {one["name"]: one["count"] for one in workload["status"].get("reclaimablePods") or ()}
    for part in admission["podSetAssignments"]:
        usage = amounts_of(part.get("resourceUsage"))
        pod_set = pod_sets.get(part["name"])
        needed = part["count"] if pod_set is None else pod_set["count"] - succeeded.get(part["name"], 0)
        if (
            pod_set is not None and succeeded
        ):  # pods that are over need no quota, nor a place if they come again
            pod_set = {**pod_set, "least": min(pod_set.get("minCount") or pod_set["count"], needed)}
        for resource, flavor in (part.get("flavors") or {}).items():
            held = usage.get(resource, 0) // max(part["count"], 1) * min(part["count"], needed)
            quota[flavor, resource] = quota.get((flavor, resource), 0) + held
        if pod_set is not None:
            each = _each(pod_set)
            violations += _check_counts(name, pod_set, part, each, usage, admitted)
            placement = _placement(part, each)
            if placement is not None:
                placements.append(placement)
                violations += _check_placement(name, pod_set, part, placement, labels)
    violations += _check_groups(name, pod_sets, placements, labels)
    return Admitted(name, admission["clusterQueue"], quota, tuple(placements), tuple(violations))


def _each(pod_set: Object) -> dict[str, int]:
    wire = msgspec.convert({"metadata": {"name": "any"}, "spec": pod_set["template"]["spec"]}, PodWire)
    return pod_amounts(wire.spec)


def _check_counts(
    name: str,
    pod_set: Object,
    part: Object,
    each: Mapping[str, int],
    usage: Mapping[str, int],
    admitted: bool,
) -> Iterator[str]:
    """All pods or at least the minimum are admitted, with quota for every pod."""
    count, least = part["count"], pod_set.get("least", pod_set.get("minCount") or pod_set["count"])
    if not least <= count <= pod_set["count"]:
        yield f"workload {name} is admitted with {count} of {pod_set['count']} pods of {part['name']}"
    for resource, amount in each.items():
        if resource != "pods" and amount and usage.get(resource, 0) != amount * count:
            yield f"workload {name} holds {usage.get(resource, 0)} {resource} for {count} times {amount}"
    delayed = part.get("delayedTopologyRequest") == "Pending"
    if admitted and delayed and "topologyAssignment" not in part:
        yield f"workload {name} is admitted without a placement for {part['name']}"
    request = pod_set.get("topologyRequest") or {}
    if request.get("required") and count and "topologyAssignment" not in part and not delayed:
        yield f"workload {name} got no placement for {part['name']}"


def _placement(part: Object, each: Mapping[str, int]) -> PodSetPlacement | None:
    found = decode_assignment(Field(part["topologyAssignment"])) if "topologyAssignment" in part else None
    if found is None:
        return None
    shares = tuple((share.values, share.count) for share in found.shares)
    return PodSetPlacement(
        part["name"], tuple(sorted(set((part.get("flavors") or {}).values()))), found.levels, shares, each
    )


def _check_placement(
    name: str,
    pod_set: Object,
    part: Object,
    placement: PodSetPlacement,
    labels: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Every pod has a placement; required domains and segments hold."""
    placed = sum(count for _, count in placement.shares)
    if placed != part["count"]:
        yield f"workload {name} has placements for {placed} of {part['count']} pods of {part['name']}"
    request = pod_set.get("topologyRequest") or {}
    if request.get("required"):
        domains = _by_domain(placement, request["required"], labels)
        if len(domains) > 1:
            yield f"workload {name} must be in one {request['required']} but is in {sorted(domains)}"
    if request.get("podSetSliceSize"):
        size, level = request["podSetSliceSize"], request["podSetSliceRequiredTopology"]
        uneven = sorted(
            domain for domain, count in _by_domain(placement, level, labels).items() if count % size
        )
        if len(uneven) > (1 if "least" in pod_set and part["count"] % size else 0):  # some pods are over
            yield f"workload {name} has broken segments of {size} in {uneven}"


def _check_groups(
    name: str,
    pod_sets: Mapping[str, Object],
    placements: list[PodSetPlacement],
    labels: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Pod sets of one group share their required domain."""
    domains: dict[tuple[str, str], set[str]] = {}
    for placement in placements:
        request = pod_sets[placement.pod_set].get("topologyRequest") or {}
        if request.get("podSetGroupName") and request.get("required"):
            key = (request["podSetGroupName"], request["required"])
            domains.setdefault(key, set()).update(_by_domain(placement, request["required"], labels))
    for (group, level), found in domains.items():
        if len(found) > 1:
            yield f"workload {name}: group {group} must be in one {level} but is in {sorted(found)}"


def _by_domain(
    placement: PodSetPlacement, level: str, labels: Mapping[str, Mapping[str, str]]
) -> dict[str, int]:
    """Pods by domain of a level. Unknown hosts do not count."""
    found: dict[str, int] = {}
    for values, count in placement.shares:
        if level in placement.levels:
            domain = "/".join(values[: placement.levels.index(level) + 1])
        elif placement.levels[-1] == HOSTNAME and values[-1] in labels:
            domain = labels[values[-1]].get(level, "")
        else:
            continue
        found[domain] = found.get(domain, 0) + count
    return found
