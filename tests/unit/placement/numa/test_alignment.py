"""Alignment of pods to NUMA zones: the filter, its messages, scores, and the number of copies."""

from __future__ import annotations

import numpy as np
import pytest

from bayplan.dialects.kube.encode.numa_messages import message_for
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
from tests.support.numa_nodes import GPU, amounts, columns, container, report, request_of

EIGHT = amounts(cpu=8, memory=8)
FOUR = amounts(cpu=4, memory=4)


def fits(*reports: NodeZones, numa_request: object, rules: ZoneRules = ZoneRules()) -> list[bool]:  # noqa: B008
    return [bool(good) for good in aligned(columns(*reports), numa_request, rules).good]  # type: ignore[arg-type]


def test_a_pod_needs_one_zone_that_fits_all_its_requests() -> None:
    numa_request = request_of(container(cpu=6, memory=2))
    assert fits(report(FOUR, FOUR, name="a"), report(FOUR, EIGHT, name="b"), numa_request=numa_request) == [
        False,
        True,
    ]


def test_two_zones_that_each_lack_a_resource_do_not_fit_a_pod() -> None:
    zones = report(amounts(cpu=8, memory=1), amounts(cpu=1, memory=8))
    assert fits(zones, numa_request=request_of(container(cpu=4, memory=4))) == [False]


def test_nodes_without_the_single_zone_policy_accept_any_pod() -> None:
    for policy in (
        TopologyManagerPolicy.NONE,
        TopologyManagerPolicy.BEST_EFFORT,
        TopologyManagerPolicy.RESTRICTED,
    ):
        lax = NodeZones("n", report(FOUR).zones, Alignment(policy))
        assert fits(lax, numa_request=request_of(container(cpu=64, memory=1))) == [True]


def test_a_sidecar_keeps_its_resources() -> None:
    numa_request = request_of(
        container("side", ContainerType.SIDECAR, cpu=3, memory=1), container(cpu=3, memory=1)
    )
    for scope in TopologyManagerScope:
        assert fits(report(FOUR, scope=scope), numa_request=numa_request) == [False]
        assert fits(
            report(FOUR, scope=scope), numa_request=numa_request, rules=ZoneRules(sidecars_stay=False)
        ) == [True]
    assert fits(report(FOUR, FOUR), numa_request=numa_request) == [True]


def test_an_init_container_has_ended_when_the_others_start() -> None:
    numa_request = request_of(
        container("first", ContainerType.INIT, cpu=4, memory=1), container(cpu=4, memory=1)
    )
    assert fits(report(FOUR), numa_request=numa_request) == [True]


def test_an_init_container_runs_beside_sidecars_that_started_before_it() -> None:
    side, first = (
        container("side", ContainerType.SIDECAR, cpu=2, memory=1),
        container("first", ContainerType.INIT, cpu=3, memory=1),
    )
    app = container(cpu=1, memory=1)
    assert fits(report(FOUR), numa_request=request_of(side, first, app)) == [False]
    assert fits(report(FOUR), numa_request=request_of(first, side, app)) == [True]


def test_zone_numbers_may_have_gaps_and_exceed_64() -> None:
    numa_request = request_of(container("a", cpu=3, memory=1), container("b", cpu=3, memory=1))
    odd, even = report(FOUR, FOUR, numbers=(7, 64)), report(FOUR, FOUR, name="m", numbers=(900, 2))
    assert fits(odd, even, numa_request=numa_request) == [True, True]
    assert assumed_zones(columns(odd), 0, numa_request) == (("a", 7), ("b", 64))
    assert assumed_zones(columns(even), 0, numa_request) == (("a", 2), ("b", 900))
    for score in ZoneScore:
        scores = zone_scores(columns(odd, even), numa_request, ZoneRules(score=score))
        assert ((scores > 0) & (scores <= 100)).all()


def test_a_pod_without_requests_gets_a_score_within_bounds() -> None:
    numa_request = request_of(ContainerRequest("main", ()))
    for scope in TopologyManagerScope:
        for score in ZoneScore:
            scores = zone_scores(columns(report(FOUR, scope=scope)), numa_request, ZoneRules(score=score))
            assert ((scores >= 0) & (scores <= 100)).all()


