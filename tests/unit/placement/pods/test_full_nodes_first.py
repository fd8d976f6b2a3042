"""Of several placements the one on the fullest nodes is taken, unless that splits a group."""

from __future__ import annotations

from collections import Counter

from bayplan.model.gang import Group, Locality, PodSet
from bayplan.model.node import Node
from bayplan.model.profile import Profile
from bayplan.placement.cluster.resource_fit import leading
from bayplan.placement.pods.assign import assign_pods
from tests.support.model_objects import node
from tests.unit.placement.pods.test_assign import batch, opened, rack_node
from tests.unit.placement.subgroups.test_minimums import RACK, ZONE, leaf, placed, root_group

ANYWHERE = Locality()


def gpu_node(name: str, gpus: int, rack: str = "r0", zone: str = "A") -> Node:
    return node(name, {"zone": zone, "rack": rack}, gpu=gpus, cpu=99, pods=99)


def pairs(name: str, count: int, locality: Locality = RACK) -> PodSet:
    return PodSet(name, count, count, {"gpu": 2}, locality)


def test_a_device_tells_how_full_a_node_is_before_cpu_does() -> None:
    assert leading(("cpu", "memory", "nvidia.com/gpu", "pods")) == "nvidia.com/gpu"
    assert leading(("cpu", "memory", "pods")) == "cpu"
    assert leading(("memory", "pods")) == "memory"
    assert leading(()) == ""


def test_gangs_go_where_least_is_free_and_not_where_the_largest_share_is_in_use() -> None:
    overlay = opened(rack_node("large", cpu=8), rack_node("small", cpu=3), used={"large": 3})
    found = assign_pods(overlay, [batch(1, cpu=2)], need=1, profile=Profile())
    assert [overlay.node(row) for row in found.rows.values()] == ["small"]


def test_nodes_that_are_equally_free_are_taken_by_name() -> None:
    overlay = opened(rack_node("a", cpu=4), rack_node("b", cpu=8), used={"b": 4})
    found = assign_pods(overlay, [batch(1, cpu=2)], need=1, profile=Profile())
    assert [overlay.node(row) for row in found.rows.values()] == ["a"]


def test_pod_sets_without_a_locality_fill_one_node_after_the_other() -> None:
    nodes = [gpu_node("four", 4, "r0"), gpu_node("eight", 8, "r1"), gpu_node("three", 3, "r2")]
    assigned = placed(nodes, root_group(leaf("a", 3, locality=ANYWHERE), leaf("b", 2, locality=ANYWHERE)))
    assert {name: assigned[name] for name in ("a0", "a1", "a2")} == dict.fromkeys(("a0", "a1", "a2"), "three")
    assert {assigned["b0"], assigned["b1"]} == {"four"}


def test_of_equally_few_hosts_the_fullest_are_taken() -> None:
    nodes = [gpu_node("two", 2), gpu_node("three", 3), gpu_node("four", 4), gpu_node("free", 3)]
    assigned = placed(nodes, root_group(leaf("a", 5, locality=ZONE)))
    assert Counter(assigned.values()) == {"two": 2, "free": 3}
    assert [assigned[f"a{at}"] for at in range(5)] == ["two", "two", "free", "free", "free"]


def test_pods_stay_on_one_host_even_if_others_are_fuller() -> None:
    assigned = placed(
        [gpu_node("one", 1), gpu_node("other", 1), gpu_node("four", 4)], root_group(leaf("a", 2))
    )
    assert set(assigned.values()) == {"four"}


def test_of_domains_that_hold_as_many_pods_the_one_with_less_left_over_is_taken() -> None:
    nodes = [gpu_node("n0", 2, "r0"), gpu_node("n1", 3, "r0"), gpu_node("n2", 4, "r1")]
    assert set(placed(nodes, root_group(pairs("a", 2))).values()) == {"n2"}


def test_of_nodes_that_hold_as_many_pods_the_one_with_less_left_over_is_taken() -> None:
    assert placed([gpu_node("n0", 3), gpu_node("n1", 2)], root_group(pairs("a", 1))) == {"a0": "n1"}


def test_a_pod_set_without_locality_leaves_the_least_over() -> None:
    assert placed([gpu_node("n0", 3), gpu_node("n1", 2)], root_group(pairs("a", 1, ANYWHERE))) == {"a0": "n1"}


def test_what_is_required_leaves_room_for_what_is_preferred() -> None:
    """A zone that is tighter has no rack for all of them."""
    nodes = [
        gpu_node("n0", 3, "r0"),
        gpu_node("n1", 4, "r1"),
        gpu_node("n2", 8, "r2", "B"),
        gpu_node("n3", 6, "r3", "B"),
    ]
    near = Group("near", (leaf("a", 2, locality=ANYWHERE), leaf("b", 4, locality=ANYWHERE)), 2,
                 Locality(preferred="rack"))  # fmt: skip
    assigned = placed(nodes, root_group(near, locality=ZONE))
    assert set(assigned.values()) == {"n3"}
