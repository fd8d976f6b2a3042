"""Statuses of queues while the watch is late: each is written on top of the answer of the one before."""

from __future__ import annotations

from collections.abc import Iterable

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Event, WriteOutcome
from bayplan.dialects.kueue.names import api_kinds
from bayplan.runtime.controllers.admission.controller import AdmissionController
from bayplan.runtime.core.loop import Loop
from tests.support.queued_cluster import queued_workload
from tests.unit.runtime.controllers.admission.test_controller import Silent, World


class LateWatch(EmbeddedBackend):
    """Shows no change of a queue while it is late; counts conflicts."""

    late = False
    conflicts = 0

    def events(self) -> Iterable[Event]:
        queues = (api_kinds.CLUSTER_QUEUES, api_kinds.LOCAL_QUEUES)
        return [event for event in super().events() if not (self.late and event.kind in queues)]

    def outcomes(self) -> Iterable[WriteOutcome]:
        found = list(super().outcomes())
        self.conflicts += sum(outcome.ended is Ended.CONFLICT for outcome in found)
        return found


def test_a_status_follows_another_one_that_the_watch_has_not_shown() -> None:
    world = World()
    world.backend = backend = LateWatch(world.cluster.store)  # type: ignore[assignment]
    world.loop = Loop(backend, [AdmissionController()], Silent())
    world.pass_time(2)
    backend.late = True
    for number in range(3):
        world.submit(queued_workload(f"in-{number}", 1, 1))
        world.pass_time(2)
    assert backend.conflicts == 0
    queue = world.cluster.store.get(api_kinds.CLUSTER_QUEUES, "", "left-queue")
    assert queue["status"]["admittedWorkloads"] == 3
