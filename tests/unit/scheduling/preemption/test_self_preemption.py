"""A partly bound gang preempts its own surplus: which pods, when none, and the final result."""

from __future__ import annotations

from typing import Any

import pytest

from bayplan.model.change import Change, FairQueueSeen, NodeSeen, PodLost, TopologySeen
from bayplan.model.gang import Group, Locality, PodSet, Segment
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.plan import PreemptPod
from bayplan.model.pod import PodKey
from bayplan.state.scheduling.queue import EntryState
from tests.support.kai_site import Site
from tests.support.scheduling_scene import (
    NOW,
    binds,
    board,
    displaced,
    ends,
    gang,
    node,
    nominated,
    place_of,
    pod,
    queue,
    step,
)

OF_NO_QUEUE: tuple[list[Change], dict[str, Any]] = ([], {"strict": True})
OF_A_QUEUE: tuple[list[Change], dict[str, Any]] = ([queue("q", 2)], {"queue": "q"})
everywhere = pytest.mark.parametrize("kind", [OF_NO_QUEUE, OF_A_QUEUE], ids=["no queue", "a queue"])


def segmented(kind: Any, size: int, minimum: int, count: int, **more: Any) -> list[Change]:
    """A gang in segments, each in its own rack."""
    main = PodSet("main", count, minimum, {"gpu": 1}, segments=(Segment(size, "rack"),))
    queues, rules = kind
    return [*queues, gang("g", minimum, tree=Group("", (main,), 1), **rules, **more)]


def stand(*places: str) -> list[Change]:
    """Pods by rank with their nodes; those without a node are pending."""
    return [pod("g", rank, on=on, gpus=1) for rank, on in enumerate(places)]


@everywhere
def test_the_last_surplus_pod_is_preempted(kind: Any) -> None:
    found = board(*segmented(kind, 2, 2, 6), node("n1"), *stand("n1", "", "n1", "n1", "n1", ""))
    plan = step(found)
    assert displaced(plan) == {"g-4": ""} and nominated(plan) == {"g-1": "n1"} and not binds(plan)
    assert not binds(step(found, NOW + 1.0)) and place_of(found, "g") is EntryState.PREEMPTING


@everywhere
def test_no_surplus_pod_is_preempted_in_vain(kind: Any) -> None:
    there = [node("n1", gpus=2), node("n2", "r2", gpus=2)]
    plan = step(board(*segmented(kind, 3, 3, 6), *there, *stand("n1", "", "", "n1", "n2", "n2")))
    assert not plan_moves(plan) and not binds(plan), "two are missing in the first rack, and one could go"


@everywhere
def test_no_pod_is_preempted_for_pods_beyond_the_minimum(kind: Any) -> None:
    plan = step(board(*segmented(kind, 2, 2, 6), node("n1"), *stand("n1", "n1", "", "", "n1", "n1")))
    assert not plan_moves(plan)


@everywhere
def test_as_few_as_possible_are_preempted_even_if_not_the_last_ranks(kind: Any) -> None:
    there = [node("n1", "r1", gpus=2), node("n2", "r2", gpus=2)]
    plan = step(board(*segmented(kind, 2, 2, 6), *there, *stand("", "", "n2", "", "n1", "n1")))
    assert displaced(plan) == {"g-2": ""} and nominated(plan) == {"g-0": "n2", "g-1": "n2"}


@everywhere
def test_racks_of_two_blocks_are_two_even_if_they_have_the_same_name(kind: Any) -> None:
    nested = TopologySeen(Topology("dc", ("block", "rack", HOSTNAME)))
    there = [
        NodeSeen(Node(name, {"block": block, "rack": "r1", HOSTNAME: name}, {"gpu": 2, PODS: 10}))
        for name, block in (("n1", "b1"), ("n2", "b2"))
    ]
    plan = step(board(nested, *segmented(kind, 2, 2, 6), *there, *stand("", "", "n2", "", "n1", "n1")))
    assert displaced(plan) == {"g-2": ""} and nominated(plan) == {"g-0": "n2", "g-1": "n2"}


