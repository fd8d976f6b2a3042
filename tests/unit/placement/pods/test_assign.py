"""Which nodes gangs and single pods get, why the other pods do not fit, and when that is not proven."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.model.assignment import Code, Misfit
from bayplan.model.filter_failure import FilterReason
from bayplan.model.gang import Group, PodSet
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement, Taint
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import (
    HostPort,
    PodAffinity,
    PodAffinityTerm,
    PodSignature,
    PodSpec,
    Selector,
    TopologySpread,
)
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.cluster.node_index import NodeSnapshot, allocatable_of, node_index_of
from bayplan.placement.cluster.node_table import table_of
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import objects
from bayplan.placement.filters.pipeline import FilterInput
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods import exact_assign
from bayplan.placement.pods.assign import assign_pods
from bayplan.placement.pods.batches import NodeAssignment, PodBatch, batch_pods
from bayplan.placement.pods.counting import most_pods
from bayplan.placement.pods.one_domain import assign_in_domain, candidate_domains
from bayplan.placement.subgroups.whole_gang import assign_whole_gang
from bayplan.state.cluster.topology_state import TopologyState
from tests.support.model_objects import node

RESOURCES = {"cpu": 0, "pods": 1}
MINE = Selector((Requirement("app", "In", ("mine",)),))
LABELS = (("app", "mine"),)


def rack_node(name: str, cpu: int = 8, rack: str = "r1", **more: Any) -> Node:
    return node(name, {"rack": rack}, cpu=cpu, pods=9, **more)


def opened(*nodes: Node, used: dict[str, int] | None = None) -> NodeOverlay:
    """An overlay of these nodes; some of their CPU may be in use."""
    index, table = PodIndex(), table_of(objects(list(nodes)))
    room = allocatable_of(table, RESOURCES)
    free = room.copy()
    for at, one in enumerate(nodes):
        cpu = (used or {}).get(one.name, 0)
        free[0, at] -= cpu
        if cpu:
            index.add(
                f"on {one.name}", one.name, PodSignature(amounts=(("cpu", cpu),), score_requests=(cpu, 0))
            )
    return NodeOverlay(
        FilterInput(NodeSnapshot(node_index_of(table, index.slots), RESOURCES, free, room), index)
    )


def shape(cpu: int = 2, **more: Any) -> PodSignature:
    return PodSignature(labels=LABELS, amounts=(("cpu", cpu), ("pods", 1)), score_requests=(cpu, 0), **more)


def batch(count: int, cpu: int = 2, name: str = "p", **more: Any) -> PodBatch:
    return PodBatch(shape(cpu, **more), tuple(PodKey("", f"{name}{at}") for at in range(count)))


def assign(overlay: NodeOverlay, *batches: PodBatch, need: int | None = None, **more: Any) -> NodeAssignment:
    asked = sum(len(one.keys) for one in batches)
    return assign_pods(
        overlay, batches, need=asked if need is None else need, profile=more.pop("profile", Profile()), **more
    )


def nodes_of(overlay: NodeOverlay, found: NodeAssignment) -> str:
    return " ".join(overlay.node(row) for row in found.rows.values())


def test_a_gang_fills_the_fullest_nodes_first() -> None:
    overlay = opened(rack_node("a"), rack_node("b"), rack_node("c"), used={"b": 4, "c": 2})
    assert nodes_of(overlay, assign(overlay, batch(4))) == "b b c c"


def test_a_single_pod_takes_the_emptiest_node_and_of_equal_ones_the_first_by_name() -> None:
    overlay = opened(rack_node("c"), rack_node("b"), rack_node("a"), used={"a": 4})
    assert nodes_of(overlay, assign(overlay, batch(1), lone=True)) == "b"
    assert nodes_of(overlay, assign(overlay, batch(1, name="q"), lone=True)) == "c"


def test_a_gang_is_spread_if_the_profile_says_so() -> None:
    overlay = opened(rack_node("a"), rack_node("b"))
    spread = Profile(gang_nodes=NodeChoice.SPREAD)
    assert nodes_of(overlay, assign(overlay, batch(4), profile=spread)) == "a b a b"


def test_node_preferences_come_before_packing() -> None:
    wish = NodeRules(preferred=((5, NodeSelectorTerm((Requirement("rack", "In", ("r2",)),))),))
    overlay = opened(rack_node("a"), rack_node("b", rack="r2"), used={"a": 4})
    assert nodes_of(overlay, assign(overlay, batch(1, rules=wish))) == "b"
    overlay = opened(
        rack_node("a", taints=(Taint("t", "", "PreferNoSchedule"),)), rack_node("b"), used={"a": 4}
    )
    assert nodes_of(overlay, assign(overlay, batch(1))) == "b"


def test_unassigned_pods_get_the_reason_counted_with_the_others_assigned() -> None:
    overlay = opened(rack_node("a"), rack_node("b", cpu=1))
    found = assign(overlay, batch(6))
    assert list(found.rows) == [PodKey("", f"p{at}") for at in range(4)]
    assert list(found.unassigned) == [PodKey("", "p4"), PodKey("", "p5")]
    why = found.unassigned[PodKey("", "p4")]
    assert (why.nodes, dict(why.counts)) == (2, {(FilterReason.INSUFFICIENT, "cpu"): 2})
    assert not found.unsure
    overlay.close()
    only_b = assign(overlay, batch(6), allowed_nodes=overlay.mask_of(["b"]))
    assert only_b.unassigned[PodKey("", "p0")].nodes == 1


def test_batches_that_fit_only_in_one_combination_are_assigned_by_the_search() -> None:
    nodes = [rack_node("a", cpu=6), rack_node("b", cpu=7)]
    batches = (batch(1, 4), batch(1, 3, "q"), batch(3, 2, "r"))  # 4 2 and 3 2 2, but not 4 3 on b
    overlay = opened(*nodes, used={"b": 0})
    found = assign(overlay, *batches)
    assert not found.unassigned
    assert sorted(nodes_of(overlay, found).split()) == ["a", "a", "b", "b", "b"]


def test_without_the_search_a_misfit_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exact_assign, "solver", lambda: None)
    batches = (batch(1, 4), batch(1, 3, "q"), batch(3, 2, "r"))
    overlay = opened(rack_node("a", cpu=6), rack_node("b", cpu=7))
    found = assign(overlay, *batches)
    assert found.unsure == bool(found.unassigned)
    too_many = assign(opened(rack_node("a", cpu=6)), *batches)
    assert too_many.unassigned
    assert not too_many.unsure


def test_if_not_all_pods_are_needed_the_small_ones_may_suffice() -> None:
    overlay = opened(rack_node("a", cpu=6))
    found = assign(overlay, batch(1, 5), batch(3, 2, "q"), need=3)
    assert [str(key) for key in found.rows] == ["/q0", "/q1", "/q2"]
    assert not found.unsure


def test_nodes_that_peers_may_make_feasible_are_counted() -> None:
    other = Selector((Requirement("app", "In", ("other",)),))
    overlay = opened(rack_node("a"), rack_node("b", cpu=1, rack="r2"))
    near = PodAffinity(required=(PodAffinityTerm(HOSTNAME, other, ("",)),))
    assert most_pods(overlay, shape(affinity=near), None, 9)[0].tolist() == [0]
    for name in ("x", "y"):
        overlay.add_pod(PodKey("", name), PodSignature(labels=(("app", "other"),)), 0)
    uneven = shape(spread=(TopologySpread("rack", 1, other),))
    assert not overlay.run_filters(uneven).fits.any()
    assert most_pods(overlay, uneven, None, 9)[0].tolist() == [0]


def test_pods_apart_from_each_other_get_a_node_each() -> None:
    apart = PodAffinity(required_anti=(PodAffinityTerm(HOSTNAME, MINE, ("",)),))
    overlay = opened(rack_node("a"), rack_node("b"), rack_node("c"))
    found = assign(overlay, batch(4, affinity=apart))
    assert sorted(found.rows.values()) == [0, 1, 2]
    assert dict(found.unassigned[PodKey("", "p3")].counts) == {(FilterReason.POD_ANTI_AFFINITY, ""): 3}


def test_pods_apart_by_rack_get_a_rack_each() -> None:
    apart = PodAffinity(required_anti=(PodAffinityTerm("rack", MINE, ("",)),))
    overlay = opened(rack_node("a"), rack_node("b"), rack_node("c", rack="r2"))
    assert len(assign(overlay, batch(3, affinity=apart)).rows) == 2


def test_pods_near_each_other_go_where_all_have_room() -> None:
    near = PodAffinity(required=(PodAffinityTerm("rack", MINE, ("",)),))
    overlay = opened(
        rack_node("a"), rack_node("b", rack="r2"), rack_node("c", rack="r2"), used={"b": 1, "c": 1}
    )
    found = assign(overlay, batch(6, affinity=near))  # the emptiest node is in the wrong rack
    assert set(found.rows.values()) == {1, 2}
    overlay.close()
    found = assign(overlay, batch(7, affinity=near))
    assert len(found.unassigned) == 1
    assert not found.unsure


def test_pods_with_affinity_are_assigned_after_the_pods_they_need() -> None:
    near = PodAffinity(
        required=(PodAffinityTerm(HOSTNAME, Selector((Requirement("app", "In", ("other",)),)), ("",)),)
    )
    other = PodBatch(
        PodSignature(labels=(("app", "other"),), amounts=(("cpu", 1), ("pods", 1))), (PodKey("", "o"),)
    )
    overlay = opened(rack_node("a"), rack_node("b"))
    found = assign(overlay, batch(2, affinity=near), other)
    assert len(set(found.rows.values())) == 1
    assert not found.unassigned


def test_a_spread_constraint_is_kept() -> None:
    even = (TopologySpread("rack", 1, MINE),)
    overlay = opened(rack_node("a"), rack_node("b", cpu=2, rack="r2"))
    found = assign(overlay, batch(4, spread=even))
    assert sorted(found.rows.values()) == [0, 0, 1]
    assert len(found.unassigned) == 1


def test_pods_that_differ_only_in_labels_no_selector_uses_are_one_batch() -> None:
    overlay = opened(rack_node("a"))

    def pod(number: int, app: str) -> Pod:
        mine = PodSignature(labels=(("app", app), ("index", str(number))), amounts=(("cpu", 1), ("pods", 1)))
        return Pod(PodKey("", f"p{number}"), "", {}, spec=PodSpec(mine))

    pods = [pod(0, "x"), pod(1, "y"), pod(2, "x")]
    (one,) = batch_pods(overlay, pods)
    assert len(one.own) == 3
    overlay.add_pod(
        PodKey("", "hater"),
        shape(affinity=PodAffinity(required_anti=(PodAffinityTerm(HOSTNAME, MINE, ("",)),))),
        0,
    )
    assert [len(found.keys) for found in batch_pods(overlay, pods)] == [2, 1]
    found = assign(overlay, *batch_pods(overlay, pods))
    assert len(found.rows) == 3
    assert [overlay.filter_input.index.pods[pod.key].shape for pod in pods] == [
        pod.spec.signature for pod in pods
    ]


# ── one domain ─────────────────────────────────────────────────────────────────────────────────────


def racks() -> NodeOverlay:
    nodes = [
        rack_node("a"),
        rack_node("b"),
        rack_node("c", rack="r2"),
        rack_node("d", rack="r2"),
        rack_node("e", rack="r3"),
    ]
    return opened(*nodes, used={"a": 2, "c": 4})


def together(overlay: NodeOverlay, *batches: PodBatch, bound: tuple[int, ...] = (), need: int = 0) -> Any:
    need = need or sum(len(one.keys) for one in batches)
    return assign_in_domain(overlay, batches, "rack", bound, need=need, profile=Profile())


def test_the_domain_that_will_be_fullest_takes_the_gang() -> None:
    overlay = racks()
    found = together(overlay, batch(5))
    assert (found.domain, found.misfit) == ("r2", None)
    assert {overlay.node(row) for row in found.assignment.rows.values()} == {"c", "d"}
    assert together(racks(), batch(4)).domain == "r3"


def test_pods_join_the_domain_of_the_bound_pods() -> None:
    overlay = racks()
    assert together(overlay, batch(3), bound=(0,)).domain == "r1"
    overlay.close()
    found = together(overlay, batch(5), bound=(4,))
    assert found.misfit.nearest.domain == ("r3",)
    assert (found.misfit.code, found.misfit.fit, found.misfit.asked) == (Code.NO_ROOM, 4, 5)


def test_a_gang_too_large_for_any_domain_gets_the_nearest_domain_as_reason() -> None:
    found = together(racks(), batch(9))
    assert (found.domain, found.misfit.fit, found.misfit.nearest.short) == ("r1", 7, 2)
    assert not found.assignment.unsure
    assert len(found.assignment.rows) == 7
    nowhere = assign_in_domain(racks(), [batch(1)], "block", need=1, profile=Profile())
    assert nowhere.misfit == Misfit(Code.NO_DOMAINS, (), level="block", asked=1)


def test_domains_are_listed_by_the_pods_they_could_hold() -> None:
    overlay = racks()
    assert [one.value for one in candidate_domains(overlay, [batch(9)], "rack", need=5)] == ["r1", "r2"]
    assert [one.max_pods for one in candidate_domains(overlay, [batch(9)], "rack", need=1)] == [7, 6, 4]
    assert [one.value for one in candidate_domains(overlay, [batch(9)], "rack", (4,), need=1)] == ["r3"]


# ── trees ──────────────────────────────────────────────────────────────────────────────────────────


def tree(count: int) -> tuple[Group, list[Pod]]:
    pod_set = PodSet("main", count, count, {"cpu": 2})
    return Group("", (pod_set,), 1), []


def members(count: int, **more: Any) -> list[Pod]:
    wants = PodSpec(shape(**more))
    return [
        Pod(PodKey("", f"p{at}"), "", {"cpu": 2, "pods": 1}, pod_set="main", rank=at, spec=wants)
        for at in range(count)
    ]


def snapshot(overlay: NodeOverlay) -> Any:
    cluster = TopologyState(Topology("dc", ("rack", HOSTNAME)))
    cluster.load(overlay.filter_input.node_snapshot.node_index.table.nodes.tolist())
    return cluster.snapshot()


def test_a_tree_is_assigned_in_rank_order_around_the_pods_in_the_overlay() -> None:
    overlay = opened(rack_node("b"), rack_node("a"))
    here = snapshot(overlay)
    overlay.add_pod(PodKey("", "taker"), shape(6), overlay.row("a"))
    found = assign_whole_gang(overlay, here, tree(5)[0], members(5), [], profile=Profile())
    assert isinstance(found, NodeAssignment)
    assert nodes_of(overlay, found) == "a b b b b"
    overlay.rollback(1)
    refused = assign_whole_gang(overlay, here, tree(6)[0], members(6), [], profile=Profile())
    assert isinstance(refused, Misfit)
    assert (refused.fit, refused.asked) == (5, 6)
    assert overlay.checkpoint() == 1


def test_a_tree_uses_only_the_allowed_nodes() -> None:
    overlay = opened(rack_node("a"), rack_node("b"))
    inside = overlay.mask_of(["b"])
    found = assign_whole_gang(
        overlay, snapshot(overlay), tree(2)[0], members(2), [], profile=Profile(), allowed_nodes=inside
    )
    assert isinstance(found, NodeAssignment)
    assert nodes_of(overlay, found) == "b b"


def test_a_tree_whose_pods_use_one_host_port_gets_a_node_per_pod() -> None:
    overlay = opened(rack_node("a"), rack_node("b"), rack_node("c"))
    ports = (HostPort(80),)
    overlay.add_pod(PodKey("", "taker"), shape(1, ports=ports), 1)
    found = assign_whole_gang(
        overlay, snapshot(overlay), tree(2)[0], members(2, ports=ports), [], profile=Profile()
    )
    assert isinstance(found, NodeAssignment)
    assert nodes_of(overlay, found) == "a c"
    overlay.rollback(1)
    refused = assign_whole_gang(
        overlay, snapshot(overlay), tree(3)[0], members(3, ports=ports), [], profile=Profile()
    )
    assert isinstance(refused, Misfit)


def test_a_tree_with_conflicting_pods_is_not_assigned_and_the_answer_is_unsure() -> None:
    overlay = opened(rack_node("a"), rack_node("b", rack="r2"))
    apart = PodAffinity(required_anti=(PodAffinityTerm("rack", MINE, ("",)),))
    even = (TopologySpread("rack", 1, MINE),)
    found = assign_whole_gang(
        overlay, snapshot(overlay), tree(3)[0], members(3, spread=even), [], profile=Profile()
    )
    assert isinstance(found, NodeAssignment)
    assert (dict(found.rows), found.unsure, overlay.checkpoint()) == ({}, True, 0)
    each = assign_whole_gang(
        overlay, snapshot(overlay), tree(2)[0], members(2, affinity=apart), [], profile=Profile()
    )
    assert isinstance(each, NodeAssignment)
    assert nodes_of(overlay, each) == "a b"
