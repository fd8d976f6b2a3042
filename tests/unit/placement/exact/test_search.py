"""The exact strategy finds a placement if one exists, proves the best, and reports when it could not."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from bayplan.model.assignment import Code, Misfit
from bayplan.model.gang import Gang, Group, Locality, PodSet, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.node_rules import NodeRules
from bayplan.model.profile import LeaderRules, Profile, Strategy
from bayplan.placement.domains.scope import Located, scope_of
from bayplan.placement.exact import patterns, search
from bayplan.placement.exact.search import place_exactly
from bayplan.placement.gang.place import place
from bayplan.state.cluster.topology_state import TopologyState
from tests.support.exact_oracle import EXACT, Case, best_score, random_case, score
from tests.support.model_objects import gang, node

Found = dict[str, list[tuple[str, int]]]
RACKS = Topology("t", ("rack", HOSTNAME))
SSD = NodeRules(selector=(("disk", "ssd"),))


def rack_node(path: str, labels: dict[str, str] | None = None, **amounts: Any) -> Node:
    """`r1/x1` is host x1 in rack r1."""
    rack, name = path.split("/")
    return node(name, {"rack": rack, **(labels or {})}, **amounts)


def pods(name: str, count: int, locality: Locality | None = None, **requests: int) -> PodSet:
    return PodSet(name, count, count, requests, locality or Locality())


def cluster(nodes: list[Node], topology: Topology = RACKS) -> TopologyState:
    made = TopologyState(topology)
    made.load(nodes)
    return made


def answer(made: TopologyState, asked: Gang, profile: Profile = EXACT) -> tuple[Found, bool]:
    snapshot = made.snapshot()
    found = place_exactly(scope_of(snapshot, profile), asked)
    assert not isinstance(found, Misfit), found
    return {name: named(made, located) for name, located in found[0].items()}, found[1]


def named(made: TopologyState, located: Located) -> list[tuple[str, int]]:
    tree = made.snapshot().tree
    names = [tree.path(tree.lowest, leaf)[-1] for leaf in located.leaves.tolist()]
    return list(zip(names, located.pods.tolist(), strict=True))


def misfit(made: TopologyState, asked: Gang, profile: Profile = EXACT) -> Misfit:
    found = place_exactly(scope_of(made.snapshot(), profile), asked)
    assert isinstance(found, Misfit), found
    return found


def greedy(made: TopologyState, asked: Gang) -> Found | None:
    found = place(made.snapshot(), asked, Profile(unconstrained=Strategy.BEST_FIT))
    shares = {name: [(s.values[-1], s.count) for s in a.shares] for name, a in found.assignments.items()}
    return shares if found.ok else None


def test_two_tight_domains_are_better_than_one_roomy_and_one_tight() -> None:
    racks = cluster([rack_node("a/a1", gpu=19), rack_node("b/b1", gpu=10), rack_node("c/c1", gpu=10)])
    asked = gang(pods("job", 20, gpu=1))
    assert greedy(racks, asked) == {"job": [("a1", 19), ("b1", 1)]}
    assert answer(racks, asked) == ({"job": [("b1", 10), ("c1", 10)]}, True)


def test_fewer_racks_come_before_fewer_hosts() -> None:
    made = cluster(
        [
            *(rack_node(f"a/a{n}", gpu=1) for n in range(1, 5)),
            rack_node("b/b1", gpu=2),
            rack_node("c/c1", gpu=2),
        ]
    )
    assert answer(made, gang(pods("job", 4, gpu=1))) == (
        {"job": [("a1", 1), ("a2", 1), ("a3", 1), ("a4", 1)]},
        True,
    )


def test_a_mixed_gang_is_found_that_greedy_refuses() -> None:
    made = cluster([rack_node("a/a1", gpu=4, cpu=8), rack_node("a/a2", gpu=4, cpu=2)])
    asked = gang(pods("lean", 4, gpu=1, cpu=0), pods("hungry", 4, gpu=1, cpu=2))
    found, proven = answer(made, asked)
    assert (found, proven) == ({"lean": [("a2", 4)], "hungry": [("a1", 4)]}, True)
    assert greedy(made, asked) is None


@pytest.mark.parametrize("pattern_limit", [patterns.PATTERNS_MAX, 0])
@pytest.mark.parametrize("hinted", [True, False])
def test_it_agrees_with_exhaustive_search(
    monkeypatch: pytest.MonkeyPatch, pattern_limit: int, hinted: bool
) -> None:
    """With patterns listed or not, and with a greedy placement to start from or not."""
    monkeypatch.setattr(patterns, "PATTERNS_MAX", pattern_limit)
    if not hinted:
        monkeypatch.setattr(search, "_as_array", lambda ask, found: None)
    decided = 0
    for seed in range(1000 * pattern_limit + 500 * hinted, 1000 * pattern_limit + 500 * hinted + 120):
        case = random_case(seed)
        found = place_exactly(
            scope_of(cluster(list(case.nodes), case.topology).snapshot(), case.profile), case.gang
        )
        if isinstance(found, Misfit):
            assert found.code is Code.SEGMENT_ABOVE_LOCALITY or best_score(case) is None, seed
            continue
        decided += 1
        assert score(case, used_leaves(case, found[0])) == best_score(case), seed
        assert found[1], seed
    assert decided > 50


def used_leaves(case: Case, found: dict[str, Located]) -> tuple[frozenset[int], ...]:
    pod_sets = case.gang.root.pod_sets()
    return tuple(frozenset(found[pod_set.name].leaves.tolist()) for pod_set in pod_sets)


def test_every_answer_stays_within_capacity() -> None:
    for seed in range(60):
        case = random_case(seed)
        found = place_exactly(
            scope_of(cluster(list(case.nodes), case.topology).snapshot(), case.profile), case.gang
        )
        if isinstance(found, Misfit):
            continue
        for name in ("gpu", "cpu", PODS):
            used = np.zeros(len(case.nodes), np.int64)
            for pod_set in case.gang.root.pod_sets():
                each = pod_set.requests.get(name, 0) + (name == PODS)
                np.add.at(used, found[0][pod_set.name].leaves, found[0][pod_set.name].pods * each)
            assert (used <= [node.allocatable[name] for node in case.nodes]).all(), seed


def test_a_gang_that_does_not_fit_gets_a_misfit_with_details() -> None:
    made = cluster([rack_node("a/a1", gpu=2), rack_node("b/b1", gpu=3)])
    found = misfit(made, gang(pods("job", 4, Locality(required="rack"), gpu=1)))
    assert (found.code, found.pod_sets, found.level, found.fit, found.asked) == (
        Code.NO_ROOM, ("job",), "rack", 3, 4,
    )  # fmt: skip
    assert found.nearest is not None and found.nearest.domain == ("b",)


def test_members_that_fit_alone_but_not_together_are_refused() -> None:
    made = cluster([rack_node("a/a1", gpu=4), rack_node("b/b1", gpu=4)])
    rack = Locality(required="rack")
    asked = gang(Group("g", (pods("one", 3, gpu=1), pods("two", 3, gpu=1)), 2, rack))
    assert misfit(made, asked).code is Code.NO_ROOM


def test_a_name_that_the_topology_lacks_is_refused_as_such() -> None:
    made = cluster([rack_node("a/a1", gpu=4)])
    assert misfit(made, gang(pods("job", 1, Locality(required="row")))).code is Code.UNKNOWN_LEVEL
    assert misfit(made, gang(pods("job", 1), locality=Locality(required="row"))).code is Code.UNKNOWN_LEVEL


def test_without_usable_nodes_there_are_no_domains() -> None:
    made = cluster([replace(rack_node("a/a1", gpu=4), ready=False)])
    asked = gang(pods("job", 1), locality=Locality(required="rack"))
    assert misfit(made, asked).code is Code.NO_DOMAINS


def test_out_of_time_the_greedy_placement_is_returned_unproven() -> None:
    racks = cluster([rack_node("a/a1", gpu=19), rack_node("b/b1", gpu=10), rack_node("c/c1", gpu=10)])
    hurried = replace(EXACT, exact_seconds=0.0)
    assert answer(racks, gang(pods("job", 20, gpu=1)), hurried) == ({"job": [("a1", 19), ("b1", 1)]}, False)


def test_out_of_time_without_any_answer_nothing_is_decided() -> None:
    made = cluster([rack_node("a/a1", gpu=4, cpu=8), rack_node("a/a2", gpu=4, cpu=2)])
    asked = gang(pods("lean", 4, gpu=1, cpu=0), pods("hungry", 4, gpu=1, cpu=2))
    found = misfit(made, asked, replace(EXACT, exact_seconds=0.0))
    assert (found.code, found.pod_sets) == (Code.NOT_DECIDED, ("lean", "hungry"))


def test_a_missing_solver_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "highspy", None)
    found = misfit(cluster([rack_node("a/a1", gpu=4)]), gang(pods("job", 1, gpu=1)))
    assert (found.code, found.pod_sets) == (Code.NOT_INSTALLED, ("job",))


def test_two_runs_agree_and_the_order_of_nodes_does_not_matter() -> None:
    nodes = [rack_node(f"r{n % 4}/x{n:02}", gpu=n * 7 % 9, cpu=n * 5 % 17) for n in range(24)]
    asked = gang(pods("a", 7, gpu=2, cpu=1), pods("b", 6, gpu=1, cpu=3), pods("c", 9, gpu=1))
    found = answer(cluster(nodes), asked)
    assert found[1]
    assert answer(cluster(nodes), asked) == found
    assert answer(cluster(nodes[::-1]), asked) == found
    assert answer(cluster(nodes[1::2] + nodes[::2]), asked) == found


def test_a_preference_of_an_earlier_pod_set_comes_first() -> None:
    made = cluster([rack_node("a/a1", gpu=3), rack_node("b/b1", gpu=2), rack_node("b/b2", gpu=2)])
    rack = Locality(preferred="rack")
    found, proven = answer(made, gang(pods("one", 4, rack, gpu=1), pods("two", 3, rack, gpu=1)))
    assert (found, proven) == ({"one": [("b1", 2), ("b2", 2)], "two": [("a1", 3)]}, True)
    found, proven = answer(made, gang(pods("one", 3, rack, gpu=1), pods("two", 3, rack, gpu=1)))
    assert found["one"] == [("a1", 3)] and sum(count for _, count in found["two"]) == 3 and proven


def test_the_last_smaller_segment_is_last_and_its_odd_pods_at_the_very_end() -> None:
    layered = replace(pods("job", 13, gpu=1), segments=(Segment(8, "rack"), Segment(2, HOSTNAME)))
    made = cluster([rack_node("a/a1", gpu=3), rack_node("a/a2", gpu=2), rack_node("b/b1", gpu=8)])
    assert answer(made, gang(layered)) == (
        {"job": [("b1", 8), ("a1", 2), ("a2", 2), ("a1", 1)]},
        True,
    )


def test_a_leader_goes_by_its_own_rules_or_by_those_of_the_workers() -> None:
    made = cluster([rack_node("a/a1", {"disk": "hdd"}, gpu=2), rack_node("a/a2", {"disk": "ssd"}, gpu=2)])
    leader = replace(pods("leader", 1, gpu=1), rules=SSD)
    asked = gang(Group("g", (pods("workers", 3, gpu=1), leader), 2, Locality(required="rack")))
    found, _ = answer(made, asked)
    assert found == {"workers": [("a1", 2), ("a2", 1)], "leader": [("a2", 1)]}
    alike = replace(EXACT, leader_rules=LeaderRules.WORKERS)
    assert sum(count for _, count in answer(made, asked, alike)[0]["leader"]) == 1


def test_only_leaves_in_scope_are_used_and_assumed_usage_is_subtracted() -> None:
    made = cluster([rack_node(f"a/x{n}", gpu=2) for n in range(5)])
    scope = replace(scope_of(made.snapshot(), EXACT), leaf_range=(1, 5), excluded_leaves=frozenset({2}))
    scope = scope.after(Located(np.array([1]), np.array([2])), {"gpu": 1})
    found = place_exactly(scope, gang(pods("job", 4, gpu=1)))
    assert not isinstance(found, Misfit)
    assert found[0]["job"].leaves.tolist() == [3, 4]
    assert isinstance(place_exactly(scope, gang(pods("job", 5, gpu=1))), Misfit)


def test_leaves_of_many_nodes_weigh_rules_against_each_other() -> None:
    nodes = [
        rack_node("a/a1", {"disk": "ssd"}, gpu=4), rack_node("a/a2", {"disk": "hdd"}, gpu=4),
        rack_node("b/b1", {"disk": "ssd"}, gpu=2), rack_node("b/b2", {"disk": "hdd"}, gpu=8),
    ]  # fmt: skip
    made = cluster(nodes, Topology("t", ("rack",)))
    fast = replace(pods("fast", 4, gpu=1), rules=SSD)
    assert answer(made, gang(pods("any", 4, gpu=1), fast)) == ({"any": [("a", 4)], "fast": [("a", 4)]}, True)
    found, _ = answer(made, gang(pods("any", 12, gpu=1), replace(fast, count=6)))
    assert found == {"any": [("a", 4), ("b", 8)], "fast": [("a", 4), ("b", 2)]}
    assert misfit(made, gang(pods("any", 2, gpu=1), replace(fast, count=7))).code is Code.NO_ROOM


def test_amounts_in_bytes_are_compared_exactly() -> None:
    tight = 3 * 10**9 + 2 * (2**30 + 1)
    made = cluster([rack_node("a/a1", memory=tight), rack_node("a/a2", memory=tight - 1)])
    asked = gang(
        pods("one", 3, memory=10**9), pods("two", 2, memory=2**30 + 1), locality=Locality(required=HOSTNAME)
    )
    assert answer(made, asked) == ({"one": [("a1", 3)], "two": [("a1", 2)]}, True)
