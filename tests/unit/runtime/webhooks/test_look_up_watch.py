"""Jobs without a queue name, in a namespace with a default queue."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.registry import watched_facts
from bayplan.runtime.webhooks.look_up_watch import LookUpWatch
from tests.end_to_end.objects import eventually
from tests.support.job_world import JobWorld, Object, group_pod, indexed_job, job_set, running, stateful_set

QUEUE = "kueue.x-k8s.io/queue-name"
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)


@pytest.fixture
def world() -> JobWorld:
    found = JobWorld()
    found.make(api_kinds.LOCAL_QUEUES, "default", {"clusterQueue": "all"})
    return found


def unqueued(made: Object) -> Object:
    labels = {key: value for key, value in (made["metadata"].get("labels") or {}).items() if key != QUEUE}
    return {**made, "metadata": {**made["metadata"], "labels": labels}}


def queue_of(obj: Object) -> str | None:
    found: str | None = (obj["metadata"].get("labels") or {}).get(QUEUE)
    return found


def test_a_job_without_a_queue_gets_the_default_one_and_runs_through_it(world: JobWorld) -> None:
    made = world.create(unqueued(indexed_job("train")))
    assert queue_of(made) == "default" and made["spec"]["suspend"] is True
    world.until(lambda: running(world, 4))
    assert world.workload()["spec"]["queueName"] == "default" and world.used() == "8"


def test_a_job_that_names_a_queue_keeps_it(world: JobWorld) -> None:
    assert queue_of(world.create(indexed_job("train"))) == "main"


def test_without_a_default_queue_a_job_is_not_managed() -> None:
    world = JobWorld()
    made = world.create(unqueued(indexed_job("train")))
    assert queue_of(made) is None and not made["spec"].get("suspend")


def test_only_jobs_of_that_namespace_get_it(world: JobWorld) -> None:
    world.store.create(NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "far"}})
    made = unqueued(indexed_job("train"))
    made["metadata"]["namespace"] = "far"
    assert queue_of(world.store.create(resource("Job"), made, "far")) is None


@pytest.mark.parametrize("make", [job_set, stateful_set, lambda: group_pod("p-0", "p", 1)])
def test_jobs_of_every_kind_get_it(world: JobWorld, make: Callable[[], Object]) -> None:
    assert queue_of(world.create(unqueued(make()))) == "default"


def test_what_a_queued_job_makes_is_not_queued_again(world: JobWorld) -> None:
    world.create(unqueued(job_set("train")))
    world.until(lambda: running(world, 4))
    jobs = world.store.list(resource("Job"), "default").items
    assert jobs and all(queue_of(one) is None for one in jobs)
    assert all(queue_of(pod) is None for pod in world.pods()) and world.used() == "8"


def owned(pod: str, owner: Object, **reference: Any) -> Object:
    """A pod with an owner reference."""
    made = unqueued(group_pod(pod, "p", 1))
    del made["metadata"]["annotations"], made["metadata"]["labels"]
    about = {"apiVersion": owner["apiVersion"], "kind": owner["kind"], "controller": True}
    about |= {key: owner["metadata"][key] for key in ("name", "uid")}
    made["metadata"]["ownerReferences"] = [{**about, **reference}]
    return made


def test_a_pod_that_a_job_controls_is_left_to_that_job(world: JobWorld) -> None:
    owner = world.create(unqueued(indexed_job("train", pods=100)))
    labels = owner["spec"].get("selector", {}).get("matchLabels", {})
    made = owned("p-0", owner)
    made["metadata"]["labels"] = labels
    assert queue_of(world.create(made)) is None


@pytest.mark.parametrize(
    "invented",
    [{"uid": "another"}, {"name": "none"}, {"controller": False}, {"kind": "Service", "apiVersion": "v1"}],
    ids=str,
)
def test_an_invented_owner_does_not_keep_a_pod_out_of_the_queue(world: JobWorld, invented: Object) -> None:
    owner = world.create(unqueued(indexed_job("train", pods=100)))
    assert queue_of(world.create(owned("p-0", owner, **invented))) == "default"


def test_a_class_that_does_not_exist_is_refused(world: JobWorld) -> None:
    made = indexed_job("train")
    labels = {**made["metadata"]["labels"], "kueue.x-k8s.io/priority-class": "above-all"}
    made = {**made, "metadata": {**made["metadata"], "labels": labels}}
    with pytest.raises(StatusError, match="there is no WorkloadPriorityClass of this name"):
        world.create(made)


def test_a_job_that_was_there_before_is_not_queued_when_it_changes() -> None:
    world = JobWorld()
    world.create(unqueued(stateful_set("serve")))
    world.make(api_kinds.LOCAL_QUEUES, "default", {"clusterQueue": "all"})
    after = world.store.patch(resource("StatefulSet"), "default", "serve", {"spec": {"replicas": 1}})
    assert queue_of(after) is None


def test_a_job_cannot_be_taken_out_of_its_queue_where_there_is_a_default(world: JobWorld) -> None:
    world.create(indexed_job("train", pods=100))
    with pytest.raises(StatusError, match="queue-name must not be empty in namespace with default queue"):
        world.store.patch(resource("Job"), "default", "train", {"metadata": {"labels": {QUEUE: None}}})


def test_namespaces_with_such_a_queue_are_kept_in_sight(world: JobWorld) -> None:
    watch = LookUpWatch(EmbeddedBackend(world.store), watched_facts())
    facts = watch.facts
    try:
        assert facts.queue("LocalQueue", "default", "default") is not None
        assert facts.queue("LocalQueue", "default", "main") is None
        assert facts.queue("LocalQueue", "far", "default") is None
        assert facts.queue("TrainingRuntime", "default", "default") is None
        world.store.delete(api_kinds.LOCAL_QUEUES, "default", "default")
        eventually(lambda: facts.queue("LocalQueue", "default", "default") is None, "it is forgotten", 10)
        world.make(api_kinds.LOCAL_QUEUES, "default", {"clusterQueue": "all"})
        eventually(lambda: facts.queue("LocalQueue", "default", "default") is not None, "it is seen", 10)
    finally:
        watch.stop()


def test_the_levels_of_topologies_are_kept_in_sight(world: JobWorld) -> None:
    watch = LookUpWatch(EmbeddedBackend(world.store), watched_facts())
    facts = watch.facts
    try:
        world.make(api_kinds.TOPOLOGIES, "other", {"levels": [{"nodeLabel": "example.com/hall"}]})
        eventually(lambda: "example.com/hall" in facts.levels(), "it is seen", 10)
        world.store.delete(api_kinds.TOPOLOGIES, "", "other")
        eventually(lambda: "example.com/hall" not in facts.levels(), "it is forgotten", 10)
    finally:
        watch.stop()
