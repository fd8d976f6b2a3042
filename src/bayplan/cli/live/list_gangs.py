"""Queued gangs as a table, and as JSON records."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from bayplan.cli.live.gangs import GangFacts, named
from bayplan.cli.live.state import Live
from bayplan.cli.render.expected_start import cell, record
from bayplan.cli.render.tables import TableColumn, age
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.model.gang import Ref
from bayplan.model.queued_gang import QueuedGang
from bayplan.simulation.forecast.expected_starts import ExpectedStart

Cell = Callable[[GangFacts], object]
Starts = Mapping[Ref, ExpectedStart]


def gang_columns(live: Live, user: Cell, starts: Starts) -> tuple[TableColumn[GangFacts], ...]:
    """The columns of the table of queued gangs; `user` tells whose gang it is."""
    return (
        TableColumn("NAMESPACE", lambda one: one.queued_gang.gang.source.namespace),
        TableColumn("NAME", lambda one: one.queued_gang.gang.source.name),
        TableColumn("QUEUE", lambda one: one.queued_gang.namespace_queue[1]),
        TableColumn("STATE", lambda one: one.state),
        TableColumn("POSITION", _position),
        TableColumn("AGE", lambda one: age(live.now - one.queued_gang.created)),
        TableColumn("PODS", lambda one: one.pods, right=True),
        TableColumn("PRIORITY", lambda one: one.queued_gang.gang.priority, right=True),
        TableColumn("USER", user, wide=True),
        TableColumn("CLUSTERQUEUE", lambda one: one.entry.queue, wide=True),
        TableColumn("JOB", lambda one: one.owner, wide=True),
        TableColumn("FLAVORS", lambda one: ", ".join(flavors(one.queued_gang)), wide=True),
        TableColumn("WHERE", lambda one: one.where, wide=True),
        TableColumn("EXPECTED START", lambda one: cell(starts.get(one.queued_gang.gang.source), live.now)),
        TableColumn("REASON", lambda one: one.why),
    )


def gang_records(live: Live, gangs: Iterable[GangFacts], starts: Starts) -> list[dict[str, Any]]:
    """One JSON record for each gang."""
    return [_record(live, one, starts) for one in gangs]


def _position(one: GangFacts) -> str:
    return f"{one.position.position} of {one.position.of}" if one.position is not None else ""


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
