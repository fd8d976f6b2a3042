"""Release the slots of an elastic gang that was scaled down, once no pods use them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.assignment_encode import encode_slices
from bayplan.dialects.kueue.names.annotations import POD_SET, is_elastic
from bayplan.model.assignment import Assignment, Path

OVER = ("Succeeded", "Failed")

Object = dict[str, Any]


def without_surplus_slots(workload: Object, pods: Sequence[PodWire]) -> Object | None:
    """The status of a Workload without its surplus slots; None if unchanged.

    No slot is released while one of its pods is terminating.
    """
    status = workload.get("status") or {}
    if not is_elastic(Field(workload)) or status.get("unhealthyNodes"):
        return None
    pod_sets = (workload.get("spec") or {}).get("podSets") or ()
    wanted = {one["name"]: int(one.get("count", 1)) for one in pod_sets}
    assignments = [dict(one) for one in (status.get("admission") or {}).get("podSetAssignments") or ()]
    changed = False
    for part in assignments:
        field = Field(part.get("topologyAssignment"))
        assignment = decode_assignment(field) if field.present else None
        name = str(part.get("name", ""))
        if assignment is None or assignment.count <= wanted.get(name, assignment.count):
            continue
        smaller = _without_surplus(
            assignment, wanted[name], [pod for pod in pods if _pod_set_of(pod) == name]
        )
        if smaller is not None:
            part["topologyAssignment"] = encode_slices(smaller)
            changed = True
    admission = {**(status.get("admission") or {}), "podSetAssignments": assignments}
    return {**status, "admission": admission} if changed else None


def _without_surplus(assignment: Assignment, count: int, pods: Iterable[PodWire]) -> Assignment | None:
    """The slots in use, and of the others the first ones, up to `count`."""
    active = [pod for pod in pods if pod.status.phase not in OVER]
    if any(pod.metadata.deletion_timestamp is not None for pod in active):
        return None
    used = Counter(filter(None, (_domain_of(pod, assignment.levels) for pod in active)))
    if used.total() > count:
        return None
    counts = [min(share.count, used[share.values]) for share in assignment.shares]
    for index, share in enumerate(assignment.shares):
        counts[index] += max(0, min(share.count - counts[index], count - sum(counts)))
    shares = (
        replace(share, count=kept_count)
        for share, kept_count in zip(assignment.shares, counts, strict=True)
        if kept_count
    )
    return replace(assignment, shares=tuple(shares))


def _domain_of(pod: PodWire, levels: Sequence[str]) -> Path | None:
    """The domain that a pod is assigned to by its node selector, or None."""
    selector = pod.spec.node_selector or {}
    return tuple(selector[level] for level in levels) if all(level in selector for level in levels) else None


def _pod_set_of(pod: PodWire) -> str:
    return (pod.metadata.labels or {}).get(POD_SET, "")
