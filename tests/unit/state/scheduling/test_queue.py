"""The scheduling queue: its order, which events wake which entries, and the cost of idle entries."""

from __future__ import annotations

from typing import Any

from bayplan.model.filter_failure import FilterFailure, FilterReason, PodError
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.model.rejection import (
    FairShareWakeup,
    PreemptionSearchOutcome,
    Rejection,
    RejectionReason,
)
from bayplan.state.pending_queue import NEVER, SPARE, WakeupEvent
from bayplan.state.scheduling.queue import (
    BACKOFF_LIMIT,
    BACKOFF_MAX,
    HEADS_MAX,
    PODS_MAX,
    WAKEUP_DELAY,
    WAKEUPS_PER_SECOND,
    EntryState,
    SchedulingEntry,
    SchedulingQueue,
)
from bayplan.state.scheduling.wakeups import wakeups_for

NOW = 10.0
ROOM = frozenset({WakeupEvent.CAPACITY_FREED})


def ref(name: str) -> Ref:
    return Ref("test", "Gang", "ns", name)


def put(
    queue: SchedulingQueue,
    name: str,
    place: EntryState = EntryState.READY,
    *,
    lone: bool = False,
    **facts: float,
) -> SchedulingEntry:
    entry = queue.put(ref(name), lone=lone)
    for fact, value in facts.items():
        setattr(entry, fact, value)
    queue.move(entry, place)
    return entry


def names(queue: SchedulingQueue) -> list[str]:
    return [head.name for head in queue.heads()]


def park(
    queue: SchedulingQueue,
    *entries: SchedulingEntry,
    key: str = "alike",
    events: frozenset[WakeupEvent] = ROOM,
) -> None:
    for entry in entries:
        queue.mark_unschedulable(entry, key, events, NOW + 300)


def test_entries_are_ordered_by_priority_then_pending_time_then_arrival() -> None:
    queue = SchedulingQueue()
    put(queue, "late", since=5.0)
    put(queue, "early", since=1.0, arrival=2)
    put(queue, "earlier", since=1.0, arrival=1)
    put(queue, "high", priority=3, since=9.0)
    assert names(queue) == ["high", "earlier", "early", "late"] == names(queue)


def test_so_many_are_decided_on_at_once_and_none_is_skipped() -> None:
    queue = SchedulingQueue()
    for at in range(HEADS_MAX + 1):
        put(queue, f"g{at:03}", since=float(at))
    put(queue, "pod", lone=True, since=1000.0)
    assert names(queue) == [f"g{at:03}" for at in range(HEADS_MAX)]
    pods = SchedulingQueue()
    for at in range(PODS_MAX + 5):
        put(pods, f"p{at:03}", lone=True)
    assert len(names(pods)) == PODS_MAX


def test_a_huge_gang_has_its_turn_alone() -> None:
    queue = SchedulingQueue()
    put(queue, "huge", size=1_000_000)
    put(queue, "small", since=1.0)
    assert names(queue) == ["huge"]


def test_backoff_doubles_and_is_longer_for_large_gangs() -> None:
    queue = SchedulingQueue()
    small, large = put(queue, "small", size=100), put(queue, "large", size=100_000)
    delays = []
    for _ in range(8):
        queue.back_off(small, NOW)
        queue.back_off(large, NOW)
        delays.append((small.due - NOW, large.due - NOW))
    assert delays[:3] == [(1.0, 1.0), (2.0, 2.0), (4.0, 4.0)]
    assert delays[-1] == (BACKOFF_MAX + 1, BACKOFF_LIMIT)
    assert queue.next_due(NOW) == small.due and names(queue) == []


def test_only_what_may_help_wakes() -> None:
    queue = SchedulingQueue()
    park(queue, put(queue, "room"), key="one")
    park(queue, put(queue, "volume"), key="two", events=frozenset({WakeupEvent.STORAGE_CHANGED}))
    queue.wake({WakeupEvent.POD_BOUND, WakeupEvent.NODE_CHANGED}, NOW)
    assert names(queue) == []
    queue.wake({WakeupEvent.STORAGE_CHANGED}, NOW)
    assert names(queue) == ["volume"]


def test_the_first_of_a_class_is_tried_and_the_others_follow_if_it_fits() -> None:
    queue = SchedulingQueue()
    entries = [put(queue, f"p{at}", lone=True, arrival=at) for at in range(9)]
    park(queue, *entries)
    queue.wake(ROOM, NOW)
    assert names(queue) == ["p0"]
    queue.mark_binding(entries[0], NOW + 30)
    assert names(queue) == ["p1", "p2"]
    queue.mark_binding(entries[1], NOW + 30)
    assert names(queue) == ["p2", "p3", "p4", "p5", "p6"]
    park(queue, entries[2])
    queue.drop(entries[3].ref)  # its equivalents are tried in its place
    assert names(queue) == ["p2", "p4", "p5", "p6"]


