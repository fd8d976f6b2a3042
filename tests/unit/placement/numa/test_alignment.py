"""Pods and zones: who fits where, what is said if not, and how many fit."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.dialects.kube.encode.numa_messages import told
from bayplan.model.node import HOSTNAME, Node, Topology
from bayplan.model.numa import (
    Alignment,
    ContainerRequest,
    ContainerType,
    FitRule,
    NodeZones,
    QosClass,
    TopologyManagerPolicy,
    TopologyManagerScope,
    Zone,
    ZoneRules,
    ZoneScore,
)
from bayplan.placement.cluster.topology_tree import build
from bayplan.placement.numa.alignment import aligned, assumed_zones, why_unaligned
from bayplan.placement.numa.capacity import aligned_counts, per_leaf, with_copies
from bayplan.placement.numa.columns import zone_columns
from bayplan.placement.numa.score import zone_scores
from tests.support.numa_nodes import GPU, amounts, columns, container, pod, report

EIGHT = amounts(cpu=8, memory=8)
FOUR = amounts(cpu=4, memory=4)


def fits(*reports: NodeZones, wants: object, rules: ZoneRules = ZoneRules()) -> list[bool]:  # noqa: B008
    return [bool(good) for good in aligned(columns(*reports), wants, rules).good]  # type: ignore[arg-type]


def test_a_pod_needs_one_zone_with_room_for_all_of_it() -> None:
    wants = pod(container(cpu=6, memory=2))
    assert fits(report(FOUR, FOUR, name="a"), report(FOUR, EIGHT, name="b"), wants=wants) == [False, True]


def test_room_in_two_zones_that_each_lack_something_is_no_room() -> None:
    zones = report(amounts(cpu=8, memory=1), amounts(cpu=1, memory=8))
    assert fits(zones, wants=pod(container(cpu=4, memory=4))) == [False]


def test_nodes_that_do_not_insist_take_any_pod() -> None:
    for policy in (
        TopologyManagerPolicy.NONE,
        TopologyManagerPolicy.BEST_EFFORT,
        TopologyManagerPolicy.RESTRICTED,
    ):
        lax = NodeZones("n", report(FOUR).zones, Alignment(policy))
        assert fits(lax, wants=pod(container(cpu=64, memory=1))) == [True]


def test_a_sidecar_keeps_what_it_takes() -> None:
    wants = pod(container("side", ContainerType.SIDECAR, cpu=3, memory=1), container(cpu=3, memory=1))
    for scope in TopologyManagerScope:
        assert fits(report(FOUR, scope=scope), wants=wants) == [False]
        assert fits(report(FOUR, scope=scope), wants=wants, rules=ZoneRules(sidecars_stay=False)) == [True]
    assert fits(report(FOUR, FOUR), wants=wants) == [True]


def test_an_init_container_is_gone_when_the_others_start() -> None:
    wants = pod(container("first", ContainerType.INIT, cpu=4, memory=1), container(cpu=4, memory=1))
    assert fits(report(FOUR), wants=wants) == [True]


def test_an_init_container_runs_beside_sidecars_that_started_before_it() -> None:
    side, first = (
        container("side", ContainerType.SIDECAR, cpu=2, memory=1),
        container("first", ContainerType.INIT, cpu=3, memory=1),
    )
    app = container(cpu=1, memory=1)
    assert fits(report(FOUR), wants=pod(side, first, app)) == [False]
    assert fits(report(FOUR), wants=pod(first, side, app)) == [True]


def test_zones_with_gaps_in_their_numbers_and_beyond_64_are_zones_like_others() -> None:
    wants = pod(container("a", cpu=3, memory=1), container("b", cpu=3, memory=1))
    odd, even = report(FOUR, FOUR, numbers=(7, 64)), report(FOUR, FOUR, name="m", numbers=(900, 2))
    assert fits(odd, even, wants=wants) == [True, True]
    assert assumed_zones(columns(odd), 0, wants) == (("a", 7), ("b", 64))
    assert assumed_zones(columns(even), 0, wants) == (("a", 2), ("b", 900))
    for score in ZoneScore:
        scores = zone_scores(columns(odd, even), wants, ZoneRules(score=score))
        assert ((scores > 0) & (scores <= 100)).all()


def test_a_pod_whose_containers_ask_for_nothing_gets_a_score_within_bounds() -> None:
    wants = pod(ContainerRequest("main", ()))
    for scope in TopologyManagerScope:
        for score in ZoneScore:
            scores = zone_scores(columns(report(FOUR, scope=scope)), wants, ZoneRules(score=score))
            assert ((scores >= 0) & (scores <= 100)).all()


def test_needing_more_zones_than_the_node_aligns_over_is_no_negative_score() -> None:
    zones = tuple(Zone(number, FOUR) for number in range(4))
    node = NodeZones("n", zones, Alignment(TopologyManagerPolicy.NONE, zones_max=2))
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    assert zone_scores(columns(node), pod(container(cpu=16, memory=1)), rules).tolist() == [0]


def test_of_sets_of_zones_the_smallest_and_then_the_nearest_is_liked() -> None:
    far = {0: 10, 1: 30, 2: 20}, {0: 30, 1: 10, 2: 12}, {0: 20, 1: 12, 2: 10}

    def near_to(*free: int) -> NodeZones:
        zones = [Zone(i, amounts(cpu=4, memory=4, gpu=int(i in free)), distances=far[i]) for i in range(3)]
        return NodeZones("".join(map(str, free)), tuple(zones), Alignment(TopologyManagerPolicy.BEST_EFFORT))

    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    known = columns(near_to(0, 1), near_to(1, 2), near_to(0, 1, 2))
    assert zone_scores(known, pod(container(cpu=1, memory=1, gpu=2)), rules).tolist() == [76, 82, 82]
    assert zone_scores(known, pod(container(cpu=1, memory=1, gpu=1)), rules).tolist() == [94, 94, 94]


def test_a_container_finds_in_the_zones_what_those_before_it_left() -> None:
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    node = NodeZones("n", report(FOUR, FOUR).zones, Alignment(TopologyManagerPolicy.BEST_EFFORT))
    twice = pod(container("a", cpu=3, memory=1), container("b", cpu=5, memory=1))
    assert zone_scores(columns(node), twice, rules).tolist() == [100 - 2 * 12 + 6]
    assert zone_scores(
        columns(node), pod(*twice.containers, container("c", cpu=1, memory=1)), rules
    ).tolist() == [0]


def test_hundreds_of_zones_do_not_take_for_ever() -> None:
    zones = tuple(Zone(number, FOUR) for number in range(200))
    node = NodeZones("n", zones, Alignment(TopologyManagerPolicy.SINGLE_ZONE, zones_max=1024))
    wants = pod(container(cpu=40, memory=1))
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    assert zone_scores(columns(node), wants, rules).tolist() == [100]
    assert fits(node, wants=wants) == [False]
    assert aligned_counts(columns(node), pod(container(cpu=2, memory=1))).tolist() == [400]


def test_a_device_without_a_home_in_any_zone_is_the_whole_nodes() -> None:
    assert fits(report(FOUR), wants=pod(container(cpu=1, memory=1, gpu=1))) == [True]
    with_home = report(FOUR, amounts(cpu=1, memory=4, gpu=1))
    assert fits(with_home, wants=pod(container(cpu=2, memory=1, gpu=1))) == [False]


def test_a_node_that_nobody_knows_about_takes_nothing() -> None:
    known = columns(report(FOUR), stale=("n",))
    wants = pod(container(cpu=1, memory=1))
    assert not aligned(known, wants).good.any()
    assert aligned_counts(known, wants, most=5).tolist() == [0]
    assert zone_scores(known, wants).tolist() == [0]
    why = why_unaligned(known, 0, "n", wants)
    assert why is not None and told(why).startswith("invalid node topology data: node n ")


def test_the_simpler_rule_takes_memory_as_given() -> None:
    plain = ZoneRules(fit=FitRule.PLAIN)
    assert fits(report(FOUR), wants=pod(container(cpu=1, memory=64)), rules=plain) == [True]
    assert fits(report(FOUR), wants=pod(container(cpu=64, memory=1)), rules=plain) == [False]
    assert aligned_counts(columns(report(FOUR)), pod(container(cpu=2, memory=64)), plain).tolist() == [2]


# ── what is said ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("node", "wants", "sentence"),
    [
        (
            report(FOUR, EIGHT),
            pod(container("a", cpu=6, memory=1), container("b", cpu=6, memory=1)),
            "cannot align container: node n: container b asks for 6 of cpu and 1Gi of memory; "
            "zone 0 has 4 of cpu, zone 1 has 2 of cpu",
        ),
        (
            report(amounts(cpu=8), EIGHT),
            pod(container(cpu=1, memory=16)),
            "cannot align container: node n: container main asks for 1 of cpu and 16Gi of memory; "
            "zone 0 lists no memory, zone 1 has 8Gi of memory",
        ),
        (
            report(FOUR),
            pod(container("first", ContainerType.INIT, cpu=5, memory=1), container(cpu=1, memory=1)),
            "cannot align init container: node n: container first asks for 5 of cpu and 1Gi of memory; "
            "zone 0 has 4 of cpu",
        ),
        (
            report(FOUR),
            pod(container("side", ContainerType.SIDECAR, cpu=5, memory=1), container(cpu=1, memory=1)),
            "cannot align sidecar container: node n: container side asks for 5 of cpu and 1Gi of memory; "
            "zone 0 has 4 of cpu",
        ),
        (
            report(FOUR, scope=TopologyManagerScope.POD),
            pod(container("a", cpu=3, memory=1), container("b", cpu=3, memory=1)),
            "cannot align pod: node n: the pod asks for 6 of cpu and 2Gi of memory; zone 0 has 4 of cpu",
        ),
        (
            report(FOUR),
            pod(ContainerRequest("main", (("vendor.com/nic", 1),)), service=QosClass.BURSTABLE),
            "cannot align container: node n: container main asks for 1 of vendor.com/nic; "
            "the node has no vendor.com/nic",
        ),
        (
            report(),
            pod(container(cpu=1, memory=1)),
            "cannot align container: node n: container main asks for 1 of cpu and 1Gi of memory; "
            "the node reports no zone",
        ),
    ],
)
def test_a_refusal_names_container_resource_and_zone(node: NodeZones, wants: object, sentence: str) -> None:
    why = why_unaligned(columns(node), 0, "n", wants)  # type: ignore[arg-type]
    assert why is not None and told(why) == sentence


# ── how many ───────────────────────────────────────────────────────────────────────────────────────


def test_copies_are_counted_by_zone_and_not_by_node() -> None:
    node = report(amounts(cpu=7, memory=64), amounts(cpu=7, memory=64))
    assert aligned_counts(columns(node), pod(container(cpu=4, memory=1))).tolist() == [2]  # and not 14 // 4


def test_a_gang_of_aligned_pods_is_one_question_for_every_rack() -> None:
    topology = Topology("t", ("rack", HOSTNAME))
    nodes = [
        Node(f"n{i}", {"rack": f"r{i // 2}", HOSTNAME: f"n{i}"}, {GPU: 8, "cpu": 1 << 40}) for i in range(4)
    ]
    tree = build(topology, nodes)
    whole, halves = amounts(cpu=64, memory=64, gpu=8), amounts(cpu=64, memory=64, gpu=4)
    reports = [
        report(halves, halves, name="n0"),
        report(whole, name="n1"),
        report(whole, name="n2"),
        report(whole, name="n3"),
    ]
    known = zone_columns(list(tree.nodes), {one.node: one for one in reports})
    counts = aligned_counts(known, pod(container(cpu=8, memory=8, gpu=8)), most=2)
    assert counts.tolist() == [0, 1, 1, 1]
    assert np.add.reduceat(counts, tree.starts[0]).tolist() == [1, 2]  # only the second rack holds two
    racks = build(Topology("t", ("rack",)), nodes)
    assert per_leaf(racks, counts).tolist() == [1, 2]


def test_earlier_pods_of_a_gang_leave_less_room_in_the_zones_they_would_get() -> None:
    known = columns(report(FOUR, FOUR))
    after = with_copies(known, np.asarray([0]), np.asarray([1]), pod(container(cpu=3, memory=1)))
    assert after.available[known.resources["cpu"], :, 0].tolist() == [1000, 4000]
    assert known.available[known.resources["cpu"], :, 0].tolist() == [4000, 4000]
    assert aligned_counts(after, pod(container(cpu=3, memory=1))).tolist() == [1]


def test_nodes_outside_the_mask_hold_nothing() -> None:
    known = columns(report(FOUR, name="a"), report(FOUR, name="b"))
    counts = aligned_counts(known, pod(container(cpu=1, memory=1)), nodes=np.asarray([False, True]))
    assert counts.tolist() == [0, 4]
