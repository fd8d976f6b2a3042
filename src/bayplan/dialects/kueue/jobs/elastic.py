"""Elastic jobs: a job that is scaled up gets a new Workload (slice) that replaces the one before."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bayplan.dialects.jobs.kinds import KINDS, parts
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.jobs.start_stop import status_reader
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.matching import matches
from bayplan.dialects.kueue.jobs.workload import workload_name
from bayplan.dialects.kueue.jobs.writes import (
    WriteWithEvents,
    event_about,
    is_terminating,
    key_of,
    with_status,
)
from bayplan.dialects.kueue.names.annotations import ELASTIC, JOB_UID, REPLACES, SLICE_NAME, is_elastic
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.status.conditions import ADMITTED, FINISHED, QUOTA_RESERVED, condition_of, is_true

REPLACED = "WorkloadSliceReplaced"

Object = dict[str, Any]


class JobChange(Enum):
    """How a job differs from its Workload."""

    NONE = "none"
    SMALLER = "smaller"
    LARGER = "larger"  # in one pod set at least
    OTHER = "other"  # not only in size


@dataclass(frozen=True, slots=True)
class Slices:
    """The Workload slices of one elastic job."""

    active: tuple[Object, ...]  # not replaced yet
    replaced: tuple[tuple[Object, Object], ...]  # each with the admitted slice that replaces it
    current: Object | None  # the slice that holds the quota of the job
    successor: Object | None  # the slice that is to replace the current one


def is_scaled(job: Object, rules: FeatureSwitches) -> bool:
    """Whether a job is elastic: it may be resized while it runs."""
    return KINDS[job["kind"]].resized_in_place and rules.elastic and is_elastic(Field(job))


def is_replaced(workload: Object) -> bool:
    """Whether a Workload was replaced by a newer slice."""
    return is_true(workload, FINISHED) and (condition_of(workload, FINISHED) or {}).get("reason") == REPLACED


def slices_of(workloads: Sequence[Object]) -> Slices:
    """The Workloads of a job by their role."""
    active = tuple(one for one in workloads if not is_replaced(one))
    admitted = {
        _annotation(one, REPLACES): one
        for one in active
        if _annotation(one, REPLACES) and is_true(one, ADMITTED)
    }
    replaced = tuple((one, admitted[key_of(one)]) for one in active if key_of(one) in admitted)
    holding = [one for one in active if is_true(one, QUOTA_RESERVED) and key_of(one) not in admitted]
    earlier = {key_of(one): one for one in holding}
    successors = [one for one in active if _annotation(one, REPLACES) in earlier and not is_terminating(one)]
    current = [one for one in holding if one not in successors]
    return Slices(active, replaced, next(iter(current), None), next(iter(successors), None))


def next_slice(wanted: Object, job: Object, find: Find, previous: Object | None = None) -> Object:
    """The Workload of a job as a slice: named after the job's generation, and linked to the slice before."""
    meta, metadata = job["metadata"], wanted["metadata"]
    name = workload_name(job["kind"], meta["name"], meta.get("uid", ""), _generation(job, find))
    annotations = {**(metadata.get("annotations") or {}), ELASTIC: "true", SLICE_NAME: name}
    if previous is not None:
        annotations |= {SLICE_NAME: slice_name(previous), REPLACES: key_of(previous)}
        # The templates of a running job contain what was injected; only the last slice has the original ones.
        wanted = {
            **wanted,
            "spec": {**wanted["spec"], "podSets": with_counts_of(previous, wanted)["spec"]["podSets"]},
        }
    return {**wanted, "metadata": {**metadata, "name": name, "annotations": annotations}}


def _generation(job: Object, find: Find) -> str:
    """The generation of a job, with that of the child that its size is written to, if its kind has one."""
    resizing = KINDS[job["kind"]].resizing
    find_child = None if resizing is None else resizing.find_child
    child = None if find_child is None else find_child(Field(job), find)
    both = [job] if child is None else [job, child]
    return "-".join(str(one["metadata"].get("generation", 0)) for one in both)


def slice_name(workload: Object) -> str:
    """The name that all slices of a job share; pods refer to it."""
    return _annotation(workload, SLICE_NAME) or str(workload["metadata"]["name"])


def change(workload: Object, wanted: Object) -> JobChange:
    """How the Workload of a job differs from the one it would get today."""
    admitted, wanted_counts = _counts(workload), _counts(wanted)
    if admitted.keys() != wanted_counts.keys() or not matches(
        workload, with_counts(wanted, admitted), suspended=False
    ):
        return JobChange.OTHER
    if admitted == wanted_counts:
        return JobChange.NONE
    if not is_elastic(Field(workload)):  # created before the job became elastic
        return JobChange.OTHER
    return (
        JobChange.SMALLER
        if all(wanted_counts[name] <= admitted[name] for name in admitted)
        else JobChange.LARGER
    )


def with_counts(workload: Object, counts: dict[str, int]) -> Object:
    """The Workload with other pod counts."""
    spec = workload["spec"]
    sets = [{**one, "count": counts[one["name"]]} for one in spec["podSets"]]
    return {**workload, "spec": {**spec, "podSets": sets}}


def with_counts_of(workload: Object, wanted: Object) -> Object:
    """The Workload with the pod counts of another."""
    return with_counts(workload, _counts(wanted))


def has_scaled_down(job: Object, wanted: Object, find: Find) -> bool:
    """Whether no more pods are left than the job wants; until then their quota is still in use."""
    left = status_reader(job["kind"]).existing_pods(Field(job), parts(Field(job), find))
    return left <= sum(_counts(wanted).values())


def is_up_to_date(workload: Object, wanted: Object) -> bool:
    """Whether a pending Workload matches what its job wants today."""
    return matches(workload, wanted, suspended=True)


def finish_replaced(replaced: Iterable[tuple[Object, Object]], now: float) -> list[WriteWithEvents]:
    """Finish replaced slices; their quota is part of their successors' quota."""
    writes = []
    for one, successor in replaced:
        meta = successor["metadata"]
        job = (meta.get("labels") or {}).get(JOB_UID, "")
        message = (
            f"Replaced to accommodate a workload (UID: {meta.get('uid', '')}, JobUID: {job}) "
            "due to workload slice aggregation"
        )
        status = job_statuses.finished(one, REPLACED, message, now)
        if status is not None:
            writes.append(with_status(one, status, event_about(_typed(one), REPLACED, message, now)))
    return writes


def _typed(workload: Object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **workload}


def _annotation(workload: Object, name: str) -> str:
    return str((workload["metadata"].get("annotations") or {}).get(name, ""))


def _counts(workload: Object) -> dict[str, int]:
    return {one["name"]: int(one.get("count", 1)) for one in workload["spec"].get("podSets") or ()}
