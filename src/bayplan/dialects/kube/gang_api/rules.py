"""Validation of Workloads and PodGroups of all versions, with the upstream messages."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from bayplan.dialects.kube.fields.name_rules import label_key_problems
from bayplan.dialects.kube.fields.reader import FieldError, FieldErrorType
from bayplan.dialects.kube.gang_api import shapes
from bayplan.dialects.kube.gang_api.declared import CheckLocation, Structure, check
from bayplan.dialects.kube.gang_api.first_version import check_first_workload
from bayplan.dialects.kube.gang_api.gates import DEFAULT_GATES, V1ALPHA1, V1ALPHA2, V1ALPHA3, V1BETA1, Gates

Object = Mapping[str, Any]

STRUCTURES: Mapping[tuple[str, str], Structure] = {
    (V1ALPHA2, "Workload"): shapes.WORKLOAD_2,
    (V1ALPHA2, "PodGroup"): shapes.POD_GROUP_2,
    (V1BETA1, "Workload"): shapes.WORKLOAD_3,
    (V1BETA1, "PodGroup"): shapes.POD_GROUP_3,
    (V1ALPHA3, "CompositePodGroup"): shapes.COMPOSITE_3,
}
"""The structure of specs by version and kind."""

_DEPTH_MAX = 3  # levels of composite groups; the PodGroups below are the fourth
_REASON = "[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?"
_REASON_IS = (
    "a condition reason must start with alphabetic character, optionally followed by a string of "
    "alphanumeric characters or '_,:', and must end with an alphanumeric character or '_' (e.g. 'my_name',  "
    "or 'MY_NAME',  or 'MyName',  or 'ReasonA,ReasonB',  or 'ReasonA:ReasonB', regex used for validation is "
    f"'{_REASON}')"
)
_REASON_MAX, _MESSAGE_MAX = 1024, 32 * 1024
_STATUSES = ("False", "True", "Unknown")


def errors(new: Object, old: Object | None = None, gates: Gates = DEFAULT_GATES) -> list[FieldError]:
    """The errors of a spec, or of its update. Metadata is checked elsewhere."""
    version, kind = str(new.get("apiVersion", "")).rpartition("/")[2], str(new.get("kind", ""))
    if (version, kind) == (V1ALPHA1, "Workload"):
        return list(check_first_workload(new, old))
    spec, before = new.get("spec") or {}, None if old is None else old.get("spec") or {}
    field_errors: list[FieldError] = []
    if (version, kind) == (V1BETA1, "Workload"):
        field_errors += _check_tree(spec)
    elif (version, kind) == (V1BETA1, "PodGroup") and old is None:
        field_errors += _check_parent(spec)
    field_errors += check(
        STRUCTURES[version, kind], spec, before, CheckLocation("spec", gates, old is not None)
    )
    return field_errors


def status_errors(new: Object, old: Object | None, gates: Gates = DEFAULT_GATES) -> list[FieldError]:
    """The errors of the status of a PodGroup."""
    status = new.get("status") or {}
    field_errors = list(_check_conditions(status.get("conditions") or []))
    claims = {claim.get("name") for claim in (new.get("spec") or {}).get("resourceClaims") or ()}
    for place, claim in enumerate(status.get("resourceClaimStatuses") or ()):
        if claim.get("name", "") not in claims:
            path, why = f"status.resourceClaimStatuses[{place}].name", "must match the name of an entry in "
            field_errors.append(
                FieldError(path, claim.get("name", ""), f"{why}`spec.resourceClaims`", FieldErrorType.INVALID)
            )
    before = None if old is None else old.get("status") or {}
    return field_errors + list(
        check(shapes.STATUS, status, before, CheckLocation("status", gates, old is not None))
    )


def _check_conditions(conditions: Sequence[Object]) -> Iterator[FieldError]:
    seen: set[str] = set()
    for place, condition in enumerate(conditions):
        path, type_ = f"status.conditions[{place}]", condition.get("type", "")
        if type_ in seen:
            yield FieldError(f"{path}.type", type_, "", FieldErrorType.DUPLICATE)
        seen.add(type_)
        for why in label_key_problems(type_):
            yield FieldError(f"{path}.type", type_, why, FieldErrorType.INVALID)
        if condition.get("status", "") not in _STATUSES:
            known = ", ".join(f'"{status}"' for status in _STATUSES)
            why = f"supported values: {known}"
            yield FieldError(f"{path}.status", condition.get("status", ""), why, FieldErrorType.UNSUPPORTED)
        if condition.get("observedGeneration", 0) < 0:
            why = "must be greater than or equal to zero"
            yield FieldError(
                f"{path}.observedGeneration", condition["observedGeneration"], why, FieldErrorType.INVALID
            )
        if not condition.get("lastTransitionTime"):
            yield FieldError(f"{path}.lastTransitionTime", None, "", FieldErrorType.REQUIRED)
        yield from _check_texts(condition.get("reason", ""), condition.get("message", ""), path)


def _check_texts(reason: str, message: str, path: str) -> Iterator[FieldError]:
    if not reason:
        yield FieldError(f"{path}.reason", None, "", FieldErrorType.REQUIRED)
    elif not re.fullmatch(_REASON, reason):
        yield FieldError(f"{path}.reason", reason, _REASON_IS, FieldErrorType.INVALID)
    for key, text, limit in (("reason", reason, _REASON_MAX), ("message", message, _MESSAGE_MAX)):
        if len(text.encode()) > limit:
            yield FieldError(
                f"{path}.{key}", None, f"may not be more than {limit} bytes", FieldErrorType.TOO_LONG
            )


def _check_parent(spec: Object) -> Iterator[FieldError]:
    if spec.get("parentCompositePodGroupName") is not None and spec.get("workloadRef") is None:
        why = "must be set when parentCompositePodGroupName is set"
        yield FieldError("spec.workloadRef", None, why, FieldErrorType.REQUIRED)


# ── all templates of a Workload, since v1beta1 ──


def _check_tree(spec: Object) -> Iterator[FieldError]:
    names = {template.get("name", "") for template in _templates(spec)}
    yield from _check_names(spec, "spec", names)
    roots = [
        (f"spec.compositePodGroupTemplates[{place}]", one) for place, one in enumerate(_composites(spec))
    ]
    for path, root in roots:
        if _depth(root) > _DEPTH_MAX:
            why = f"maximum template hierarchy depth is {_DEPTH_MAX + 1}"
            yield FieldError(path, root.get("compositePodGroupTemplates"), why, FieldErrorType.INVALID)
    yield from _check_priorities(spec)
    for path, root in roots:
        yield from _check_children(root, path)


def _check_names(node: Object, path: str, names: set[str]) -> Iterator[FieldError]:
    """Template names are unique in the whole tree; within one list, the rule of the list checks that."""
    children = list(_composites(node))
    for place, child in enumerate(children):
        if child.get("name", "") in names:
            at = f"{path}.compositePodGroupTemplates[{place}].name"
            yield FieldError(at, child.get("name", ""), "", FieldErrorType.DUPLICATE)
    names |= {child.get("name", "") for child in children}
    for place, child in enumerate(children):
        at = f"{path}.compositePodGroupTemplates[{place}]"
        for index, template in enumerate(_templates(child)):
            if template.get("name", "") in names:
                template_path = f"{at}.podGroupTemplates[{index}].name"
                yield FieldError(template_path, template.get("name", ""), "", FieldErrorType.DUPLICATE)
        names |= {template.get("name", "") for template in _templates(child)}
        yield from _check_names(child, at, names)


def _check_priorities(spec: Object) -> Iterator[FieldError]:
    """All templates have the same priority."""
    flat = {_priority(template) for template in _templates(spec)}
    if len(flat) > 1:
        why = "detected multiple priority configurations"
        yield FieldError("spec", None, why, FieldErrorType.INVALID)
    elif len(flat | {_priority(one) for root in _composites(spec) for one in _all_below(root)}) > 1:
        why = "all priority and priorityClassName values must be identical, detected multiple values"
        yield FieldError("spec", None, why, FieldErrorType.INVALID)


def _check_children(node: Object, path: str) -> Iterator[FieldError]:
    if not _templates(node) and not _composites(node):
        why = "must have at least one child PodGroupTemplate or CompositePodGroupTemplate"
        yield FieldError(path, node.get("name", ""), why, FieldErrorType.INVALID)
    for place, child in enumerate(_composites(node)):
        yield from _check_children(child, f"{path}.compositePodGroupTemplates[{place}]")


def _templates(node: Object) -> Sequence[Object]:
    return node.get("podGroupTemplates") or ()


def _composites(node: Object) -> Sequence[Object]:
    return node.get("compositePodGroupTemplates") or ()


def _all_below(node: Object) -> Iterator[Object]:
    yield node
    yield from _templates(node)
    for child in _composites(node):
        yield from _all_below(child)


def _depth(node: Object) -> int:
    return 1 + max((_depth(child) for child in _composites(node)), default=0)


def _priority(template: Object) -> tuple[str, int | None]:
    return template.get("priorityClassName") or "", template.get("priority")
