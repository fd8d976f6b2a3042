"""Ungating: pods of an admitted Workload lose their topology gate and are told which domain is theirs."""

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
from bayplan.dialects.kueue.pods.slots import SlottedPodSet, UnreadableOffset, crowd, slots_for
from bayplan.dialects.kueue.status.conditions import ADMITTED, EVICTED, FINISHED, condition_of, is_true
from bayplan.model.assignment import Path

GATES = (TOPOLOGY_GATE, ELASTIC_GATE)
SLOTS_MAX = 1_000_000
"""Of one pod set: no cluster holds more pods, and a number in an object must not fill our memory."""

Key = tuple[str, str]
Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class AdmittedPlacement:
    """What an admitted Workload says about where its pods go."""

    queue: str
    since: float  # when it was admitted
    parts: tuple[SlottedPodSet, ...]
    failed_nodes: frozenset[str] = frozenset()  # not yet replaced
    counts: Mapping[str, int] | None = None  # by pod set, of a gang that may have more places than it wants


@dataclass(frozen=True, slots=True)
class PodUngating:
    """A pod that may go, and the domain it goes to."""

    pod: PodWire
    levels: tuple[str, ...]
    place: Path


@dataclass(frozen=True, slots=True)
class Ungatings:
    """The pods of a Workload that may go now; or what is wrong with one of them, so that none may."""

    pods: tuple[PodUngating, ...] = ()
    trouble: str = ""


def gang_of_pod(pod: PodWire) -> Key | None:
    """The Workload a pod says it belongs to (by the name that all its successors share), if any."""
    notes = pod.metadata.annotations or {}
    name = notes.get(SLICE_NAME) or notes.get(WORKLOAD_NAME)
    return (pod.metadata.namespace or "default", name) if name else None


def gang_of_workload(workload: Object) -> Key:
    """The name by which the pods of a Workload know it."""
    meta = workload["metadata"]
    name = (meta.get("annotations") or {}).get(SLICE_NAME) or meta["name"]
    return (meta.get("namespace", "default"), name)


def replaces(workload: Object) -> Key:
    """The Workload that this one takes the place of; a key of nothing if there is none."""
    namespace, _, name = (workload["metadata"].get("annotations") or {}).get(REPLACES, "").rpartition("/")
    return namespace, name


def part_of(pod: PodWire) -> str:
    """The pod set that a pod belongs to."""
    return (pod.metadata.labels or {}).get(POD_SET, "")


def is_gated(pod: PodWire) -> bool:
    """Whether a pod still has to be told where it goes."""
    return any(gate.name in GATES for gate in pod.spec.scheduling_gates or ())


def is_of_pod_group(pod: PodWire) -> bool:
    """Whether a pod came with others like it, without a job above them."""
    return POD_GROUP in (pod.metadata.labels or {}) or POD_GROUP in (pod.metadata.annotations or {})


