"""A gang that wants fewer pods than it was given places for: those that nobody stands on any more go back."""

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


def shrunk_places(workload: Object, pods: Sequence[PodWire]) -> Object | None:
    """The status of a Workload without the places it does not need; None while it is fine as it is.

    As long as one of its pods is on its way out, its place is not free.
    """
    status = workload.get("status") or {}
    if not is_elastic(Field(workload)) or status.get("unhealthyNodes"):
        return None
    wanted = {one["name"]: int(one.get("count", 1)) for one in workload["spec"].get("podSets") or ()}
    given = [dict(one) for one in (status.get("admission") or {}).get("podSetAssignments") or ()]
    changed = False
    for part in given:
        assigned = Field(part.get("topologyAssignment"))
        held = decode_assignment(assigned) if assigned.present else None
        name = str(part.get("name", ""))
        if held is None or held.count <= wanted.get(name, held.count):
            continue
        place = _shrunk(held, wanted[name], [pod for pod in pods if _part_of(pod) == name])
        if place is not None:
            part["topologyAssignment"] = encode_slices(place)
            changed = True
    admission = {**(status.get("admission") or {}), "podSetAssignments": given}
    return {**status, "admission": admission} if changed else None


def _shrunk(held: Assignment, count: int, pods: Iterable[PodWire]) -> Assignment | None:
    """The places where pods stand, and of the others the first ones, as long as there are too few."""
    living = [pod for pod in pods if pod.status.phase not in OVER]
    if any(pod.metadata.deletion_timestamp is not None for pod in living):
        return None
    standing = Counter(filter(None, (_place(pod, held.levels) for pod in living)))
    if standing.total() > count:
        return None
    kept = [min(share.count, standing[share.values]) for share in held.shares]
    for index, share in enumerate(held.shares):
        kept[index] += max(0, min(share.count - kept[index], count - sum(kept)))
    shares = (replace(share, count=left) for share, left in zip(held.shares, kept, strict=True) if left)
    return replace(held, shares=tuple(shares))


def _place(pod: PodWire, levels: Sequence[str]) -> Path | None:
    """Where a pod was sent, if it was."""
    selector = pod.spec.node_selector or {}
    return tuple(selector[level] for level in levels) if all(level in selector for level in levels) else None


def _part_of(pod: PodWire) -> str:
    return (pod.metadata.labels or {}).get(POD_SET, "")
