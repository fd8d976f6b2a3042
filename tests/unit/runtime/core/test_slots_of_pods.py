"""Which pods hold the slots of admitted gangs: larger, important, succeeded and failed ones."""

from __future__ import annotations

from bayplan.dialects.api import Ended
from bayplan.model.plan import Bind
from tests.support.pod_site import PODS
from tests.support.queued_cluster import (
    queued_workload,
    running_pod,
)
from tests.unit.runtime.core.test_shared_capacity import HOSTS, World


def test_a_gang_is_not_evicted_because_its_own_pods_are_larger_than_its_slots() -> None:
    world = World("admission ungating")
    world.cluster.submit(queued_workload("gang", 2, 2))
    world.play(2.0)
    (host, *_) = sorted(world.hosts("gang"))
    large = running_pod("gang-0", host, 4)
    large["metadata"] |= {
        "labels": {"kueue.x-k8s.io/podset": "main"},
        "annotations": {
            "kueue.x-k8s.io/workload": "gang",
            "kueue.x-k8s.io/podset-unconstrained-topology": "true",
        },
    }
    world.store.create(PODS, large)
    world.play(5.0)
    assert world.condition("gang", "Evicted") is None


def test_a_pod_in_the_slot_of_an_admitted_gang_is_not_preempted() -> None:
    world = World("admission", "ungating", "scheduler")
    for number in range(HOSTS - 1):
        world.pod(f"filler-{number}", priority="system-cluster-critical")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.member("gang", 0)
    world.play(5.0)
    assert world.node_of("gang-0") != ""
    world.pod("plain", priority="system-cluster-critical")
    world.play(60.0)
    meta = world.store.get(PODS, "ml", "gang-0")["metadata"]
    assert "deletionTimestamp" not in meta and world.node_of("plain") == ""


def test_the_slot_of_a_pod_that_succeeded_is_kept_for_the_next_pod_of_its_job() -> None:
    world = World("admission", "ungating", "scheduler")
    for number in range(HOSTS - 2):
        world.pod(f"filler-{number}")
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 2, 4))
    for number in range(2):
        world.member("gang", number)
    world.play(5.0)
    world.store.patch(PODS, "ml", "gang-0", {"status": {"phase": "Succeeded"}}, subresource="status")
    world.pod("plain")
    world.play(5.0)
    assert world.node_of("plain") == ""
    world.member("gang", 2)
    world.play(5.0)
    assert world.node_of("gang-2") == world.node_of("gang-0") and world.node_of("plain") == ""


def test_a_pod_that_failed_before_it_was_bound_uses_nothing() -> None:
    world = World("admission", "ungating", "scheduler")
    world.backend.refused, world.backend.ended = (Bind,), Ended.TIMED_OUT
    world.pod("plain")
    world.play(1.0)
    world.store.patch(PODS, "ml", "plain", {"status": {"phase": "Failed"}}, subresource="status")
    world.play(120.0)
    assert world.admission.state.unmanaged.ledger.by_node() == {}