def test_a_pod_that_needs_more_zones_than_the_node_aligns_scores_zero() -> None:
    zones = tuple(Zone(number, FOUR) for number in range(4))
    node = NodeZones("n", zones, Alignment(TopologyManagerPolicy.NONE, zones_max=2))
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    assert zone_scores(columns(node), request_of(container(cpu=16, memory=1)), rules).tolist() == [0]


def test_the_smallest_and_then_the_closest_zone_set_scores_highest() -> None:
    far = {0: 10, 1: 30, 2: 20}, {0: 30, 1: 10, 2: 12}, {0: 20, 1: 12, 2: 10}

    def near_to(*free: int) -> NodeZones:
        zones = [Zone(i, amounts(cpu=4, memory=4, gpu=int(i in free)), distances=far[i]) for i in range(3)]
        return NodeZones("".join(map(str, free)), tuple(zones), Alignment(TopologyManagerPolicy.BEST_EFFORT))

    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    zones_of_nodes = columns(near_to(0, 1), near_to(1, 2), near_to(0, 1, 2))
    assert zone_scores(zones_of_nodes, request_of(container(cpu=1, memory=1, gpu=2)), rules).tolist() == [
        76,
        82,
        82,
    ]
    assert zone_scores(zones_of_nodes, request_of(container(cpu=1, memory=1, gpu=1)), rules).tolist() == [
        94,
        94,
        94,
    ]


def test_a_container_is_scored_on_what_earlier_containers_left_in_the_zones() -> None:
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    node = NodeZones("n", report(FOUR, FOUR).zones, Alignment(TopologyManagerPolicy.BEST_EFFORT))
    twice = request_of(container("a", cpu=3, memory=1), container("b", cpu=5, memory=1))
    assert zone_scores(columns(node), twice, rules).tolist() == [100 - 2 * 12 + 6]
    assert zone_scores(
        columns(node), request_of(*twice.containers, container("c", cpu=1, memory=1)), rules
    ).tolist() == [0]


def test_hundreds_of_zones_are_scored_without_a_search_of_all_sets() -> None:
    zones = tuple(Zone(number, FOUR) for number in range(200))
    node = NodeZones("n", zones, Alignment(TopologyManagerPolicy.SINGLE_ZONE, zones_max=1024))
    numa_request = request_of(container(cpu=40, memory=1))
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    assert zone_scores(columns(node), numa_request, rules).tolist() == [100]
    assert fits(node, numa_request=numa_request) == [False]
    assert aligned_counts(columns(node), request_of(container(cpu=2, memory=1))).tolist() == [400]


def test_a_device_that_no_zone_lists_belongs_to_the_whole_node() -> None:
    assert fits(report(FOUR), numa_request=request_of(container(cpu=1, memory=1, gpu=1))) == [True]
    with_home = report(FOUR, amounts(cpu=1, memory=4, gpu=1))
    assert fits(with_home, numa_request=request_of(container(cpu=2, memory=1, gpu=1))) == [False]


def test_a_node_with_stale_zones_accepts_no_pod() -> None:
    zones_of_nodes = columns(report(FOUR), stale=("n",))
    numa_request = request_of(container(cpu=1, memory=1))
    assert not aligned(zones_of_nodes, numa_request).good.any()
    assert aligned_counts(zones_of_nodes, numa_request, limit=5).tolist() == [0]
    assert zone_scores(zones_of_nodes, numa_request).tolist() == [0]
    why = why_unaligned(zones_of_nodes, 0, "n", numa_request)
    assert why is not None and message_for(why).startswith("invalid node topology data: node n ")


def test_the_plain_fit_rule_does_not_compare_memory() -> None:
    plain = ZoneRules(fit=FitRule.PLAIN)
    assert fits(report(FOUR), numa_request=request_of(container(cpu=1, memory=64)), rules=plain) == [True]
    assert fits(report(FOUR), numa_request=request_of(container(cpu=64, memory=1)), rules=plain) == [False]
    assert aligned_counts(columns(report(FOUR)), request_of(container(cpu=2, memory=64)), plain).tolist() == [
        2
    ]


