"""Validation of Workloads beyond their schema; every violation is recorded."""

from __future__ import annotations

from bayplan.dialects.kube.fields.metadata_rules import (
    NEGATIVE,
    check_annotation_keys,
    check_conditions,
    check_labels,
    check_supported,
    check_toleration_keys,
)
from bayplan.dialects.kube.fields.quantity import amount, parse_quantity
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.dialects.kueue.fields.job_rules import check_gates, whole_number
from bayplan.dialects.kueue.names.annotations import GATED_BY, PRIORITY_BOOST, is_elastic
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches

RESERVED = "QuotaReserved"
_RESERVED_RESOURCE = "pods"


def check_workload(workload: Field, rules: FeatureSwitches) -> None:
    """Validate the spec of a Workload."""
    pod_sets = workload.at("spec", "podSets")
    for pod_set in pod_sets.items():
        _check_pod_set(pod_set, rules)
    varying = sum(pod_set.at("minCount").present for pod_set in pod_sets.items())
    if varying > 1:
        pod_sets.error("at most one podSet can use minCount", FieldErrorType.INVALID, varying)
    if varying and is_elastic(workload) and rules.elastic:
        why = "partial admission and elastic job cannot be used together"
        pod_sets.error(why, FieldErrorType.INVALID, varying)
    check_gates(workload.at("metadata", "annotations", GATED_BY))
    _check_boost(workload.at("metadata", "annotations", PRIORITY_BOOST))


def check_workload_status(workload: Field, rules: FeatureSwitches) -> None:
    """Validate the status of a Workload."""
    del rules
    status = workload.at("status")
    if has_reservation(workload):
        _check_admission(workload)
    check_conditions(status.at("conditions"))
    _check_reclaimable(workload)
    for check in status.at("admissionChecks").items():
        for update in check.at("podSetUpdates").items():
            _check_update_of_pod_set(update, pod_set_names(workload))


def has_reservation(workload: Field) -> bool:
    """Whether quota is reserved for a Workload."""
    return any(
        condition.at("type").text() == RESERVED and condition.at("status").text() == "True"
        for condition in workload.at("status", "conditions").items()
    )


def pod_set_names(workload: Field) -> list[str]:
    """The names of the pod sets, in their order."""
    return [pod_set.at("name").text() for pod_set in workload.at("spec", "podSets").items()]


def counts(pod_sets: Field) -> dict[str, int]:
    """The pod counts of pod sets, assignments or reclaimable entries, by name."""
    return {one.at("name").text(): one.at("count").integer() for one in pod_sets.items()}


def _check_pod_set(pod_set: Field, rules: FeatureSwitches) -> None:
    metadata, spec = pod_set.at("template", "metadata"), pod_set.at("template", "spec")
    check_labels(metadata.at("labels"))
    check_annotation_keys(metadata.at("annotations"))
    for container in (*spec.at("initContainers").items(), *spec.at("containers").items()):
        _check_resources(container.at("resources"))
    _check_resources(spec.at("resources"))
    if rules.segment_sizes:
        _check_segments(pod_set.at("topologyRequest"))


def _check_resources(resources: Field) -> None:
    for part in ("requests", "limits"):
        listed = resources.at(part)
        for name, _ in listed.entries():
            quantity = listed.key(name)
            if name == _RESERVED_RESOURCE:
                quantity.error("the key is reserved for internal kueue use", FieldErrorType.INVALID, name)
            check_not_negative(quantity)


def check_not_negative(quantity: Field) -> None:
    """Validate a quantity that must not be negative."""
    if not quantity.present:
        return
    try:
        if parse_quantity(quantity.value) < 0:
            quantity.error(NEGATIVE, FieldErrorType.INVALID, str(quantity.value))
    except ValueError as wrong:
        quantity.error(str(wrong))


def _check_segments(request: Field) -> None:
    level, size = request.at("podSetSliceRequiredTopology"), request.at("podSetSliceSize")
    if level.present and not size.present:
        size.error("must be set when podSetSliceRequiredTopology is specified", FieldErrorType.REQUIRED)
    elif level.present and _whole(size) <= 0:
        size.error("must be greater than 0", FieldErrorType.INVALID)
    elif size.present and not level.present:
        size.error(
            "may not be set when podSetSliceRequiredTopology is not specified", FieldErrorType.FORBIDDEN
        )
    for layer in request.at("podsetSliceRequiredTopologyConstraints").items():
        if _whole(layer.at("size")) <= 0:
            layer.at("size").error("must be greater than 0", FieldErrorType.INVALID, _whole(layer.at("size")))


def _whole(field: Field) -> int:
    return field.value if isinstance(field.value, int) else 0


def _check_admission(workload: Field) -> None:
    admission, names = workload.at("status", "admission"), pod_set_names(workload)
    if not admission.present:
        admission.error("must be set while the QuotaReserved condition is true", FieldErrorType.REQUIRED)
    for assignment in admission.at("podSetAssignments").items():
        if assignment.at("name").text() not in names:
            assignment.at("name").error("", FieldErrorType.NOT_FOUND)
        count = assignment.at("count").integer()
        usage = assignment.at("resourceUsage")
        for resource, _ in usage.entries() if count else ():
            _check_multiple(usage.key(resource), resource, count)


def _check_multiple(usage: Field, resource: str, count: int) -> None:
    try:
        whole = amount(resource, usage.value) % count == 0
    except ValueError as wrong:
        usage.error(str(wrong))
        return
    if not whole:
        usage.error(f"is not a multiple of {count}", FieldErrorType.INVALID)


def _check_reclaimable(workload: Field) -> None:
    sizes = counts(workload.at("spec", "podSets"))
    listed = workload.at("status", "reclaimablePods")
    for entry in listed.items():
        name, count = entry.at("name").text(), entry.at("count").integer()
        at = listed.derived(entry.value, f"{listed.path}[{name}]")
        if name not in sizes:
            check_supported(at.at("name"), list(sizes))
        elif count > sizes[name]:
            at.at("count").error(f"should be less or equal to {sizes[name]}", FieldErrorType.INVALID)


def _check_update_of_pod_set(update: Field, names: list[str]) -> None:
    check_supported(update.at("name"), sorted(names))
    check_toleration_keys(update.at("tolerations"))
    check_annotation_keys(update.at("annotations"))
    check_labels(update.at("nodeSelector"))
    check_labels(update.at("labels"))


def _check_boost(boost: Field) -> None:
    if not boost.present:
        return
    why = "must be a valid signed integer"
    if not boost.text():
        boost.error(f'{why}; use "0" explicitly, empty string is not allowed', FieldErrorType.INVALID)
        return
    try:
        whole_number(boost.text())
    except ValueError:
        boost.error(why, FieldErrorType.INVALID)