def test_an_entry_woken_and_rejected_wakes_no_other() -> None:
    queue = SchedulingQueue()
    entries = [put(queue, f"p{at}", lone=True, arrival=at) for at in range(3)]
    park(queue, *entries)
    queue.wake(ROOM, NOW)
    park(queue, entries[0])
    assert names(queue) == []
    queue.wake(ROOM, NOW)
    assert names(queue) == ["p0"]


def test_of_a_kind_that_is_due_only_the_first_is_tried() -> None:
    queue = SchedulingQueue()
    entries = [put(queue, f"p{at}", lone=True, arrival=at) for at in range(3)]
    park(queue, *entries)
    for entry in queue.expired(NOW + 300):
        queue.wake_due(entry, NOW + 300, 300.0)
    assert names(queue) == ["p0"]
    assert [entry.due for entry in entries[1:]] == [NOW + 600] * 2


def test_a_large_gang_that_was_just_tried_rests_first() -> None:
    queue = SchedulingQueue()
    entry = put(queue, "large", size=5000)
    entry.not_before = NOW + 5
    park(queue, entry)
    queue.wake(ROOM, NOW + 1)
    assert names(queue) == [] and entry.state is EntryState.BACKOFF and queue.next_due(NOW + 1) == NOW + 5


def test_a_preempting_entry_is_retried_soon_but_not_for_every_pod() -> None:
    queue = SchedulingQueue()
    entry = put(queue, "gang")
    queue.mark_preempting(entry, ROOM, NOW + 60)
    for later in (0.0, 0.5):
        queue.wake(ROOM, NOW + later)
    assert entry.state is EntryState.PREEMPTING and queue.next_due(NOW) == NOW + 1


def test_equivalent_entries_wait_for_the_events_of_the_one_that_was_tried() -> None:
    queue = SchedulingQueue()
    first, second = put(queue, "first", since=1.0, lone=True), put(queue, "second", since=2.0, lone=True)
    park(queue, first, second, events=frozenset({WakeupEvent.NODE_CHANGED}))
    queue.wake([WakeupEvent.NODE_CHANGED], NOW)
    assert names(queue) == ["first"]
    park(queue, first, events=ROOM)  # the node fits now, but is full
    queue.wake([WakeupEvent.CAPACITY_FREED], NOW)
    queue.mark_binding(first, NOW + 30)
    assert names(queue) == ["second"], "it is like the first, whatever that one was told last"


def test_entries_that_are_not_like_the_one_that_was_tried_for_them_are_tried_themselves() -> None:
    """A new pod whose affinity reads another label tells pods apart that were alike."""
    queue = SchedulingQueue()
    first, second = put(queue, "a"), put(queue, "b")
    park(queue, first, second)
    queue.wake(ROOM, NOW)
    assert names(queue) == ["a"]
    queue.mark_unschedulable(first, "another shape", ROOM, NEVER)
    assert names(queue) == ["b"], "what woke the class was not tried for it"


def test_what_moved_leaves_nothing_behind() -> None:
    queue = SchedulingQueue()
    for at in range(50):
        entry = put(queue, "gang")
        park(queue, entry)
        queue.back_off(entry, NOW)
        queue.move(entry, EntryState.RUNNING)
        assert entry.tries == 0, at
    assert queue.next_due(NOW) == NEVER and names(queue) == []
    for _ in range(1000):
        park(queue, entry)
        queue.move(entry, EntryState.READY)
    kinds = sum(len(kind.line) for kind in queue.pending.classes.values())
    assert max(sum(map(len, queue._ready.values())), len(queue.pending._due), kinds) <= SPARE + 2


def test_hints_follow_from_the_reason() -> None:
    def hints(
        *causes: FilterReason, bar: PodError | None = None, lone: bool = True
    ) -> frozenset[WakeupEvent]:
        unfit = FilterFailure(3, {(cause, ""): 1 for cause in causes}, bar)
        return wakeups_for(
            Rejection(RejectionReason.NO_CAPACITY, filter_failure=unfit, pod=PodKey("ns", "p")),
            lone,
        )

    always = {
        WakeupEvent.NODE_CHANGED,
        WakeupEvent.RESERVATION_ENDED,
    }  # it may have been rejected on some of the nodes only
    assert hints(FilterReason.INSUFFICIENT) == always | {WakeupEvent.CAPACITY_FREED}
    assert hints(FilterReason.TAINT, FilterReason.AFFINITY) == always
    assert hints(FilterReason.TAINT, lone=False) == always | {
        WakeupEvent.CAPACITY_FREED,
        WakeupEvent.NUMA_CHANGED,
        WakeupEvent.DEVICES_CHANGED,
    }
    assert hints(FilterReason.DEVICES) == always | {WakeupEvent.CAPACITY_FREED, WakeupEvent.DEVICES_CHANGED}
    assert hints(FilterReason.POD_AFFINITY) == always | {WakeupEvent.CAPACITY_FREED, WakeupEvent.POD_BOUND}
    assert hints(FilterReason.NO_VOLUME) == always | {WakeupEvent.CAPACITY_FREED, WakeupEvent.STORAGE_CHANGED}
    assert hints(bar=PodError.CLAIM_MISSING) == always | {WakeupEvent.STORAGE_CHANGED}
    assert hints() == always | {WakeupEvent.CAPACITY_FREED}  # no node was eligible
    assert WakeupEvent.RESERVATION_ENDED in wakeups_for(Rejection(RejectionReason.RESERVED), lone=True)
    assert wakeups_for(Rejection(RejectionReason.INVALID), lone=True) == frozenset()


