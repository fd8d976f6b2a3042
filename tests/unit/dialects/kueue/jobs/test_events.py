"""Events about jobs and pod groups that cannot be queued or admitted yet: once, in the words of Kueue."""

from __future__ import annotations

from bayplan.dialects.kueue.names import api_kinds
from tests.support.job_world import EVENTS, JobWorld, Object, group_pod, indexed_job, pod_template, running

COMPOSE = "ErrWorkloadCompose"
CHECKED = "UpdatedAdmissionCheck"
FEWER = "'gang' group has fewer runnable pods than expected"


def events_with(world: JobWorld, reason: str) -> list[tuple[str, str, str]]:
    """Type, object and message of every event with a reason."""
    found = [one for one in world.store.list(EVENTS, "default").items if one["reason"] == reason]
    return [(one["type"], one["involvedObject"]["name"], one["message"]) for one in found]


# ── groups of pods ─────────────────────────────────────────────────────────────────────────────────


def test_a_group_that_stays_incomplete_gets_one_event() -> None:
    world = JobWorld()
    world.create(group_pod("one", "gang", 2))
    world.pass_time(30)
    assert events_with(world, COMPOSE) == [("Warning", "one", FEWER)]
    world.create(group_pod("two", "gang", 2))
    world.until(lambda: running(world, 2))
    assert len(events_with(world, COMPOSE)) == 1


def test_a_group_whose_pods_are_created_one_by_one_gets_no_event() -> None:
    world = JobWorld()
    world.create(group_pod("one", "gang", 2))
    world.pass_time(0.5)
    world.create(group_pod("two", "gang", 2))
    world.until(lambda: running(world, 2))
    assert events_with(world, COMPOSE) == []


def test_pods_of_a_group_must_name_one_queue_and_one_size() -> None:
    world = JobWorld()
    world.make(api_kinds.LOCAL_QUEUES, "other", {"clusterQueue": "all"})
    stray = group_pod("two", "gang", 2)
    stray["metadata"]["labels"] = {**stray["metadata"]["labels"], "kueue.x-k8s.io/queue-name": "other"}
    for pod in (group_pod("one", "gang", 2), stray, group_pod("a", "band", 2), group_pod("b", "band", 1)):
        world.create(pod)
    world.pass_time(5)
    sizes = "'kueue.x-k8s.io/pod-group-total-count' values: 2!=1"
    assert sorted(events_with(world, COMPOSE)) == [
        ("Warning", "a", f"pods 'a' and 'b' has different {sizes}"),
        ("Warning", "one", "pods 'one' and 'two' has different queue names: main!=other"),
    ]
    assert world.workloads() == []


def test_a_group_does_not_adopt_another_workload_of_its_name() -> None:
    world = JobWorld()
    pod_set = {"name": "main", "count": 1, "template": pod_template()}
    world.make(api_kinds.WORKLOADS, "gang", {"queueName": "main", "podSets": [pod_set]})
    for name in ("one", "two"):
        world.create(group_pod(name, "gang", 2))
    world.pass_time(20)
    why = (
        'A Workload named "gang" already exists but is not a pod group workload; '
        "this pod group cannot be admitted"
    )
    assert events_with(world, "WorkloadNameConflict") == [("Warning", "one", why)]
    assert all(pod["spec"]["schedulingGates"] for pod in world.pods())


# ── admission checks ───────────────────────────────────────────────────────────────────────────────


def checked() -> JobWorld:
    """A queue with an admission check."""
    world = JobWorld()
    world.make(api_kinds.CHECKS, "budget", {"controllerName": "example.com/budget"})
    yes = {"type": "Active", "status": "True", "reason": "Active", "message": ""}
    status = {"conditions": [{**yes, "lastTransitionTime": "2026-01-01T00:00:00Z"}]}
    world.store.patch(api_kinds.CHECKS, "", "budget", {"status": status}, subresource="status")
    checks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "budget"}]}}
    world.store.patch(api_kinds.CLUSTER_QUEUES, "", "all", {"spec": checks})
    return world


def set_check_message(world: JobWorld, message: str, state: str = "Pending") -> None:
    name, when = world.workload()["metadata"]["name"], "2026-01-01T00:00:00Z"
    check = {"name": "budget", "state": state, "message": message, "lastTransitionTime": when}
    body: Object = {"status": {"admissionChecks": [check]}}
    world.store.patch(api_kinds.WORKLOADS, "default", name, body, subresource="status")
    world.pass_time(5)


def test_each_new_message_of_a_check_is_an_event_of_the_job() -> None:
    world = checked()
    world.create(indexed_job("train", seconds=None))
    world.until(lambda: bool(world.workloads()) and world.told("QuotaReserved")[0] == "True")
    world.pass_time(5)
    assert events_with(world, CHECKED) == [], "there is nothing to tell"
    set_check_message(world, "asking")
    set_check_message(world, "nearly there")
    said = [("Normal", "train", "budget: asking"), ("Normal", "train", "budget: nearly there")]
    assert events_with(world, CHECKED) == said
    set_check_message(world, "granted", "Ready")
    world.until(lambda: running(world, 4))
    assert events_with(world, CHECKED) == said


def test_every_pod_of_a_group_gets_the_event() -> None:
    world = checked()
    for name in ("one", "two"):
        world.create(group_pod(name, "gang", 2))
    world.until(lambda: bool(world.workloads()) and world.told("QuotaReserved")[0] == "True")
    set_check_message(world, "asking")
    assert events_with(world, CHECKED) == [("Normal", name, "budget: asking") for name in ("one", "two")]
