"""Admission and binding share hosts where the topology ends at the rack: what is promised has no host yet."""

from __future__ import annotations

import pytest

from bayplan.backends.embedded.api.options import Deletion
from bayplan.dialects.kube.decode.wire import NODES
from bayplan.dialects.kueue.names import api_kinds
from tests.support.pod_site import PODS
from tests.support.queued_cluster import BLOCK, RACK, queued_workload, running_pod
from tests.unit.runtime.core.test_shared_capacity import HOSTS, ORDERS, World

IN_ONE = ORDERS[0]


def world_of_racks(*order: str) -> World:
    """Racks of two hosts each; the topology ends at the rack."""
    return World(*(order or IN_ONE), levels=(BLOCK, RACK))


def fill(world: World, *hosts: str, gpus: int = 4) -> None:
    for host in hosts:
        world.pod(f"filler-{host}-{gpus}", gpus=gpus, on=host)
    world.play(1.0)
    assert all(world.node_of(f"filler-{host}-{gpus}") == host for host in hosts)


ALL_BUT_ONE_RACK = tuple(f"h{number}" for number in range(3, HOSTS + 1))


@pytest.mark.parametrize("order", ORDERS, ids=["admission first", "binding first"])
def test_a_plain_pod_is_not_bound_to_a_rack_that_is_promised(order: tuple[str, ...]) -> None:
    world = world_of_racks(*order)
    fill(world, *ALL_BUT_ONE_RACK)
    world.cluster.submit(queued_workload("gang", 2, 4))
    world.play(2.0)
    assert world.is_admitted("gang") and world.hosts("gang") == {"r1"}
    world.pod("plain")
    world.play(5.0)
    assert world.node_of("plain") == ""
    for number in range(2):
        world.member("gang", number)
    world.play(5.0)
    assert {world.node_of(f"gang-{number}") for number in range(2)} == {"h1", "h2"}
    assert world.node_of("plain") == ""


@pytest.mark.parametrize("order", ORDERS, ids=["admission first", "binding first"])
def test_what_is_created_at_the_same_moment_is_given_once(order: tuple[str, ...]) -> None:
    world = world_of_racks(*order)
    fill(world, *ALL_BUT_ONE_RACK)
    world.cluster.submit(queued_workload("gang", 2, 4))
    world.pod("plain")
    world.play(10.0)
    assert world.is_admitted("gang") is (world.node_of("plain") == "")


@pytest.mark.parametrize("host", ["h1", "h2"])
def test_a_plain_pod_gets_a_host_of_the_rack_if_the_slot_can_have_the_other_one(host: str) -> None:
    world = world_of_racks()
    fill(world, *ALL_BUT_ONE_RACK)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.play(2.0)
    assert world.is_admitted("gang")
    world.pod("plain", on=host)
    world.play(5.0)
    assert world.node_of("plain") == host
    world.pod("other")
    world.play(5.0)
    assert world.node_of("other") == "", "now the slot needs the last host"
    world.member("gang", 0)
    world.play(5.0)
    assert world.node_of("gang-0") == ({"h1", "h2"} - {host}).pop()


def test_a_slot_is_not_held_in_parts_of_several_hosts() -> None:
    world = world_of_racks()
    fill(world, *ALL_BUT_ONE_RACK)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.play(2.0)
    for host in ("h1", "h2"):
        world.pod(f"small-{host}", gpus=1, on=host)
    world.play(5.0)
    bound = [world.node_of(f"small-{host}") for host in ("h1", "h2")]
    assert sorted(bound) in (["", "h1"], ["", "h2"]), "by sums there would be room for both"


def test_a_slot_is_held_on_a_host_with_the_labels_of_its_flavor() -> None:
    world = world_of_racks()
    for host in ("h1", *ALL_BUT_ONE_RACK):
        world.store.patch(NODES, "", host, {"metadata": {"labels": {"gpu": "no"}}})
    world.play(1.0)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.play(2.0)
    assert world.is_admitted("gang")
    world.pod("plain", on="h2")
    world.pod("other", on="h1")
    world.play(5.0)
    assert world.node_of("plain") == "" and world.node_of("other") == "h1"


