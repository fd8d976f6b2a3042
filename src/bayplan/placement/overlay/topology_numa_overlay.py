"""Room in zones while admission decides: pods to come take the zones that nodes would give them.

Of pods that run, a report tells what they take together, and rarely which zone each of them sits in. When
some leave, a zone is taken to gain no more than it must, wherever they sat.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from bayplan.model.numa import NumaRequest, ZoneRules
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.numa.capacity import aligned_counts, with_copies
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.evictions import Seats
from bayplan.placement.numa.fingerprint import Name
from bayplan.placement.numa.resources import is_exclusive, is_indifferent, lasting

EMPTY = "empty"
Key = tuple[int, int]
"""Whose pods: the ids of an assignment and of what each pod asks for, which whoever holds them keeps."""


@dataclass(frozen=True, slots=True)
class PendingPods:
    """Equal pods of one gang on one node: so many that the report does not count yet, and the others."""

    wants: NumaRequest
    coming: int
    running: tuple[Name, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class NumaStock:
    """The zones under one topology, rows as in its tree, and the gangs that have pods there."""

    reported: NumaColumns  # less what pods of no gang take that reports do not count yet
    whole: Callable[[], NumaColumns]  # the same zones with nobody in them
    names: Sequence[str]  # of nodes, by row
    lodgers: Mapping[int, Mapping[Key, PendingPods]]  # by row, in the order in which they came
    seats: Callable[[str], Seats | None]  # by node, the zones of containers, if anybody says
    memory: dict[object, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, eq=False)
class PodMove:
    """Pods that come to rows, or leave them if `times` is negative."""

    times: int
    key: Key
    wants: NumaRequest
    rows: Ints
    pods: Ints


class TopologyNumaOverlay:
    """Zones by topology, with what is tried in one decision."""

    def __init__(self, stocks: Mapping[str, NumaStock], rules: ZoneRules) -> None:
        self.stocks, self.rules = stocks, rules

    def after(self, topology: str, moves: Iterable[PodMove]) -> NumaColumns | None:
        """The zones after these moves; None if no node under the topology tells of any."""
        stock = self.stocks.get(topology)
        if stock is None:
            return None
        moves = [move for move in moves if not is_indifferent(move.wants, self.rules) and len(move.rows)]
        settled = self._settled(stock)
        if not moves:
            return settled
        gone = {move.key for move in moves if move.times < 0}
        rows = np.unique(np.concatenate([move.rows for move in moves]))
        part = self._without(stock, rows, gone) if gone else narrowed(settled, rows)
        for move in moves:
            if move.times > 0:
                at = np.searchsorted(rows, move.rows)
                part = with_copies(part, at, move.pods * move.times, move.wants, self.rules)
        return _joined(settled, rows, part)

    def empty(self, topology: str) -> NumaColumns | None:
        """The zones as they would be without any placed gang."""
        stock = self.stocks.get(topology)
        if stock is None:
            return None
        if EMPTY not in stock.memory:
            rows = _occupied(stock, lambda _: True)
            stock.memory[EMPTY] = _joined(stock.reported, rows, self._without(stock, rows, None))
        found: NumaColumns = stock.memory[EMPTY]
        return found

    def fits(self, columns: NumaColumns, wants: NumaRequest, rows: Ints, pods: Ints) -> bool:
        """Whether so many pods find their zones on each of the rows."""
        if is_indifferent(wants, self.rules) or not len(rows):
            return True
        counts = aligned_counts(narrowed(columns, rows), wants, self.rules, int(pods.max()))
        return bool((counts >= pods).all())

    def _settled(self, stock: NumaStock) -> NumaColumns:
        """With everybody who is still to come. Worked out once for a stock and its rules."""
        if self.rules not in stock.memory:
            rows = _occupied(stock, lambda lodger: lodger.coming > 0)
            stock.memory[self.rules] = _joined(stock.reported, rows, self._without(stock, rows, ()))
        settled: NumaColumns = stock.memory[self.rules]
        return settled

    def _without(self, stock: NumaStock, rows: Ints, gone: Collection[Key] | None) -> NumaColumns:
        """Some rows after these gangs left, or all of them, and with the others that are to come."""
        part = narrowed(stock.reported, rows)
        staying: list[list[PendingPods]] = []
        leaving: dict[int, list[PendingPods]] = {}
        for at, row in enumerate(rows.tolist()):
            staying.append([])
            for key, lodger in stock.lodgers.get(row, {}).items():
                if gone is None or key in gone:
                    leaving.setdefault(at, []).append(lodger)
                else:
                    staying[-1].append(lodger)
        if any(lodger.running for lodgers in leaving.values() for lodger in lodgers):
            _give_back(
                part,
                narrowed(stock.whole(), rows),
                leaving,
                [stock.seats(stock.names[row]) for row in rows.tolist()],
            )
        return _seated(part, staying, self.rules)


def _occupied(stock: NumaStock, counts: Callable[[PendingPods], bool]) -> Ints:
    """The rows of nodes with such lodgers."""
    found = [row for row, lodgers in stock.lodgers.items() if any(map(counts, lodgers.values()))]
    return np.array(sorted(found), dtype=np.int64)


def _joined(columns: NumaColumns, rows: Ints, part: NumaColumns) -> NumaColumns:
    if not len(rows):
        return columns
    available = columns.available.copy()
    available[:, :, rows] = part.available
    return replace(columns, available=available)


def _seated(part: NumaColumns, lodgers: Sequence[Sequence[PendingPods]], rules: ZoneRules) -> NumaColumns:
    """With all that is to come on each row, one after the other; equal pods in the same turn are one step."""
    coming = [
        [one for one in here if one.coming and not is_indifferent(one.wants, rules)] for here in lodgers
    ]
    for turn in range(max(map(len, coming), default=0)):
        alike: dict[NumaRequest, list[tuple[int, int]]] = {}
        for at, here in enumerate(coming):
            if turn < len(here):
                alike.setdefault(here[turn].wants, []).append((at, here[turn].coming))
        for wants, found in alike.items():
            rows, counts = np.array(found, dtype=np.int64).T
            part = with_copies(part, rows, counts, wants, rules)
    return part


def _give_back(
    part: NumaColumns,
    whole: NumaColumns,
    leaving: Mapping[int, Sequence[PendingPods]],
    seats: Sequence[Seats | None],
) -> None:
    """Let zones of the part gain what those who leave had to themselves, as far as that is certain."""
    before = part.available.copy()
    total: dict[str, Ints] = {}
    for at, lodgers in leaving.items():
        for lodger in lodgers:
            for resource, amount, zone in _had(lodger, seats[at], part.resources):
                lost = total.setdefault(resource, np.zeros(part.rows, dtype=np.int64))
                if zone is None:
                    lost[at] += amount
                else:
                    part.available[part.resources[resource], part.numbers[:, at] == zone, at] += amount
    for resource, lost in total.items():
        had, room, top = (
            before[part.resources[resource]],
            part.available[part.resources[resource]],
            whole.room(resource),
        )
        listed = had >= 0
        most = had if top is None else np.maximum(top, had)
        used = np.where(listed, np.maximum(most - room, 0), 0)
        room += np.clip(lost - (used.sum(axis=0) - used), 0, used)  # the rest may lie in other zones
        room[:] = np.where(listed, np.minimum(room, most), had)


def _had(
    lodger: PendingPods, seats: Seats | None, listed: Collection[str]
) -> Iterable[tuple[str, int, int | None]]:
    """What its running pods have to themselves: resource, amount, and the zone if that is known."""
    for pod in lodger.running:
        for container in lasting(lodger.wants):
            zone = None if seats is None else seats.get((*pod, container.name))
            for resource, amount in container.requests:
                if resource in listed and is_exclusive(lodger.wants.service, resource, amount, listed):
                    yield resource, amount, zone
