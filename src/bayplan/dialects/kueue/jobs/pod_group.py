"""Groups of plain pods: size and consistency of a group, excess pods, and the Workload of the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.part import GROUP_POD_INDEX, Find, find_nothing
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import whole_number
from bayplan.dialects.kueue.fields.pod_rules import group_name
from bayplan.dialects.kueue.fields.role_hash import role_hash
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.jobs.workload import NONE, Copied, copied_metadata, make_workload, owner
from bayplan.dialects.kueue.names.annotations import (
    FAST_ADMISSION,
    IS_GROUP_WORKLOAD,
    POD_GROUP_COUNT,
    QUEUE,
    ROLE_HASH,
)
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.model.whole_numbers import whole_number as digits_only

Object = dict[str, Any]
_SHOWN_MAX = 60


def group_size(pod: Field) -> int:
    """The size of a pod's group. ValueError if its annotation is not a positive number."""
    size = whole_number(pod.at("metadata", "annotations", POD_GROUP_COUNT).text())
    if size < 1:
        raise ValueError("group total count should be greater than zero")
    return size


def excess_pods(pods: Sequence[Field]) -> list[Field]:
    """The youngest pods beyond the size of the group."""
    alive = [pod for pod in pods if pod.at("status", "phase").text() != "Failed"]
    return sorted(alive, key=_age)[group_size(pods[0]) :]


def check_indexes(pods: Sequence[Field]) -> None:
    """ValueError if a pod has an index beyond the size of its group."""
    for pod in pods:
        index = pod.at("metadata", "labels", GROUP_POD_INDEX)
        if not index.present:
            continue
        number = digits_only(index.text())
        if number is None:
            raise ValueError(f"{index.path}: invalid unsigned integer: {index.text()[:_SHOWN_MAX]!r}")
        if number >= group_size(pod):
            raise ValueError(f"{index.path}: validation error: {index.text()} is not below {group_size(pod)}")


def check_same_group(pods: Sequence[Field]) -> None:
    """ValueError if two pods of a group name different queues or group sizes."""
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
    pods: Sequence[Field], find: Find = find_nothing, rules: FeatureSwitches = RULES, copied: Copied = NONE
) -> Object:
    """The Workload of a complete pod group: a pod set for each role.

    Excess pods do not count; terminating ones still own the Workload.
    """
    check_indexes(pods)
    check_same_group(pods)
    excess = {_age(pod) for pod in excess_pods(pods)}
    counted = [pod for pod in pods if _age(pod) not in excess]
    owners = [pod for pod in pods if pod in counted or pod.at("metadata", "deletionTimestamp").present]
    first = counted[0]
    workload = make_workload(group_name(first, rules).text(), first, _role_sets(counted, rules), find, NONE)
    for pod in counted:
        for key, value in copied_metadata(pod, copied).items():
            workload["metadata"][key] |= value
    workload["metadata"]["annotations"][IS_GROUP_WORKLOAD] = "true"
    workload["metadata"]["ownerReferences"] = [owner(pod, controls=False) for pod in owners]
    return workload


def _age(pod: Field) -> tuple[str, str]:
    metadata = pod.at("metadata")
    return metadata.at("creationTimestamp").text(), metadata.at("name").text()


def _role_sets(pods: Sequence[Field], rules: FeatureSwitches) -> list[Object]:
    if pods[0].at("metadata", "annotations", FAST_ADMISSION).text() == "true":
        only = pod_sets(pods[0], rules=rules)[0]
        return [only | {"name": _role(pods[0]), "count": group_size(pods[0])}]
    sets: dict[str, Object] = {}
    for pod in pods:
        role = _role(pod)
        if role in sets:
            sets[role]["count"] += 1
        else:
            sets[role] = pod_sets(pod, rules=rules)[0] | {"name": role}
    return [sets[role] for role in sorted(sets)]


def _role(pod: Field) -> str:
    spec = pod.at("spec").value
    annotated = pod.at("metadata", "annotations", ROLE_HASH).text()
    return annotated or role_hash(spec if isinstance(spec, dict) else {})