@everywhere
def test_one_large_pod_is_preempted_rather_than_two_small_ones(kind: Any) -> None:
    queues, rules = kind
    sets = (PodSet("a", 1, 1, {"gpu": 2}, Locality(required="rack")), PodSet("b", 4, 0, {"gpu": 1}))
    group = gang("g", 1, tree=Group("", sets, 2), **rules)
    there = [node("n1", gpus=2), node("n2", "r2", gpus=2), node("n3", "r2", gpus=1)]
    places = (("n2", 2), ("n3", 1), ("n1", 1), ("n1", 1))
    others = [pod("g", at, on=on, gpus=gpus, pod_set="b") for at, (on, gpus) in enumerate(places, 1)]
    plan = step(board(*queues, group, *there, pod("g", 0, pod_set="a"), *others))
    assert displaced(plan) == {"g-1": ""} and nominated(plan) == {"g-0": "n2"}


@everywhere
def test_no_pod_set_falls_below_its_minimum(kind: Any) -> None:
    queues, rules = kind
    sets = (PodSet("a", 3, 2, {"gpu": 1}), PodSet("b", 3, 1, {"gpu": 1}))
    group = gang("g", 3, tree=Group("", sets, 2), **rules)
    few = [pod("g", 0, on="n1", gpus=1, pod_set="a"), pod("g", 1, gpus=1, pod_set="a")]
    more = [pod("g", rank, on="n1", gpus=1, pod_set="b") for rank in (2, 3, 4)]
    assert displaced(step(board(*queues, group, node("n1"), *few, *more))) == {"g-4": ""}
    large = [few[0], pod("g", 1, gpus=3, pod_set="a")]
    assert not plan_moves(step(board(*queues, group, node("n1"), *large, *more)))


@everywhere
def test_a_non_preemptible_gang_still_preempts_its_own_surplus(kind: Any) -> None:
    changes = segmented(kind, 2, 2, 4, non_preemptible=True, preempts=False)
    wide = [queue("q", 9)] if kind is OF_A_QUEUE else []
    plan = step(board(*changes, *wide, node("n1", gpus=3), *stand("n1", "", "n1", "n1")))
    assert displaced(plan) == {"g-3": ""}


def test_at_the_limit_of_its_queue_its_own_surplus_is_preempted_as_well() -> None:
    full: list[FairQueueSeen] = [queue("q", 3, limit=3)]
    changes = segmented((full, {"queue": "q"}), 2, 2, 4)
    plan = step(board(*changes, node("n1", gpus=8), *stand("n1", "", "n1", "n1")))
    assert displaced(plan) == {"g-3": ""} and nominated(plan) == {"g-1": "n1"}


def test_gangs_of_lower_priority_are_preempted_first() -> None:
    other: list[Change] = [gang("low", 1, strict=True, priority=-1), pod("low", 0, on="n1", gpus=1)]
    changes = segmented(OF_NO_QUEUE, 2, 2, 4)
    plan = step(board(*changes, *other, node("n1"), *stand("n1", "", "n1", "n1")))
    assert displaced(plan) == {"low-0": ""}


@everywhere
def test_a_preempted_surplus_pod_does_not_take_its_capacity_again(kind: Any) -> None:
    found = board(*segmented(kind, 2, 2, 6), node("n1"), *stand("n1", "", "n1", "n1", "n1", ""))
    plan = step(found)
    assert displaced(plan) == {"g-4": ""}
    ends(found, plan)
    assert not binds(step(found, NOW + 1.0)), "it has not left yet"
    found.apply(PodLost(PodKey("ns", "g-4")))
    found.apply(pod("g", 4, gpus=1, uid="another"))
    again = step(found, NOW + 2.0)
    assert binds(again) == {"g-1": "n1"} and not plan_moves(again)
    ends(found, again, NOW + 2.0)
    for seconds in (3.0, 70.0, 140.0):
        later = step(found, NOW + seconds)
        assert not plan_moves(later) and not binds(later)


def test_a_pod_preempted_for_its_own_gang_has_that_message() -> None:
    site = Site((1,))
    site.group("g", minMember=1, subGroups=[{"name": "a", "minMember": 1}, {"name": "b", "minMember": 0}])
    for name, part in (("a0", "a"), ("b0", "b"), ("b1", "b")):
        site.pod(name, "g", part)
    site.run(4)
    assert len(site.on("a0", "b0")) == 2
    site.phase("a0", "Failed")
    site.pod("a1", "g", "a", cpu=2)
    site.run(4)
    told = [words for reason, words in site.events("b0") if reason == "Preempted"]
    assert told == ["Preempted: it makes room for the minimum of its own gang"]


def plan_moves(plan: Any) -> list[PreemptPod]:
    return [action for action in plan.actions if isinstance(action, PreemptPod)]
