"""Defaults of jobs and pods on creation: queue, suspension or gates, and the annotations of their pods."""

from __future__ import annotations

import copy
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.jobs.kind import Serving
from bayplan.dialects.jobs.kinds import KINDS, is_known, kind_of, parts
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.job_rules import SCHEDULING_GATE
from bayplan.dialects.kueue.fields.role_hash import role_hash
from bayplan.dialects.kueue.names.annotations import (
    DEFAULT_QUEUE,
    ELASTIC_GATE,
    GROUP,
    GROUP_INDEX,
    INDEX_FROM,
    MANAGED,
    OFFSET,
    PRIORITY_CLASS,
    QUEUE,
    ROLE_HASH,
    SERVING,
    SUSPENDED_BY,
    TOPOLOGY_GATE,
    is_elastic,
)
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.webhooks.controlling_owners import is_part
from bayplan.dialects.reviews import FindOwner, unknown_owner

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobSurroundings:
    """What defaulting needs to know besides the job."""

    default_queue: bool = False  # the namespace has a default LocalQueue
    owned: bool = False  # it belongs to another queued job


ALONE = JobSurroundings()
NOT_ELASTIC = replace(RULES, elastic=False)
"""For kinds whose elastic jobs are restarted to be resized: no controller would remove their gate."""
DEFAULTED_ON_UPDATE = tuple(kind.kind for kind in KINDS.values() if kind.serving is not None)
"""Kinds that are defaulted on updates too, since their template may change."""


def default_job(job: Object, surroundings: JobSurroundings = ALONE, rules: FeatureSwitches = RULES) -> Object:
    """A copy of the job with defaults; idempotent."""
    defaulted: Object = copy.deepcopy(job)
    field = Field(defaulted)
    if not is_known(field) or surroundings.owned:
        return defaulted
    entry = kind_of(field)
    by_parent = SUSPENDED_BY in field.at("metadata", "annotations").texts()
    if surroundings.default_queue and not by_parent and not field.at("metadata", "labels", QUEUE).text():
        _labels(defaulted)[QUEUE] = DEFAULT_QUEUE
    if not (by_parent or rules.jobs_without_queue or Field(defaulted).at("metadata", "labels", QUEUE).text()):
        return defaulted
    if entry.suspend:
        _set_true(defaulted, entry.suspend)
    if entry.default is not None:
        entry.default(defaulted)
    if entry.job_labels:
        _copy_queue(defaulted, _mapping_at(defaulted, *entry.job_labels))
    if entry.serving is not None:
        _gate_pods(defaulted, entry.serving)
    if entry.is_pod:
        _default_pod(defaulted, rules)
    if entry.offsets and rules.topology:
        _annotate_offsets(defaulted)
    if entry.resizing is not None and not entry.resizing.gated_at_start:
        _gate_elastic(defaulted, rules)
    return defaulted


def _gate_elastic(job: Object, rules: FeatureSwitches) -> None:
    """Gate the pods of an elastic job: each starts once the size of the job is admitted."""
    if rules.elastic and is_elastic(Field(job)):
        for part in parts(Field(job)):
            _add_gate(part.template.value, ELASTIC_GATE)


def default_on_write(
    new: Object, old: Object | None = None, find: Find = find_nothing, owner: FindOwner = unknown_owner
) -> Object:
    """Default a job or pod that is created or updated.

    One without a queue is unchanged, unless it is new and its namespace has a default LocalQueue. `find`
    looks up the LocalQueue, `owner` the controllers of the object.
    """
    metadata = new.get("metadata") or {}
    by_parent = SUSPENDED_BY in (metadata.get("annotations") or {})
    named = by_parent or bool((metadata.get("labels") or {}).get(QUEUE))
    if not named and (old is not None or not _has_default_queue(metadata, find)):
        return new
    owned = not by_parent and is_part(new, owner)
    entry = KINDS.get(str(new.get("kind")))
    if not named and owned and entry is not None and entry.is_pod:
        return new  # queued with its owner
    surroundings = JobSurroundings(default_queue=not named, owned=owned)
    in_place = entry is not None and entry.resized_in_place
    return default_job(new, surroundings, RULES if in_place else NOT_ELASTIC)


def _has_default_queue(metadata: Object, find: Find) -> bool:
    """Whether the namespace has a default LocalQueue."""
    return find("LocalQueue", str(metadata.get("namespace", "")), DEFAULT_QUEUE) is not None


def _labels(obj: Object) -> dict[str, str]:
    return _mapping_at(obj, "metadata", "labels")


def _annotations(obj: Object) -> dict[str, str]:
    return _mapping_at(obj, "metadata", "annotations")


def _mapping_at(obj: Object, *keys: str) -> Object:
    for key in keys:
        if not isinstance(obj.get(key), dict):
            obj[key] = {}
        obj = obj[key]
    return obj


def _list_at(obj: Object, key: str) -> list[Any]:
    """The list at a key, to be appended to; a value of another type is replaced, as in `_mapping_at`."""
    if not isinstance(obj.get(key), list):
        obj[key] = []
    items: list[Any] = obj[key]
    return items


def _set_true(obj: Object, path: tuple[str, ...]) -> None:
    _mapping_at(obj, *path[:-1])[path[-1]] = True


def _add_gate(template: object, name: str) -> None:
    """Add a scheduling gate to a pod template."""
    if isinstance(template, dict):
        gates = _list_at(_mapping_at(template, "spec"), "schedulingGates")
        if {"name": name} not in gates:
            gates.append({"name": name})


def _gate_pods(job: Object, serving: Serving) -> None:
    """Annotate the pod templates with the parent kind, so that the pods are gated."""
    if serving.only_top and Field(job).at("metadata", "ownerReferences").items():
        return
    for part in parts(Field(job)):
        template = part.template.value
        if not isinstance(template, dict):
            continue  # the API server refuses it
        _annotations(template)[SUSPENDED_BY] = serving.parent
        if serving.queue:
            _copy_queue(job, _labels(template))
        if serving.marked:
            _annotations(template)[SERVING] = "true"
        if serving.managed:
            _labels(template)[MANAGED] = "true"


def _copy_queue(job: Object, labels: dict[str, str]) -> None:
    """Copy the queue and the priority class of a job."""
    for label in (QUEUE, PRIORITY_CLASS):
        if value := Field(job).at("metadata", "labels", label).text():
            labels[label] = value


def _annotate_offsets(job: Object) -> None:
    """Annotate pods whose indexes do not start at 0, unless a pod set group counts those before them."""
    pod_sets = parts(Field(job))
    if any(GROUP in part.metadata.at("annotations").texts() for part in pod_sets):
        return
    for part in pod_sets:
        if part.index_offset and isinstance(part.template.value, dict):
            _annotations(part.template.value)[OFFSET] = str(part.index_offset)


def _default_pod(pod: Object, rules: FeatureSwitches) -> None:
    annotations, labels = _annotations(pod), _labels(pod)
    if SUSPENDED_BY not in annotations:
        labels[MANAGED] = "true"
        finalizers = _list_at(pod["metadata"], "finalizers")
        if MANAGED not in finalizers:
            finalizers.append(MANAGED)
    _add_gate(pod, SCHEDULING_GATE)
    if rules.topology:
        if INDEX_FROM in annotations:
            labels[GROUP_INDEX] = labels.get(annotations[INDEX_FROM], "")
        _add_gate(pod, TOPOLOGY_GATE)
    annotations[ROLE_HASH] = role_hash(pod.get("spec") or {})
