"""Past errors: what would have been forecast when past gangs came, beside when they started."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bayplan.simulation.forecast.calibration import WaitMarks
from bayplan.simulation.forecast.expected_starts import ForecastInput, drawn_starts
from bayplan.simulation.forecast.forward_run import (
    NEVER,
    QueuePicture,
    RunningGang,
    WaitingGang,
)
from bayplan.simulation.forecast.node_room import NO_NODES, NodeCapacity, NodeRoom, NodeShare, merged
from bayplan.simulation.forecast.quota_room import QuotaLimits
from bayplan.simulation.forecast.run_times import RunRequest, RunTimeHistory

DRAWS = 12
SHORTEST_WAIT = 30.0
"""Seconds; a gang that waited less was not forecast: it started when it was looked at."""


@dataclass(frozen=True, slots=True, eq=False)
class PastGang:
    """A gang that has started; one that still runs has no end."""

    waiting: WaitingGang  # as it waited
    request: RunRequest
    created: float
    started: float
    ended: float = NEVER


@dataclass(frozen=True, slots=True, eq=False)
class PastCluster:
    """The cluster that past gangs ran in, taken to be as it is now, without any gang."""

    capacity: NodeCapacity
    limits: QuotaLimits
    strict: frozenset[int] = frozenset()
    keep_after: float = NEVER


def hindcasts(past: Sequence[PastGang], cluster: PastCluster, most: int) -> Iterator[tuple[WaitMarks, float]]:
    """The forecasts for the last gangs that waited, and their waits, in the order in which they started."""
    waited = [one for one in past if one.started - one.created > SHORTEST_WAIT]
    chosen = sorted(sorted(waited, key=lambda one: one.started)[-most:], key=lambda one: one.created)
    ended, learnt = sorted((one for one in past if one.ended < NEVER), key=lambda one: one.ended), 0
    history = RunTimeHistory()
    found: list[tuple[float, WaitMarks, float]] = []
    for gang in chosen:
        while learnt < len(ended) and ended[learnt].ended <= gang.created:
            history.learn(ended[learnt].request, ended[learnt].ended - ended[learnt].started)
            learnt += 1
        marks = _forecast(gang, past, cluster, history)
        found.append((gang.started, marks, gang.started - gang.created))
    for _, marks, wait in sorted(found, key=lambda one: one[0]):
        yield marks, wait


def _forecast(
    gang: PastGang, past: Sequence[PastGang], cluster: PastCluster, history: RunTimeHistory
) -> WaitMarks:
    now = gang.created
    running = sorted((one for one in past if one.started <= now < one.ended), key=lambda one: one.started)
    others = (one for one in past if one.created <= now < one.started and one is not gang)
    waiting = [*sorted(others, key=lambda one: one.created), gang]
    room = NodeRoom(cluster.capacity)
    picture = QueuePicture(
        cluster.capacity,
        cluster.limits,
        tuple(_placed(one, room) for one in running),
        tuple(one.waiting for one in waiting),
        cluster.strict,
        cluster.keep_after,
    )
    started = np.array([one.started for one in running])
    asked = ForecastInput(
        picture, tuple(one.request for one in running), started, tuple(one.request for one in waiting)
    )
    target = len(waiting) - 1
    return drawn_starts(asked, history, now, target, DRAWS).marks[target]


def _placed(gang: PastGang, room: NodeRoom) -> RunningGang:
    """A past gang on the first nodes that hold it: which ones it had is not needed."""
    if not gang.waiting.options:
        return RunningGang(gang.waiting.name)
    option, shares = gang.waiting.options[0], list[NodeShare]()
    for measure, pods in option.asks:
        share = room.find(measure, pods)
        if share is not None:
            room.use(share)
            shares.append(share)
    queue = gang.waiting.queue
    return RunningGang(gang.waiting.name, merged(shares) if shares else NO_NODES, queue, option.quota)
