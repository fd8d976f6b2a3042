"""Validation of Workloads of v1alpha1, whose rules are hand-written upstream."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bayplan.dialects.kube.fields.metadata_rules import IMMUTABLE, NEGATIVE
from bayplan.dialects.kube.fields.name_rules import (
    dns_label_problems,
    path_segment_problems,
    subdomain_problems,
)
from bayplan.dialects.kube.fields.reader import FieldError, FieldErrorType
from bayplan.dialects.kube.gang_api.structures import TEMPLATES_MAX

Object = Mapping[str, Any]

_EITHER = "exactly one of `basic`, `gang` is required"


def check_first_workload(new: Object, old: Object | None) -> Iterator[FieldError]:
    """All errors of a Workload, or of its update."""
    spec = new.get("spec") or {}
    yield from _check_controller(spec.get("controllerRef"))
    yield from _check_groups(spec.get("podGroups") or [])
    if old is not None:
        yield from _check_change(spec, old.get("spec") or {})


def check_workload_reference(reference: Object, path: str) -> Iterator[FieldError]:
    """The field of a pod that names its group in a Workload; an empty name is an error."""
    yield from _domain(f"{path}.name", reference.get("name", ""))
    yield from _label(f"{path}.podGroup", reference.get("podGroup", ""))
    if reference.get("podGroupReplicaKey"):
        yield from _label(f"{path}.podGroupReplicaKey", reference["podGroupReplicaKey"])


def check_scheduling_group(group: Object, path: str) -> Iterator[FieldError]:
    """The field of a pod that names its PodGroup, since v1alpha2."""
    name, place = group.get("podGroupName"), f"{path}.podGroupName"
    if name is None:
        yield FieldError(place, None, "must specify one of: `podGroupName`", FieldErrorType.INVALID)
    else:
        yield from _domain(place, name)


def _check_controller(controller: Object | None) -> Iterator[FieldError]:
    if controller is None:
        return
    if controller.get("apiGroup"):
        yield from _domain("spec.controllerRef.apiGroup", controller["apiGroup"])
    for key in ("kind", "name"):
        path = f"spec.controllerRef.{key}"
        if not controller.get(key):
            yield FieldError(path, None, "", FieldErrorType.REQUIRED)
            continue
        for why in path_segment_problems(controller[key]):
            yield FieldError(path, controller[key], why, FieldErrorType.INVALID)


def _check_groups(groups: Sequence[Object]) -> Iterator[FieldError]:
    if not groups:
        yield FieldError("spec.podGroups", None, "must have at least one item", FieldErrorType.REQUIRED)
    elif len(groups) > TEMPLATES_MAX:
        why = f"must have at most {TEMPLATES_MAX} items"
        yield FieldError("spec.podGroups", len(groups), why, FieldErrorType.TOO_MANY)
        return
    seen: set[str] = set()
    for place, group in enumerate(groups):
        path, name = f"spec.podGroups[{place}]", group.get("name", "")
        yield from _label(f"{path}.name", name)
        if name in seen:
            yield FieldError(f"{path}.name", name, "", FieldErrorType.DUPLICATE)
        seen.add(name)
        yield from _check_policy(group.get("policy") or {}, f"{path}.policy")


def _check_policy(policy: Object, path: str) -> Iterator[FieldError]:
    set_fields = [f"`{key}`" for key in ("basic", "gang") if policy.get(key) is not None]
    if not set_fields:
        yield FieldError(path, None, _EITHER, FieldErrorType.REQUIRED)
    elif len(set_fields) > 1:
        why = f"{_EITHER}, but multiple fields are set"
        yield FieldError(path, f"{{{', '.join(set_fields)}}}", why, FieldErrorType.INVALID)
    elif policy.get("gang") is not None:
        minimum = policy["gang"].get("minCount", 0)
        if minimum <= 0:
            yield FieldError(
                f"{path}.gang.minCount", minimum, "must be greater than zero", FieldErrorType.INVALID
            )
    elif policy["basic"].get("desiredCount", 0) < 0:
        yield FieldError(
            f"{path}.basic.desiredCount", policy["basic"]["desiredCount"], NEGATIVE, FieldErrorType.INVALID
        )


def _check_change(spec: Object, old: Object) -> Iterator[FieldError]:
    """The controller may be set once; groups are immutable. As upstream, the paths lack `spec.`."""
    before, now = old.get("controllerRef"), spec.get("controllerRef")
    if before is not None and now != before:
        yield FieldError("controllerRef", _go_controller(now), IMMUTABLE, FieldErrorType.INVALID)
    groups = spec.get("podGroups") or []
    if groups != (old.get("podGroups") or []):
        shown = [_go_group(group) for group in groups]
        yield FieldError("podGroups", shown or None, IMMUTABLE, FieldErrorType.INVALID)


def _go_controller(controller: Object | None) -> dict[str, Any] | None:
    """The controller as the error shows it: with the field names of the API server's Go types."""
    if controller is None:
        return None
    names = {"APIGroup": "apiGroup", "Kind": "kind", "Name": "name"}
    return {shown: controller.get(key, "") for shown, key in names.items()}


def _go_group(group: Object) -> dict[str, Any]:
    policy = group.get("policy") or {}
    gang, basic = policy.get("gang"), policy.get("basic")
    shown = {"Basic": basic, "Gang": None if gang is None else {"MinCount": gang.get("minCount", 0)}}
    return {"Name": group.get("name", ""), "Policy": shown}


def _domain(path: str, text: str) -> Iterator[FieldError]:
    return (
        FieldError(path, text, why, FieldErrorType.INVALID) for why in subdomain_problems(text, "characters")
    )


def _label(path: str, text: str) -> Iterator[FieldError]:
    return (
        FieldError(path, text, why, FieldErrorType.INVALID) for why in dns_label_problems(text, "characters")
    )
