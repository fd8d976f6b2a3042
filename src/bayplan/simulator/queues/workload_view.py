"""An admitted Workload as the API shows it: what it holds, and what is wrong with it by itself."""

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

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PodSetPlacement:
    """Where the pods of a pod set stand, and what each of them takes."""

    pod_set: str
    flavors: tuple[str, ...]
    levels: tuple[str, ...]
    shares: tuple[tuple[tuple[str, ...], int], ...]
    each: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Admitted:
    """What a Workload holds."""

    name: str
    queue: str
    quota: Mapping[Cell, int]
    spots: tuple[PodSetPlacement, ...]
    wrong: tuple[str, ...]


def conditions_of(workload: Object) -> dict[str, bool]:
    """Which conditions hold."""
    found = (workload.get("status") or {}).get("conditions") or ()
    return {condition["type"]: condition["status"] == "True" for condition in found}


def read(workload: Object, labels: Mapping[str, Mapping[str, str]]) -> Admitted:
    """A Workload that has an admission; the labels are those of nodes."""
    name, admission = workload["metadata"]["name"], workload["status"]["admission"]
    given = {part["name"]: part for part in admission["podSetAssignments"]}
    pod_sets = {pod_set["name"]: pod_set for pod_set in workload["spec"]["podSets"]}
    wrong = (
        [f"workload {name} is admitted with {sorted(given)} of {sorted(pod_sets)}"]
        if set(given) != set(pod_sets)
        else []
    )
    admitted = conditions_of(workload).get("Admitted", False)
    quota: dict[Cell, int] = {}
    spots = []
    over = {one["name"]: one["count"] for one in workload["status"].get("reclaimablePods") or ()}
    for part in admission["podSetAssignments"]:
        usage = amounts_of(part.get("resourceUsage"))
        pod_set = pod_sets.get(part["name"])
        needed = part["count"] if pod_set is None else pod_set["count"] - over.get(part["name"], 0)
        if pod_set is not None and over:  # pods that are over need no quota, nor a place if they come again
            pod_set = {**pod_set, "least": min(pod_set.get("minCount") or pod_set["count"], needed)}
        for resource, flavor in (part.get("flavors") or {}).items():
            held = usage.get(resource, 0) // max(part["count"], 1) * min(part["count"], needed)
            quota[flavor, resource] = quota.get((flavor, resource), 0) + held
        if pod_set is not None:
            each = _each(pod_set)
            wrong += _counts(name, pod_set, part, each, usage, admitted)
            spot = _spot(part, each)
            if spot is not None:
                spots.append(spot)
                wrong += _place(name, pod_set, part, spot, labels)
    wrong += _together(name, pod_sets, spots, labels)
    return Admitted(name, admission["clusterQueue"], quota, tuple(spots), tuple(wrong))


def _each(pod_set: Object) -> dict[str, int]:
    wire = msgspec.convert({"metadata": {"name": "any"}, "spec": pod_set["template"]["spec"]}, PodWire)
    return pod_amounts(wire.spec)


def _counts(
    name: str,
    pod_set: Object,
    part: Object,
    each: Mapping[str, int],
    usage: Mapping[str, int],
    admitted: bool,
) -> Iterator[str]:
    """Whole or not at all, with quota forevery pod."""
    count, least = part["count"], pod_set.get("least", pod_set.get("minCount") or pod_set["count"])
    if not least <= count <= pod_set["count"]:
        yield f"workload {name} is admitted with {count} of {pod_set['count']} pods of {part['name']}"
    for resource, amount in each.items():
        if resource != "pods" and amount and usage.get(resource, 0) != amount * count:
            yield f"workload {name} holds {usage.get(resource, 0)} {resource} for {count} times {amount}"
    delayed = part.get("delayedTopologyRequest") == "Pending"
    if admitted and delayed and "topologyAssignment" not in part:
        yield f"workload {name} is admitted without a place for {part['name']}"
    asks = pod_set.get("topologyRequest") or {}
    if asks.get("required") and count and "topologyAssignment" not in part and not delayed:
        yield f"workload {name} got no place for {part['name']}"


def _spot(part: Object, each: Mapping[str, int]) -> PodSetPlacement | None:
    found = decode_assignment(Field(part["topologyAssignment"])) if "topologyAssignment" in part else None
    if found is None:
        return None
    shares = tuple((share.values, share.count) for share in found.shares)
    return PodSetPlacement(
        part["name"], tuple(sorted(set((part.get("flavors") or {}).values()))), found.levels, shares, each
    )


def _place(
    name: str, pod_set: Object, part: Object, spot: PodSetPlacement, labels: Mapping[str, Mapping[str, str]]
) -> Iterator[str]:
    """Every pod stands somewhere; required domains and segments hold."""
    placed = sum(count for _, count in spot.shares)
    if placed != part["count"]:
        yield f"workload {name} has places for {placed} of {part['count']} pods of {part['name']}"
    wish = pod_set.get("topologyRequest") or {}
    if wish.get("required"):
        domains = _by_domain(spot, wish["required"], labels)
        if len(domains) > 1:
            yield f"workload {name} must be in one {wish['required']} but is in {sorted(domains)}"
    if wish.get("podSetSliceSize"):
        size, level = wish["podSetSliceSize"], wish["podSetSliceRequiredTopology"]
        odd = sorted(domain for domain, count in _by_domain(spot, level, labels).items() if count % size)
        if len(odd) > (1 if "least" in pod_set and part["count"] % size else 0):  # some pods are over
            yield f"workload {name} has broken segments of {size} in {odd}"


def _together(
    name: str,
    pod_sets: Mapping[str, Object],
    spots: list[PodSetPlacement],
    labels: Mapping[str, Mapping[str, str]],
) -> Iterator[str]:
    """Pod sets of a group share their required domain."""
    domains: dict[tuple[str, str], set[str]] = {}
    for spot in spots:
        wish = pod_sets[spot.pod_set].get("topologyRequest") or {}
        if wish.get("podSetGroupName") and wish.get("required"):
            key = (wish["podSetGroupName"], wish["required"])
            domains.setdefault(key, set()).update(_by_domain(spot, wish["required"], labels))
    for (group, level), found in domains.items():
        if len(found) > 1:
            yield f"workload {name}: group {group} must be in one {level} but is in {sorted(found)}"


def _by_domain(spot: PodSetPlacement, level: str, labels: Mapping[str, Mapping[str, str]]) -> dict[str, int]:
    """Pods by domain of a level. Hosts that nobody ever saw do not count."""
    found: dict[str, int] = {}
    for values, count in spot.shares:
        if level in spot.levels:
            domain = "/".join(values[: spot.levels.index(level) + 1])
        elif spot.levels[-1] == HOSTNAME and values[-1] in labels:
            domain = labels[values[-1]].get(level, "")
        else:
            continue
        found[domain] = found.get(domain, 0) + count
    return found