def test_what_a_gang_that_is_gone_held_is_free_again() -> None:
    world = world_of_racks()
    fill(world, *ALL_BUT_ONE_RACK)
    world.cluster.submit(queued_workload("gang", 2, 4))
    world.play(2.0)
    world.pod("plain")
    world.play(5.0)
    world.store.delete(api_kinds.WORKLOADS, "ml", "gang")
    world.play(5.0)
    assert world.node_of("plain") != ""
    claims = world.scheduler.state.store.claims
    assert not claims.counts and not claims.in_domains
    assert not claims.domains.domains and world.scheduler.state.store.nodes.on_change is None


def test_a_pod_in_the_slot_of_a_rack_is_not_preempted() -> None:
    world = world_of_racks()
    fill(world, *ALL_BUT_ONE_RACK, "h2")
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.member("gang", 0)
    world.play(5.0)
    assert world.node_of("gang-0") == "h1"
    world.pod("plain", priority="system-cluster-critical", on="h1")
    world.play(60.0)
    assert "deletionTimestamp" not in world.store.get(PODS, "ml", "gang-0")["metadata"]
    assert world.node_of("plain") == ""


# ── two processes ──────────────────────────────────────────────────────────────────────────────────


def crossed(*, members: bool = False) -> World:
    """The scheduler binds a plain pod to the last free rack, to which a gang was admitted at that moment."""
    world = world_of_racks("admission ungating | scheduler")
    fill(world, *ALL_BUT_ONE_RACK)
    for number in range(2 if members else 0):
        world.member("gang", number)
    world.pod("plain")
    admission, scheduler = world.loops
    scheduler.apply_events(world.now)
    world.backends[1].is_late = True
    world.cluster.submit(queued_workload("gang", 2, 4))
    for _ in range(8):
        world.now += 0.25
        admission.step(world.now)
    world.backends[0].is_late = True
    assert world.is_admitted("gang")
    scheduler.step(world.now)
    assert world.node_of("plain") in ("h1", "h2"), "the two have to meet"
    return world


def test_a_gang_whose_rack_was_filled_before_it_started_is_evicted_as_a_whole() -> None:
    world = crossed()
    for backend in world.backends:
        backend.is_late = False
    world.play(2.0)
    evicted = world.condition("gang", "Evicted")
    assert evicted is not None and evicted["reason"] == "NodesTaken"
    assert evicted["message"] == (
        "Other pods were bound to nodes of example.com/rack b1/r1 before the pods of this Workload, and too "
        "little is left there for them. It is evicted as a whole and queued again"
    )
    assert world.node_of("plain") != "", "a bound pod keeps its node"


def test_no_pod_of_a_gang_starts_while_its_rack_has_too_little_left_for_all_of_them() -> None:
    world = crossed(members=True)
    world.backends[1].is_late = False
    world.play(5.0)
    assert [world.node_of(f"gang-{number}") for number in range(2)] == ["", ""]
    pod = world.store.get(PODS, "ml", "gang-0")
    assert "bound to nodes of example.com/rack b1/r1" in pod["status"]["conditions"][0]["message"]
    world.store.delete(PODS, "ml", "plain", Deletion(grace=0))
    world.play(5.0)
    assert {world.node_of(f"gang-{number}") for number in range(2)} == {"h1", "h2"}


def test_a_pod_of_another_scheduler_on_a_host_that_can_be_spared_changes_nothing() -> None:
    world = world_of_racks("admission ungating | scheduler")
    fill(world, *ALL_BUT_ONE_RACK)
    world.cluster.submit(queued_workload("gang", 1, 4))
    world.play(2.0)
    world.store.create(PODS, running_pod("foreign", "h1", 4))
    world.play(2.0)
    assert world.condition("gang", "Evicted") is None
    world.member("gang", 0)
    world.play(5.0)
    assert world.node_of("gang-0") == "h2"
