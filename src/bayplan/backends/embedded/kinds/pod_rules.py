"""Validation of pod specs, for pods and pod templates."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.backends.embedded.api.metadata import check_label, check_label_value, check_qualified
from bayplan.backends.embedded.api.scalars import number
from bayplan.backends.embedded.api.status import (
    FieldProblem,
    duplicate,
    from_field,
    required,
    unsupported,
    unwanted,
    wrong,
)
from bayplan.dialects.kube.fields.reader import FieldError
from bayplan.dialects.kube.gang_api.first_version import check_scheduling_group, check_workload_reference

Object = dict[str, Any]

_POLICIES = ("Always", "OnFailure", "Never")
_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_NON_NEGATIVE = "must be greater than or equal to 0"


def check_spec(spec: Object, path: str) -> list[FieldProblem]:
    """Everything that is wrong with a pod's specification."""
    problems = check_containers(spec.get("containers") or [], f"{path}.containers")
    problems += _init_containers(spec.get("initContainers") or [], f"{path}.initContainers")
    if spec.get("restartPolicy") not in _POLICIES:
        problems.append(unsupported(f"{path}.restartPolicy", spec.get("restartPolicy"), _POLICIES))
    for key, least in (("terminationGracePeriodSeconds", None), ("activeDeadlineSeconds", 1)):
        if least is not None and key in spec and spec[key] < least:
            problems.append(wrong(f"{path}.{key}", spec[key], "must be between 1 and 2147483647, inclusive"))
    problems += check_labels(spec.get("nodeSelector") or {}, f"{path}.nodeSelector")
    for place, toleration in enumerate(spec.get("tolerations") or ()):
        problems += _toleration(toleration, f"{path}.tolerations[{place}]")
    problems += _gates(spec, path)
    for place, constraint in enumerate(spec.get("topologySpreadConstraints") or ()):
        problems += _spread(constraint, f"{path}.topologySpreadConstraints[{place}]")
    return problems + _groups(spec, path)


def check_containers(containers: Sequence[Object], path: str) -> list[FieldProblem]:
    """What is wrong with a list of containers."""
    if not containers:
        return [required(path)]
    problems: list[FieldProblem] = []
    seen: set[str] = set()
    for place, container in enumerate(containers):
        problems += _container(container, f"{path}[{place}]", seen)
    return problems


def check_labels(labels: Object, path: str) -> list[FieldProblem]:
    """What is wrong with keys and values that must be those of labels."""
    problems = []
    for key, value in sorted(labels.items()):
        problems += [wrong(path, key, why) for why in check_qualified(key)]
        problems += [wrong(path, value, why) for why in check_label_value(value)]
    return problems


def _init_containers(containers: Sequence[Object], path: str) -> list[FieldProblem]:
    seen: set[str] = set()
    return [
        problem
        for place, container in enumerate(containers)
        for problem in _container(container, f"{path}[{place}]", seen)
    ]


def _container(container: Object, path: str, seen: set[str]) -> list[FieldProblem]:
    problems = []
    name = container.get("name", "")
    if not name:
        problems.append(required(f"{path}.name"))
    else:
        problems += [wrong(f"{path}.name", name, why) for why in check_label(name)]
        if name in seen:
            problems.append(duplicate(f"{path}.name", name))
        seen.add(name)
    if not container.get("image", "").strip():
        problems.append(required(f"{path}.image"))
    for place, port in enumerate(container.get("ports") or ()):
        given = port.get("containerPort", 0)
        if not 0 < given < 65536:
            at = f"{path}.ports[{place}].containerPort"
            problems.append(
                required(at) if not given else wrong(at, given, "must be between 1 and 65535, inclusive")
            )
    return problems + _resources(container.get("resources") or {}, f"{path}.resources")


