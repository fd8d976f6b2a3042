"""Jobs that start finished pods again, after the quota of these pods was released."""

from __future__ import annotations

from bayplan.dialects.jobs.start_stop import resource
from tests.support.job_world import JobWorld, indexed_job, running


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