def test_what_helps_few_wakes_the_most_important_first_and_so_many_a_second() -> None:
    queue = SchedulingQueue()
    for at in range(2 * WAKEUPS_PER_SECOND):
        park(
            queue,
            put(queue, f"g{at:02}", priority=at),
            key=f"{at}",
            events=frozenset({WakeupEvent.CAPACITY_FREED, WakeupEvent.USAGE_GROWN}),
        )
    queue.wake({WakeupEvent.USAGE_GROWN}, NOW)
    assert names(queue) == []
    assert [entry.ref.name for entry in queue.expired(NOW + WAKEUP_DELAY)] == [
        f"g{2 * WAKEUPS_PER_SECOND - 1:02}"
    ]
    assert len(list(queue.expired(NOW + WAKEUP_DELAY + 1.0))) == WAKEUPS_PER_SECOND


def test_what_happened_is_no_news_until_it_was_tried() -> None:
    queue = SchedulingQueue()
    entry = put(queue, "gang")
    park(queue, entry, events=frozenset({WakeupEvent.VICTIMS_ADDED, WakeupEvent.CAPACITY_FREED}))
    queue.wake({WakeupEvent.VICTIMS_ADDED}, NOW)
    queue.wake({WakeupEvent.VICTIMS_ADDED}, NOW + WAKEUP_DELAY / 2)
    assert entry.due == NOW + WAKEUP_DELAY
    queue.wake({WakeupEvent.CAPACITY_FREED}, NOW + WAKEUP_DELAY / 2)  # an unrelated event
    assert names(queue) == ["gang"]
    park(queue, entry, events=frozenset({WakeupEvent.VICTIMS_ADDED, WakeupEvent.CAPACITY_FREED}))
    queue.wake({WakeupEvent.VICTIMS_ADDED}, NOW + 9)
    assert entry.due == NOW + 9 + WAKEUP_DELAY


def test_a_gang_unschedulable_again_for_the_same_reason_is_woken_again() -> None:
    queue = SchedulingQueue()
    entry = put(queue, "gang")
    for now in (NOW, NOW + 20):
        park(queue, entry, events=frozenset({WakeupEvent.USAGE_GROWN}))
        queue.wake({WakeupEvent.USAGE_GROWN}, now)
        assert entry.due == now + WAKEUP_DELAY
        queue.move(entry, EntryState.READY)  # its own spec changed: it is tried for that


def test_wakeup_events_of_gangs_that_preemption_may_help() -> None:
    def hints(**facts: Any) -> frozenset[WakeupEvent]:
        unfit = FilterFailure(1, {(FilterReason.INSUFFICIENT, ""): 1})
        return wakeups_for(
            Rejection(**{"reason": RejectionReason.NO_CAPACITY, "filter_failure": unfit, **facts}),
            lone=False,
        )

    never = hints(preemption=PreemptionSearchOutcome.NOT_ALLOWED)
    assert not never & {WakeupEvent.SPEC_CHANGED, WakeupEvent.USAGE_GROWN, WakeupEvent.VICTIMS_ADDED}
    assert (
        hints(preemption=PreemptionSearchOutcome.NO_CANDIDATES)
        == hints(preemption=PreemptionSearchOutcome.INSUFFICIENT)
        == never | {WakeupEvent.SPEC_CHANGED}
    )
    queued = frozenset({FairShareWakeup.VICTIMS, FairShareWakeup.EXCESS})
    assert hints(preemption=PreemptionSearchOutcome.INSUFFICIENT, wakeups=queued) == never | {
        WakeupEvent.SPEC_CHANGED,
        WakeupEvent.VICTIMS_ADDED,
        WakeupEvent.USAGE_GROWN,
    }
    full = {"reason": RejectionReason.OVER_LIMIT, "filter_failure": None}
    assert hints(**full) == frozenset()
    assert hints(**full, wakeups=frozenset({FairShareWakeup.VICTIMS})) == {
        WakeupEvent.SPEC_CHANGED,
        WakeupEvent.VICTIMS_ADDED,
    }
    assert {WakeupEvent.CAPACITY_FREED, WakeupEvent.NODE_CHANGED} <= hints(
        **full, wakeups=frozenset({FairShareWakeup.VICTIMS, FairShareWakeup.NODES})
    )
