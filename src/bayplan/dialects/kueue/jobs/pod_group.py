"""Groups of plain pods: which of them count, which are too many, and the Workload that stands for them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.kinds import Find
from bayplan.dialects.jobs.part import GROUP_POD_INDEX, nothing
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import whole_number
from bayplan.dialects.kueue.fields.pod_rules import group_name
from bayplan.dialects.kueue.fields.role_hash import role_hash
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.jobs.workload import NONE, Copied, along, make_workload, owner
from bayplan.dialects.kueue.names.annotations import (
    FAST_ADMISSION,
    OF_GROUP,
    POD_GROUP_COUNT,
    QUEUE,
    ROLE_HASH,
)
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.model.whole_numbers import whole_number as digits_only

Object = dict[str, Any]
_SHOWN_MAX = 60


def group_size(pod: Field) -> int:
    """How many pods the group of a pod has. ValueError if that is no number above zero."""
    size = whole_number(pod.at("metadata", "annotations", POD_GROUP_COUNT).text())
    if size < 1:
        raise ValueError("group total count should be greater than zero")
    return size


def excess_pods(pods: Sequence[Field]) -> list[Field]:
    """The youngest of the pods that are more than the group has."""
    alive = [pod for pod in pods if pod.at("status", "phase").text() != "Failed"]
    return sorted(alive, key=_age)[group_size(pods[0]) :]


def check_indexes(pods: Sequence[Field]) -> None:
    """ValueError if a pod has a number that its group does not have."""
    for pod in pods:
        index = pod.at("metadata", "labels", GROUP_POD_INDEX)
        if not index.present:
            continue
        number = digits_only(index.text())
        if number is None:
            raise ValueError(f"{index.path}: invalid unsigned integer: {index.text()[:_SHOWN_MAX]!r}")
        if number >= group_size(pod):
            raise ValueError(f"{index.path}: validation error: {index.text()} is not below {group_size(pod)}")


def check_alike(pods: Sequence[Field]) -> None:
    """ValueError if two pods of a group name different queues, or different sizes of it."""
    first = pods[0].at("metadata")
    for pod in pods[1:]:
        both = f"pods '{first.at('name').text()}' and '{pod.at('metadata', 'name').text()}' has different"
        queues = [one.at("labels", QUEUE).text() for one in (first, pod.at("metadata"))]
        if queues[0] != queues[1]:
            raise ValueError(f"{both} queue names: {'!='.join(queues)}")
        if group_size(pods[0]) != group_size(pod):
            sizes = f"{group_size(pods[0])}!={group_size(pod)}"
            raise ValueError(f"{both} '{POD_GROUP_COUNT}' values: {sizes}")


def group_workload(
    pods: Sequence[Field], find: Find = nothing, rules: FeatureSwitches = RULES, copied: Copied = NONE
) -> Object:
    """The Workload of a group of pods that are all there: a pod set for each role.

    Pods that are too many do not count; those that linger own the Workload all the same.
    """
    check_indexes(pods)
    check_alike(pods)
    excess = {_age(pod) for pod in excess_pods(pods)}
    counted = [pod for pod in pods if _age(pod) not in excess]
    staying = [pod for pod in pods if pod in counted or pod.at("metadata", "deletionTimestamp").present]
    first = counted[0]
    made = make_workload(group_name(first, rules).text(), first, _role_sets(counted, rules), find, NONE)
    for pod in counted:
        for key, value in along(pod, copied).items():
            made["metadata"][key] |= value
    made["metadata"]["annotations"][OF_GROUP] = "true"
    made["metadata"]["ownerReferences"] = [owner(pod, controls=False) for pod in staying]
    return made


def _age(pod: Field) -> tuple[str, str]:
    metadata = pod.at("metadata")
    return metadata.at("creationTimestamp").text(), metadata.at("name").text()


def _role_sets(pods: Sequence[Field], rules: FeatureSwitches) -> list[Object]:
    if pods[0].at("metadata", "annotations", FAST_ADMISSION).text() == "true":
        only = pod_sets(pods[0], rules=rules)[0]
        return [only | {"name": _role(pods[0]), "count": group_size(pods[0])}]
    found: dict[str, Object] = {}
    for pod in pods:
        role = _role(pod)
        if role in found:
            found[role]["count"] += 1
        else:
            found[role] = pod_sets(pod, rules=rules)[0] | {"name": role}
    return [found[role] for role in sorted(found)]


def _role(pod: Field) -> str:
    spec = pod.at("spec").value
    known = pod.at("metadata", "annotations", ROLE_HASH).text()
    return known or role_hash(spec if isinstance(spec, dict) else {})
