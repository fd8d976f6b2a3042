"""Found by simulation: endless flavor searches, and capacity that was assigned twice."""

from __future__ import annotations

from bayplan.model.plan import ReportNotAdmitted, Requeue
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.state.admission.queues import AdmissionQueues, QueueEntry, QueueEntryState
from tests.admission.world import World
from tests.support.admission_worlds import demand


def test_a_search_for_flavors_that_goes_in_a_circle_ends_there() -> None:
    lines = AdmissionQueues()
    waiting = QueueEntry(demand("two-pod-sets"), "q", "shape")
    lines.move(waiting, QueueEntryState.PENDING)
    ends = (
        ({"cpu": 1}, {"cpu": -1}),
        ({"cpu": -1}, {"cpu": 1}),
    )  # each pod set starts over when the other advances
    refusal = Rejection(RejectionReason.NO_PLACE)
    for turn in (0, 1):
        lines.requeue(
            waiting, ReportNotAdmitted(waiting.queued_gang, refusal, Requeue.AT_ONCE, ends[turn]), 0.0
        )
        assert lines.queue("q").is_ready()
    lines.requeue(waiting, ReportNotAdmitted(waiting.queued_gang, refusal, Requeue.AT_ONCE, ends[0]), 0.0)
    assert not lines.queue("q").is_ready()
    lines.wake("q")
    assert lines.queue("q").is_ready()


def test_pod_sets_of_one_gang_that_meet_on_a_host_fit_there_together_or_not_at_all() -> None:
    """Each gang alone would fit into what an earlier gang of the cycle left."""
    world = World("""
        topology t rack host
        flavor f topology=t
        node n1 rack=r1 : cpu=4
        queue a : f/cpu=9
        queue b : f/cpu=9
        gang one in a : x2 cpu=1
        gang two in b at=1 : driver x1 cpu=1 ; main x2 cpu=1
    """)
    world.round()
    assert world.running() == {"one"}
