"""Validation of PodGroups, Queues and Topologies beyond their schemas."""

from __future__ import annotations

from collections.abc import Sequence

from bayplan.dialects.kai.api.gang_tree import DEPTH_MAX, NAMELESS, TOO_DEEP, depth, has_cycle
from bayplan.dialects.kai.api.pod_group import PodGroup, SubGroup, read_pod_group
from bayplan.dialects.kai.api.queues import duration
from bayplan.dialects.kube.fields.metadata_rules import check_key
from bayplan.dialects.kube.fields.name_rules import label_value_problems
from bayplan.dialects.kube.fields.reader import Field, FieldErrorType
from bayplan.model.node import HOSTNAME, LEVELS_MAX

SUB_GROUPS_MAX = 4096  # as in the CRD
NO_QUEUE_ABOVE_ITSELF = (
    "a queue cannot be its own parent: name the queue that it is a part of, or leave this out for one on top"
)


def check_pod_group(obj: Field) -> list[str]:
    """Record the errors of a PodGroup; return warnings."""
    group = read_pod_group(obj)
    field = obj.at("spec", "subGroups")
    for problem in sub_group_problems(group.sub_groups):
        field.error(problem, FieldErrorType.INVALID, None)
    return [] if obj.errors else warnings(group)


def sub_group_problems(sub_groups: Sequence[SubGroup]) -> list[str]:
    """The errors of sub-groups; names first, then parents, then sums."""
    names = [one.name for one in sub_groups]
    first: dict[str, int] = {}
    duplicates = [name for at, name in enumerate(names) if first.setdefault(name, at) != at]
    if duplicates:
        return [f"duplicate subgroup name {name}" for name in dict.fromkeys(duplicates)]
    known = set(names)
    missing = [f"parent {one.parent} of {one.name} was not found{_hint(one, names)}" for one in sub_groups
             if one.parent and one.parent not in known]  # fmt: skip
    if missing:
        return missing
    if has_cycle(sub_groups):
        return ["cycle detected in subgroups"]
    if "" in names:
        return [NAMELESS]
    if depth(sub_groups) > DEPTH_MAX:
        return [TOO_DEEP]
    return [*_bad_names(names), *_bad_sums(sub_groups)]


def warnings(group: PodGroup) -> list[str]:
    """Warnings about a PodGroup: its own minimum should be equal to that of its sub-groups."""
    if not group.sub_groups:
        return []
    parents = {one.parent for one in group.sub_groups}
    needed = sum(one.minimum for one in group.sub_groups if one.name not in parents)
    if group.minimum == needed:
        return []
    return [
        f"minMember is {group.minimum}, but its sub-groups need {needed} pods: what the sub-groups say counts"
    ]


def check_queue(obj: Field) -> None:
    """Record the errors of a Queue."""
    spec, name = obj.at("spec"), obj.at("metadata", "name").text()
    parent = spec.at("parentQueue")
    if name and parent.text() == name:
        parent.error(NO_QUEUE_ABOVE_ITSELF, FieldErrorType.INVALID)
    for key in ("preemptMinRuntime", "reclaimMinRuntime"):
        time = spec.at(key)
        if time.text() and duration(time.text()) is None:
            time.error("must be a duration such as 90s or 1h30m", FieldErrorType.INVALID)
    for resource in ("cpu", "memory", "gpu"):
        field = spec.at("resources", resource)
        for key in ("quota", "limit", "overQuotaWeight"):
            _check_amount(field.at(key), unlimited=key != "overQuotaWeight")
        quota, limit = field.at("quota").value, field.at("limit").value
        if _is_number(quota) and _is_number(limit) and 0 < limit < quota:  # type: ignore[operator]
            field.at("limit").error(
                f"must not be less than the quota, which is {quota}", FieldErrorType.INVALID
            )


def check_topology(obj: Field) -> None:
    """Record the errors of a Topology."""
    levels = obj.at("spec", "levels")
    fields = levels.items()
    if not 1 <= len(fields) <= LEVELS_MAX:
        levels.error(f"must hold between 1 and {LEVELS_MAX} levels", FieldErrorType.INVALID, None)
    seen: list[str] = []
    for number, level in enumerate(fields):
        label = level.at("nodeLabel")
        check_key(label)
        if label.text() in seen:
            label.error("must not be a level twice", FieldErrorType.DUPLICATE)
        if label.text() == HOSTNAME and number < len(fields) - 1:
            label.error(f"the {HOSTNAME} label can only be used at the lowest level", FieldErrorType.INVALID)
        seen.append(label.text())


def check_topology_update(new: Field, old: Field) -> None:
    """The levels of a Topology are immutable: gangs are placed by them."""
    if new.at("spec", "levels").value != old.at("spec", "levels").value:
        new.at("spec", "levels").error("field is immutable", FieldErrorType.INVALID, None)


def _hint(one: SubGroup, names: Sequence[str]) -> str:
    """A suggestion if the parent exists with different capitals."""
    near = next((name for name in names if name.lower() == one.parent.lower()), None)
    return "" if near is None else f": did you mean {near}? Capitals count"


def _bad_names(names: Sequence[str]) -> list[str]:
    problems = []
    by_letters: dict[str, str] = {}
    for name in names:
        problems += [f"subgroup name {name}: {problem}" for problem in label_value_problems(name)]
        twin = by_letters.setdefault(name.lower(), name)
        if twin != name:
            problems.append(f"subgroup names {twin} and {name} differ only in capitals")
    return problems


def _bad_sums(sub_groups: Sequence[SubGroup]) -> list[str]:
    """A parent must not need more pods than its children; a minimum of 1 is the default and ignored."""
    by_parent: dict[str, list[SubGroup]] = {}
    for one in sub_groups:
        by_parent.setdefault(one.parent, []).append(one)

    def needed(one: SubGroup) -> int:
        nested = by_parent.get(one.name)
        return one.minimum if nested is None else sum(needed(child) for child in nested)

    return [
        f"subgroup {one.name} needs {one.minimum} pods, but those below it only {needed(one)}"
        for one in sub_groups
        if one.name in by_parent and one.minimum > max(needed(one), 1)
    ]


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _check_amount(field: Field, *, unlimited: bool) -> None:
    if not field.present:
        return
    if not _is_number(field.value):
        field.error("must be a number", FieldErrorType.INVALID)
    elif field.value < 0 and not (unlimited and field.value == -1):  # type: ignore[operator]
        allowed = "must not be negative" + (", except for -1, which means without limit" if unlimited else "")
        field.error(allowed, FieldErrorType.INVALID)
