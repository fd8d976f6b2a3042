"""Defaults of jobs and pods on creation: queue, suspension or gates, and the annotations of their pods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, Find, is_known, parts
from bayplan.dialects.jobs.part import find_nothing
from bayplan.dialects.jobs.train_runtime import PATCH_MANAGER
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
from bayplan.dialects.kueue.names.job_kinds import PARENTS, SCALED
from bayplan.dialects.kueue.webhooks.controlling_owners import FindController, is_part, no_lookup

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobSurroundings:
    """What defaulting needs to know besides the job."""

    default_queue: bool = False  # the namespace has a default LocalQueue
    owned: bool = False  # it belongs to another queued job


ALONE = JobSurroundings()
NOT_ELASTIC = replace(RULES, elastic=False)
"""For kinds whose elastic jobs are restarted to be resized: no controller would remove their gate."""
DEFAULTED_ON_UPDATE = tuple(PARENTS)
"""Kinds that are defaulted on updates too, since their template may change."""


def default_job(job: Object, surroundings: JobSurroundings = ALONE, rules: FeatureSwitches = RULES) -> Object:
    """A copy of the job with defaults; idempotent."""
    defaulted: Object = copy.deepcopy(job)
    field = Field(defaulted)
    if not is_known(field) or surroundings.owned:
        return defaulted
    kind = field.at("kind").text()
    by_parent = SUSPENDED_BY in field.at("metadata", "annotations").texts()
    if surroundings.default_queue and not by_parent and not field.at("metadata", "labels", QUEUE).text():
        _labels(defaulted)[QUEUE] = DEFAULT_QUEUE
    if not (by_parent or rules.jobs_without_queue or Field(defaulted).at("metadata", "labels", QUEUE).text()):
        return defaulted
    if path := KINDS[kind].suspend:
        _set_true(defaulted, path)
    if default := _DEFAULTS.get(kind):
        default(defaulted, rules)
    if KINDS[kind].elastic and rules.elastic and is_elastic(Field(defaulted)) and kind != "RayJob":
        for part in parts(Field(defaulted)):
            _add_gate(part.template.value, ELASTIC_GATE)
    return defaulted


def default_on_write(
    new: Object, old: Object | None = None, find: Find = find_nothing, owner: FindController = no_lookup
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
    if not named and owned and new.get("kind") == "Pod":
        return new  # queued with its owner
    surroundings = JobSurroundings(default_queue=not named, owned=owned)
    return default_job(new, surroundings, RULES if new.get("kind") in SCALED else NOT_ELASTIC)


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


def _annotate_parent(job: Object, template: Object, *, queue: bool = True) -> None:
    """Annotate a pod template with its parent kind, so that its pods are gated."""
    _annotations(template)[SUSPENDED_BY] = PARENTS[job["kind"]]
    for label in (QUEUE, PRIORITY_CLASS) if queue else ():
        if value := Field(job).at("metadata", "labels", label).text():
            _labels(template)[label] = value


def _leader_worker_set(job: Object, rules: FeatureSwitches) -> None:
    group = _mapping_at(job, "spec", "leaderWorkerTemplate")
    has_leader = isinstance(group.get("leaderTemplate"), dict)
    for name in ("leaderTemplate", "workerTemplate") if has_leader else ("workerTemplate",):
        template = _mapping_at(group, name)
        _annotate_parent(job, template)
        _annotations(template)[SERVING] = "true"
    workers = _annotations(_mapping_at(group, "workerTemplate"))
    if has_leader and rules.topology and GROUP not in workers:
        workers[OFFSET] = "1"


def _mpi_job(job: Object, rules: FeatureSwitches) -> None:
    """Offset the worker indexes by a launcher that runs as a worker, unless a pod set group does so."""
    parts_by_name = {part.name: part for part in parts(Field(job))}
    workers, launcher = parts_by_name.get("worker"), parts_by_name.get("launcher")
    if not rules.topology or workers is None or launcher is None or not workers.index_offset:
        return
    if GROUP not in launcher.metadata.at("annotations").texts() and isinstance(workers.template.value, dict):
        _annotations(workers.template.value)[OFFSET] = str(workers.index_offset)


def _stateful_set(job: Object, rules: FeatureSwitches) -> None:
    del rules
    if not Field(job).at("metadata", "ownerReferences").items():
        _annotate_parent(job, _mapping_at(job, "spec", "template"), queue=False)


def _deployment(job: Object, rules: FeatureSwitches) -> None:
    del rules
    template = _mapping_at(job, "spec", "template")
    _annotate_parent(job, template)
    _labels(template)[MANAGED] = "true"


def _pod(pod: Object, rules: FeatureSwitches) -> None:
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


def _train_job(job: Object, rules: FeatureSwitches) -> None:
    """Add an empty runtime patch of Bayplan, which is filled when the job starts."""
    del rules
    patches = _list_at(_mapping_at(job, "spec"), "runtimePatches")
    if all(Field(patch).at("manager").text() != PATCH_MANAGER for patch in patches):
        empty: Object = {"trainingRuntimeSpec": {"template": {"spec": {}}}}
        patches.append({"manager": PATCH_MANAGER, **empty})


_DEFAULTS: Mapping[str, Callable[[Object, FeatureSwitches], None]] = {
    "LeaderWorkerSet": _leader_worker_set,
    "MPIJob": _mpi_job,
    "StatefulSet": _stateful_set,
    "Deployment": _deployment,
    "Pod": _pod,
    "TrainJob": _train_job,
}
