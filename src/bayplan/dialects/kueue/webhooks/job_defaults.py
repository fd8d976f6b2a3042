"""What a job gets when it is written: a queue, what holds it back, and the marks on its pods."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, Find, is_known, parts
from bayplan.dialects.jobs.part import nothing
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
from bayplan.dialects.kueue.webhooks.controlling_owners import FindController, is_part, nothing_known

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class JobSurroundings:
    """What a job finds where it is written."""

    default_queue: bool = False  # its namespace has a LocalQueue for jobs that name none
    owned: bool = False  # it is part of a job that is queued itself


ALONE = JobSurroundings()
WRITTEN = replace(RULES, elastic=False)
"""Most jobs that change their size are started anew, as others are: nobody would take their gate away."""
CHANGED_TOO = tuple(PARENTS)
"""Kinds whose pods are marked whenever their template changes."""


def default_job(job: Object, around: JobSurroundings = ALONE, rules: FeatureSwitches = RULES) -> Object:
    """The job as it is kept. Doing it twice is doing it once; the one given is not changed."""
    made: Object = copy.deepcopy(job)
    field = Field(made)
    if not is_known(field) or around.owned:
        return made
    kind = field.at("kind").text()
    by_parent = SUSPENDED_BY in field.at("metadata", "annotations").texts()
    if around.default_queue and not by_parent and not field.at("metadata", "labels", QUEUE).text():
        _labels(made)[QUEUE] = DEFAULT_QUEUE
    if not (by_parent or rules.every_job or Field(made).at("metadata", "labels", QUEUE).text()):
        return made
    if path := KINDS[kind].suspend:
        _set(made, path)
    if default := _DEFAULTS.get(kind):
        default(made, rules)
    if KINDS[kind].elastic and rules.elastic and is_elastic(Field(made)) and kind != "RayJob":
        for part in parts(Field(made)):
            _gate(part.template.value, ELASTIC_GATE)
    return made


def default_written(
    new: Object, old: Object | None = None, find: Find = nothing, owner: FindController = nothing_known
) -> Object:
    """What becomes of a job or pod that somebody writes.

    Those that name no queue stay as they are, unless they are new where there is a queue for them; `find`
    looks it up, and `owner` whether a controller that is named exists.
    """
    metadata = new.get("metadata") or {}
    by_parent = SUSPENDED_BY in (metadata.get("annotations") or {})
    named = by_parent or bool((metadata.get("labels") or {}).get(QUEUE))
    if not named and (old is not None or not _has_default_queue(metadata, find)):
        return new
    owned = not by_parent and is_part(new, owner)
    if not named and owned and new.get("kind") == "Pod":
        return new  # left to its owner
    around = JobSurroundings(default_queue=not named, owned=owned)
    return default_job(new, around, RULES if new.get("kind") in SCALED else WRITTEN)


def _has_default_queue(metadata: Object, find: Find) -> bool:
    """Whether the namespace has a queue for jobs that name none."""
    return find("LocalQueue", str(metadata.get("namespace", "")), DEFAULT_QUEUE) is not None


def _labels(obj: Object) -> dict[str, str]:
    return _within(obj, "metadata", "labels")


def _notes(obj: Object) -> dict[str, str]:
    return _within(obj, "metadata", "annotations")


def _within(obj: Object, *keys: str) -> Object:
    for key in keys:
        if not isinstance(obj.get(key), dict):
            obj[key] = {}
        obj = obj[key]
    return obj


def _listed(obj: Object, key: str) -> list[Any]:
    """A list to add to; what stands in its place and is none counts as absent, as for `_within`."""
    if not isinstance(obj.get(key), list):
        obj[key] = []
    found: list[Any] = obj[key]
    return found


def _set(obj: Object, path: tuple[str, ...]) -> None:
    _within(obj, *path[:-1])[path[-1]] = True


def _gate(template: object, name: str) -> None:
    """Hold pods back until somebody takes the gate away."""
    if isinstance(template, dict):
        gates = _listed(_within(template, "spec"), "schedulingGates")
        if {"name": name} not in gates:
            gates.append({"name": name})


def _mark(job: Object, template: Object, *, queue: bool = True) -> None:
    """Tell pods to whom they belong, so that they are held back."""
    _notes(template)[SUSPENDED_BY] = PARENTS[job["kind"]]
    for label in (QUEUE, PRIORITY_CLASS) if queue else ():
        if value := Field(job).at("metadata", "labels", label).text():
            _labels(template)[label] = value


def _leader_worker_set(job: Object, rules: FeatureSwitches) -> None:
    group = _within(job, "spec", "leaderWorkerTemplate")
    leads = isinstance(group.get("leaderTemplate"), dict)
    for name in ("leaderTemplate", "workerTemplate") if leads else ("workerTemplate",):
        template = _within(group, name)
        _mark(job, template)
        _notes(template)[SERVING] = "true"
    workers = _notes(_within(group, "workerTemplate"))
    if leads and rules.topology and GROUP not in workers:
        workers[OFFSET] = "1"


def _mpi_job(job: Object, rules: FeatureSwitches) -> None:
    """Workers are numbered after a launcher that works too; in a group with it, the group sees to that."""
    found = {part.name: part for part in parts(Field(job))}
    workers, launcher = found.get("worker"), found.get("launcher")
    if not rules.topology or workers is None or launcher is None or not workers.index_offset:
        return
    if GROUP not in launcher.metadata.at("annotations").texts() and isinstance(workers.template.value, dict):
        _notes(workers.template.value)[OFFSET] = str(workers.index_offset)


def _stateful_set(job: Object, rules: FeatureSwitches) -> None:
    del rules
    if not Field(job).at("metadata", "ownerReferences").items():
        _mark(job, _within(job, "spec", "template"), queue=False)


def _deployment(job: Object, rules: FeatureSwitches) -> None:
    del rules
    template = _within(job, "spec", "template")
    _mark(job, template)
    _labels(template)[MANAGED] = "true"


def _pod(pod: Object, rules: FeatureSwitches) -> None:
    notes, labels = _notes(pod), _labels(pod)
    if SUSPENDED_BY not in notes:
        labels[MANAGED] = "true"
        finalizers = _listed(pod["metadata"], "finalizers")
        if MANAGED not in finalizers:
            finalizers.append(MANAGED)
    _gate(pod, SCHEDULING_GATE)
    if rules.topology:
        if INDEX_FROM in notes:
            labels[GROUP_INDEX] = labels.get(notes[INDEX_FROM], "")
        _gate(pod, TOPOLOGY_GATE)
    notes[ROLE_HASH] = role_hash(pod.get("spec") or {})


def _train_job(job: Object, rules: FeatureSwitches) -> None:
    """A place of ours among the patches, to be filled when the job starts."""
    del rules
    patches = _listed(_within(job, "spec"), "runtimePatches")
    if all(Field(patch).at("manager").text() != PATCH_MANAGER for patch in patches):
        ours: Object = {"trainingRuntimeSpec": {"template": {"spec": {}}}}
        patches.append({"manager": PATCH_MANAGER, **ours})


_DEFAULTS: Mapping[str, Callable[[Object, FeatureSwitches], None]] = {
    "LeaderWorkerSet": _leader_worker_set,
    "MPIJob": _mpi_job,
    "StatefulSet": _stateful_set,
    "Deployment": _deployment,
    "Pod": _pod,
    "TrainJob": _train_job,
}
