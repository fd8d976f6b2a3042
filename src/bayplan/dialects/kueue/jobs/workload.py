"""The Workload of a job, of one replica of it, or of a pod group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, kind_of
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kube.fields.name_rules import LABEL_MAX, digest, label_value_problems
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.run_limits import EXPECTED_RUNTIME
from bayplan.dialects.kueue.fields.workload_rules import has_reservation
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.names.annotations import (
    GATED_BY,
    IN_USE,
    IS_GROUP_WORKLOAD,
    JOB_UID,
    OWNER_KIND,
    OWNER_NAME,
    PRIORITY_CLASS,
    QUEUE,
    REPLICA,
    SECONDS_MAX,
)
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.model.whole_numbers import INT32_MAX, whole_number

PROVISIONING = "provreq.kueue.x-k8s.io/"
_HASH_LENGTH = 5

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Copied:
    """The labels and annotations that are copied from a job to its Workload."""

    labels: frozenset[str] = frozenset()
    annotations: frozenset[str] = frozenset()


NONE = Copied()


def workload_name(kind: str, name: str, uid: str, extra: str = "") -> str:
    """The name of a Workload: kind and name of the job, and a hash that includes its uid."""
    parts = [kind, KINDS[kind].group, name, uid, *([extra] if extra else [])]
    end = digest("\n".join(parts), _HASH_LENGTH)
    return f"{f'{kind.lower()}-{name}'[: LABEL_MAX - 1 - _HASH_LENGTH]}-{end}"


def replica_name(job: Field, index: int) -> str:
    """The name of the Workload of one replica of a job that consists of several gangs."""
    metadata = job.at("metadata")
    owned = f"{metadata.at('name').text()}-{index}"
    return workload_name(job.at("kind").text(), owned, metadata.at("uid").text())


def job_workload(
    job: Field,
    index: int = 0,
    find: Find = find_nothing,
    rules: FeatureSwitches = RULES,
    copied: Copied = NONE,
) -> Object:
    """The Workload of a job, or of one of its replicas.

    `find` looks up priority classes and runtimes. ValueError if an annotation cannot be read.
    """
    entry, metadata = kind_of(job), job.at("metadata")
    name, uid = metadata.at("name").text(), metadata.at("uid").text()
    in_copies = entry.ahead and entry.copies is not None
    owned = f"{name}-{index}" if in_copies else name
    workload = make_workload(
        workload_name(entry.kind, owned, uid), job, pod_sets(job, find, rules), find, copied
    )
    if uid and not label_value_problems(uid):
        workload["metadata"]["labels"][JOB_UID] = uid
    if entry.ahead:
        annotations = workload["metadata"]["annotations"]
        annotations |= {
            IS_GROUP_WORKLOAD: "true",
            OWNER_KIND: f"{entry.api_version}, Kind={entry.kind}",
            OWNER_NAME: name,
        }
        if in_copies:
            annotations[REPLICA] = str(index)
    workload["metadata"]["ownerReferences"] = [owner(job, controls=not entry.ahead)]
    return workload


def updated_workload(workload: Object, wanted: Object, *, serving: bool = False) -> Object | None:
    """A Workload updated to the one its job would get today (`wanted`); None if nothing changed.

    While no quota is reserved it is rewritten; after that only the queue is updated, and any other change
    needs a new Workload. The queue of serving pods is updated by the reconciler of their owner.
    """
    spec, today = workload["spec"], wanted["spec"]
    key = "maximumExecutionTimeSeconds"
    if spec.get(key) != today.get(key) or _shape(spec) != _shape(today):
        return wanted if has_reservation(Field(workload)) else {**workload, "spec": today}
    if spec.get("queueName") != today.get("queueName") and not serving:
        return {**workload, "spec": {**spec, "queueName": today.get("queueName", "")}}
    return None


def _shape(spec: Object) -> list[tuple[object, ...]]:
    """What of the pod sets quota and places are reserved for."""
    return [
        (one["name"], one["count"], (one["template"].get("spec") or {}).get("containers"))
        for one in spec["podSets"]
    ]


def make_workload(name: str, job: Field, sets: list[Object], find: Find, copied: Copied) -> Object:
    """A Workload with this name and these pod sets, and the metadata, queue and priority of a job."""
    metadata, copied_parts = job.at("metadata"), copied_metadata(job, copied)
    labels, annotations = metadata.at("labels").texts(), metadata.at("annotations").texts()
    own_annotations = {
        key: value
        for key, value in annotations.items()
        if key.startswith(PROVISIONING) or key in (GATED_BY, EXPECTED_RUNTIME)
    }
    spec: Object = {"podSets": sets, **_priority(job, sets, find)}
    if labels.get(QUEUE):
        spec["queueName"] = labels[QUEUE]
    seconds_max = whole_number(labels.get(SECONDS_MAX), INT32_MAX)
    if seconds_max is not None:
        spec["maximumExecutionTimeSeconds"] = seconds_max
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": name,
            "namespace": metadata.at("namespace").text(),
            "labels": copied_parts["labels"],
            "annotations": own_annotations | copied_parts["annotations"],
            "finalizers": [IN_USE],
        },
        "spec": spec,
    }


def copied_metadata(job: Field, copied: Copied) -> dict[str, dict[str, str]]:
    """The labels and annotations that a Workload copies from its job."""
    metadata = job.at("metadata")
    wanted = {"labels": copied.labels, "annotations": copied.annotations}
    return {
        part: {key: value for key, value in metadata.at(part).texts().items() if key in keys}
        for part, keys in wanted.items()
    }


def _priority(job: Field, sets: list[Object], find: Find) -> Object:
    """The priority of the class that the job names, or else of the first class that its pods name."""
    own = job.at("metadata", "labels", PRIORITY_CLASS).text()
    scheduling = job.at("spec", "runPolicy", "schedulingPolicy", "priorityClass").text()
    of_pods = (one["template"].get("spec", {}).get("priorityClassName") for one in sets)
    name = own or scheduling or next((name_of_pods for name_of_pods in of_pods if name_of_pods), "")
    if not name:
        return {"priority": 0}
    kind, group = (
        ("WorkloadPriorityClass", "kueue.x-k8s.io") if own else ("PriorityClass", "scheduling.k8s.io")
    )
    priority_class = find(kind, "", name)
    value = priority_class.get("value", 0) if isinstance(priority_class, dict) else 0
    return {"priority": value, "priorityClassRef": {"group": group, "kind": kind, "name": name}}


def owner(job: Field, *, controls: bool) -> Object:
    """The ownerReference of a Workload to its job."""
    kind, metadata = job.at("kind").text(), job.at("metadata")
    reference: Object = {
        "apiVersion": KINDS[kind].api_version,
        "kind": kind,
        "name": metadata.at("name").text(),
        "uid": metadata.at("uid").text(),
    }
    return reference | ({"controller": True, "blockOwnerDeletion": True} if controls else {})
