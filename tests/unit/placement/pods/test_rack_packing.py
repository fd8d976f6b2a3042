"""Gangs without a topology request leave racks whole: small ones go to broken racks, larger ones to one."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from bayplan.model.node import Node
from bayplan.model.node_rules import Taint
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.assign import assign_pods
from tests.support.model_objects import node
from tests.unit.placement.pods.test_assign import batch, opened, rack_node

PACKED = Profile()
BY_HOST = Profile(gang_nodes=NodeChoice.PACK)


def cluster(
    *racks: str, used: dict[str, int] | None = None, levels: tuple[str, ...] = ("rack",)
) -> NodeOverlay:
    """Three hosts of 8 CPUs in each rack, named by rack and number."""
    nodes: list[Node] = [rack_node(f"{rack}-{at}", rack=rack) for rack in racks for at in range(3)]
    return levelled(opened(*nodes, used=used), *levels)


def levelled(overlay: NodeOverlay, *levels: str) -> NodeOverlay:
    """The overlay of a cluster with a topology of these levels above hosts."""
    nodes = replace(overlay.filter_input.node_snapshot, levels=levels)
    overlay.filter_input = replace(overlay.filter_input, node_snapshot=nodes)
    return overlay


def hosts(overlay: NodeOverlay, pods: int, cpu: int, profile: Profile = PACKED) -> Counter[str]:
    found = assign_pods(overlay, [batch(pods, cpu=cpu)], need=pods, profile=profile)
    return Counter(overlay.node(row) for row in found.rows.values())


def test_a_pod_that_needs_a_whole_host_goes_to_the_most_broken_rack() -> None:
    used = {"b-0": 8, "c-0": 1, "c-1": 1}
    assert hosts(cluster("a", "b", "c", used=used), 1, 8) == {"c-2": 1}
    assert hosts(cluster("a", "b", "c", used=used), 1, 8, BY_HOST) == {"a-0": 1}


def test_a_small_pod_breaks_no_unused_host_while_another_has_room() -> None:
    used = {"a-0": 2, "b-0": 8, "b-1": 8}
    assert hosts(cluster("a", "b", used=used), 1, 2) == {"a-0": 1}


def test_of_hosts_in_use_the_one_in_the_most_broken_rack_is_taken_even_if_another_is_fuller() -> None:
    used = {"a-0": 7, "b-0": 4, "b-1": 1, "b-2": 1}
    assert hosts(cluster("a", "b", used=used), 1, 1) == {"b-0": 1}
    assert hosts(cluster("a", "b", used=used), 1, 1, BY_HOST) == {"a-0": 1}


def test_a_gang_of_several_hosts_stays_in_the_tightest_rack_that_holds_it() -> None:
    used = {"b-0": 8, "c-0": 8, "c-1": 8}
    assert hosts(cluster("a", "b", "c", used=used), 2, 8) == {"b-1": 1, "b-2": 1}


def test_a_gang_larger_than_a_rack_takes_whole_racks_and_the_tightest_for_the_rest() -> None:
    used = {"b-0": 8, "c-0": 8, "c-1": 8}
    found = hosts(cluster("a", "b", "c", "d", used=used), 7, 8)
    assert found == dict.fromkeys(("a-0", "a-1", "a-2", "d-0", "d-1", "d-2", "c-2"), 1)


def test_a_gang_larger_than_a_rack_stays_in_one_block_if_that_holds_it() -> None:
    nodes = [
        node(f"{block}{rack}-{at}", {"rack": rack, "zone": block}, cpu=8)
        for block in ("x", "y")
        for rack in ("r1", "r2")
        for at in range(2)
    ]
    overlay = levelled(opened(*nodes, used={"xr1-0": 8}), "zone", "rack")
    assert hosts(overlay, 3, 8) == {"xr2-0": 1, "xr2-1": 1, "xr1-1": 1}


def test_pods_that_fit_one_host_share_it() -> None:
    assert hosts(cluster("a", "b", used={"a-0": 7, "a-1": 7, "b-0": 4}), 3, 1) == {"b-0": 3}


def test_pods_that_do_not_all_fit_are_placed_as_far_as_possible() -> None:
    assert sum(hosts(cluster("a"), 5, 8).values()) == 3


def test_a_node_without_the_label_is_a_rack_of_its_own() -> None:
    nodes = (rack_node("a-0"), rack_node("a-1"), replace(rack_node("lost"), labels={}))
    assert hosts(levelled(opened(*nodes), "rack"), 1, 8) == {"lost": 1}


def test_nodes_that_pods_should_avoid_come_last_whatever_their_rack() -> None:
    soft = Taint("old", "", "PreferNoSchedule")
    nodes = [
        rack_node("a-0", rack="a"),
        rack_node("a-1", rack="a"),
        rack_node("b-0", rack="b", taints=(soft,)),
    ]
    assert hosts(levelled(opened(*nodes), "rack"), 1, 8) == {"a-0": 1}
    assert hosts(levelled(opened(*nodes), "rack"), 3, 8) == {"a-0": 1, "a-1": 1, "b-0": 1}


def test_without_known_racks_the_fullest_host_is_taken() -> None:
    used = {"a-0": 7, "b-0": 4, "b-1": 1, "b-2": 1}
    assert hosts(cluster("a", "b", used=used, levels=()), 1, 1) == {"a-0": 1}
