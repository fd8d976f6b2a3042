"""Conversion of a Workload between v1beta1 and v1beta2."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.fields.reader import Field, FieldError
from bayplan.dialects.kueue.fields.assignment_decode import decode_assignment
from bayplan.dialects.kueue.fields.assignment_encode import encode_domains, encode_slices

GROUP = "kueue.x-k8s.io"
V1BETA1 = "v1beta1"
V1BETA2 = "v1beta2"

_PRIORITY_SOURCES = {
    "kueue.x-k8s.io/workloadpriorityclass": ("kueue.x-k8s.io", "WorkloadPriorityClass"),
    "scheduling.k8s.io/priorityclass": ("scheduling.k8s.io", "PriorityClass"),
}
_PAST_SECONDS = {
    V1BETA1: "accumulatedPastExexcutionTimeSeconds",
    V1BETA2: "accumulatedPastExecutionTimeSeconds",
}
"""The field name of v1beta1 contains a typing error."""

Object = dict[str, Any]


def convert_workload(
    workload: Object, version: str, *, by_node_prefix: bool = True
) -> tuple[Object, tuple[FieldError, ...]]:
    """A copy of the Workload in the version, and the errors of its assignments; invalid ones are kept.

    Fields that v1beta1 lacks are dropped.
    """
    assert version in _PAST_SECONDS, version
    root = Field(workload)
    converted = dict(workload)
    if "apiVersion" in workload:
        converted["apiVersion"] = f"{GROUP}/{version}"
    if isinstance(workload.get("spec"), dict):
        converted["spec"] = _spec(workload["spec"], version)
    if isinstance(workload.get("status"), dict):
        converted["status"] = _status(root.at("status"), version, by_node_prefix=by_node_prefix)
    return converted, root.errors


def _spec(spec: Object, version: str) -> Object:
    new = _priority_as_reference(spec) if version == V1BETA2 else _priority_as_names(spec)
    if version == V1BETA1:
        new.pop("preemptionGates", None)
        if isinstance(new.get("podSets"), list):
            new["podSets"] = [_without_layers(pod_set) for pod_set in new["podSets"]]
    return new


def _priority_as_reference(spec: Object) -> Object:
    new = {
        key: value for key, value in spec.items() if key not in ("priorityClassName", "priorityClassSource")
    }
    named = spec.get("priorityClassSource", "")
    source = _PRIORITY_SOURCES.get(named) if isinstance(named, str) else None
    if source is not None:
        new["priorityClassRef"] = dict(zip(("group", "kind"), source, strict=True))
        if spec.get("priorityClassName"):
            new["priorityClassRef"]["name"] = spec["priorityClassName"]
    return new


def _priority_as_names(spec: Object) -> Object:
    new = {key: value for key, value in spec.items() if key != "priorityClassRef"}
    field = spec.get("priorityClassRef")
    reference = field if isinstance(field, dict) else {}
    for source, (group, kind) in _PRIORITY_SOURCES.items():
        if (reference.get("group"), reference.get("kind")) == (group, kind):
            new["priorityClassSource"] = source
            if reference.get("name"):
                new["priorityClassName"] = reference["name"]
    return new


def _without_layers(pod_set: Object) -> Object:
    request = pod_set.get("topologyRequest") if isinstance(pod_set, dict) else None
    if not isinstance(request, dict):
        return pod_set
    other_fields = {
        key: value for key, value in request.items() if key != "podsetSliceRequiredTopologyConstraints"
    }
    return pod_set | {"topologyRequest": other_fields}


def _status(field: Field, version: str, *, by_node_prefix: bool) -> Object:
    status = _mapping(field)
    other = _PAST_SECONDS[V1BETA2 if version == V1BETA1 else V1BETA1]
    new = {_PAST_SECONDS[version] if key == other else key: value for key, value in status.items()}
    if version == V1BETA1:
        new.pop("preemptionGates", None)
    pod_sets = field.at("admission", "podSetAssignments")
    if pod_sets.present:
        converted = [_pod_set(item, version, by_node_prefix=by_node_prefix) for item in pod_sets.items()]
        new["admission"] = _mapping(field.at("admission")) | {"podSetAssignments": converted}
    return new


def _pod_set(field: Field, version: str, *, by_node_prefix: bool) -> Object:
    topology = field.at("topologyAssignment")
    assignment = decode_assignment(topology) if topology.present else None
    if assignment is None:
        return _mapping(field)
    if version == V1BETA1:
        return _mapping(field) | {"topologyAssignment": encode_domains(assignment)}
    return _mapping(field) | {"topologyAssignment": encode_slices(assignment, by_node_prefix=by_node_prefix)}


def _mapping(field: Field) -> Object:
    return field.value if isinstance(field.value, dict) else {}
