"""What was worked out from a job is not worked out again before the job, or what it refers to, changes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.jobs.reconcile_job import JobContext
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.runtime.controllers.jobs import memory as memory_module
from bayplan.runtime.controllers.jobs.cache import JobsCache
from bayplan.runtime.controllers.jobs.memory import JobMemory
from tests.support.api_objects import job
from tests.support.job_world import JobWorld, Object, indexed_job, pod_template, running

UNIT = ("Job", "default", "train")


def a_job(version: int = 1) -> Object:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "namespace": "default", "uid": "u", "resourceVersion": str(version)},
        "spec": {},
    }


class Counted:
    """Work that says how often it was done."""

    def __init__(self, *asked: str) -> None:
        self.asked, self.times = asked, 0

    def __call__(self, find: Find) -> tuple[int, object]:
        self.times += 1
        return self.times, find(*self.asked) if self.asked else None


def nothing(kind: str, namespace: str, name: str) -> object:
    return None


def test_an_answer_is_worked_out_once_for_each_version_of_a_job() -> None:
    memory, work, first, second = JobMemory(), Counted(), a_job(), a_job(2)
    answers = [memory.recall("size", one, nothing, work)[0] for one in (first, first, second, second, first)]
    assert answers == [1, 1, 2, 2, 3]


def test_answers_of_different_names_are_kept_apart() -> None:
    memory, one, other, found = JobMemory(), Counted(), Counted(), a_job()
    for _ in range(2):
        memory.recall("size", found, nothing, one)
        memory.recall("cost", found, nothing, other)
    assert (one.times, other.times) == (1, 1)


def test_an_answer_is_worked_out_again_when_what_was_looked_up_is_another_object() -> None:
    memory, work, found = JobMemory(), Counted("PriorityClass", "", "high"), a_job()
    classes: dict[str, Object] = {}

    def find(kind: str, namespace: str, name: str) -> object:
        return classes.get(name)

    assert memory.recall("size", found, find, work) == (1, None)
    classes["low"] = {}
    assert memory.recall("size", found, find, work) == (1, None)
    classes["high"] = {"value": 1}
    assert memory.recall("size", found, find, work) == (2, {"value": 1})
    classes["high"] = {"value": 1}
    assert memory.recall("size", found, find, work)[0] == 3
    assert memory.recall("size", found, find, work)[0] == 3


def test_the_jobs_that_changed_last_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_module, "REMEMBERED_MAX", 2)
    memory, work = JobMemory(), Counted()
    jobs = [{**a_job(), "metadata": {"name": name, "namespace": "default"}} for name in "abc"]
    for one in jobs:
        memory.recall("size", one, nothing, work)
    assert (len(memory), work.times) == (2, 3)
    for one in (jobs[1], jobs[2]):
        memory.recall("size", one, nothing, work)
    assert work.times == 3
    memory.recall("size", jobs[0], nothing, work)
    assert work.times == 4


def test_an_error_is_raised_each_time() -> None:
    memory, found = JobMemory(), a_job()

    def fails(find: Find) -> int:
        raise ValueError("unreadable")

    for _ in range(2):
        with pytest.raises(ValueError, match="unreadable"):
            memory.recall("size", found, nothing, fails)


def test_a_deleted_job_leaves_nothing_behind() -> None:
    world = JobWorld()
    world.create(indexed_job())
    world.until(lambda: running(world, 4))
    assert len(world.jobs_role.cache.memory) == 1
    world.store.delete(resource("Job"), "default", "train")
    world.pass_time(3)
    assert len(world.jobs_role.cache.memory) == 0


def test_the_errors_and_the_workload_of_a_job_are_worked_out_once_for_each_version() -> None:
    memory = JobMemory()
    context = JobContext(recall=memory.recall)
    found = {**job("train", pod_template()), "kind": "Job"}
    for name in ("errors", "workload"):
        asked: Callable[[Object], object] = getattr(context, name)
        first = asked(found)
        assert asked(found) is first
        assert asked({**found}) == first


def test_a_watch_event_that_repeats_the_answer_of_a_write_affects_no_unit() -> None:
    cache, kind = JobsCache(), resource("Job")
    workload = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "Workload",
        "metadata": {
            "name": "job-train-1",
            "namespace": "default",
            "uid": "w",
            "resourceVersion": "5",
            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": "train", "uid": "u"}],
        },
        "spec": {},
    }
    assert list(cache.note(Event(Happened.SEEN, kind, a_job(1)))) == [UNIT]
    assert cache.take_answer(kind, a_job(2), created=False) == [UNIT]
    assert list(cache.note(Event(Happened.SEEN, kind, a_job(2)))) == []
    assert list(cache.note(Event(Happened.SEEN, kind, a_job(3)))) == [UNIT]
    assert cache.take_answer(WORKLOADS, workload, created=True) == [UNIT]
    assert list(cache.note(Event(Happened.SEEN, WORKLOADS, {**workload}))) == []
    assert list(cache.note(Event(Happened.GONE, WORKLOADS, {**workload}))) != []


def test_an_object_of_a_known_version_with_other_contents_is_taken() -> None:
    """Versions begin anew when the API server is restored from a backup."""
    cache, kind = JobsCache(), resource("Job")
    list(cache.note(Event(Happened.SEEN, kind, a_job(1))))
    other = {**a_job(1), "spec": {"parallelism": 2}}
    assert list(cache.note(Event(Happened.SEEN, kind, other))) == [UNIT]
    assert cache.jobs[UNIT]["spec"] == {"parallelism": 2}


def test_an_answer_about_a_child_affects_its_owner_as_well() -> None:
    """The watch event that follows is no change, so it does not affect the owner."""
    cache, kind = JobsCache(), resource("RayCluster")
    boss = {"apiVersion": "ray.io/v1", "kind": "RayJob", "name": "train", "uid": "r", "controller": True}
    child: Object = {**a_job(1), "apiVersion": kind.api_version, "kind": kind.kind}
    child["metadata"]["ownerReferences"] = [boss]
    list(cache.note(Event(Happened.SEEN, kind, child)))
    newer = {**child, "metadata": {**child["metadata"], "resourceVersion": "2"}}
    units = cache.take_answer(kind, newer, created=False)
    assert units == [("RayCluster", "default", "train"), ("RayJob", "default", "train")]
