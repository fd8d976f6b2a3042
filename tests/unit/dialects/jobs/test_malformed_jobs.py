"""A malformed job gets field errors or is refused; reading, starting and stopping it never raises."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bayplan.dialects.jobs.injection import Injected, InjectionConflict
from bayplan.dialects.jobs.kinds import KINDS, parts
from bayplan.dialects.jobs.start_stop import (
    is_suspended,
    prepared,
    restored,
    started,
    status_reader,
    suspended,
)
from bayplan.dialects.jobs.train_runtime import PATCH_MANAGER
from bayplan.dialects.jobs.validation import flaws
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.jobs.pod_sets import pod_sets
from bayplan.dialects.kueue.jobs.reconcile_job import JobContext, reconcile_child, reconcile_job
from tests.fuzz.job_material import jobs
from tests.fuzz.mutator import copied

Object = dict[str, Any]
Path = tuple[str | int, ...]

MALFORMED: tuple[Any, ...] = (None, True, -1, 1.5, "x", [None], ["x"], {}, {"x": 1})
LIKE_PYTORCH = ("TFJob", "XGBoostJob", "PaddleJob", "JAXJob")  # read by the same functions
SUSPENDABLE = {
    job["kind"]: job
    for job in jobs()
    if job["kind"] in KINDS and KINDS[job["kind"]].suspend and job["kind"] not in LIKE_PYTORCH
}
RUNTIME = next(one for one in jobs() if one["kind"] == "ClusterTrainingRuntime")


PATCHED = {"replicatedJobs": [{"name": "node", "template": {"spec": {"template": {}}}}]}
SUSPENDABLE["TrainJob"]["spec"]["runtimePatches"] = [
    {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": copied(PATCHED)}}}
    for manager in ("other", PATCH_MANAGER)
]


def find(kind: str, namespace: str, name: str) -> object:
    return RUNTIME if kind == "ClusterTrainingRuntime" else None


def paths(value: object, path: Path = ()) -> Iterator[Path]:
    if path:
        yield path
    steps = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, inner in steps:
        yield from paths(inner, (*path, step))


def changed(job: Object, path: Path, value: object) -> Object:
    fresh: Object = copied(job)
    parent: Any = fresh
    for step in path[:-1]:
        parent = parent[step]
    parent[path[-1]] = copied(value)
    return fresh


def variants(job: Object) -> Iterator[tuple[str, Object]]:
    for path in paths({key: job[key] for key in ("spec", "status")}):  # API servers check all metadata
        for value in MALFORMED:
            yield f"{'.'.join(map(str, path))} = {value!r}", changed(job, path, value)


def run_through(job: Object) -> None:
    """Everything that is done to a job that has no field errors."""
    field, reader = Field(job), status_reader(job["kind"])
    pods = parts(field, find)
    is_suspended(job), suspended(job)
    reader.ended(field), reader.active(field), reader.ready(field, pods)
    reader.reclaimable(field, pods), reader.existing_pods(field, pods)
    info = Injected("x", 1, {"l": "1"}, {"a": "1"}, {"n": "1"}, ({"key": "k"},), ("gate",))
    for change in (prepared, started):
        try:
            change(job, [info] * len(pods), find)
        except InjectionConflict:
            continue
        restored(change(job, [info] * len(pods), find), [{}] * len(pods), find)
    restored(job, [one["template"] for one in pod_sets(field, find)], find)
    restored(job, (), find)


@pytest.mark.parametrize("job", SUSPENDABLE.values(), ids=SUSPENDABLE.keys())
def test_a_malformed_field_is_an_error_or_has_no_effect(job: Object) -> None:
    raised = []
    for what, one in variants(job):
        try:
            if not flaws(one, find):
                run_through(one)
            reconcile_job(one, [], JobContext(find=find), 0.0)
            reconcile_child(one, None, 0.0)
        except Exception as error:
            raised.append(f"{what}: {error!r}")
    assert raised == [], "\n".join(raised)
