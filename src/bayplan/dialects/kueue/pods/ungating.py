"""Ungating: remove the topology gate of pods of an admitted Workload and assign each a domain."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.topology_request import Numbering
from bayplan.dialects.kueue.names.annotations import (
    ELASTIC_GATE,
    POD_GROUP,
    POD_SET,
    REPLACES,
    SLICE_NAME,
    TOPOLOGY_GATE,
    WORKLOAD_NAME,
    is_elastic,
)
from bayplan.dialects.kueue.pods.slots import SlottedPodSet, UnreadableOffset, slots_for, sort_pods
from bayplan.dialects.kueue.status.conditions import ADMITTED, EVICTED, FINISHED, condition_of, is_true
from bayplan.model.assignment import Path

GATES = (TOPOLOGY_GATE, ELASTIC_GATE)
SLOTS_MAX = 1_000_000
"""Limit per pod set: a large count in an object must not exhaust memory."""

Key = tuple[str, str]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AdmittedPlacement:
    """The placement of an admitted Workload: the slots of its pod sets."""

    queue: str
    since: float  # when it was admitted
    parts: tuple[SlottedPodSet, ...]
    failed_nodes: frozenset[str] = frozenset()  # not yet replaced
    counts: Mapping[str, int] | None = None  # by pod set, of an elastic gang, which may have surplus slots


@dataclass(frozen=True, slots=True)
class PodUngating:
    """A pod to ungate, and its domain."""

    pod: PodWire
    levels: tuple[str, ...]
    domain: Path


@dataclass(frozen=True, slots=True)
class Ungatings:
    """The pods of a Workload to ungate now; or the error in one of them that blocks all."""

    pods: tuple[PodUngating, ...] = ()
    error: str = ""


def gang_of_pod(pod: PodWire) -> Key | None:
    """The gang of a pod: its Workload, by the name that all slices share; None if it has none."""
    annotations = pod.metadata.annotations or {}
    name = annotations.get(SLICE_NAME) or annotations.get(WORKLOAD_NAME)
    return (pod.metadata.namespace or "default", name) if name else None


def gang_of_workload(workload: Object) -> Key:
    """The gang of a Workload, as its pods refer to it."""
    meta = workload["metadata"]
    name = (meta.get("annotations") or {}).get(SLICE_NAME) or meta["name"]
    return (meta.get("namespace", "default"), name)


def replaces(workload: Object) -> Key:
    """The Workload that this one replaces; empty names if there is none."""
    namespace, _, name = (workload["metadata"].get("annotations") or {}).get(REPLACES, "").rpartition("/")
    return namespace, name


def pod_set_of(pod: PodWire) -> str:
    """The pod set that a pod belongs to."""
    return (pod.metadata.labels or {}).get(POD_SET, "")


def is_gated(pod: PodWire) -> bool:
    """Whether a pod has a topology or elastic gate."""
    return any(gate.name in GATES for gate in pod.spec.scheduling_gates or ())


def is_of_pod_group(pod: PodWire) -> bool:
    """Whether a pod belongs to a group of plain pods."""
    return POD_GROUP in (pod.metadata.labels or {}) or POD_GROUP in (pod.metadata.annotations or {})


def admitted_placement(workload: Object) -> AdmittedPlacement | None:
    """The placement of a Workload; None unless it is admitted, not evicted, and placed by topology."""
    admitted = condition_of(workload, ADMITTED)
    if admitted is None or admitted.get("status") != "True":
        return None
    if is_true(workload, EVICTED) or is_true(workload, FINISHED):
        return None
    field = Field(workload)
    status = field.at("status")
    requests = {
        pod_set.at("name").text(): pod_set.at("topologyRequest")
        for pod_set in field.at("spec", "podSets").items()
    }
    assignments = status.at("admission", "podSetAssignments").items()
    firsts = _first_indexes(assignments, requests)
    parts = [_part(one, requests, firsts) for one in assignments]
    counts: dict[str, int] | None = None
    if is_elastic(field):  # gated without a topology too: ungated by count
        parts = [part or _unplaced_part(one) for part, one in zip(parts, assignments, strict=True)]
        counts = {
            pod_set.at("name").text(): pod_set.at("count").integer(default=1)
            for pod_set in field.at("spec", "podSets").items()
        }
    slotted = tuple(part for part in parts if part is not None)
    if not slotted:
        return None
    return AdmittedPlacement(
        status.at("admission", "clusterQueue").text(),
        seconds(str(admitted.get("lastTransitionTime") or "")),
        slotted,
        frozenset(node.at("name").text() for node in status.at("unhealthyNodes").items()),
        counts,
    )


def ungatings(
    gang: AdmittedPlacement,
    pods: Iterable[PodWire],
    expected: Mapping[str, Path | None],
    put_off: Collection[str] = (),
) -> Ungatings:
    """Which pods of a Workload to ungate now.

    `expected` are the domains of ungatings in flight, by uid, which count even if the watch has not shown
    them yet. While the domain of one is unknown (None), any slot could be taken, and no pod is ungated.
    """
    if None in expected.values():
        return Ungatings()
    by_pod_set: dict[str, list[PodWire]] = {}
    for pod in pods:
        if _holds_slot(pod):
            by_pod_set.setdefault(pod_set_of(pod), []).append(pod)
    result: list[PodUngating] = []
    try:
        for part in gang.parts:
            members = by_pod_set.get(part.name, ())
            sorted_pods = sort_pods(part, members, _placed_pods(part, members, expected))
            slots = slots_for(part, sorted_pods, gang.failed_nodes, put_off)
            if gang.counts is not None:
                slots = slots[: max(0, gang.counts.get(part.name, part.count) - len(sorted_pods.placed))]
            result += (PodUngating(pod, part.levels, domain) for pod, domain in slots)
    except UnreadableOffset as wrong:
        return Ungatings(error=str(wrong))
    return Ungatings(tuple(result))


def is_complete(gang: AdmittedPlacement, pods: Collection[PodWire]) -> bool:
    """Whether every slot has a pod, so that no more pods are expected."""
    slots = sum(len(part.slots) for part in gang.parts)
    if len(pods) < slots:
        return False
    names = {part.name for part in gang.parts}
    placed_pods = (pod for pod in pods if (pod.metadata.labels or {}).get(POD_SET, "") in names)
    return sum(map(_holds_slot, placed_pods)) == slots


def ungating_write(ungating: PodUngating, tag: object = None) -> Write:
    """The patch that ungates a pod and adds its node selector; other gates and selectors stay."""
    meta = ungating.pod.metadata
    gates = [gate.name for gate in ungating.pod.spec.scheduling_gates or () if gate.name not in GATES]
    spec = {
        "schedulingGates": [{"name": name} for name in gates],
        "nodeSelector": dict(zip(ungating.levels, ungating.domain, strict=True)),
    }
    return Write(
        Verb.MERGE_PATCH,
        PODS_KIND,
        meta.namespace or "default",
        meta.name,
        {"spec": spec},
        uid=meta.uid,
        tag=tag,
    )


def _holds_slot(pod: PodWire) -> bool:
    """Whether a pod needs or has a slot: it is neither finished nor terminating."""
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def _placed_pods(
    part: SlottedPodSet, pods: Iterable[PodWire], expected: Mapping[str, Path | None]
) -> dict[str, Path]:
    """The domains of pods that are ungated, or are being ungated, by uid."""
    domains: dict[str, Path] = {}
    for pod in pods:
        in_flight = expected.get(pod.metadata.uid)
        if in_flight is not None:
            domains[pod.metadata.uid] = in_flight
        elif not is_gated(pod):
            selector = pod.spec.node_selector or {}
            domains[pod.metadata.uid] = tuple(selector.get(level, "") for level in part.levels)
    return domains


def _part(
    assignment_field: Field, requests: Mapping[str, Field], firsts: Mapping[str, int]
) -> SlottedPodSet | None:
    topology = assignment_field.at("topologyAssignment")
    assignment = decode_assignment(topology) if topology.present else None
    if assignment is None:
        return None
    name = assignment_field.at("name").text()
    request = requests.get(name, Field(None))
    subgroups = request.at("subGroupCount")
    numbering = Numbering(
        request.at("podIndexLabel").text() or None,
        request.at("subGroupIndexLabel").text() or None,
        subgroups.integer() if subgroups.present else None,
    )
    slots = tuple(islice(assignment.ranks(), SLOTS_MAX))
    count = assignment_field.at("count").integer(default=len(slots))
    return SlottedPodSet(name, count, assignment.levels, slots, numbering, firsts.get(name, 0))


def _unplaced_part(assignment: Field) -> SlottedPodSet:
    """Slots without a domain, for a pod set without a topology."""
    count = assignment.at("count").integer(default=1)
    slots = ((),) * min(count, SLOTS_MAX)
    return SlottedPodSet(assignment.at("name").text(), count, (), slots, Numbering(None, None, None))


def _first_indexes(assignments: Iterable[Field], requests: Mapping[str, Field]) -> dict[str, int]:
    """The index of rank 0 in each pod set. In a group the workers are numbered after the leader."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for assignment in assignments:
        name = assignment.at("name").text()
        group = requests[name].at("podSetGroupName").text() if name in requests else ""
        if group:
            groups.setdefault(group, []).append((assignment.at("count").integer(default=1), name))
    firsts: dict[str, int] = {}
    for members in groups.values():
        first = 0
        for count, name in sorted(members, key=lambda member: member[0]):
            firsts[name] = first
            first += count
    return firsts
