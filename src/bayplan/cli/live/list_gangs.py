"""Gangs as a table, and as records for machines."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from bayplan.cli.live.gangs import GangFacts, named
from bayplan.cli.live.state import Live
from bayplan.cli.render.tables import age, table
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.model.queued_gang import QueuedGang

HEADS = ("NAMESPACE", "NAME", "QUEUE", "STATE", "POSITION", "AGE", "PODS", "PRIORITY", "REASON")
WIDE = ("CLUSTERQUEUE", "JOB", "FLAVORS", "WHERE")
RIGHT = ("PODS", "PRIORITY")


def gang_table(live: Live, found: Sequence[GangFacts], *, wide: bool) -> list[str]:
    """One line for each gang."""
    heads = (*HEADS[:-1], *WIDE, HEADS[-1]) if wide else HEADS
    return table(heads, (_row(live, one, wide=wide) for one in found), RIGHT)


def gang_records(live: Live, found: Iterable[GangFacts]) -> list[dict[str, Any]]:
    """Everything about each gang."""
    return [_record(live, one) for one in found]


def _row(live: Live, one: GangFacts, *, wide: bool) -> list[object]:
    demand, source = one.demand, one.demand.gang.source
    position = f"{one.turn.position} of {one.turn.of}" if one.turn is not None else ""
    row: list[object] = [
        source.namespace, source.name, demand.entrance[1], one.state, position,
        age(live.now - demand.created), one.pods, demand.gang.priority,
    ]  # fmt: skip
    more = [one.standing.queue, one.owner, ", ".join(flavors(demand)), one.where] if wide else []
    return [*row, *more, one.why]


def _record(live: Live, one: GangFacts) -> dict[str, Any]:
    demand, source = one.demand, one.demand.gang.source
    return {
        "kind": "Workload",
        "namespace": source.namespace,
        "name": source.name,
        "queue": demand.entrance[1],
        "clusterQueue": demand.admission.queue if demand.admission is not None else one.standing.queue,
        "job": one.owner,
        "state": one.state,
        "position": one.turn.position if one.turn is not None else None,
        "waiting": one.turn.of if one.turn is not None else None,
        "created": timestamp(demand.created),
        "pods": one.pods,
        "priority": demand.gang.priority,
        "flavors": flavors(demand),
        "where": one.where,
        "reason": one.token,
        "message": one.why,
        "preempts": [named(eviction.gang) for eviction in one.fate.victims] if one.fate is not None else [],
    }


def flavors(demand: QueuedGang) -> list[str]:
    """The flavors that a gang was given."""
    given = demand.admission.given if demand.admission is not None else ()
    return sorted({name for part in given for name in part.flavors.values()})