# ── messages ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("node", "numa_request", "sentence"),
    [
        (
            report(FOUR, EIGHT),
            request_of(container("a", cpu=6, memory=1), container("b", cpu=6, memory=1)),
            "cannot align container: node n: container b asks for 6 of cpu and 1Gi of memory; "
            "zone 0 has 4 of cpu, zone 1 has 2 of cpu",
        ),
        (
            report(amounts(cpu=8), EIGHT),
            request_of(container(cpu=1, memory=16)),
            "cannot align container: node n: container main asks for 1 of cpu and 16Gi of memory; "
            "zone 0 lists no memory, zone 1 has 8Gi of memory",
        ),
        (
            report(FOUR),
            request_of(container("first", ContainerType.INIT, cpu=5, memory=1), container(cpu=1, memory=1)),
            "cannot align init container: node n: container first asks for 5 of cpu and 1Gi of memory; "
            "zone 0 has 4 of cpu",
        ),
        (
            report(FOUR),
            request_of(container("side", ContainerType.SIDECAR, cpu=5, memory=1), container(cpu=1, memory=1)),
            "cannot align sidecar container: node n: container side asks for 5 of cpu and 1Gi of memory; "
            "zone 0 has 4 of cpu",
        ),
        (
            report(FOUR, scope=TopologyManagerScope.POD),
            request_of(container("a", cpu=3, memory=1), container("b", cpu=3, memory=1)),
            "cannot align pod: node n: the pod asks for 6 of cpu and 2Gi of memory; zone 0 has 4 of cpu",
        ),
        (
            report(FOUR),
            request_of(ContainerRequest("main", (("vendor.com/nic", 1),)), service=QosClass.BURSTABLE),
            "cannot align container: node n: container main asks for 1 of vendor.com/nic; "
            "the node has no vendor.com/nic",
        ),
        (
            report(),
            request_of(container(cpu=1, memory=1)),
            "cannot align container: node n: container main asks for 1 of cpu and 1Gi of memory; "
            "the node reports no zone",
        ),
    ],
)
def test_a_message_names_container_resource_and_zone(
    node: NodeZones, numa_request: object, sentence: str
) -> None:
    why = why_unaligned(columns(node), 0, "n", numa_request)  # type: ignore[arg-type]
    assert why is not None and message_for(why) == sentence


# ── copies ─────────────────────────────────────────────────────────────────────────────────────────


def test_copies_are_counted_by_zone_and_not_by_node() -> None:
    node = report(amounts(cpu=7, memory=64), amounts(cpu=7, memory=64))
    assert aligned_counts(columns(node), request_of(container(cpu=4, memory=1))).tolist() == [
        2
    ]  # and not 14 // 4


def test_copies_per_node_sum_to_the_capacity_of_each_rack() -> None:
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
    zones_of_nodes = zone_columns(list(tree.nodes), {one.node: one for one in reports})
    counts = aligned_counts(zones_of_nodes, request_of(container(cpu=8, memory=8, gpu=8)), limit=2)
    assert counts.tolist() == [0, 1, 1, 1]
    assert np.add.reduceat(counts, tree.starts[0]).tolist() == [1, 2]  # only the second rack fits two
    racks = build(Topology("t", ("rack",)), nodes)
    assert per_leaf(racks, counts).tolist() == [1, 2]


def test_earlier_pods_of_a_gang_are_subtracted_from_the_zones_they_would_get() -> None:
    zones_of_nodes = columns(report(FOUR, FOUR))
    after = with_copies(
        zones_of_nodes, np.asarray([0]), np.asarray([1]), request_of(container(cpu=3, memory=1))
    )
    assert after.available[zones_of_nodes.resources["cpu"], :, 0].tolist() == [1000, 4000]
    assert zones_of_nodes.available[zones_of_nodes.resources["cpu"], :, 0].tolist() == [4000, 4000]
    assert aligned_counts(after, request_of(container(cpu=3, memory=1))).tolist() == [1]


def test_nodes_outside_the_mask_count_as_zero() -> None:
    zones_of_nodes = columns(report(FOUR, name="a"), report(FOUR, name="b"))
    counts = aligned_counts(
        zones_of_nodes, request_of(container(cpu=1, memory=1)), nodes=np.asarray([False, True])
    )
    assert counts.tolist() == [0, 4]
