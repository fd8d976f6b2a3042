"""Alignment and scores over the zones of all nodes at once equal a plain Python oracle, node by node."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.kube.encode.numa_messages import message_for, sentence
from bayplan.model.numa import AlignmentTarget, FitRule, NumaRequest, QosClass, ZoneRules, ZoneScore
from bayplan.placement.numa import smallest_set
from bayplan.placement.numa.alignment import aligned, assumed_zones, why_unaligned
from bayplan.placement.numa.capacity import aligned_counts, with_copies
from bayplan.placement.numa.columns import changed, subtracted_everywhere, zone_columns
from bayplan.placement.numa.score import zone_scores
from tests.properties import numa_oracle as oracle
from tests.properties.numa_worlds import numa_request, report, world

SEEDS = st.integers(0, 2**32)
LIMIT = 12


@given(SEEDS, st.booleans())
def test_the_filter_is_first_fit_in_the_order_of_zone_numbers(seed: int, stay: bool) -> None:
    cluster, request = world(seed), numa_request(seed)
    rules = ZoneRules(sidecars_stay=stay)
    good = aligned(cluster.columns, request, rules).good
    for row, node in enumerate(cluster.nodes):
        report_of_node = cluster.reports.get(node.name)
        expected = True
        if report_of_node is None or not oracle.relevant(request, report_of_node):
            chosen: list[int] | None = []
        else:
            chosen = oracle.first_fit(
                oracle.free_of(report_of_node), request, report_of_node, node, sidecars_stay=stay
            )
            expected = chosen is not None
        if node.name in cluster.stale and (
            request.qos is not QosClass.BEST_EFFORT or _requests_devices(request)
        ):
            expected = False
        assert good[row] == expected, node.name
        why = why_unaligned(cluster.columns, row, node.name, request, rules)
        assert (why is None) is expected
        if why is not None:
            assert message_for(why).startswith(sentence(why.cause))
            assert (
                why.cause is AlignmentTarget.STALE
                or why.missing
                or len(why.shortages) <= len(report_of_node.zones if report_of_node else ())
            )


def _requests_devices(request: object) -> bool:
    return any("/" in name for one in request.containers for name, _ in one.requests)  # type: ignore[attr-defined]


@given(SEEDS)
def test_a_node_that_passes_the_filter_has_some_valid_assignment(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)
    good = aligned(cluster.columns, request).good
    for row, node in enumerate(cluster.nodes):
        report_of_node = cluster.reports.get(node.name)
        if good[row] and report_of_node is not None and oracle.relevant(request, report_of_node):
            assert oracle.any_assignment(request, report_of_node, node)


@given(SEEDS, st.booleans())
def test_copies_are_counted_as_if_assigned_one_by_one(seed: int, stay: bool) -> None:
    cluster, request = world(seed), numa_request(seed)
    counts = aligned_counts(cluster.columns, request, ZoneRules(sidecars_stay=stay), limit=LIMIT)
    for row, node in enumerate(cluster.nodes):
        report_of_node = cluster.reports.get(node.name)
        if (
            node.name in cluster.stale
            or report_of_node is None
            or not oracle.relevant(request, report_of_node)
        ):
            continue
        expected = oracle.copies(request, report_of_node, node, LIMIT, sidecars_stay=stay)
        assert counts[row] == expected, node.name


@given(SEEDS)
def test_exactly_the_counted_copies_can_be_assigned(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)
    columns = cluster.columns
    counts = aligned_counts(columns, request, limit=LIMIT)
    assigned = np.asarray([Random(seed + row).randrange(int(count) + 1) for row, count in enumerate(counts)])
    after = with_copies(columns, np.arange(columns.rows), assigned, request)
    assert (after.available >= np.minimum(columns.available, 0)).all()
    again = aligned_counts(after, request, limit=LIMIT)
    bounded = counts < LIMIT
    assert (again[bounded] == counts[bounded] - assigned[bounded]).all()
    assert (aligned(after, request).good == (again > 0)).all()


@given(SEEDS)
def test_a_count_with_limit_one_equals_the_filter(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)
    for rules in (ZoneRules(), ZoneRules(sidecars_stay=False)):
        counts = aligned_counts(cluster.columns, request, rules, limit=1)
        assert (counts == aligned(cluster.columns, request, rules).good).all()


@given(SEEDS)
def test_assumed_zones_are_those_that_first_fit_chooses(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)
    for row, node in enumerate(cluster.nodes):
        report_of_node = cluster.reports.get(node.name)
        zones = assumed_zones(cluster.columns, row, request)
        if (
            node.name in cluster.stale
            or report_of_node is None
            or not oracle.relevant(request, report_of_node)
        ):
            assert zones == ()
            continue
        chosen = oracle.first_fit(
            oracle.free_of(report_of_node), request, report_of_node, node, sidecars_stay=True
        )
        assert {number for _, number in zones} <= set(chosen or ())


def larger(request: NumaRequest, times: int) -> NumaRequest:
    """A Guaranteed pod with larger requests, so that it may need several zones."""
    containers = tuple(
        replace(one, requests=tuple((name, amount * times) for name, amount in one.requests))
        for one in request.containers
    )
    return replace(request, qos=QosClass.GUARANTEED, containers=containers)


@given(SEEDS, st.sampled_from(list(ZoneScore)))
def test_scores_equal_those_of_the_oracle(seed: int, score: ZoneScore) -> None:
    cluster, request = world(seed), larger(numa_request(seed), Random(seed).choice([1, 1, 2, 3]))
    weights = {"cpu": Random(seed).randrange(-1, 4), "memory": 2}
    rules = ZoneRules(score=score, weights=tuple(weights.items()), sidecars_stay=False)
    scores = zone_scores(cluster.columns, request, rules)
    for row, node in enumerate(cluster.nodes):
        report_of_node = cluster.reports.get(node.name)
        expected = 0
        if report_of_node is not None and node.name not in cluster.stale:
            expected = oracle.score_of(request, report_of_node, score, weights)
        tolerance = 1 if score is ZoneScore.BALANCED else 0  # floats may round to either side of an integer
        assert abs(int(scores[row]) - expected) <= tolerance, node.name
    others = zone_scores(cluster.columns, replace(request, qos=QosClass.BURSTABLE), rules)
    assert (others == 100).all()


@given(SEEDS)
def test_the_approximate_score_for_too_many_zone_sets_is_not_above_the_exact_one(seed: int) -> None:
    cluster, request = world(seed), replace(numa_request(seed), qos=QosClass.GUARANTEED)
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    exact = zone_scores(cluster.columns, request, rules)
    before, smallest_set.SETS_MAX = smallest_set.SETS_MAX, 1
    try:
        approximate = zone_scores(cluster.columns, request, rules)
    finally:
        smallest_set.SETS_MAX = before
    single = [row for row, node in enumerate(cluster.nodes) if len(request.containers) == 1]
    assert ((approximate[single] >= 0) & (approximate[single] <= exact[single])).all()


@given(SEEDS)
def test_an_update_of_one_node_equals_rebuilt_columns(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)
    random = Random(seed)
    row = random.randrange(len(cluster.nodes))
    node = cluster.nodes[row]
    fresh = random.random() < 0.5
    newer = report(random, node.name) if random.random() < 0.8 else None
    reports = {name: one for name, one in cluster.reports.items() if name != node.name}
    if newer is not None:
        reports[node.name] = newer
    stale = [name for name in cluster.stale if name != node.name] + ([] if fresh else [node.name])
    one, other = (
        changed(cluster.columns, row, node, newer, fresh),
        zone_columns(cluster.nodes, reports, stale),
    )
    assert (aligned(one, request).stopped == aligned(other, request).stopped).all()
    assert (aligned_counts(one, request, limit=LIMIT) == aligned_counts(other, request, limit=LIMIT)).all()
    for score in ZoneScore:
        rules = ZoneRules(score=score)
        assert (zone_scores(one, request, rules) == zone_scores(other, request, rules)).all()


@given(SEEDS)
def test_less_capacity_never_makes_a_node_fit_one_container(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)  # for several it may: the first then gets another zone
    request = replace(request, containers=request.containers[-1:])
    rows = np.arange(len(cluster.nodes))
    less = subtracted_everywhere(cluster.columns, rows, {"cpu": 1000, "nvidia.com/gpu": 1})
    assert not (aligned(less, request).good & ~aligned(cluster.columns, request).good).any()


@given(SEEDS)
def test_the_plain_rule_ignores_memory_amounts_and_compares_each_container_alone(seed: int) -> None:
    cluster, request = world(seed), numa_request(seed)
    good = aligned(cluster.columns, request, ZoneRules(fit=FitRule.PLAIN)).good
    for row, node in enumerate(cluster.nodes):
        report_of_node = cluster.reports.get(node.name)
        if (
            node.name in cluster.stale
            or report_of_node is None
            or not oracle.relevant(request, report_of_node)
        ):
            continue
        apps = [dict(one.requests) for one in request.containers if one.type == "app"]
        expected = request.qos is QosClass.BEST_EFFORT or all(
            any(_fits_plainly(requests, zone.available, request.qos) for zone in report_of_node.zones)
            for requests in apps
        )
        assert good[row] == expected, node.name


def _fits_plainly(requests: dict[str, int], available: object, service: QosClass) -> bool:
    amounts: dict[str, int] = dict(available)  # type: ignore[call-overload]
    for name, request in requests.items():
        not_compared = name in ("memory", "hugepages-2Mi") or (
            name == "cpu" and service is not QosClass.GUARANTEED
        )
        if request and (name not in amounts or (not not_compared and amounts[name] < request)):
            return False
    return True
