"""Conversion of Kueue objects between v1beta1 and v1beta2, by kind.

A conversion renames and drops fields, and saves in an annotation what a round trip would lose, together with
the value left in its place. On the way back a saved value is restored unless the field was changed since
(`round_trip_fields`). Only the spec is saved: the status is written by controllers, and a user who may not
write it must not be able to restore one from an annotation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayplan.dialects.kueue.conversion.round_trip_fields import ANY, Path, forget, keep, restore
from bayplan.dialects.kueue.conversion.workload import GROUP, V1BETA1, V1BETA2, convert_workload

Object = dict[str, Any]
Plain = Callable[[Object, str], Object]
"""The object in another version, without the fields that version lacks."""

_V1BETA1_VALUES = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
"""Values of v1beta1 that v1beta2 calls MayStopSearch."""
_RETRY_MINUTES = 15  # the schema's default


Fits = Callable[[Object, Object], bool]
"""Whether an object is valid by the schema of its version wherever it differs from a second one."""

ROUND_TRIP_FIELDS: dict[tuple[str, str], tuple[Path, ...]] = {
    ("AdmissionCheck", V1BETA1): (("spec", "retryDelayMinutes"),),
    ("ClusterQueue", V1BETA1): (
        ("spec", "admissionChecks"),
        ("spec", "admissionChecksStrategy"),
        ("spec", "admissionChecksStrategy", "admissionChecks"),
        ("spec", "flavorFungibility", "whenCanBorrow"),
        ("spec", "flavorFungibility", "whenCanPreempt"),
    ),
    ("ClusterQueue", V1BETA2): (("spec", "concurrentAdmissionPolicy"),),
    ("Workload", V1BETA1): (("spec", "priorityClassName"),),
    ("Workload", V1BETA2): (
        ("spec", "podSets", ANY, "topologyRequest", "podsetSliceRequiredTopologyConstraints"),
        ("spec", "preemptionGates"),
        ("spec", "priorityClassRef"),
    ),
}
"""Fields of the spec that the other version lacks: only these are saved and restored."""


def convert(obj: Object, api_version: str, fits: Fits) -> Object:
    """A copy of the object in another version of its API; ValueError if it is invalid."""
    kind, version = str(obj["kind"]), api_version.rpartition("/")[2]
    other = V1BETA1 if version == V1BETA2 else V1BETA2
    plain = CONVERSIONS[kind]
    converted = plain(obj, version)
    converted = keep(
        converted,
        obj,
        plain(converted, other),
        f"bayplan.dev/{other}",
        ROUND_TRIP_FIELDS.get((kind, other), ()),
    )
    converted = _restored({**converted, "apiVersion": api_version}, kind, version, fits)
    return {**converted, "apiVersion": api_version}


def _restored(converted: Object, kind: str, version: str, fits: Fits) -> Object:
    """The object with the fields saved for this version, if they are valid; users can edit the annotation."""
    annotation = f"bayplan.dev/{version}"
    without = forget(converted, annotation)
    if without is converted:
        return converted
    try:
        restored = restore(converted, annotation, ROUND_TRIP_FIELDS.get((kind, version), ()))
        return restored if restored == without or fits(restored, without) else without
    except RecursionError:  # nested deeper than anything that a conversion saves
        return without


def cluster_queue(queue: Object, version: str) -> Object:
    """A ClusterQueue: the cohort name, flavor fungibility and the admission checks differ."""
    converted = _renamed(queue, "spec", version, old="cohort", new="cohortName")
    if version == V1BETA1:
        return _without(converted, ("spec", "concurrentAdmissionPolicy"))
    for field, value in _V1BETA1_VALUES.items():
        if _at(converted, "spec", "flavorFungibility", field) == value:
            converted = _with(converted, "MayStopSearch", "spec", "flavorFungibility", field)
    checks = _at(converted, "spec", "admissionChecks")
    if checks and isinstance(checks, list):
        rules = [{"name": name} for name in checks]
        converted = _with(converted, {"admissionChecks": rules}, "spec", "admissionChecksStrategy")
    converted = _without(converted, ("spec", "admissionChecks"))
    converted = _without(converted, ("status", "pendingWorkloadsStatus"))
    return _without(converted, ("status", "fairSharing", "admissionFairSharingStatus"))


def cohort(obj: Object, version: str) -> Object:
    """A Cohort: only v1beta1 has the past usage."""
    if version == V1BETA1:
        return obj
    return _without(obj, ("status", "fairSharing", "admissionFairSharingStatus"))


def local_queue(queue: Object, version: str) -> Object:
    """A LocalQueue: the usage has another name, and v1beta2 has no flavors."""
    converted = _renamed(queue, "status", version, old="flavorUsage", new="flavorsUsage")
    return converted if version == V1BETA1 else _without(converted, ("status", "flavors"))


def admission_check(check: Object, version: str) -> Object:
    """An AdmissionCheck: v1beta2 has no retry delay."""
    if version == V1BETA2:
        return _without(check, ("spec", "retryDelayMinutes"))
    delay = _at(check, "spec", "retryDelayMinutes")
    return _with(check, _RETRY_MINUTES if delay is None else delay, "spec", "retryDelayMinutes")


def workload(obj: Object, version: str) -> Object:
    """A Workload, with the empty priorityClassSource that the v1beta1 schema defaults to."""
    converted, errors = convert_workload(obj, version)
    if errors:
        raise ValueError("; ".join(str(error) for error in errors))
    if version == V1BETA1 and _at(converted, "spec", "priorityClassSource") is None:
        converted = _with(converted, "", "spec", "priorityClassSource")
    return converted


CONVERSIONS: dict[str, Plain] = {
    "AdmissionCheck": admission_check,
    "ClusterQueue": cluster_queue,
    "Cohort": cohort,
    "LocalQueue": local_queue,
    "Workload": workload,
}
"""Kinds whose versions differ; the others only change their apiVersion."""

CONVERTED = tuple((GROUP, kind) for kind in CONVERSIONS)


def _renamed(obj: Object, section: str, version: str, *, old: str, new: str) -> Object:
    before, after = (old, new) if version == V1BETA2 else (new, old)
    value = _at(obj, section, before)
    return obj if value is None else _with(_without(obj, (section, before)), value, section, after)


def _at(value: Any, *path: str) -> Any:
    """The value at the path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _with(obj: Object, value: Any, *path: str) -> Object:
    """A copy with a value at the path; missing parents are created."""
    key, *rest = path
    below = obj.get(key)
    return {**obj, key: _with(below if isinstance(below, dict) else {}, value, *rest) if rest else value}


def _without(obj: Object, path: tuple[str, ...]) -> Object:
    """A copy without the field at the path."""
    key, *rest = path
    if not isinstance(obj, dict) or key not in obj:
        return obj
    if rest:
        return {**obj, key: _without(obj[key], tuple(rest))}
    return {name: value for name, value in obj.items() if name != key}
