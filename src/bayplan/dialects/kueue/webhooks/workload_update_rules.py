"""Validation of updates of Workloads; every violation is recorded."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE, check_unchanged
from bayplan.dialects.kube.fields.reader import Field, FieldError, FieldErrorType
from bayplan.dialects.kueue.fields.job_rules import check_gates_update
from bayplan.dialects.kueue.fields.workload_rules import counts, has_reservation
from bayplan.dialects.kueue.names.annotations import GATED_BY, REPLACES, is_elastic
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches

_PLACEMENT_FIELDS = ("topologyAssignment", "delayedTopologyRequest")
"""Fields of an assignment that may change while quota is reserved."""

Object = dict[str, Any]


def check_workload_update(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Validate an update of a Workload."""
    if has_reservation(old):
        _check_pod_sets(new.at("spec", "podSets"), old.at("spec", "podSets"), rules)
    if has_reservation(new) and has_reservation(old):
        _check_reclaimable(new, old, rules)
    _check_admission(new.at("status", "admission"), old.at("status", "admission"))
    _check_pod_set_updates(new.at("status", "admissionChecks"), old.at("status", "admissionChecks"))
    _check_cluster(new, old, rules)
    check_gates_update(
        new.at("metadata", "annotations", GATED_BY), old.at("metadata", "annotations", GATED_BY)
    )


def is_stale_reclaimable_count(error: FieldError, new: Field, old: Field, rules: FeatureSwitches) -> bool:
    """Whether a reclaimable count is too large only because an elastic job became smaller in the meantime."""
    if not (is_elastic(new) and rules.elastic):
        return False
    listed, before = new.at("status", "reclaimablePods"), counts(old.at("status", "reclaimablePods"))
    return any(
        error.path == f"{listed.path}[{name}].count" and before.get(name) == count
        for name, count in counts(listed).items()
    )


def _check_pod_sets(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Pod sets are immutable while quota is reserved; those of elastic jobs may be scaled down."""
    pod_sets, before = new.items(), old.items()
    if len(pod_sets) != len(before):
        new.error(IMMUTABLE, FieldErrorType.INVALID)
        return
    for index, (pod_set, pod_set_before) in enumerate(zip(pod_sets, before, strict=True)):
        smaller = pod_set.at("count").integer() < pod_set_before.at("count").integer()
        mutable = ("count",) if rules.elastic and smaller else ()
        if _without(pod_set.value, mutable) != _without(pod_set_before.value, mutable):
            new.derived(pod_set.value, f"{new.path}.{index}").error(IMMUTABLE, FieldErrorType.INVALID)


def _check_reclaimable(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """Reclaimable counts must not decrease, unless the job was scaled down."""
    listed = new.at("status", "reclaimablePods")
    reclaimable, smaller = counts(listed), _scaled_down(new) if rules.elastic else set()
    for name, before in counts(old.at("status", "reclaimablePods")).items():
        if name in smaller:
            continue
        at = listed.derived({"count": reclaimable.get(name)}, f"{listed.path}[{name}]")
        if name not in reclaimable:
            at.error("cannot be removed", FieldErrorType.REQUIRED)
        elif reclaimable[name] < before:
            at.at("count").error(f"cannot be less than {before}", FieldErrorType.INVALID)


def _scaled_down(workload: Field) -> set[str]:
    """The pod sets of an elastic job that have fewer pods than were admitted."""
    if not is_elastic(workload):
        return set()
    now = counts(workload.at("spec", "podSets"))
    granted = counts(workload.at("status", "admission", "podSetAssignments"))
    return {name for name, count in granted.items() if count > now.get(name, 0)}


def _check_admission(new: Field, old: Field) -> None:
    """An admission is set and cleared as a whole; only the placement in it may change."""
    if not (new.present and old.present):
        return
    if _without_placement(new.value) != _without_placement(old.value):
        new.error(IMMUTABLE, FieldErrorType.INVALID)


def _without_placement(admission: object) -> object:
    if not isinstance(admission, dict):
        return admission
    assignments = admission.get("podSetAssignments")
    if not isinstance(assignments, list):
        return admission
    return {**admission, "podSetAssignments": [_without(one, _PLACEMENT_FIELDS) for one in assignments]}


def _check_pod_set_updates(new: Field, old: Field) -> None:
    """The pod set updates of a ready check are immutable."""
    ready = {
        check.at("name").text(): check
        for check in new.items()
        if check.at("state").text() == "Ready" and check.at("name").text()
    }
    for index, before in enumerate(old.items()):
        check = ready.get(before.at("name").text())
        if check is not None and before.at("state").text() == "Ready":
            updates = check.at("podSetUpdates")
            at = new.derived(updates.value, f"{new.path}[{index}].podSetUpdates")
            check_unchanged(at, before.at("podSetUpdates"))


def _check_cluster(new: Field, old: Field, rules: FeatureSwitches) -> None:
    """The cluster of a Workload must be one that it was nominated for."""
    if rules.elastic and new.at("metadata", "annotations", REPLACES).present:
        return
    name, before = new.at("status", "clusterName"), old.at("status", "clusterName")
    nominated = [one.text() for one in old.at("status", "nominatedClusterNames").items()]
    if name.present and not before.present and name.text() not in nominated:
        why = "when setting clusterName it must be one of the nominatedClusterNames"
        name.error(why, FieldErrorType.INVALID)


def _without(value: object, keys: tuple[str, ...]) -> object:
    return {k: v for k, v in value.items() if k not in keys} if isinstance(value, dict) else value
