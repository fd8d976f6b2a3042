"""Queued gangs as a table, and as JSON records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bayplan.cli.live.gangs import GangFacts, named
from bayplan.cli.live.state import Live
from bayplan.cli.render.expected_start import cell, record
from bayplan.cli.render.tables import age, table
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.model.gang import Ref
from bayplan.model.queued_gang import QueuedGang
from bayplan.simulation.forecast.expected_starts import ExpectedStart

HEADS = (
    "NAMESPACE", "NAME", "QUEUE", "STATE", "POSITION", "AGE", "PODS", "PRIORITY", "EXPECTED START", "REASON",
)  # fmt: skip
WIDE = ("CLUSTERQUEUE", "JOB", "FLAVORS", "WHERE")
RIGHT = ("PODS", "PRIORITY")
Starts = Mapping[Ref, ExpectedStart]


def gang_table(live: Live, gangs: Sequence[GangFacts], starts: Starts, *, wide: bool) -> list[str]:
    """One line for each gang."""
    heads = (*HEADS[:-1], *WIDE, HEADS[-1]) if wide else HEADS
    return table(heads, (_row(live, one, starts, wide=wide) for one in gangs), RIGHT)


def gang_records(live: Live, gangs: Iterable[GangFacts], starts: Starts) -> list[dict[str, Any]]:
    """One JSON record for each gang."""
    return [_record(live, one, starts) for one in gangs]


def _row(live: Live, one: GangFacts, starts: Starts, *, wide: bool) -> list[object]:
    queued_gang, source = one.queued_gang, one.queued_gang.gang.source
    position = f"{one.position.position} of {one.position.of}" if one.position is not None else ""
    row: list[object] = [
        source.namespace, source.name, queued_gang.namespace_queue[1], one.state, position,
        age(live.now - queued_gang.created), one.pods, queued_gang.gang.priority,
        cell(starts.get(source), live.now),
    ]  # fmt: skip
    more = [one.entry.queue, one.owner, ", ".join(flavors(queued_gang)), one.where] if wide else []
    return [*row, *more, one.why]


def _record(live: Live, one: GangFacts, starts: Starts) -> dict[str, Any]:
    queued_gang, source = one.queued_gang, one.queued_gang.gang.source
    victims = one.forecast.victims if one.forecast is not None else ()
    return {
        "kind": "Workload",
        "namespace": source.namespace,
        "name": source.name,
        "queue": queued_gang.namespace_queue[1],
        "clusterQueue": queued_gang.admission.queue if queued_gang.admission is not None else one.entry.queue,
        "job": one.owner,
        "state": one.state,
        "position": one.position.position if one.position is not None else None,
        "queueLength": one.position.of if one.position is not None else None,
        "created": timestamp(queued_gang.created),
        "pods": one.pods,
        "priority": queued_gang.gang.priority,
        "flavors": flavors(queued_gang),
        "where": one.where,
        "reason": one.token,
        "message": one.why,
        "preempts": [named(eviction.gang) for eviction in victims],
        "expectedStart": record(starts.get(source), live.now),
    }


def flavors(queued_gang: QueuedGang) -> list[str]:
    """The flavors that were assigned to a gang."""
    pod_sets = queued_gang.admission.pod_sets if queued_gang.admission is not None else ()
    return sorted({name for pod_set in pod_sets for name in pod_set.flavors.values()})
