"""How pods of a queued StatefulSet or LeaderWorkerSet join its Workload: labels and annotations."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from bayplan.dialects.jobs.kinds import kind_of, parts
from bayplan.dialects.jobs.part import JobPart
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

Object = dict[str, Any]


def with_workload_metadata(
    pod: Object, owner: Object, workload: str = "", rules: FeatureSwitches = RULES
) -> Object:
    """A copy of the pod with the metadata that adds it to its Workload (`workload`, if named otherwise)."""
    copied: Object = copy.deepcopy(pod)
    field, job = Field(copied), Field(owner)
    queue = job.at("metadata", "labels", QUEUE).text()
    entry = kind_of(job)
    serving, has_groups = entry.serving, entry.copies is not None
    assert serving is not None and serving.group is not None
    labels = field.at("metadata", "labels").texts()
    gated = any(
        gate.at("name").text() == SCHEDULING_GATE for gate in field.at("spec", "schedulingGates").items()
    )
    queued = {QUEUE: queue} if queue and (gated or not has_groups) else {}
    if MANAGED in labels:
        _add(copied, "labels", queued)
    elif (queue or rules.jobs_without_queue) and (not has_groups or serving.copy_label in labels):
        replica = f"-{labels[serving.copy_label]}" if has_groups else ""
        metadata = job.at("metadata")
        named = f"{metadata.at('name').text()}{replica}"
        name = workload or workload_name(entry.kind, named, metadata.at("uid").text())
        _add(copied, "labels", {MANAGED: "true", **queued, **_class(job, of_groups=has_groups)})
        count, role = serving.group(field, job)
        own = {} if has_groups else _of_set(parts(job))
        _add(copied, "annotations", {POD_GROUP_COUNT: str(count), ROLE_HASH: role, **own})
        for key in (POD_GROUP, PREBUILT):
            in_annotation = rules.identifiers or (key == PREBUILT and len(name) > LABEL_MAX)
            _add(copied, "annotations" if in_annotation else "labels", {key: name})
    return copied


def _class(job: Field, *, of_groups: bool) -> dict[str, str]:
    name = "" if of_groups else job.at("metadata", "labels", PRIORITY_CLASS).text()
    return {PRIORITY_CLASS: name} if name else {}


def _of_set(pod_sets: Sequence[JobPart]) -> dict[str, str]:
    """The annotations of a pod whose template does not have them."""
    labels = [one.index_label for one in pod_sets if one.index_label]
    index = {INDEX_FROM: labels[0]} if labels else {}
    return {FAST_ADMISSION: "true", SERVING: "true", **index}


def _add(pod: Object, part: str, entries: dict[str, str]) -> None:
    if entries:
        metadata = pod.setdefault("metadata", {})
        metadata[part] = {**(metadata.get(part) or {}), **entries}
