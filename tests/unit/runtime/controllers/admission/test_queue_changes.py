"""Queues that came and went: what was noted of them is forgotten, or kept for the last ones only."""

from __future__ import annotations

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status.queue_path import DELETED_MAX, QueueChanges


def test_deleted_queues_are_forgotten_but_for_the_last_ones() -> None:
    changes = QueueChanges()
    workloads = {("ns", "w"): {"spec": {"queueName": "again"}}}
    for number in range(2 * DELETED_MAX):
        for kind in (api_kinds.LOCAL_QUEUES, api_kinds.CLUSTER_QUEUES):
            queue = {"metadata": {"namespace": "ns", "name": f"q{number}"}, "spec": {"stopPolicy": "Hold"}}
            changes.concerns(Event(Happened.SEEN, kind, queue), {})
            changes.concerns(Event(Happened.GONE, kind, queue), {})
    assert changes.known == {} and len(changes.gone) == DELETED_MAX
    again = {"metadata": {"namespace": "ns", "name": "again"}, "spec": {}}
    seen, gone = (
        Event(happened, api_kinds.LOCAL_QUEUES, again) for happened in (Happened.SEEN, Happened.GONE)
    )
    assert [list(changes.concerns(event, workloads)) for event in (seen, gone, seen)] == [
        [],
        [("ns", "w")],
        [("ns", "w")],
    ]
