"""Topologies that end at the rack: a gang is admitted where each pod finds a host, and leaves if not."""

from __future__ import annotations

from bayplan.model.change import NodeLost, PodSeen
from bayplan.model.gang import Ref
from bayplan.model.node import PODS
from bayplan.model.plan import EvictGang, EvictionReason
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from tests.admission.world import World

RACKS = """
topology racks rack
flavor f topology=racks
node n1 rack=r1 : cpu=4
node n2 rack=r1 : cpu=4
queue a : f/cpu=99
"""
BY_SUMS = Profile(binding_filters=False)


def run_pod(world: World, name: str, on: str, cpu: int, of: str = "") -> None:
    """A pod is bound to a node; of a gang, or one that admission knows nothing of."""
    gang = Ref("kueue", "Workload", "", of) if of else None
    amounts = {"cpu": cpu * 1000, PODS: 1}
    world.see(PodSeen(Pod(PodKey("ns", name), f"uid-{name}", amounts, on, gang=gang, pod_set="main")))


def evictions(world: World) -> list[tuple[str, EvictionReason, tuple[str, ...]]]:
    return [
        (action.gang.name, action.reason, action.queued_gang.failed_nodes)
        for plan in world.plans
        for action in plan.actions
        if isinstance(action, EvictGang)
    ]


def test_a_pod_is_not_split_over_the_hosts_of_a_rack() -> None:
    for profile, running in ((Profile(), set()), (BY_SUMS, {"one"})):
        world = World(RACKS, profile)
        run_pod(world, "p1", "n1", 2)
        run_pod(world, "p2", "n2", 2)
        world.draw("gang one in a : x1 cpu=4")
        world.settle()
        assert world.running() == running


def test_a_gang_is_admitted_beside_the_expected_pods_of_another() -> None:
    world = World(
        RACKS + "gang one in a : x2 cpu=3\ngang two in a at=1 : x1 cpu=2\ngang three in a at=2 : x2 cpu=1"
    )
    world.settle()
    assert world.running() == {"one", "three"}, "two CPUs are free, but not on one host"


def test_pods_of_two_pod_sets_share_the_hosts_of_a_rack() -> None:
    world = World(RACKS + "gang one in a : workers x2 cpu=3 ; driver x1 cpu=2\ngang two in a at=1 : x1 cpu=4")
    world.settle()
    assert world.running() == {"two"}


def test_a_gang_whose_rack_was_filled_by_other_pods_is_evicted() -> None:
    world = World(RACKS + "gang one in a : x2 cpu=3")
    world.settle()
    run_pod(world, "plain", "n1", 2)
    world.round()
    assert evictions(world) == [("one", EvictionReason.NODES_TAKEN, ("rack r1",))]
    world.settle()
    assert world.running() == set()


def test_a_gang_whose_pods_still_find_hosts_stays() -> None:
    world = World(RACKS + "gang one in a : x2 cpu=2")
    world.settle()
    run_pod(world, "plain", "n1", 4)
    world.settle()
    assert evictions(world) == [] and world.running() == {"one"}


def test_by_sums_there_is_room_but_no_host_has_it() -> None:
    world = World(RACKS + "gang one in a : x1 cpu=3")
    world.settle()
    run_pod(world, "p1", "n1", 2)
    world.settle()
    assert evictions(world) == []
    run_pod(world, "p2", "n2", 2)
    world.round()
    assert evictions(world) == [("one", EvictionReason.NODES_TAKEN, ("rack r1",))]


def test_only_the_gang_that_is_last_in_its_queue_has_to_leave() -> None:
    world = World(RACKS + "gang one in a : x1 cpu=3\ngang two in a at=1 : x1 cpu=3")
    world.settle()
    run_pod(world, "plain", "n1", 2)
    world.round()
    assert [name for name, *_ in evictions(world)] == ["two"]


def test_a_gang_takes_nothing_from_itself() -> None:
    world = World(RACKS + "gang one in a : x2 cpu=3")
    world.settle()
    for number, node in enumerate(("n1", "n2")):
        run_pod(world, f"one-{number}", node, 4, of="one")
    world.settle()
    assert evictions(world) == []


def test_a_rack_that_lost_a_node_was_not_taken() -> None:
    world = World(RACKS + "gang one in a : x2 cpu=3")
    world.settle()
    world.see(NodeLost("n2"))
    world.settle()
    assert evictions(world) == []
