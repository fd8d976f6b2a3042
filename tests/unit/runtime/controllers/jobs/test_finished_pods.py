"""Pods of a queued job that finish before the others: their quota, and what follows if they start again."""

from __future__ import annotations

from bayplan.dialects.jobs.start_stop import resource
from tests.support.job_world import PODS, JobWorld, indexed_job, running


def test_pods_that_are_done_give_back_their_quota_before_the_rest() -> None:
    world = JobWorld()
    world.create(indexed_job(seconds=None))
    world.until(lambda: running(world, 4))
    pod = world.pods()[0]["metadata"]["name"]
    world.store.patch(PODS, "default", pod, {"status": {"phase": "Succeeded"}}, subresource="status")
    change = {"status": {"completedIndexes": "0"}}
    world.store.patch(resource("Job"), "default", "train", change, subresource="status")
    world.pass_time(1)
    assert world.workload()["status"]["reclaimablePods"] == [{"name": "main", "count": 1}]
    assert world.used() == "6"


def test_a_job_that_starts_finished_pods_again_is_queued_again_for_all_its_pods() -> None:
    """While quota is reserved, the API does not allow fewer reclaimable pods than before."""
    world = JobWorld()
    world.create(indexed_job(seconds=None))
    world.until(lambda: running(world, 4))
    for done, count in (("0", 1), (None, 0)):
        change = {"status": {"completedIndexes": done, "succeeded": count}}
        world.store.patch(resource("Job"), "default", "train", change, subresource="status")
        world.loop.step(world.clock.wall())
        world.loop.step(world.clock.wall())
    assert world.told("Evicted")[1:] == (
        "PodsRestarted",
        "The job starts finished pods again (1 of pod set main) whose quota was released; it is queued again",
    )
    world.until(lambda: world.told("Evicted")[0] == "False" and running(world, 4))
    assert world.used() == "8"
    assert not world.workload()["status"].get("reclaimablePods")
