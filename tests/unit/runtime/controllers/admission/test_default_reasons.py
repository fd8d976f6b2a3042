"""Without detailed reasons, Workloads tell why they are pending in the words that Kueue uses by default."""

from __future__ import annotations

import pytest

from bayplan.dialects.api import Write
from bayplan.dialects.kueue.names import api_kinds
from bayplan.model.profile import Profile
from bayplan.runtime.controllers.admission.controller import AdmissionController
from tests.support.queued_cluster import RACK, queued_workload
from tests.unit.runtime.controllers.admission.test_controller import World


@pytest.fixture
def world() -> World:
    return World(AdmissionController(Profile(detailed_reasons=False)))


def test_a_gang_without_quota_or_place_is_pending(world: World) -> None:
    world.submit(queued_workload("big", 9, 4, required=RACK))
    status, reason, message = world.told("big")["QuotaReserved"]
    assert (status, reason) == ("False", "Pending")
    assert message.startswith("couldn't assign flavors to pod set main"), "the message stays detailed"
    assert [reason for reason, _ in world.events("big")] == ["Pending"]


def test_a_gang_whose_queue_is_stopped_or_missing_is_inadmissible(world: World) -> None:
    world.submit(queued_workload("lost", 1, 4, queue="late"))
    assert world.told("lost")["QuotaReserved"] == ("False", "Inadmissible", "LocalQueue late doesn't exist")
    world.change(api_kinds.CLUSTER_QUEUES, "left-queue", {"stopPolicy": "Hold"})
    world.submit(queued_workload("out", 1, 4))
    told = ("False", "Inadmissible", "ClusterQueue left-queue is inactive")
    assert world.told("out")["QuotaReserved"] == told


def test_a_victim_is_pending_after_it_released_its_quota(world: World) -> None:
    world.submit(queued_workload("low", 8, 4, priority=1))
    world.submit(queued_workload("high", 4, 4, priority=9))
    assert world.says("high", "Admitted") == ("True", "Admitted")
    assert world.says("low", "QuotaReserved") == ("False", "Pending")


def test_a_status_in_these_words_is_not_written_again(world: World) -> None:
    world.submit(queued_workload("big", 9, 4, required=RACK), queued_workload("lost", 1, 4, queue="late"))
    world.pass_time(60)
    written: list[Write] = []

    def note(write: Write) -> bool:
        written.append(write)
        return False

    world.backend.lose = note
    for number in range(10):
        world.cluster.store.patch(
            api_kinds.WORKLOADS, "ml", "big", {"metadata": {"labels": {"x": str(number)}}}
        )
        world.cluster.store.patch(
            api_kinds.WORKLOADS, "ml", "lost", {"metadata": {"labels": {"x": str(number)}}}
        )
        world.pass_time(10)
    assert [one.name for one in written if one.kind == api_kinds.WORKLOADS] == []
