"""The queue that admission and binding share: order, classes, events, and due times."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.model.gang import Ref
from bayplan.state.admission.queues import AdmissionQueues, QueueEntry, QueueEntryState
from bayplan.state.pending_queue import NEVER, SPARE, Line, PendingQueue, WakeupEvent, backoff
from tests.support.admission_worlds import demand

ROOM, QUOTA = frozenset({WakeupEvent.CAPACITY_FREED}), frozenset({WakeupEvent.QUOTA_FREED})


@dataclass(slots=True)
class Waiting:
    rank: int
    due: float = NEVER
    tries: int = 0
    stamp: int = 0


def queue_of(*entries: Waiting) -> PendingQueue[Waiting]:
    queue = PendingQueue[Waiting]()
    for entry in entries:
        queue.entries[Ref("test", "Gang", "ns", str(entry.rank))] = entry
        queue.move(entry)
    return queue


def test_a_line_is_in_order_of_rank_and_passes_over_entries_that_moved() -> None:
    first, second, third = entries = Waiting(1), Waiting(2), Waiting(3)
    queue, line = queue_of(*entries), Line[Waiting]()
    for entry in (third, first, second):
        queue.add_to(line, entry)
    queue.move(first)
    assert line.first() is second and sorted(entry.rank for entry in line) == [2, 3]
    assert [line.pop(), line.pop(), line.pop()] == [second, third, None]


def test_a_class_is_found_by_the_events_it_waits_for_and_by_no_other() -> None:
    queue = queue_of(room := Waiting(1), quota := Waiting(2))
    queue.wait_for(short := queue.join(room, "room"), ROOM)
    queue.wait_for(poor := queue.join(quota, "quota"), QUOTA)
    assert queue.waiting_for(ROOM) == [short] and queue.waiting_for([WakeupEvent.POD_BOUND]) == []
    assert queue.waiting_for(ROOM | QUOTA) in ([short, poor], [poor, short])
    queue.wait_for(short, QUOTA)
    queue.wait_for(poor, frozenset())
    assert queue.waiting_for(ROOM) == [] and queue.waiting_for(QUOTA) == [short]
    assert queue.forget(short) and not queue.forget(short) and queue.waiting_for(QUOTA) == []


def test_an_entry_expires_at_its_last_due_time() -> None:
    queue = queue_of(early := Waiting(1), late := Waiting(2))
    queue.move(early, 5.0)
    queue.move(late, 6.0)
    queue.postpone(early, 7.0)
    assert queue.next_due() == 6.0 and list(queue.expired(6.5)) == [late]
    assert list(queue.expired(7.0)) == [early] and queue.next_due() == NEVER


def test_backoff_doubles_up_to_its_maximum_however_often_an_attempt_fails() -> None:
    assert [backoff(tries, 30.0) for tries in (1, 2, 3, 6, 5000)] == [1.0, 2.0, 4.0, 30.0, 30.0]


def test_a_gang_that_backs_off_to_the_same_time_again_and_again_leaves_nothing_behind() -> None:
    queues, entry = AdmissionQueues(), QueueEntry(demand("gang"), "q", "shape")
    for _ in range(1000):
        queues.move(entry, QueueEntryState.BACKOFF, 60.0)
    assert len(queues.pending._due) <= SPARE + 2
