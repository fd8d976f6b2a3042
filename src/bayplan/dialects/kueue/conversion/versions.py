"""The Kueue API in v1beta1 and v1beta2: what differs by kind, and what one version has no word for.

A conversion is made of a plain step that renames and drops fields, and of a memory: what the plain step
there and back would lose travels along in an annotation, together with what stood in its place. On the way
back it returns wherever that place was not changed since. `kept_fields` has the memory. The memory is for
the spec only: the status is written by controllers, and a user who may not write it must not be able to
restore one out of an annotation.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayplan.dialects.kueue.conversion.round_trip_fields import ANY, Path, forget, keep, restore
from bayplan.dialects.kueue.conversion.workload import GROUP, V1BETA1, V1BETA2, convert_workload

Object = dict[str, Any]
Plain = Callable[[Object, str], Object]
"""The object in a version, as well as that version can say it."""

_OLD_WORDS = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}
"""Words of v1beta1 for MayStopSearch."""
_RETRY_MINUTES = 15  # the schema's default


Fits = Callable[[Object, Object], bool]
"""Whether an object keeps to the schema of its version wherever it differs from a second one."""

KEPT: dict[tuple[str, str], tuple[Path, ...]] = {
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
"""What one version can say in its spec and the other cannot: only this is kept, and only this returns."""


def convert(obj: Object, api_version: str, fits: Fits) -> Object:
    """The object in another version of its API; ValueError when it cannot be read. `obj` stays as it is."""
    kind, version = str(obj["kind"]), api_version.rpartition("/")[2]
    other = V1BETA1 if version == V1BETA2 else V1BETA2
    plain = PLAIN[kind]
    made = plain(obj, version)
    made = keep(made, obj, plain(made, other), f"bayplan.dev/{other}", KEPT.get((kind, other), ()))
    made = _restored({**made, "apiVersion": api_version}, kind, version, fits)
    return {**made, "apiVersion": api_version}


def _restored(made: Object, kind: str, version: str, fits: Fits) -> Object:
    """With what was kept for this version, if that fits its schema; users can write into the annotation."""
    annotation = f"bayplan.dev/{version}"
    without = forget(made, annotation)
    if without is made:
        return made
    try:
        restored = restore(made, annotation, KEPT.get((kind, version), ()))
        return restored if restored == without or fits(restored, without) else without
    except RecursionError:  # nested deeper than anything that was kept by a conversion
        return without


def cluster_queue(queue: Object, version: str) -> Object:
    """A cohort's name, the words of fungibility, and the list of checks."""
    made = _renamed(queue, "spec", version, old="cohort", new="cohortName")
    if version == V1BETA1:
        return _without(made, ("spec", "concurrentAdmissionPolicy"))
    for field, word in _OLD_WORDS.items():
        if _at(made, "spec", "flavorFungibility", field) == word:
            made = _with(made, "MayStopSearch", "spec", "flavorFungibility", field)
    checks = _at(made, "spec", "admissionChecks")
    if checks and isinstance(checks, list):
        rules = [{"name": name} for name in checks]
        made = _with(made, {"admissionChecks": rules}, "spec", "admissionChecksStrategy")
    made = _without(made, ("spec", "admissionChecks"))
    made = _without(made, ("status", "pendingWorkloadsStatus"))
    return _without(made, ("status", "fairSharing", "admissionFairSharingStatus"))


def cohort(obj: Object, version: str) -> Object:
    """Only v1beta1 has room for past usage."""
    if version == V1BETA1:
        return obj
    return _without(obj, ("status", "fairSharing", "admissionFairSharingStatus"))


def local_queue(queue: Object, version: str) -> Object:
    """The usage has another name, and the flavors are no longer told."""
    made = _renamed(queue, "status", version, old="flavorUsage", new="flavorsUsage")
    return made if version == V1BETA1 else _without(made, ("status", "flavors"))


def admission_check(check: Object, version: str) -> Object:
    """The delay after a failure is gone in v1beta2."""
    if version == V1BETA2:
        return _without(check, ("spec", "retryDelayMinutes"))
    delay = _at(check, "spec", "retryDelayMinutes")
    return _with(check, _RETRY_MINUTES if delay is None else delay, "spec", "retryDelayMinutes")


def workload(obj: Object, version: str) -> Object:
    """As in `workload_conversion`, and with the empty source that v1beta1's schema would fill in."""
    converted, errors = convert_workload(obj, version)
    if errors:
        raise ValueError("; ".join(str(error) for error in errors))
    if version == V1BETA1 and _at(converted, "spec", "priorityClassSource") is None:
        converted = _with(converted, "", "spec", "priorityClassSource")
    return converted


PLAIN: dict[str, Plain] = {
    "AdmissionCheck": admission_check,
    "ClusterQueue": cluster_queue,
    "Cohort": cohort,
    "LocalQueue": local_queue,
    "Workload": workload,
}
"""Kinds whose versions differ. The others are the same object under two names."""

CONVERTED = tuple((GROUP, kind) for kind in PLAIN)


def _renamed(obj: Object, section: str, version: str, *, old: str, new: str) -> Object:
    before, after = (old, new) if version == V1BETA2 else (new, old)
    value = _at(obj, section, before)
    return obj if value is None else _with(_without(obj, (section, before)), value, section, after)


def _at(value: Any, *path: str) -> Any:
    """What is at the path, or None."""
    for key in path:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _with(obj: Object, value: Any, *path: str) -> Object:
    """A copy with a value at the path, whose parents exist or are made."""
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
