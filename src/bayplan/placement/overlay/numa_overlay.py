"""Room in zones while a decision is made: what is tried on a floor is followed here, and can be undone.

Equal pods that are seated on one node get the zones that the node would give them, in whatever order they
come. Of others nobody knows who comes first: to them each pod takes its share of every zone, unless it is
assumed that pods come in the order in which they were seated.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.numa import NodeZones, NumaRequest
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.numa.alignment import assumed_zones
from bayplan.placement.numa.capacity import aligned_counts, with_copies
from bayplan.placement.numa.columns import NumaColumns, narrowed, taken_everywhere
from bayplan.placement.numa.evictions import Seats, imagined
from bayplan.placement.numa.reports import RunningPod
from bayplan.placement.numa.resources import whole_pod
from bayplan.placement.numa.snapshot import NumaSnapshot, minds

VIEWS_MAX = 4
AT_FIRST, ONE = np.zeros(1, dtype=np.int64), np.ones(1, dtype=np.int64)


class NumaOverlay:
    """What zones hold follows from who was seated on a node and who left it, so that undoing is exact."""

    def __init__(self, ground: NumaSnapshot, nodes: Sequence[str]) -> None:
        self.nodes = nodes
        self.before = ground.columns
        columns = replace(self.before, available=self.before.available.copy(), fresh=self.before.fresh.copy())
        self.ground = replace(ground, columns=columns, beside=self.found_by)
        self.views: dict[NumaRequest, NumaColumns] = {}  # as equals find it, for those who asked last
        self.seated: set[PodKey] = set()  # who came while the decision was made
        self.tenants: dict[int, Counter[NumaRequest]] = {}  # what they ask for, by row
        self.in_order = False  # pods come as they were seated
        self.left: dict[int, dict[PodKey, NumaRequest]] = {}  # who ran there and was made to go
        self.seats: dict[str, Seats | None] = {}  # by node, as far as anybody asked
        self.thought: dict[tuple[int, frozenset[PodKey]], Ints | None] = {}  # rows without some of their pods

    def step(self, shape: PodSignature, keys: Sequence[PodKey], rows: Ints, *, comes: bool) -> None:
        """Pods came to rows, or left them; said the other way round it is undone."""
        wants = minds(self.ground, shape)
        if wants is None:
            return
        for key, row in zip(keys, rows.tolist(), strict=True):
            if row == ABSENT:
                continue
            if comes:
                self._come(key, row, wants)
            else:
                self._leave(key, row, wants)
        self._work_out(np.unique(rows[rows != ABSENT]))

    def meant(
        self, seats: Iterable[tuple[PodKey, PodSignature, int]]
    ) -> dict[PodKey, tuple[tuple[str, int], ...]]:
        """The zones that equal pods on a node get one after the other; of mixed company nobody can tell."""
        found = {}
        rooms: dict[int, NumaColumns] = {}
        for key, shape, row in seats:
            wants = minds(self.ground, shape)
            if wants is None or len(self.tenants.get(row, ())) != 1:
                continue
            if row not in rooms:
                rooms[row] = narrowed(self.before, np.array([row]))
            zones = assumed_zones(rooms[row], 0, wants, self.ground.rules)
            if zones:
                found[key] = zones
                rooms[row] = with_copies(rooms[row], AT_FIRST, ONE, wants, self.ground.rules)
        return found

    def _come(self, key: PodKey, row: int, wants: NumaRequest) -> None:
        gone = self.left.get(row, {})
        if key in gone:
            del gone[key]
            return
        self.seated.add(key)
        self.tenants.setdefault(row, Counter())[wants] += 1

    def _leave(self, key: PodKey, row: int, wants: NumaRequest) -> None:
        if key not in self.seated:
            self.left.setdefault(row, {})[key] = wants
            return
        self.seated.discard(key)
        tenants = self.tenants[row]
        tenants[wants] -= 1
        if not tenants[wants]:
            del tenants[wants]

    def take_in(self, others: NumaOverlay) -> None:
        """Those who were seated elsewhere while the decision was made are here, too."""
        self.seated = set(others.seated)
        self.tenants = {row: Counter(tenants) for row, tenants in others.tenants.items() if tenants}
        self._work_out(np.array(sorted(self.tenants), dtype=np.int64))

    def _work_out(self, rows: Ints) -> None:
        """What these rows hold now, beginning with what they held before anything was tried."""
        if not len(rows):
            return
        part = self._without_those_who_left(narrowed(self.before, rows), rows)
        if self.in_order:
            here: list[Mapping[NumaRequest, int]] = [self.tenants.get(row, {}) for row in rows.tolist()]
            _put(self.ground.columns, rows, self._one_after_the_other(part, here))
            return
        taken: dict[NumaRequest, list[tuple[int, int]]] = {}
        alone: dict[NumaRequest, list[tuple[int, int]]] = {}
        for at, row in enumerate(rows.tolist()):
            tenants: Mapping[NumaRequest, int] = self.tenants.get(row, {})
            for wants, count in tenants.items():
                taken.setdefault(wants, []).append((at, count))
                if len(tenants) == 1:
                    alone.setdefault(wants, []).append((at, count))
        crowded = part
        for wants, found in taken.items():
            at, counts = np.array(found, dtype=np.int64).T
            crowded = _pessimistic(crowded, at, counts, wants)
        _put(self.ground.columns, rows, crowded)
        for wants, view in self.views.items():
            equals = np.array(alone.get(wants, ()), dtype=np.int64).reshape(-1, 2)
            _put(view, rows, crowded)
            if len(equals):
                _put(view, rows[equals[:, 0]], self._with_equals(part, crowded, wants, equals))

    def take_turns(self, in_order: bool) -> None:
        """From now on pods come in the order in which they were seated, or nobody knows."""
        self.in_order = in_order
        self.views.clear()
        self._work_out(np.array(sorted(self.tenants), dtype=np.int64))

    def _one_after_the_other(
        self, part: NumaColumns, by_row: Sequence[Mapping[NumaRequest, int]]
    ) -> NumaColumns:
        tenants = [list(here.items()) for here in by_row]
        for turn in range(max(map(len, tenants))):
            alike: dict[NumaRequest, list[tuple[int, int]]] = {}
            for at, here in enumerate(tenants):
                if turn < len(here):
                    alike.setdefault(here[turn][0], []).append((at, here[turn][1]))
            for wants, found in alike.items():
                where, counts = np.array(found, dtype=np.int64).T
                part = with_copies(part, where, counts, wants, self.ground.rules)
        return part

    def found_by(self, wants: NumaRequest) -> NumaColumns:
        """The zones as such a pod finds them: it knows what its equals take."""
        if self.in_order:
            return self.ground.columns
        if wants in self.views:
            return self.views[wants]
        rows = [row for row, tenants in self.tenants.items() if len(tenants) == 1 and wants in tenants]
        columns = self.ground.columns
        if not rows:
            return columns
        while len(self.views) >= VIEWS_MAX:
            del self.views[next(iter(self.views))]
        view = replace(columns, available=columns.available.copy(), fresh=columns.fresh.copy())
        at = np.array(sorted(rows), dtype=np.int64)
        counts = np.array([self.tenants[row][wants] for row in at.tolist()], dtype=np.int64)
        equals = np.stack((np.arange(len(at)), counts), axis=1)
        part = self._without_those_who_left(narrowed(self.before, at), at)
        _put(view, at, self._with_equals(part, narrowed(columns, at), wants, equals))
        self.views[wants] = view
        return view

    def found_after(self, wants: NumaRequest, rows: Ints, more: Ints) -> NumaColumns:
        """Some rows as such a pod finds them once so many equals more came to each; a row may come often."""
        part = self._without_those_who_left(narrowed(self.before, rows), rows)
        return self.found_in(part, wants, rows, more)

    def found_in(self, part: NumaColumns, wants: NumaRequest, rows: Ints, more: Ints) -> NumaColumns:
        """The same if these rows had been like that before anybody was seated."""
        if self.in_order:
            tenants = [Counter(self.tenants.get(row, ())) for row in rows.tolist()]
            for here, count in zip(tenants, more.tolist(), strict=True):
                here.update({wants: count} if count else {})
            return self._one_after_the_other(part, tenants)
        equals, crowded = more.copy(), part
        mixed: list[int] = []
        taken: dict[NumaRequest, list[tuple[int, int]]] = {}
        inhabited = np.isin(rows, np.fromiter(self.tenants, np.int64)) if self.tenants else rows < 0
        for at in np.flatnonzero(inhabited).tolist():
            tenants_here = self.tenants[int(rows[at])]
            equals[at] += tenants_here.get(wants, 0)
            if len(tenants_here) > (wants in tenants_here):
                mixed.append(at)
            for other, count in tenants_here.items():
                if other != wants:
                    taken.setdefault(other, []).append((at, count))
        some = np.flatnonzero(equals)
        crowded = _pessimistic(crowded, some, equals[some], wants) if len(some) else crowded
        for other, found in taken.items():
            at_rows, counts = np.array(found, dtype=np.int64).T
            crowded = _pessimistic(crowded, at_rows, counts, other)
        equals[mixed] = 0
        alone = np.flatnonzero(equals)
        if len(alone):
            filled = self._with_equals(part, crowded, wants, np.stack((alone, equals[alone]), axis=1))
            _put(crowded, alone, filled)
        return crowded

    def _with_equals(
        self, part: NumaColumns, crowded: NumaColumns, wants: NumaRequest, equals: Ints
    ) -> NumaColumns:
        """Some rows of a part with equal pods in their zones. Where they do not fit, it is as for all."""
        rules, (at, counts) = self.ground.rules, equals.T
        few = narrowed(part, at)
        fits = aligned_counts(few, wants, rules, int(counts.max())) >= counts
        filled = with_copies(few, np.flatnonzero(fits), counts[fits], wants, rules)
        filled.available[:, :, ~fits] = crowded.available[:, :, at[~fits]]
        return filled

    def _without_those_who_left(self, part: NumaColumns, rows: Ints) -> NumaColumns:
        """They give back what they had to themselves, as far as anybody knows where that was."""
        if not self.left or not self.ground.care.thinks_ahead:
            return part
        for at, row in enumerate(rows.tolist()):
            gone = self.left.get(row)
            if not gone:
                continue
            key = (row, frozenset(gone))
            if key not in self.thought:
                self.thought[key] = self._imagined(row, gone)
            found = self.thought[key]
            if found is None:
                part.fresh[at] = False  # nobody can say what would be there
            else:
                part.available[:, :, at] = found
        return part

    def _imagined(self, row: int, gone: Mapping[PodKey, NumaRequest]) -> Ints | None:
        """What a row's zones hold without some pods; None if that cannot be said."""
        name, available = self.nodes[row], self.before.available[:, :, row]
        report = self.ground.believed.get(name)
        if report is None:
            return available
        if name not in self.seats:
            self.seats[name] = self.ground.seats(name)
        victims = [RunningPod((key.namespace, key.name), wants) for key, wants in gone.items()]
        found = imagined(report, victims, self.seats[name], self.ground.care)
        if not isinstance(found, NodeZones):
            return None
        available = available.copy()
        for place, zone in enumerate(found.zones):
            for resource, amount in zone.available.items():
                available[self.before.resources[resource], place] = max(amount, 0)
        return available


def _put(columns: NumaColumns, rows: Ints, part: NumaColumns) -> None:
    columns.available[:, :, rows], columns.fresh[rows] = part.available, part.fresh


def _pessimistic(part: NumaColumns, at: Ints, counts: Ints, wants: NumaRequest) -> NumaColumns:
    return taken_everywhere(part, at, dict(whole_pod(wants, sidecars_stay=True)), counts)
