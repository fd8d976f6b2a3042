"""A queue run forward without new arrivals: gangs end, others start in order, until all have started.

It decides as admission and the scheduler do, on counts instead of pods: in order of the queue, and later
gangs may overtake one that does not fit, unless its queue is strict or nodes are kept for it. Preemption is
left out: a gang that may preempt does so now, before the run begins.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from bayplan.simulation.forecast.node_room import NO_NODES, PLENTY, NodeCapacity, NodeRoom, NodeShare, merged
from bayplan.simulation.forecast.quota_room import QuotaLimits, QuotaRoom

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
NEVER = float("inf")
AT_ONCE = -1
NO_QUEUE = -1


@dataclass(frozen=True, slots=True, eq=False)
class StartOption:
    """One way to start a gang: pods by measure, and the quota that they need."""

    asks: tuple[tuple[int, int], ...] = ()  # a measure of the capacity, and pods
    quota: Ints = field(default_factory=lambda: np.zeros(0, np.int64))  # by cell


@dataclass(frozen=True, slots=True, eq=False)
class WaitingGang:
    """A gang that waits; without an option it never starts."""

    name: str
    options: tuple[StartOption, ...]
    queue: int = NO_QUEUE  # a node of the quota tree
    since: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class RunningGang:
    """A gang that runs, and what it will free."""

    name: str
    share: NodeShare = NO_NODES
    queue: int = NO_QUEUE
    quota: Ints = field(default_factory=lambda: np.zeros(0, np.int64))


@dataclass(frozen=True, slots=True, eq=False)
class QueuePicture:
    """A cluster and its queue at one moment. Capacity and quota usage are those without the running gangs."""

    capacity: NodeCapacity
    limits: QuotaLimits
    running: tuple[RunningGang, ...]
    waiting: tuple[WaitingGang, ...]  # in the order in which they are tried
    strict: frozenset[int] = frozenset()  # queues whose first gang may not be overtaken
    keep_after: float = NEVER  # seconds of waiting until nodes are kept for the first gang


@dataclass(frozen=True, slots=True, eq=False)
class ForwardStarts:
    """When each waiting gang starts, and whose end came just before."""

    times: Floats  # by waiting gang; NEVER if it does not start
    after: Ints  # by waiting gang: an index into running and waiting gangs, in that order, or AT_ONCE


class ForwardRun:
    """Runs one picture forward as often as one likes, with other run times each time."""

    def __init__(self, picture: QueuePicture) -> None:
        self.picture = picture
        self.nodes, self.quota = NodeRoom(picture.capacity), QuotaRoom(picture.limits)
        for gang in picture.running:
            self.nodes.use(gang.share)
            if gang.queue != NO_QUEUE:
                self.quota.use(gang.queue, gang.quota)
        self.options = [(at, option) for at, gang in enumerate(picture.waiting) for option in gang.options]
        self.gang_of: Ints = np.array([at for at, _ in self.options], np.int64)
        most = max((len(option.asks) for _, option in self.options), default=0)
        none = len(picture.capacity.measures)  # the measure of which there is plenty
        self.measures: Ints = np.full((len(self.options), most), none, np.int64)
        self.pods: Ints = np.zeros((len(self.options), most), np.int64)
        cells = picture.limits.usage.shape[1]
        self.needs: Ints = np.zeros((len(self.options), cells), np.int64)
        self.queues: Ints = np.zeros(len(self.options), np.int64)
        for row, (at, option) in enumerate(self.options):
            for place, (measure, pods) in enumerate(option.asks):
                self.measures[row, place], self.pods[row, place] = measure, pods
            queue = picture.waiting[at].queue
            if queue != NO_QUEUE:
                self.needs[row], self.queues[row] = option.quota, queue
        self.has_quota = bool(self.needs.any())

    def run(
        self,
        now: float,
        ends: Floats,
        run_times: Floats,
        target: int | None = None,
        resolution: float = 0.0,
    ) -> ForwardStarts:
        """Run it forward; `ends` of running gangs, and how long waiting ones will run (NEVER: unknown).

        With `target`, until that gang has started. Ends within `resolution` seconds count as one moment.
        """
        return _Run(self, now, ends, run_times, resolution).to_the_end(target)


class _Run:
    """One forward run."""

    def __init__(
        self, plan: ForwardRun, now: float, ends: Floats, run_times: Floats, resolution: float
    ) -> None:
        self.plan, self.picture, self.now, self.run_times = plan, plan.picture, now, run_times
        self.resolution = resolution
        self.nodes, self.quota = plan.nodes.copy(), plan.quota.copy()
        count = len(self.picture.waiting)
        self.times: Floats = np.full(count, NEVER)
        self.after: Ints = np.full(count, AT_ONCE, np.int64)
        self.last_end = AT_ONCE
        self.events = [(float(max(end, now)), at) for at, end in enumerate(ends) if end < NEVER]
        heapq.heapify(self.events)
        self.held: dict[int, tuple[NodeShare, Ints, int]] = {}  # what gangs that started here use
        self.ready: Bools = np.ones(len(plan.options), bool)  # options of gangs that may start
        self.strict_lines = self._lines()
        self.kept_for, self.kept, self.keep_due = AT_ONCE, np.zeros(0, np.int64), NEVER

    def to_the_end(self, target: int | None) -> ForwardStarts:
        while True:
            self._start_what_fits()
            done = self.times.max(initial=0.0) < NEVER if target is None else self.times[target] < NEVER
            if done or not self.events:
                break
            moment, _ = self.events[0]
            if self.keep_due <= moment:
                self._keep_nodes(self.keep_due)
            self.now = moment
            ended = []
            while self.events and self.events[0][0] <= moment + self.resolution:
                self.now, gang = heapq.heappop(self.events)
                ended.append(gang)
            self._end(ended)
        return ForwardStarts(self.times, self.after)

    def _end(self, gangs: list[int]) -> None:
        self.last_end = gangs[-1]
        running, shares = self.picture.running, list[NodeShare]()
        freed: dict[int, Ints] = {}  # quota by queue
        for gang in gangs:
            if gang < len(running):
                share, quota, queue = running[gang].share, running[gang].quota, running[gang].queue
            else:
                share, quota, queue = self.held.pop(gang - len(running))
            shares.append(share)
            if queue != NO_QUEUE:
                freed[queue] = freed[queue] + quota if queue in freed else quota
        self.nodes.use(merged(shares), -1)
        for queue, quota in freed.items():
            self.quota.use(queue, quota, -1)

    # ── starts ─────────────────────────────────────────────────────────────────────────────────────

    def _start_what_fits(self) -> None:
        """Start gangs in order. Starts only take capacity: one pass is enough but for strict queues."""
        kept_for = self.kept_for
        if kept_for != AT_ONCE:
            self._start_kept()
        first = 0
        while len(rows := np.flatnonzero(self._fitting(first))):
            first += int(rows[0])
            gang = int(self.plan.gang_of[first])
            started = self._start(gang, first)
            first = 0 if started and self._next_in_line(gang) else first + 1
        self._keep_or_release(kept_for)

    def _fitting(self, first: int = 0, last: int | None = None) -> Bools:
        """Which options of gangs that may start fit now, from one row to another."""
        plan, some = self.plan, slice(first, last)
        fits: Bools = self.ready[some] & (self.nodes.available[plan.measures[some]] >= plan.pods[some]).all(
            axis=1
        )
        if plan.has_quota:
            fits &= (self.quota.left[plan.queues[some]] >= plan.needs[some]).all(axis=1)
        return fits

    def _start(self, gang: int, row: int) -> bool:
        _, option = self.plan.options[row]
        shares: list[NodeShare] = []
        for measure, pods in option.asks:
            share = self.nodes.find(measure, pods)
            if share is None:  # an earlier part of the gang took it
                for taken in shares:
                    self.nodes.use(taken, -1)
                return False
            self.nodes.use(share)
            shares.append(share)
        waiting = self.picture.waiting[gang]
        if waiting.queue != NO_QUEUE:
            self.quota.use(waiting.queue, option.quota)
        self.times[gang], self.after[gang] = self.now, self.last_end
        self.ready[self.plan.gang_of == gang] = False
        if self.run_times[gang] < NEVER:
            self.held[gang] = (merged(shares), option.quota, waiting.queue)
            number = len(self.picture.running) + gang
            heapq.heappush(self.events, (self.now + float(self.run_times[gang]), number))
        return True

    # ── strict queues ──────────────────────────────────────────────────────────────────────────────

    def _lines(self) -> dict[int, list[int]]:
        """The gangs of strict queues, the next one last; only the first may start."""
        lines: dict[int, list[int]] = {}
        for at, gang in enumerate(self.picture.waiting):
            if gang.queue in self.picture.strict:
                lines.setdefault(gang.queue, []).append(at)
        for line in lines.values():
            line.reverse()
            self.ready[np.isin(self.plan.gang_of, line[:-1])] = False
        return lines

    def _next_in_line(self, gang: int) -> bool:
        """The gang behind a started one may start now; returns whether there is one."""
        line = self.strict_lines.get(self.picture.waiting[gang].queue)
        if not line:
            return False
        line.remove(gang)
        if line:
            self.ready[self.plan.gang_of == line[-1]] = True
        return bool(line)

    # ── nodes kept for the first gang ──────────────────────────────────────────────────────────────

    def _keep_or_release(self, kept_for: int) -> None:
        """After a pass: nodes of a gang that started are open again; otherwise keep some for the first gang.

        As in the scheduler, a pass that began with nodes kept for one gang keeps none for another.
        """
        if kept_for != AT_ONCE and self.times[kept_for] < NEVER:
            self.nodes.close(self.kept, False)
            self.kept_for = AT_ONCE
        elif kept_for == AT_ONCE:
            self._keep_nodes(self.now)
        if self.kept_for == AT_ONCE and self.picture.keep_after < NEVER:
            waiting = (self.picture.waiting[at].since for at in np.flatnonzero(self.times == NEVER).tolist())
            due = (since + self.picture.keep_after for since in waiting)
            self.keep_due = min((at for at in due if at > self.now), default=NEVER)

    def _keep_nodes(self, now: float) -> None:
        """Keep nodes for the first gang that has waited for long."""
        self.keep_due = NEVER
        if self.picture.keep_after == NEVER:
            return
        for gang in np.flatnonzero(self.times == NEVER).tolist():
            waiting = self.picture.waiting[gang]
            if waiting.options and now - waiting.since >= self.picture.keep_after:
                rows = self._rows_to_keep(waiting.options[0])
                if len(rows):
                    self.kept_for, self.kept = gang, rows
                    self.nodes.close(rows, True)
                    self.ready[self.plan.gang_of == gang] = False  # it starts by `_start_kept`
                    return

    def _rows_to_keep(self, option: StartOption) -> Ints:
        """As few as possible of the emptiest nodes that hold the gang when all else has ended there."""
        capacity, found = self.picture.capacity, []
        for measure, pods in option.asks:
            asked = capacity.measures[measure]
            request = capacity.requests[asked.shape]
            used = request > 0
            most = (capacity.free[:, used] // request[used]).min(axis=1, initial=PLENTY)
            most = np.where(capacity.allowed[asked.shape], np.maximum(most, 0), 0)
            if asked.level >= 0:
                domains = capacity.domains[asked.level]
                ever, now = (np.bincount(domains, of) for of in (most, self.nodes.counts[asked.shape]))
                if ever.max(initial=0) < pods:
                    return np.zeros(0, np.int64)
                most = np.where(domains == np.argmax(np.where(ever >= pods, now, -1)), most, 0)
            order = np.argsort(-self.nodes.counts[asked.shape], kind="stable")
            order = order[most[order] > 0]
            enough = int(np.searchsorted(np.cumsum(most[order]), pods))
            if enough >= len(order):
                return np.zeros(0, np.int64)
            found.append(order[: enough + 1])
        return np.unique(np.concatenate(found)) if found else np.zeros(0, np.int64)

    def _start_kept(self) -> None:
        """Start the gang that nodes are kept for, if it fits now, on those nodes or on others."""
        gang = self.kept_for
        rows = np.flatnonzero(self.plan.gang_of == gang).tolist()
        self.nodes.close(self.kept, False)
        self.ready[rows] = True
        any(self._fitting(row, row + 1).any() and self._start(gang, row) for row in rows)
        self.ready[rows] = False
        self.nodes.close(self.kept, True)
