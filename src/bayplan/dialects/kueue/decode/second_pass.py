"""Which Workloads need a second scheduling pass: they hold quota, but have to be placed (again)."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.workload_rules import has_reservation

_REQUEST_FIELDS = (
    "required",
    "preferred",
    "unconstrained",
    "podSetSliceRequiredTopology",
    "podSetSliceSize",
    "podsetSliceRequiredTopologyConstraints",
)


def asks_for_topology(pod_sets: Iterable[Field]) -> bool:
    """Whether a pod set requests a topology; index labels alone are no request."""
    return any(
        pod_set.at("topologyRequest", key).value not in (None, [])
        for pod_set in pod_sets
        for key in _REQUEST_FIELDS
    )


def needs_second_pass(workload: Field) -> bool:
    """Whether a Workload has to be placed (again): its checks are ready, or one of its nodes failed."""
    settled = any(_is(workload, condition) for condition in ("Finished", "Evicted"))
    if settled or not has_reservation(workload):
        return False
    return _is_delayed(workload) or _has_failed_node(workload)


def _is(workload: Field, kind: str) -> bool:
    return any(
        condition.at("type").text() == kind and condition.at("status").text() == "True"
        for condition in workload.at("status", "conditions").items()
    )


def _is_delayed(workload: Field) -> bool:
    checks = workload.at("status", "admissionChecks").items()
    ready = bool(checks) and all(check.at("state").text() == "Ready" for check in checks)
    return ready and not _is(workload, "Admitted") and any(map(_is_pending, _assignments(workload)))


def _is_pending(assignment: Field) -> bool:
    pending = assignment.at("delayedTopologyRequest").text() == "Pending"
    return pending and not assignment.at("topologyAssignment").present


def _has_failed_node(workload: Field) -> bool:
    failed = {node.at("name").text() for node in workload.at("status", "unhealthyNodes").items()}
    return bool(failed) and any(_nodes(assignment) & failed for assignment in _assignments(workload))


def _assignments(workload: Field) -> list[Field]:
    return workload.at("status", "admission", "podSetAssignments").items()


def _nodes(assignment: Field) -> set[str]:
    placed = assignment.at("topologyAssignment")
    decoded = decode_assignment(placed) if placed.present else None
    return {share.values[-1] for share in decoded.shares} if decoded else set()