def placed(workload: Object) -> AdmittedPlacement | None:
    """Where the pods of a Workload go; None unless it is admitted, stays so, and is placed by topology."""
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
    given = status.at("admission", "podSetAssignments").items()
    firsts = _firsts(given, requests)
    parts = [_part(one, requests, firsts) for one in given]
    counts: dict[str, int] | None = None
    if is_elastic(field):  # without a topology its pods wait all the same, for their number
        parts = [part or _crew(one) for part, one in zip(parts, given, strict=True)]
        counts = {
            pod_set.at("name").text(): pod_set.at("count").integer(default=1)
            for pod_set in field.at("spec", "podSets").items()
        }
    found = tuple(part for part in parts if part is not None)
    if not found:
        return None
    return AdmittedPlacement(
        status.at("admission", "clusterQueue").text(),
        seconds(str(admitted.get("lastTransitionTime") or "")),
        found,
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

    `expected` are ungatings under way, by uid: their pods stand where they were sent, whatever is seen of
    them so far. While it is not known where one was sent, any slot could be its, and all others wait.
    """
    if None in expected.values():
        return Ungatings()
    crews: dict[str, list[PodWire]] = {}
    for pod in pods:
        if _holds_slot(pod):
            crews.setdefault(part_of(pod), []).append(pod)
    found: list[PodUngating] = []
    try:
        for part in gang.parts:
            crew = crews.get(part.name, ())
            everyone = crowd(part, crew, _standing(part, crew, expected))
            given = slots_for(part, everyone, gang.failed_nodes, put_off)
            if gang.counts is not None:
                given = given[: max(0, gang.counts.get(part.name, part.count) - len(everyone.standing))]
            found += (PodUngating(pod, part.levels, place) for pod, place in given)
    except UnreadableOffset as wrong:
        return Ungatings(trouble=str(wrong))
    return Ungatings(tuple(found))


def is_complete(gang: AdmittedPlacement, pods: Collection[PodWire]) -> bool:
    """Whether every slot has its pod, so that there is nobody else to wait for."""
    slots = sum(len(part.slots) for part in gang.parts)
    if len(pods) < slots:
        return False
    names = {part.name for part in gang.parts}
    placed_pods = (pod for pod in pods if (pod.metadata.labels or {}).get(POD_SET, "") in names)
    return sum(map(_holds_slot, placed_pods)) == slots


def ungating_write(ungating: PodUngating, tag: object = None) -> Write:
    """The one patch that sends a pod on its way. Gates of others stay, and so do selectors."""
    meta = ungating.pod.metadata
    gates = [gate.name for gate in ungating.pod.spec.scheduling_gates or () if gate.name not in GATES]
    spec = {
        "schedulingGates": [{"name": name} for name in gates],
        "nodeSelector": dict(zip(ungating.levels, ungating.place, strict=True)),
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
    """Whether a pod needs a slot, or has one: not if it is over, or about to be deleted."""
    return pod.status.phase not in ("Succeeded", "Failed") and pod.metadata.deletion_timestamp is None


def _standing(
    part: SlottedPodSet, pods: Iterable[PodWire], expected: Mapping[str, Path | None]
) -> dict[str, Path]:
    """Where the pods are that have been ungated, or will have been."""
    found: dict[str, Path] = {}
    for pod in pods:
        sent = expected.get(pod.metadata.uid)
        if sent is not None:
            found[pod.metadata.uid] = sent
        elif not is_gated(pod):
            selector = pod.spec.node_selector or {}
            found[pod.metadata.uid] = tuple(selector.get(level, "") for level in part.levels)
    return found


def _part(given: Field, requests: Mapping[str, Field], firsts: Mapping[str, int]) -> SlottedPodSet | None:
    assigned = given.at("topologyAssignment")
    assignment = decode_assignment(assigned) if assigned.present else None
    if assignment is None:
        return None
    name = given.at("name").text()
    request = requests.get(name, Field(None))
    subgroups = request.at("subGroupCount")
    numbering = Numbering(
        request.at("podIndexLabel").text() or None,
        request.at("subGroupIndexLabel").text() or None,
        subgroups.integer() if subgroups.present else None,
    )
    slots = tuple(islice(assignment.ranks(), SLOTS_MAX))
    count = given.at("count").integer(default=len(slots))
    return SlottedPodSet(name, count, assignment.levels, slots, numbering, firsts.get(name, 0))


def _crew(given: Field) -> SlottedPodSet:
    """So many pods, anywhere."""
    count = given.at("count").integer(default=1)
    slots = ((),) * min(count, SLOTS_MAX)
    return SlottedPodSet(given.at("name").text(), count, (), slots, Numbering(None, None, None))


def _firsts(given: Iterable[Field], requests: Mapping[str, Field]) -> dict[str, int]:
    """The index of rank 0 in each pod set. A group counts through: the leader first, then its workers."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for one in given:
        name = one.at("name").text()
        group = requests[name].at("podSetGroupName").text() if name in requests else ""
        if group:
            groups.setdefault(group, []).append((one.at("count").integer(default=1), name))
    firsts: dict[str, int] = {}
    for members in groups.values():
        first = 0
        for count, name in sorted(members, key=lambda member: member[0]):
            firsts[name] = first
            first += count
    return firsts
