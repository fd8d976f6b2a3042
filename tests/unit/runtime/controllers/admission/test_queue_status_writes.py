"""Statuses of queues while the watch is late: each is written on top of the answer of the one before."""

from __future__ import annotations

import json
from collections.abc import Iterable
from itertools import pairwise

import pytest

from bayplan.backends.embedded.http.backend import EmbeddedBackend
from bayplan.dialects.api import Ended, Event, WriteOutcome
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.gang import Ref
from bayplan.runtime.controllers.admission import queue_status
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


def test_counts_are_written_at_a_slow_pace_while_gangs_are_admitted_and_conditions_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(queue_status, "SLOW_MAX", 1)
    world = World(role := AdmissionController())
    for _ in range(3):
        world.pass_time(1.1)
    role.admitting.add(Ref("kueue", "Workload", "ml", "unanswered"))
    versions = [queue_versions(world)]
    for number in range(4):
        world.submit(queued_workload(f"in-{number}", 1, 1, ("left", "right")[number % 2]))
        world.pass_time(1.1)
        versions.append(queue_versions(world))
    changes = [sum(now[name] != was[name] for name in now) for was, now in pairwise(versions)]
    assert changes == [1, 1, 1, 1], "one object a second, in turn"
    assert all(versions[-1][name] != versions[0][name] for name in ("left-queue", "right-queue"))
    world.change(api_kinds.CLUSTER_QUEUES, "small-queue", {"stopPolicy": "Hold"})
    world.pass_time(1.1)
    assert queue_versions(world)["small-queue"] != versions[-1]["small-queue"]
    role.admitting.clear()
    world.pass_time(1.1)
    queues = [world.cluster.store.get(api_kinds.CLUSTER_QUEUES, "", name) for name in versions[0]]
    assert [one["status"].get("admittedWorkloads", 0) for one in queues] == [2, 2, 0]


def queue_versions(world: World) -> dict[str, str]:
    """The status of each queue, as text."""
    names = ("left-queue", "right-queue", "small-queue")
    found = {name: world.cluster.store.get(api_kinds.CLUSTER_QUEUES, "", name) for name in names}
    return {name: json.dumps(one.get("status")) for name, one in found.items()}


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
