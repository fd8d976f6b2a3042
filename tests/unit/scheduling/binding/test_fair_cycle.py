"""Gangs of fair-share queues: their order, rejections because of the queue, and preemption."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from bayplan.model.change import Change, FairQueueLost, PodLost, PodSeen
from bayplan.model.gang import Group, Locality, PodSet
from bayplan.model.pod import PodKey
from bayplan.model.rejection import QuotaExcess, RejectionReason
from bayplan.state.scheduling.queue import EntryState
from bayplan.state.scheduling.state import SchedulingState
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
    pods,
    queue,
    ref,
    refusals,
    runs,
    step,
    waits,
    why,
)


def grown(name: str, least: int, count: int, of: str, **more: Any) -> list[Change]:
    """A gang of one pod set that starts with its minimum and grows."""
    main = PodSet("main", count, least, {"gpu": 1})
    return [gang(name, least, queue=of, tree=Group("", (main,), 1), **more)]


# ── order ──────────────────────────────────────────────────────────────────────────────────────────


def test_queues_take_turns() -> None:
    rich = [change for n in range(4) for change in waits(f"rich-{n}", "rich", priority=9)]
    poor = [change for n in range(2) for change in waits(f"poor-{n}", "poor")]
    plan = step(board(queue("rich"), queue("poor"), node("n1", gpus=4), *rich, *poor))
    assert sorted(binds(plan)) == ["poor-0-0", "poor-1-0", "rich-0-0", "rich-1-0"]


def test_quota_comes_before_priority_of_the_queue() -> None:
    changes = [*waits("a", "owner"), *waits("b", "other")]
    plan = step(board(queue("other", priority=5), queue("owner", 1), node("n1", gpus=1), *changes))
    assert list(binds(plan)) == ["a-0"]


def test_inside_a_queue_the_most_important_comes_first_and_then_the_oldest() -> None:
    some = [
        *waits("new", "q", created=9.0),
        *waits("old", "q", created=3.0),
        *waits("high", "q", priority=1, created=99.0),
    ]
    plan = step(board(queue("q"), node("n1", gpus=2), *some))
    assert sorted(binds(plan)) == ["high-0", "old-0"]


def test_many_gangs_of_one_queue_do_not_keep_other_queues_out_of_the_cycle() -> None:
    rich = [change for n in range(100) for change in waits(f"rich-{n:03}", "rich", priority=9)]
    plan = step(board(queue("rich"), queue("poor"), node("n1", gpus=2), *rich, *waits("poor", "poor")))
    assert "poor-0" in binds(plan)


def test_gangs_without_a_queue_are_decided_on_as_before() -> None:
    changes = [*waits("a", "q"), gang("plain", 1, priority=5), pod("plain", 0, gpus=1)]
    plan = step(board(queue("q", 1), node("n1", gpus=1), *changes))
    assert list(binds(plan)) == ["plain-0"]


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_missing_or_inner_queue_is_the_reason_of_the_rejection() -> None:
    missing = step(board(node("n1"), *waits("a", "nowhere")))
    inner = step(board(queue("top"), queue("leaf", parent="top"), node("n1"), *waits("a", "top")))
    orphan = step(board(queue("leaf", parent="gone"), node("n1"), *waits("a", "leaf")))
    for plan, about in ((missing, "nowhere"), (inner, "top"), (orphan, "gone")):
        assert [refused.rejection.about for refused in refusals(plan)] == [about]
        assert why(plan) == {"a": RejectionReason.NO_QUEUE} and not binds(plan)


def test_no_gang_exceeds_the_limit_of_its_queue_or_of_an_ancestor() -> None:
    changes = [queue("top", limit=3), queue("q", parent="top"), node("n1", gpus=8), *runs("a", "q", 2)]
    plan = step(board(*changes, *waits("b", "q", 2)))
    assert refusals(plan)[0].rejection.excess == QuotaExcess("top", "gpu", Fraction(3), 2, 2)
    assert why(plan) == {"b": RejectionReason.OVER_LIMIT} and not binds(plan)
    assert binds(step(board(*changes, *waits("b", "q", 1)))) == {"b-0": "n1"}


def test_non_preemptible_gangs_stay_within_the_quota() -> None:
    changes = [queue("q", 2), node("n1", gpus=8), *runs("a", "q", 2)]
    plan = step(board(*changes, *waits("b", "q", 2, non_preemptible=True)))
    assert binds(plan) == {"b-0": "n1"}, "what does not last does not count"
    plan = step(board(*changes, *waits("b", "q", 3, non_preemptible=True)))
    assert why(plan) == {"b": RejectionReason.OVER_QUOTA} and not binds(plan)


def woken(found: SchedulingState, *changes: Change) -> bool:
    assert place_of(found, "b") is EntryState.UNSCHEDULABLE
    found.apply_all(changes)
    return place_of(found, "b") is EntryState.READY


def test_a_gang_rejected_for_its_queue_is_tried_again_when_usage_drops_or_the_queue_changes() -> None:
    for change, helps in (
        (PodLost(PodKey("ns", "a-0")), True),
        (queue("q", limit=9), True),
        (FairQueueLost("q"), True),
        (node("n9"), False),
    ):
        found = board(queue("q", limit=2), node("n1", gpus=8), *runs("a", "q", 2), *waits("b", "q", 2))
        step(found)
        assert woken(found, change) is helps


# ── growing ────────────────────────────────────────────────────────────────────────────────────────


def test_gangs_grow_one_by_one_after_all_minima() -> None:
    changes = [*grown("a", 1, 4, "q"), *grown("b", 1, 4, "q"), *pods("a", 4, gpus=1), *pods("b", 4, gpus=1)]
    plan = step(board(queue("q"), node("n1", gpus=4), *changes))
    assert sorted(binds(plan)) == ["a-0", "a-1", "b-0", "b-1"]
    assert why(plan) == {"a": RejectionReason.NO_CAPACITY, "b": RejectionReason.NO_CAPACITY}


def test_a_gang_grows_up_to_the_limit_of_its_queue() -> None:
    plan = step(board(queue("q", limit=3), node("n1", gpus=8), *grown("a", 1, 5, "q"), *pods("a", 5, gpus=1)))
    assert len(binds(plan)) == 3
    assert why(plan) == {"a": RejectionReason.OVER_LIMIT}


# ── preemption ─────────────────────────────────────────────────────────────────────────────────────


def test_a_queue_below_quota_reclaims_from_one_above_whatever_the_priority() -> None:
    rich = [*runs("r0", "rich", created=1.0), *runs("r1", "rich", created=2.0, priority=100)]
    plan = step(board(queue("rich", 1), queue("poor", 1), node("n1", gpus=2), *rich, *waits("p", "poor")))
    assert displaced(plan) == {"r0-0": ""}, "the least important goes"
    assert nominated(plan) == {"p-0": "n1"} and why(plan) == {"p": RejectionReason.PREEMPTING}


def test_no_queue_reclaims_from_one_within_its_share_or_beyond_its_own() -> None:
    fair: list[Change] = [queue("a", 1), queue("b", 1), node("n1", gpus=2)]
    held: list[Change] = [*runs("a0", "a"), *runs("b0", "b")]
    assert not displaced(step(board(*fair, *held, *waits("b1", "b"))))
    uneven: list[Change] = [
        queue("a", 2),
        queue("b", 0),
        node("n1", gpus=2),
        *runs("a0", "a"),
        *runs("a1", "a"),
    ]
    assert not displaced(step(board(*uneven, *waits("b1", "b", priority=9))))


def test_non_preemptible_gangs_are_not_reclaimed() -> None:
    changes: list[Change] = [queue("rich", 2), queue("poor", 1), node("n1", gpus=2)]
    plan = step(board(*changes, *runs("r", "rich", 2, non_preemptible=True), *waits("p", "poor")))
    assert not displaced(plan) and why(plan) == {"p": RejectionReason.NO_CAPACITY}


def test_pods_beyond_the_minimum_are_preempted_first_and_below_it_all_are() -> None:
    rich = [*grown("r", 2, 4, "rich"), *(pod("r", n, on="n1", gpus=1, started=1.0) for n in range(4))]
    changes = [queue("rich", 0), queue("poor", 4), node("n1", gpus=4), *rich]
    assert displaced(step(board(*changes, *waits("p", "poor", 2)))) == {"r-2": "", "r-3": ""}
    assert len(displaced(step(board(*changes, *waits("p", "poor", 3))))) == 4


def test_in_the_same_queue_lower_priority_is_preempted_and_equal_is_not() -> None:
    changes = [
        queue("q", 2),
        node("n1", gpus=2),
        *runs("low", "q", priority=1),
        *runs("high", "q", priority=5),
    ]
    assert displaced(step(board(*changes, *waits("b", "q", priority=3)))) == {"low-0": ""}
    assert not displaced(step(board(*changes, *waits("b", "q", priority=1))))


def test_nominated_pods_of_a_queue_at_its_limit_do_not_block_themselves() -> None:
    changes = [queue("q", 2, limit=2), node("n1", gpus=8), *runs("low", "q", 2)]
    rules, comes = waits("b", "q", priority=3)
    assert isinstance(comes, PodSeen)
    promised = replace(comes.pod, spec=replace(comes.pod.spec, nominated="n1"))
    found = board(*changes, rules, PodSeen(promised))
    assert displaced(step(found)) == {"low-0": ""}


def test_at_the_limit_of_the_queue_its_lower_priority_gangs_are_still_preempted() -> None:
    changes = [queue("q", 2, limit=2), node("n1", gpus=8), *runs("low", "q", 2)]
    assert displaced(step(board(*changes, *waits("b", "q", priority=3)))) == {"low-0": ""}


def test_a_gang_is_protected_for_its_minimum_runtime() -> None:
    for after, goes in ((NOW, False), (NOW - 2.0, True)):
        changes = [queue("q", 2, preempt_after=after), node("n1", gpus=2), *runs("low", "q", 2)]
        assert bool(displaced(step(board(*changes, *waits("b", "q", priority=3))))) is goes


def test_pods_move_only_if_each_has_a_new_node() -> None:
    two: list[Change] = [queue("q"), node("n1", gpus=4), node("n2", gpus=4)]
    held = [*runs("a", "q", 2, on="n1"), *runs("b", "q", 2, on="n2")]
    plan = step(board(*two, *held, *waits("c", "q", 4)))
    assert displaced(plan) in ({"a-0": "n2"}, {"b-0": "n1"}) and len(nominated(plan)) == 1
    assert not displaced(step(board(*two, *held, *runs("d", "q", 1, on="n2"), *waits("c", "q", 4))))


def test_a_gang_bound_to_a_rack_moves_for_one_without_a_topology() -> None:
    main = PodSet("main", 1, 1, {"gpu": 2}, Locality(required="rack"))
    held = gang("a", 1, queue="q", tree=Group("", (main,), 1), topology="dc", strict=True)
    changes: list[Change] = [queue("q", 8), node("n1"), node("n2"), held, pod("a", 0, on="n1", started=1.0)]
    plan = step(board(*changes, *runs("b", "q", 2, on="n2", non_preemptible=True), *waits("c", "q", 4)))
    assert displaced(plan) == {"a-0": "n2"} and nominated(plan) == {"c-0": "n1"}


def test_no_pod_is_preempted_if_that_does_not_help() -> None:
    changes = [queue("rich"), queue("poor", 9), node("n1", gpus=2), *runs("r", "rich", 2)]
    assert not displaced(step(board(*changes, *waits("p", "poor", 3))))


# ── over several cycles ────────────────────────────────────────────────────────────────────────────


def test_reclaimed_capacity_goes_to_the_gang_it_was_reclaimed_for() -> None:
    rich = [*runs("r0", "rich", created=1.0), *runs("r1", "rich", created=2.0)]
    found = board(queue("rich", 1), queue("poor", 1), node("n1", gpus=2), *rich, *waits("p", "poor"))
    plan = step(found)
    assert displaced(plan) == {"r1-0": ""} and place_of(found, "p") is EntryState.PREEMPTING
    found.apply(PodLost(PodKey("ns", "r1-0")))
    found.apply(pod("r1", 0, gpus=1, uid="another"))
    found.apply_all(waits("r2", "rich"))
    again = step(found, NOW + 2.0)
    assert binds(again) == {"p-0": "n1"} and not displaced(again)
    assert why(again) == {"r1": RejectionReason.NO_CAPACITY, "r2": RejectionReason.NO_CAPACITY}


def test_nominated_pods_count_as_usage_of_their_queue() -> None:
    changes = [queue("rich"), queue("poor", 1, limit=1), node("n1", gpus=2), *runs("r", "rich", 2)]
    found = board(*changes, *waits("p", "poor"))
    assert nominated(step(found)) == {"p-0": "n1"}
    found.apply_all(waits("p2", "poor"))
    assert why(step(found, NOW + 0.5)) == {"p2": RejectionReason.OVER_LIMIT}


def test_nodes_are_only_reserved_for_a_gang_within_its_share() -> None:
    held = [*runs("a", "rich", 3, on="n1"), *runs("b", "rich", 3, on="n2")]
    for quota, kept in ((4, True), (0, False)):
        found = board(queue("rich", 6), queue("q", quota), node("n1"), node("n2"), *held, *waits("w", "q", 4))
        told = refusals(step(found, NOW + 1000.0))
        assert [bool(refused.reserved_nodes) for refused in told] == [kept]


def test_no_nodes_are_reserved_for_a_gang_that_uses_up_the_quota_itself() -> None:
    """Its own pods run as long as it does: until then, others would be kept out in vain."""
    kind: dict[str, Any] = {"queue": "q", "non_preemptible": True}
    held: list[Change] = [
        gang("g", 1, **kind),
        *pods("g", 2, on="n1", gpus=1, started=1.0),
        pod("g", 2, gpus=1),
    ]
    for quota, kept in ((2, False), (3, True)):
        other: list[Change] = runs("o", "q", quota - 2, non_preemptible=True) if quota > 2 else []
        told = refusals(step(board(queue("q", quota), node("n1"), *held, *other), NOW + 1000.0))
        reasons = [refused.rejection.reason for refused in told]
        assert reasons == [RejectionReason.OVER_QUOTA]
        assert [bool(refused.reserved_nodes) for refused in told] == [kept]


@pytest.mark.parametrize("fair", [True, False])
def test_a_nominated_gang_keeps_waiting_though_other_nodes_are_reserved(fair: bool) -> None:
    of = {"rich": "rich", "poor": "poor"} if fair else {"rich": "", "poor": ""}
    queues: list[Change] = [queue("rich"), queue("poor", 2)] if fair else []
    held = [*runs("a", of["rich"], 2), *runs("b", of["rich"], 2, on="n2")]
    high: dict[str, Any] = {"priority": 5}
    waiting: list[Change] = [gang("p", 1, queue=of["poor"], **high), pod("p", 0, gpus=2, **high)]
    found = board(*queues, node("n1", gpus=2), node("n2", gpus=2), *held, *waiting)
    plan = step(found)
    (goes,), (node_of_its_own,) = displaced(plan), nominated(plan).values()
    ends(found, plan)
    other = "b-0" if goes == "a-0" else "a-0"
    found.apply_all([gang("k", 1, queue=of["poor"], **high), pod("k", 0, gpus=4, **high)])
    step(found)
    told: list[RejectionReason] = []
    for now, gone in ((NOW + 1000.0, other), (NOW + 1001.0, goes)):
        found.apply(PodLost(PodKey("ns", gone)))
        found.gangs.reserved = ref("k"), frozenset({"n1", "n2"})
        plan = step(found, now)
        told += [reason for name, reason in why(plan).items() if name == "p"]
    assert told == [RejectionReason.PREEMPTING] and binds(plan) == {"p-0": node_of_its_own}


def test_a_gang_that_waits_for_the_end_of_a_minimum_runtime_is_tried_then() -> None:
    changes = [queue("q", 2, preempt_after=NOW + 20.0), node("n1", gpus=2), *runs("low", "q", 2)]
    found = board(*changes, *waits("b", "q", priority=3))
    assert not displaced(step(found))
    assert found.next_due(NOW) == NOW + 21.0  # it has been running since 1.0
    assert displaced(step(found, NOW + 21.0)) == {"low-0": ""}


def test_a_gang_that_grows_is_not_preempted_in_the_same_cycle_but_later() -> None:
    runs_now = (pod("r", n, on="n1", gpus=1, started=1.0) for n in range(2))
    rich: list[Change] = [gang("r", 2, queue="rich"), *runs_now]
    changes: list[Change] = [queue("rich"), queue("poor", 2), node("n1", gpus=2), node("n2", gpus=1), *rich]
    found = board(*changes, pod("r", 2, gpus=1), *waits("p", "poor", 2))
    plan = step(found)
    assert binds(plan) == {"r-2": "n2"} and not displaced(plan)
    ends(found, plan)
    assert sorted(displaced(step(found, found.next_due(NOW)))) == ["r-0", "r-1", "r-2"]


def test_a_gang_that_grows_is_not_preempted_for_one_without_a_queue_in_the_same_cycle() -> None:
    changes: list[Change] = [queue("rich", 1), queue("poor", 9), node("n1", gpus=2), node("n2", gpus=1)]
    changes += [gang("low", 2, queue="poor", priority=0, strict=True), pod("low", 2, gpus=1)]
    changes += [pod("low", n, on="n1", gpus=1, started=1.0) for n in range(2)]
    changes += [*waits("high", "rich", gpus=9, priority=100)]  # decides when the first of a queue is tried
    found = board(*changes, gang("without", 1, priority=50), pod("without", 0, gpus=2, priority=50))
    plan = step(found)
    assert binds(plan) == {"low-2": "n2"} and not displaced(plan)
    ends(found, plan)
    assert set(displaced(step(found, found.next_due(NOW)))) == {"low-0", "low-1", "low-2"}
