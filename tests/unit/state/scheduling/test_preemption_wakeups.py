"""Pending gangs are woken by events that make victims preemptible, not only by the periodic retry."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from bayplan.dialects.kai.api.names import POD_GROUP
from bayplan.model.change import (
    BudgetLost,
    BudgetSeen,
    Change,
    FairQueueSeen,
    GangSpecLost,
    PodLost,
    PodSeen,
)
from bayplan.model.gang import DisruptionBudget, Group, PodSet
from bayplan.model.plan import Nominate, Plan
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import EVERYTHING
from bayplan.model.profile import Profile
from bayplan.model.quota import FairQueue
from bayplan.model.rejection import RejectionReason
from bayplan.scheduling.binding.cycle import decide_gangs
from bayplan.state.scheduling.queue import WAKEUP_DELAY, WAKEUPS_PER_SECOND, EntryState
from bayplan.state.scheduling.state import SchedulingState
from tests.support.kai_site import CLASSES, Site
from tests.support.scheduling_scene import (
    NOW,
    board,
    displaced,
    ends,
    gang,
    node,
    nominated,
    place_of,
    pod,
    queue,
    ref,
    refusals,
    runs,
    step,
    waits,
    why,
)

LATER = NOW + WAKEUP_DELAY + 0.01


def tight(*changes: Change) -> SchedulingState:
    """Queue `a` uses three of four on each of two nodes; gang `b` of queue `b` requests two, pending."""
    state = board(
        node("n1"),
        node("n2"),
        *runs("a1", "a", 3),
        *runs("a2", "a", 3, on="n2"),
        *waits("b", "b", 2),
        *changes,
    )
    step(state)
    assert place_of(state, "b") is EntryState.UNSCHEDULABLE
    return state


def comes(state: SchedulingState, *changes: Change) -> None:
    """Other gangs arrive, and those that fit start; the pending gang was not retried for that."""
    state.apply_all(changes)
    ends(state, step(state))
    assert state.next_due(NOW) > NOW


def tried(state: SchedulingState, now: float = LATER) -> Plan:
    """The actions for it, if it is tried at all."""
    assert ref("b") in state.heads(now), "it was not woken"
    return step(state, now)


def is_let_wait(state: SchedulingState) -> bool:
    state.next_due(NOW)
    return ref("b") not in state.heads(LATER)


# ── queues that have too much ──────────────────────────────────────────────────────────────────────


def test_a_queue_that_grows_beyond_its_quota_may_be_taken_from() -> None:
    state = tight(queue("a", 6), queue("b", 2))
    comes(state, *waits("a3", "a"))
    assert set(displaced(tried(state))) <= {"a1-0", "a2-0", "a3-0"}


def test_so_may_one_whose_parent_has_grown_beyond_its_quota() -> None:
    state = tight(queue("top", 6), queue("a", 9, parent="top"), queue("b", 2))
    comes(state, *waits("a3", "a"))
    assert set(displaced(tried(state))) <= {"a1-0", "a2-0", "a3-0"}


def test_a_queue_that_grows_within_its_quota_is_of_no_interest() -> None:
    state = tight(queue("a", 7), queue("b", 2))
    comes(state, *waits("a3", "a"))
    assert is_let_wait(state)


def test_a_gang_with_its_share_or_without_preemption_reclaims_nothing() -> None:
    whole = [queue("a", 8), queue("b"), queue("c"), *waits("more", "a", 8)]
    for state in (
        tight(*whole),
        tight(queue("a", 6), queue("b", 2), queue("c"), gang("b", 1, queue="b", preempts=False)),
    ):
        comes(state, *waits("c", "c"))
        assert state.store.pods[PodKey("ns", "c-0")].node and is_let_wait(state)


def test_if_a_third_wants_something_the_share_of_others_is_less() -> None:
    state = tight(queue("a"), queue("b"), queue("c"))
    comes(state, *waits("c", "c", 8))
    assert list(displaced(tried(state))) in (["a1-0"], ["a2-0"])


def test_if_pods_of_no_queue_take_room_the_share_of_others_is_less() -> None:
    state = tight(queue("a"), queue("b"))
    comes(state, pod("daemon", 0, gang=None, ours=False, on="n1", gpus=1))
    assert list(displaced(tried(state))) in (["a1-0"], ["a2-0"])


def test_if_others_want_less_its_own_share_is_more() -> None:
    wanting = [*waits("c", "c", 8), *waits("d", "d", 8)]
    state = tight(queue("a"), queue("b"), queue("c"), queue("d"), *wanting, pod("b", 0, gpus=3))
    state.apply_all([PodLost(PodKey("ns", "c-0")), PodLost(PodKey("ns", "d-0"))])
    assert list(displaced(tried(state, NOW))) in (["a1-0"], ["a2-0"])


def test_a_gang_that_changes_to_another_queue_counts_there() -> None:
    state = tight(queue("a", 6), queue("b", 2), queue("poor"))
    state.apply(gang("a1", 1, queue="poor"))
    assert list(displaced(tried(state, NOW))) == ["a1-0"]


@pytest.mark.parametrize(
    "changed",
    [queue("a", 5), queue("a", 6, parent="top"), queue("a", 6, limit=5)],
    ids=["quota", "parent", "limit"],
)
def test_a_changed_queue_wakes_gangs_at_once(changed: FairQueueSeen) -> None:
    state = tight(queue("a", 6), queue("b", 2), queue("top", 1))
    state.apply(changed)
    assert displaced(tried(state, NOW))


# ── gangs that may go ──────────────────────────────────────────────────────────────────────────────


def test_a_gang_that_is_less_important_from_now_on_may_go() -> None:
    state = tight(queue("a"), gang("b", 1, queue="a", priority=5), *important("a1", "a2"))
    state.apply(gang("a1", 1, queue="a", priority=9))
    assert is_let_wait(state), "a higher priority makes it no victim"
    state.apply(gang("a1", 1, queue="a", priority=1))
    assert list(displaced(tried(state, NOW))) == ["a1-0"]


def test_a_gang_that_lasts_no_more_may_go() -> None:
    state = tight(
        queue("a", 9),
        gang("b", 1, queue="a", priority=5),
        *important("a1", "a2", non_preemptible=True, priority=1),
    )
    state.apply(gang("a2", 1, queue="a", priority=1))
    assert list(displaced(tried(state, NOW))) == ["a2-0"]


def test_a_gang_that_needs_fewer_pods_may_lose_some() -> None:
    """Its core has a minimum run time before preemption; pods beyond it do not."""
    main = PodSet("main", 3, 3, {"gpu": 2})
    there = [pod("a", n, on=f"n{n % 2 + 1}", gpus=2, started=NOW) for n in range(3)]
    whole = gang("a", 3, queue="a", tree=Group("", (main,), 1))
    rests = queue("a", 4, reclaim_after=1000.0)
    state = board(rests, queue("b", 4), node("n1"), node("n2"), whole, *there, *waits("b", "b", 4))
    step(state)
    assert place_of(state, "b") is EntryState.UNSCHEDULABLE
    state.apply(gang("a", 1, queue="a", tree=Group("", (replace(main, minimum=1),), 1)))
    assert set(displaced(tried(state, NOW))) < {"a-0", "a-1", "a-2"}


def important(*names: str, priority: int = 5, **more: Any) -> Iterable[Change]:
    return (gang(name, 1, queue="a", priority=priority, **more) for name in names)


@pytest.mark.parametrize("changed", [gang("a", 1, priority=1), GangSpecLost(ref("a"))], ids=["lower", "lost"])
def test_it_is_the_same_without_queues(changed: Change) -> None:
    state = board(
        node("n1"), gang("a", 1, priority=5, disrupt_together=True),
        pod("a", 0, on="n1", gpus=4, started=1.0), gang("b", 1, priority=5), pod("b", 0, gpus=4),
    )  # fmt: skip
    step(state)
    assert place_of(state, "b") is EntryState.UNSCHEDULABLE
    state.apply(changed)
    assert list(displaced(tried(state, NOW))) == ["a-0"]


def test_rules_of_gangs_that_do_not_run_are_of_no_interest() -> None:
    state = tight(queue("a", 6), queue("b", 2))
    state.apply(gang("other", 1, queue="a", priority=5))
    state.apply(gang("other", 1, queue="a", priority=1))
    assert is_let_wait(state)


def test_finished_gangs_are_no_victims() -> None:
    state = tight(
        queue("a", 6),
        queue("b", 2),
        gang("done", 1, queue="a"),
        pod("done", 0, on="n1", finished=True, succeeded=True),
    )
    state.apply(GangSpecLost(ref("done")))
    assert is_let_wait(state)


def test_pods_no_longer_protected_by_a_budget_may_move() -> None:
    for change in (BudgetSeen(DisruptionBudget("ns", "all", EVERYTHING, 1)), BudgetLost("ns", "all")):
        state = board(
            queue("a", 4), queue("b", 4), node("n1"), node("n2"), *runs("a1", "a", 2),
            *runs("a2", "a", 2, on="n2"), BudgetSeen(DisruptionBudget("ns", "all", EVERYTHING, 0)),
            *waits("b", "a", 4),
        )  # fmt: skip
        step(state)
        state.apply(BudgetSeen(DisruptionBudget("ns", "all", EVERYTHING, 0)))
        assert is_let_wait(state)
        state.apply(change)
        state.next_due(NOW)
        assert displaced(tried(state)) in ({"a1-0": "n2"}, {"a2-0": "n1"})


def test_a_gang_bound_to_its_nominated_nodes_may_be_preempted_by_higher_priority() -> None:
    state = board(queue("q"), node("n1"), *runs("x", "q", 4), *waits("low", "q", 4, priority=1))
    assert nominated(step(state)) == {"low-0": "n1"}
    state.apply_all(waits("b", "q", 4, priority=2))
    assert why(step(state))["b"] is RejectionReason.NO_CAPACITY, "the room is promised to the other"
    state.apply(PodLost(PodKey("ns", "x-0")))
    state.heads(NOW)
    plan = decide_gangs(
        state.snapshot([ref("b")], NOW), Profile(), NOW
    )  # the other has its turn a moment later
    state.assume(plan, NOW)
    assert why(plan)["b"] is RejectionReason.NO_CAPACITY
    comes(state)
    assert state.store.pods[PodKey("ns", "low-0")].node == "n1"
    assert list(displaced(tried(state))) == ["low-0"]


# ── limits ─────────────────────────────────────────────────────────────────────────────────────────


def test_at_the_limit_of_its_queue_a_gang_waits_for_nodes_if_victims_exist() -> None:
    stranger = pod("stranger", 0, gang=None, ours=False, on="n1", gpus=2, priority=9)
    state = board(
        queue("q", limit=4), node("n1"), stranger, *runs("x", "q", 2), *waits("b", "q", 4, priority=5)
    )
    assert why(step(state)) == {"b": RejectionReason.OVER_LIMIT}
    state.apply(PodLost(PodKey("ns", "stranger-0")))
    assert list(displaced(tried(state, NOW))) == ["x-0"]


def test_at_the_limit_of_its_queue_a_gang_waits_until_victims_have_run_long_enough() -> None:
    rests = queue("q", limit=4, preempt_after=60.0)
    state = board(rests, node("n1", gpus=8), *runs("x", "q", 2), *waits("b", "q", 4, priority=5))
    state.apply(PodSeen(replace(state.store.pods[PodKey("ns", "x-0")], started=NOW - 10)))
    assert why(step(state)) == {"b": RejectionReason.OVER_LIMIT}
    assert list(displaced(tried(state, NOW + 50))) == ["x-0"]


def test_victims_that_have_not_started_yet_do_not_delay_the_retry_for_ever() -> None:
    rests = queue("q", preempt_after=60.0)
    state = board(rests, node("n1"), *runs("x", "q", 4), *waits("b", "q", 4, priority=5))
    state.apply(PodSeen(replace(state.store.pods[PodKey("ns", "x-0")], started=0.0)))
    assert why(step(state)) == {"b": RejectionReason.NO_CAPACITY}
    state.apply(PodSeen(replace(state.store.pods[PodKey("ns", "x-0")], started=NOW + 1)))
    assert not displaced(tried(state, NOW + 60)), "a second is missing"
    assert list(displaced(tried(state, NOW + 61))) == ["x-0"]


def test_a_promise_that_is_taken_back_counts_for_its_queue_no_more() -> None:
    """Its usage counts as long as victims terminate; then it turns out not to fit after all."""
    state = board(queue("rich"), queue("poor", 2, limit=2), node("n1"), *runs("r", "rich", 4))
    state.apply_all(waits("p", "poor", 2))
    assert nominated(step(state)) == {"p-0": "n1"}
    state.apply_all(waits("b", "poor", 2))
    assert why(step(state)) == {"b": RejectionReason.OVER_LIMIT}
    state.assume(Plan((Nominate(ref("p"), state.store.pods[PodKey("ns", "p-0")], ""),)), NOW)
    assert ref("b") in state.heads(NOW)


# ── how often ──────────────────────────────────────────────────────────────────────────────────────


def many(count: int) -> SchedulingState:
    """Many gangs that wait for the same event."""
    waiting = [change for n in range(count) for change in waits(f"b{n:02}", "b", 2)]
    state = tight(queue("a", 6), queue("b", 2 * count + 2), *waiting)
    while state.heads(NOW):
        step(state)
    return state


def test_many_gangs_woken_by_a_frequent_event_are_tried_a_few_per_second() -> None:
    state = many(3 * WAKEUPS_PER_SECOND)
    comes(state, gang("a3", 1, queue="a"), pod("a3", 0, on="n1", gpus=1, started=1.0))
    first = state.heads(NOW + WAKEUP_DELAY)
    assert len(first) == 1
    assert WAKEUPS_PER_SECOND <= len(state.heads(NOW + WAKEUP_DELAY + 1)) <= WAKEUPS_PER_SECOND + 1
    assert len(state.heads(NOW + WAKEUP_DELAY + 4)) == 3 * WAKEUPS_PER_SECOND + 1


def test_a_repeated_event_neither_delays_nor_hurries_a_wakeup() -> None:
    state = many(1)
    for n in range(9):
        comes(state, gang(f"c{n}", 1, queue="a"), pod(f"c{n}", 0, on="n3", gpus=1, started=1.0))
        assert ref("b") not in state.heads(NOW + n / 10)
    assert ref("b") in state.heads(NOW + WAKEUP_DELAY)


def test_a_gang_tried_in_vain_is_woken_by_the_next_event_too() -> None:
    state = tight(queue("a", 6), queue("b", 2), *important("a1", "a2", non_preemptible=True))
    for n in range(3):
        now = NOW + 10 * n
        state.apply_all([gang(f"c{n}", 1, queue="a", non_preemptible=True), pod(f"c{n}", 0, on="n9", gpus=1)])
        assert ref("b") not in state.heads(now)
        assert [refused.gang.name for refused in refusals(tried(state, now + WAKEUP_DELAY))] == ["b"]


def test_a_queue_that_says_nothing_of_a_resource_has_no_quota_of_it() -> None:
    state = tight(queue("a", 6), queue("b", 2), FairQueueSeen(FairQueue("c")))
    comes(state, *waits("c", "c"))
    assert refusals(tried(state))


# ── by the objects of the API ──────────────────────────────────────────────────────────────────────


def site() -> Site:
    """`runs` fills the only node; `waits` has the same priority."""
    state = Site((1,))
    for name in ("theirs", "ours"):
        state.store.create(CLASSES, {"metadata": {"name": name}, "value": 60})
    state.group("runs", minMember=1, priorityClassName="theirs", preemptibility="preemptible")
    state.pod("runs-0", "runs", cpu=2)
    state.run()
    state.group("waits", minMember=1, priorityClassName="ours", preemptibility="preemptible")
    state.pod("waits-0", "waits", cpu=2)
    state.run(5.0)
    assert state.on("runs-0", "waits-0") == ["r0-n0", ""]
    assert not state.get("runs-0")["metadata"].get("deletionTimestamp")
    return state


def test_a_lowered_priority_of_running_pods_wakes_gangs() -> None:
    state = site()
    state.store.delete(CLASSES, "", "theirs")
    state.store.create(CLASSES, {"metadata": {"name": "theirs"}, "value": 10})
    state.run(5.0)
    assert state.get("runs-0")["metadata"].get("deletionTimestamp")


def test_so_is_a_group_of_another_class() -> None:
    state = site()
    state.store.create(CLASSES, {"metadata": {"name": "low"}, "value": 10})
    state.store.patch(POD_GROUP, "default", "runs", {"spec": {"priorityClassName": "low"}})
    state.run(5.0)
    assert state.get("runs-0")["metadata"].get("deletionTimestamp")


def owns(state: Site, name: str, cpu: int) -> None:
    free = {"quota": -1, "limit": -1, "overQuotaWeight": 1}
    resources = {"cpu": {**free, "quota": 1000 * cpu}, "memory": free, "gpu": free}
    state.queue(name, resources=resources)


def starts(state: Site, name: str, of: str, cpu: int, **spec: Any) -> None:
    state.group(name, minMember=1, queue=of, preemptibility="preemptible", **spec)
    state.pod(f"{name}-0", name, cpu=cpu)
    state.run(5.0)


def test_so_is_a_queue_that_has_grown_beyond_its_quota() -> None:
    state = Site((1, 1))
    state.store.create(CLASSES, {"metadata": {"name": "high"}, "value": 75})
    owns(state, "a", 3)
    owns(state, "b", 2)
    starts(state, "a1", "a", 2)
    starts(state, "a2", "a", 1, priorityClassName="high")
    starts(state, "waits", "b", 2)
    assert state.on("waits-0") == [""] and not state.get("a1-0")["metadata"].get("deletionTimestamp")
    starts(state, "a3", "a", 1, priorityClassName="high")
    assert state.on("a3-0") == ["r1-n0"] and state.get("a1-0")["metadata"].get("deletionTimestamp")
