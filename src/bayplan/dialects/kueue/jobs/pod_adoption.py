"""How pods of a queued StatefulSet or LeaderWorkerSet join its Workload: labels and annotations."""

from __future__ import annotations

import copy
from typing import Any

from bayplan.dialects.kube.fields.name_rules import LABEL_MAX
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.jobs.workload import workload_name
from bayplan.dialects.kueue.names.annotations import (
    FAST_ADMISSION,
    INDEX_FROM,
    MANAGED,
    POD_GROUP,
    POD_GROUP_COUNT,
    PREBUILT,
    PRIORITY_CLASS,
    QUEUE,
    ROLE_HASH,
    SERVING,
)
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches

GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_NAME = "leaderworkerset.sigs.k8s.io/leader-name"
POD_INDEX = "apps.kubernetes.io/pod-index"

Object = dict[str, Any]


def with_workload_metadata(
    pod: Object, owner: Object, workload: str = "", rules: FeatureSwitches = RULES
) -> Object:
    """A copy of the pod with the metadata that adds it to its Workload (`workload`, if named otherwise)."""
    copied: Object = copy.deepcopy(pod)
    field, job = Field(copied), Field(owner)
    queue = job.at("metadata", "labels", QUEUE).text()
    has_groups = job.at("kind").text() == "LeaderWorkerSet"
    labels = field.at("metadata", "labels").texts()
    gated = any(
        gate.at("name").text() == SCHEDULING_GATE for gate in field.at("spec", "schedulingGates").items()
    )
    queued = {QUEUE: queue} if queue and (gated or not has_groups) else {}
    if MANAGED in labels:
        _add(copied, "labels", queued)
    elif (queue or rules.jobs_without_queue) and (not has_groups or GROUP_INDEX in labels):
        replica = f"-{labels[GROUP_INDEX]}" if has_groups else ""
        metadata = job.at("metadata")
        named = f"{metadata.at('name').text()}{replica}"
        name = workload or workload_name(job.at("kind").text(), named, metadata.at("uid").text())
        _add(copied, "labels", {MANAGED: "true", **queued, **_class(job, of_groups=has_groups)})
        _add(copied, "annotations", _of_group(field, job) if has_groups else _of_set(job))
        for key in (POD_GROUP, PREBUILT):
            in_annotation = rules.identifiers or (key == PREBUILT and len(name) > LABEL_MAX)
            _add(copied, "annotations" if in_annotation else "labels", {key: name})
    return copied


def _class(job: Field, *, of_groups: bool) -> dict[str, str]:
    name = "" if of_groups else job.at("metadata", "labels", PRIORITY_CLASS).text()
    return {PRIORITY_CLASS: name} if name else {}


def _of_set(job: Field) -> dict[str, str]:
    count = job.at("spec", "replicas").integer(default=1)
    return {
        POD_GROUP_COUNT: str(count),
        FAST_ADMISSION: "true",
        SERVING: "true",
        INDEX_FROM: POD_INDEX,
        ROLE_HASH: "main",
    }


def _of_group(pod: Field, job: Field) -> dict[str, str]:
    group = job.at("spec", "leaderWorkerTemplate")
    role = "main"
    if group.at("leaderTemplate").present:
        role = "worker" if LEADER_NAME in pod.at("metadata", "annotations").texts() else "leader"
    return {POD_GROUP_COUNT: str(group.at("size").integer(default=1)), ROLE_HASH: role}


def _add(pod: Object, part: str, entries: dict[str, str]) -> None:
    if entries:
        metadata = pod.setdefault("metadata", {})
        metadata[part] = {**(metadata.get(part) or {}), **entries}