def _resources(resources: Object, path: str) -> list[FieldProblem]:
    problems = []
    limits, requests = resources.get("limits") or {}, resources.get("requests") or {}
    for kind, amounts in (("limits", limits), ("requests", requests)):
        for name, amount in sorted(amounts.items()):
            at = f"{path}.{kind}[{name}]"
            if name not in _PLAIN_RESOURCES and "/" not in name and not name.startswith("hugepages-"):
                message = ("type or fully qualified", "for containers")
                problems += [wrong(at, name, f"must be a standard resource {what}") for what in message]
            if amount[0] == "-":
                problems.append(wrong(at, amount, _NON_NEGATIVE))
            elif _extended(name) and number(amount).denominator != 1:
                problems.append(wrong(at, amount, "must be an integer"))
    for name, amount in sorted(requests.items()):
        limit = limits.get(name)
        if limit is None:
            if _extended(name):
                problems.append(
                    required(f"{path}.limits", "Limit must be set for non overcommitable resources")
                )
        elif amount == limit:
            continue
        elif _extended(name):
            problems.append(wrong(f"{path}.requests", amount, f"must be equal to {name} limit of {limit}"))
        elif number(amount) > number(limit):
            why = f"must be less than or equal to {name} limit of {limit}"
            problems.append(wrong(f"{path}.requests", amount, why))
    return problems


_PLAIN_RESOURCES = ("cpu", "memory", "ephemeral-storage")


def _extended(name: str) -> bool:
    return "/" in name and not name.partition("/")[0].endswith("kubernetes.io")


def _toleration(toleration: Object, path: str) -> list[FieldProblem]:
    problems = []
    key, operator = toleration.get("key", ""), toleration.get("operator", "Equal")
    if key:
        problems += [wrong(f"{path}.key", key, why) for why in check_qualified(key)]
    elif operator != "Exists":
        why = 'operator must be Exists when `key` is empty, which means "match all values and all keys"'
        problems.append(wrong(f"{path}.operator", toleration.get("operator", ""), why))
    if operator not in ("Equal", "Exists"):
        problems.append(unsupported(f"{path}.operator", operator, ("Equal", "Exists")))
    if operator == "Exists" and toleration.get("value"):
        problems.append(
            wrong(f"{path}.operator", toleration["value"], "value must be empty when `operator` is 'Exists'")
        )
    if toleration.get("effect") and toleration["effect"] not in _EFFECTS:
        problems.append(unsupported(f"{path}.effect", toleration["effect"], _EFFECTS))
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        why = "effect must be 'NoExecute' when `tolerationSeconds` is set"
        problems.append(wrong(f"{path}.effect", toleration.get("effect", ""), why))
    return problems


def _gates(spec: Object, path: str) -> list[FieldProblem]:
    problems, seen = [], set()
    for place, gate in enumerate(spec.get("schedulingGates") or ()):
        name = gate.get("name", "")
        problems += [wrong(f"{path}.schedulingGates[{place}]", name, why) for why in check_qualified(name)]
        if name in seen:
            problems.append(duplicate(f"{path}.schedulingGates[{place}]", name))
        seen.add(name)
    if seen and spec.get("nodeName"):
        problems.append(
            unwanted(f"{path}.nodeName", "cannot be set until all schedulingGates have been cleared")
        )
    return problems


def _groups(spec: Object, path: str) -> list[FieldProblem]:
    """The gang that a pod belongs to, by the name that the version of the API has for that."""
    found: list[FieldError] = []
    if spec.get("workloadRef") is not None:
        found += check_workload_reference(spec["workloadRef"], f"{path}.workloadRef")
    if spec.get("schedulingGroup") is not None:
        found += check_scheduling_group(spec["schedulingGroup"], f"{path}.schedulingGroup")
    return [from_field(error) for error in found]


def _spread(constraint: Object, path: str) -> list[FieldProblem]:
    problems = []
    if constraint.get("maxSkew", 0) <= 0:
        problems.append(wrong(f"{path}.maxSkew", constraint.get("maxSkew", 0), "must be greater than zero"))
    if not constraint.get("topologyKey"):
        problems.append(required(f"{path}.topologyKey", "can not be empty"))
    action = constraint.get("whenUnsatisfiable", "")
    if action not in ("DoNotSchedule", "ScheduleAnyway"):
        known = ("DoNotSchedule", "ScheduleAnyway")
        problems.append(unsupported(f"{path}.whenUnsatisfiable", action, known))
    return problems
