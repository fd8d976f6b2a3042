"""A pod held against the zones of all nodes at once gets the answer that plain Python gives node by node."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from bayplan.dialects.kube.encode.numa_messages import sentence, told
from bayplan.model.numa import AlignmentTarget, FitRule, NumaRequest, QosClass, ZoneRules, ZoneScore
from bayplan.placement.numa import smallest_set
from bayplan.placement.numa.alignment import aligned, assumed_zones, why_unaligned
from bayplan.placement.numa.capacity import aligned_counts, with_copies
from bayplan.placement.numa.columns import changed, taken_everywhere, zone_columns
from bayplan.placement.numa.score import zone_scores
from tests.properties import numa_oracle as oracle
from tests.properties.numa_worlds import report, wants, world

SEEDS = st.integers(0, 2**32)
MOST = 12


@given(SEEDS, st.booleans())
def test_the_filter_is_first_fit_in_the_order_of_numbers(seed: int, stay: bool) -> None:
    made, asked = world(seed), wants(seed)
    rules = ZoneRules(sidecars_stay=stay)
    good = aligned(made.columns, asked, rules).good
    for row, node in enumerate(made.nodes):
        known = made.reports.get(node.name)
        wanted = True
        if known is None or not oracle.relevant(asked, known):
            chosen: list[int] | None = []
        else:
            chosen = oracle.first_fit(oracle.rooms_of(known), asked, known, node, sidecars_stay=stay)
            wanted = chosen is not None
        if node.name in made.stale and (asked.service is not QosClass.BEST_EFFORT or _devices(asked)):
            wanted = False
        assert good[row] == wanted, node.name
        why = why_unaligned(made.columns, row, node.name, asked, rules)
        assert (why is None) is wanted
        if why is not None:
            assert told(why).startswith(sentence(why.cause))
            assert (
                why.cause is AlignmentTarget.STALE
                or why.missing
                or len(why.shortages) <= len(known.zones if known else ())
            )


def _devices(asked: object) -> bool:
    return any("/" in name for one in asked.containers for name, _ in one.requests)  # type: ignore[attr-defined]


@given(SEEDS)
def test_a_node_that_is_said_to_align_a_pod_can_do_so_in_some_way(seed: int) -> None:
    made, asked = world(seed), wants(seed)
    good = aligned(made.columns, asked).good
    for row, node in enumerate(made.nodes):
        known = made.reports.get(node.name)
        if good[row] and known is not None and oracle.relevant(asked, known):
            assert oracle.any_seating(asked, known, node)


@given(SEEDS, st.booleans())
def test_copies_are_counted_as_if_they_came_one_by_one(seed: int, stay: bool) -> None:
    made, asked = world(seed), wants(seed)
    counts = aligned_counts(made.columns, asked, ZoneRules(sidecars_stay=stay), most=MOST)
    for row, node in enumerate(made.nodes):
        known = made.reports.get(node.name)
        if node.name in made.stale or known is None or not oracle.relevant(asked, known):
            continue
        wanted = oracle.copies(asked, known, node, MOST, sidecars_stay=stay)
        assert counts[row] == wanted, node.name


@given(SEEDS)
def test_what_is_counted_can_be_put_there_and_no_more(seed: int) -> None:
    made, asked = world(seed), wants(seed)
    columns = made.columns
    counts = aligned_counts(columns, asked, most=MOST)
    some = np.asarray([Random(seed + row).randrange(int(count) + 1) for row, count in enumerate(counts)])
    after = with_copies(columns, np.arange(columns.rows), some, asked)
    assert (after.available >= np.minimum(columns.available, 0)).all()
    again = aligned_counts(after, asked, most=MOST)
    bounded = counts < MOST
    assert (again[bounded] == counts[bounded] - some[bounded]).all()
    assert (aligned(after, asked).good == (again > 0)).all()


@given(SEEDS)
def test_a_count_of_one_is_the_filter(seed: int) -> None:
    made, asked = world(seed), wants(seed)
    for rules in (ZoneRules(), ZoneRules(sidecars_stay=False)):
        counts = aligned_counts(made.columns, asked, rules, most=1)
        assert (counts == aligned(made.columns, asked, rules).good).all()


@given(SEEDS)
def test_assumed_zones_are_those_that_first_fit_chooses(seed: int) -> None:
    made, asked = world(seed), wants(seed)
    for row, node in enumerate(made.nodes):
        known = made.reports.get(node.name)
        found = assumed_zones(made.columns, row, asked)
        if node.name in made.stale or known is None or not oracle.relevant(asked, known):
            assert found == ()
            continue
        chosen = oracle.first_fit(oracle.rooms_of(known), asked, known, node, sidecars_stay=True)
        assert {number for _, number in found} <= set(chosen or ())


def larger(asked: NumaRequest, times: int) -> NumaRequest:
    """A guaranteed pod that asks for more of everything, so that it may need several zones."""
    containers = tuple(
        replace(one, requests=tuple((name, amount * times) for name, amount in one.requests))
        for one in asked.containers
    )
    return replace(asked, service=QosClass.GUARANTEED, containers=containers)


@given(SEEDS, st.sampled_from(list(ZoneScore)))
def test_scores_are_what_a_look_at_each_zone_gives(seed: int, score: ZoneScore) -> None:
    made, asked = world(seed), larger(wants(seed), Random(seed).choice([1, 1, 2, 3]))
    weights = {"cpu": Random(seed).randrange(-1, 4), "memory": 2}
    rules = ZoneRules(score=score, weights=tuple(weights.items()), sidecars_stay=False)
    scores = zone_scores(made.columns, asked, rules)
    for row, node in enumerate(made.nodes):
        known = made.reports.get(node.name)
        wanted = 0
        if known is not None and node.name not in made.stale:
            wanted = oracle.worth(asked, known, score, weights)
        near = 1 if score is ZoneScore.BALANCED else 0  # floats may fall on either side of a whole number
        assert abs(int(scores[row]) - wanted) <= near, node.name
    others = zone_scores(made.columns, replace(asked, service=QosClass.BURSTABLE), rules)
    assert (others == 100).all()


@given(SEEDS)
def test_where_too_many_sets_of_zones_are_to_be_tried_the_score_is_no_better_than_it_is(seed: int) -> None:
    made, asked = world(seed), replace(wants(seed), service=QosClass.GUARANTEED)
    rules = ZoneRules(score=ZoneScore.FEWEST_ZONES)
    exact = zone_scores(made.columns, asked, rules)
    before, smallest_set.SETS_MAX = smallest_set.SETS_MAX, 1
    try:
        rough = zone_scores(made.columns, asked, rules)
    finally:
        smallest_set.SETS_MAX = before
    single = [row for row, node in enumerate(made.nodes) if len(asked.containers) == 1]
    assert ((rough[single] >= 0) & (rough[single] <= exact[single])).all()


@given(SEEDS)
def test_one_changed_node_is_as_good_as_new_columns(seed: int) -> None:
    made, asked = world(seed), wants(seed)
    random = Random(seed)
    row = random.randrange(len(made.nodes))
    node = made.nodes[row]
    fresh = random.random() < 0.5
    newer = report(random, node.name) if random.random() < 0.8 else None
    reports = {name: one for name, one in made.reports.items() if name != node.name}
    if newer is not None:
        reports[node.name] = newer
    stale = [name for name in made.stale if name != node.name] + ([] if fresh else [node.name])
    one, other = changed(made.columns, row, node, newer, fresh), zone_columns(made.nodes, reports, stale)
    assert (aligned(one, asked).stopped == aligned(other, asked).stopped).all()
    assert (aligned_counts(one, asked, most=MOST) == aligned_counts(other, asked, most=MOST)).all()
    for score in ZoneScore:
        rules = ZoneRules(score=score)
        assert (zone_scores(one, asked, rules) == zone_scores(other, asked, rules)).all()


@given(SEEDS)
def test_less_room_never_makes_a_node_good_for_one_container(seed: int) -> None:
    made, asked = world(seed), wants(seed)  # for several it may: the first then takes another zone
    asked = replace(asked, containers=asked.containers[-1:])
    rows = np.arange(len(made.nodes))
    less = taken_everywhere(made.columns, rows, {"cpu": 1000, "nvidia.com/gpu": 1})
    assert not (aligned(less, asked).good & ~aligned(made.columns, asked).good).any()


@given(SEEDS)
def test_the_plain_rule_takes_memory_as_given_and_containers_alone(seed: int) -> None:
    made, asked = world(seed), wants(seed)
    good = aligned(made.columns, asked, ZoneRules(fit=FitRule.PLAIN)).good
    for row, node in enumerate(made.nodes):
        known = made.reports.get(node.name)
        if node.name in made.stale or known is None or not oracle.relevant(asked, known):
            continue
        apps = [dict(one.requests) for one in asked.containers if one.role == "app"]
        wanted = asked.service is QosClass.BEST_EFFORT or all(
            any(_plainly(requests, zone.available, asked.service) for zone in known.zones)
            for requests in apps
        )
        assert good[row] == wanted, node.name


def _plainly(requests: dict[str, int], room: object, service: QosClass) -> bool:
    have: dict[str, int] = dict(room)  # type: ignore[call-overload]
    for name, asked in requests.items():
        flows = name in ("memory", "hugepages-2Mi") or (name == "cpu" and service is not QosClass.GUARANTEED)
        if asked and (name not in have or (not flows and have[name] < asked)):
            return False
    return True
