"""Jobs that change their size while they run: one Workload (slice) after another stands for the job."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from bayplan.dialects.jobs.kinds import Find, parts
from bayplan.dialects.jobs.ray_jobs import own_cluster
from bayplan.dialects.jobs.running import faring
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs import status as job_statuses
from bayplan.dialects.kueue.jobs.matching import matches
from bayplan.dialects.kueue.jobs.workload import workload_name
from bayplan.dialects.kueue.jobs.writes import WriteWithEvents, is_leaving, key_of, told, with_status
from bayplan.dialects.kueue.names.annotations import ELASTIC, JOB_UID, REPLACES, SLICE_NAME, is_elastic
from bayplan.dialects.kueue.names.feature_switches import FeatureSwitches
from bayplan.dialects.kueue.names.job_kinds import SCALED
from bayplan.dialects.kueue.status.conditions import ADMITTED, FINISHED, QUOTA_RESERVED, condition_of, is_true

REPLACED = "WorkloadSliceReplaced"

Object = dict[str, Any]


class JobChange(Enum):
    """What a job became since its Workload was made."""

    NONE = "none"
    SMALLER = "smaller"
    LARGER = "larger"  # in one pod set at least
    OTHER = "other"  # not only in size


@dataclass(frozen=True, slots=True)
class Slices:
    """The Workloads of one job, by the part they play."""

    living: tuple[Object, ...]  # those that were not replaced
    past: tuple[tuple[Object, Object], ...]  # each with the admitted one that takes its place
    current: Object | None  # the one that has the quota of the job
    coming: Object | None  # the one that is to take its place


def is_scaled(job: Object, rules: FeatureSwitches) -> bool:
    """Whether a job may change its size while it runs."""
    return job["kind"] in SCALED and rules.elastic and is_elastic(Field(job))


def is_replaced(workload: Object) -> bool:
    """Whether another Workload took the place of this one."""
    return is_true(workload, FINISHED) and (condition_of(workload, FINISHED) or {}).get("reason") == REPLACED


def slices_of(workloads: Sequence[Object]) -> Slices:
    """Who is who among the Workloads of a job."""
    living = tuple(one for one in workloads if not is_replaced(one))
    heirs = {_note(one, REPLACES): one for one in living if _note(one, REPLACES) and is_true(one, ADMITTED)}
    past = tuple((one, heirs[key_of(one)]) for one in living if key_of(one) in heirs)
    holding = [one for one in living if is_true(one, QUOTA_RESERVED) and key_of(one) not in heirs]
    earlier = {key_of(one): one for one in holding}
    coming = [one for one in living if _note(one, REPLACES) in earlier and not is_leaving(one)]
    current = [one for one in holding if one not in coming]
    return Slices(living, past, next(iter(current), None), next(iter(coming), None))


def as_slice(wanted: Object, job: Object, find: Find, earlier: Object | None = None) -> Object:
    """The Workload of a job as one of several: named after the job's generation, and linked to the last."""
    meta, mine = job["metadata"], wanted["metadata"]
    name = workload_name(job["kind"], meta["name"], meta.get("uid", ""), _generation(job, find))
    notes = {**(mine.get("annotations") or {}), ELASTIC: "true", SLICE_NAME: name}
    if earlier is not None:
        notes |= {SLICE_NAME: slice_name(earlier), REPLACES: key_of(earlier)}
        # The job runs with what it was given; what its pods were before only the last one knows.
        wanted = {
            **wanted,
            "spec": {**wanted["spec"], "podSets": resized(earlier, wanted)["spec"]["podSets"]},
        }
    return {**wanted, "metadata": {**mine, "name": name, "annotations": notes}}


def _generation(job: Object, find: Find) -> str:
    """What differs whenever a job may have another size; that of a RayJob is written in its cluster."""
    cluster = own_cluster(Field(job), find) if job["kind"] == "RayJob" else None
    both = [job] if cluster is None else [job, cluster]
    return "-".join(str(one["metadata"].get("generation", 0)) for one in both)


def slice_name(workload: Object) -> str:
    """The name by which the pods of a job know all its Workloads."""
    return _note(workload, SLICE_NAME) or str(workload["metadata"]["name"])


def change(workload: Object, wanted: Object) -> JobChange:
    """What differs between the Workload that a job has and the one that it would get today."""
    known, today = _counts(workload), _counts(wanted)
    if known.keys() != today.keys() or not matches(workload, with_counts(wanted, known), suspended=False):
        return JobChange.OTHER
    if known == today:
        return JobChange.NONE
    if not is_elastic(Field(workload)):  # made before its job could be
        return JobChange.OTHER
    return JobChange.SMALLER if all(today[name] <= known[name] for name in known) else JobChange.LARGER


def with_counts(workload: Object, counts: dict[str, int]) -> Object:
    """The Workload with other numbers of pods."""
    spec = workload["spec"]
    sets = [{**one, "count": counts[one["name"]]} for one in spec["podSets"]]
    return {**workload, "spec": {**spec, "podSets": sets}}


def resized(workload: Object, wanted: Object) -> Object:
    """The Workload with the numbers of pods that its job wants today."""
    return with_counts(workload, _counts(wanted))


def has_shrunk(job: Object, wanted: Object, find: Find) -> bool:
    """Whether no more pods are left than the job wants: until then it needs what the others hold."""
    left = faring(job["kind"]).left(Field(job), parts(Field(job), find))
    return left <= sum(_counts(wanted).values())


def is_as_wanted(workload: Object, wanted: Object) -> bool:
    """Whether a Workload that waits asks for what its job wants today."""
    return matches(workload, wanted, suspended=True)


def replacements(past: Iterable[tuple[Object, Object]], now: float) -> list[WriteWithEvents]:
    """Those that were replaced are over; what they held is part of what their heirs hold."""
    deeds = []
    for one, heir in past:
        meta = heir["metadata"]
        job = (meta.get("labels") or {}).get(JOB_UID, "")
        message = (
            f"Replaced to accommodate a workload (UID: {meta.get('uid', '')}, JobUID: {job}) "
            "due to workload slice aggregation"
        )
        status = job_statuses.finished(one, REPLACED, message, now)
        if status is not None:
            deeds.append(with_status(one, status, told(_typed(one), REPLACED, message, now)))
    return deeds


def _typed(workload: Object) -> Object:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload", **workload}


def _note(workload: Object, name: str) -> str:
    return str((workload["metadata"].get("annotations") or {}).get(name, ""))


def _counts(workload: Object) -> dict[str, int]:
    return {one["name"]: int(one.get("count", 1)) for one in workload["spec"].get("podSets") or ()}
