"""Who has to go so that one pod by itself has a place: node by node, then the node that costs least."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from math import inf

from bayplan.model.pod import Pod, PodKey
from bayplan.model.wants import Shape
from bayplan.placement.floor import Floor
from bayplan.placement.tree import Bools
from bayplan.placement.victims_fit import Columns, columns, curable_rows, minds_nobody
from bayplan.scheduling.importance import Budgets, Unit

ROWS_MAX = 100  # nodes tried one by one for a pod that minds its neighbours
WEIGHT = 2**31  # so that one victim less always counts, whatever its priority

Cost = tuple[int, int, int, int, float]
Found = tuple[Mapping[PodKey, int], tuple[Unit, ...]]
Choice = tuple[Cost, str, int]


@dataclass(frozen=True, slots=True, eq=False)
class _Search:
    """All nodes where others could go for a pod of this shape, the cheapest first."""

    columns: Columns
    heap: list[Choice]


class Nodes:
    """Units by node. What a node costs is kept, and looked at again before it is used."""

    def __init__(self, floor: Floor, budgets: Budgets, going: set[PodKey]) -> None:
        self.floor, self.budgets, self.going = floor, budgets, going
        self.by_row: dict[int, list[Unit]] | None = None
        self.searches: dict[object, _Search] = {}

    def room_for(
        self, pod: Pod, priority: int, everybody: Sequence[Unit], within: Bools | None
    ) -> Found | None:
        """The seat and who goes for it, if anybody's going helps."""
        if self.by_row is None:
            self.by_row = {}
            for unit in everybody:
                for row in {self.floor.row(member.node) for member in unit.pods}:
                    self.by_row.setdefault(row, []).append(unit)
        shape = pod.wants.shape
        if not minds_nobody(self.floor.scene, shape):
            return self._one_by_one(pod, priority, within)
        key = (shape, priority, within is None)
        if key not in self.searches:
            self.searches[key] = self._search(shape, priority, within)
        return self._cheapest(pod, priority, self.searches[key])

    # ── by room alone ──────────────────────────────────────────────────────────────────────────────

    def _search(self, shape: Shape, priority: int, within: Bools | None) -> _Search:
        assert self.by_row is not None
        found = columns(self.floor, shape, within)
        found.refresh(self.floor, self.going)
        heap: list[Choice] = []
        for row in found.rows:
            if row in self.by_row:
                victims = self._victims(found, row, priority)
                if victims is not None:
                    heap.append((self._cost(victims), self.floor.node(row), row))
        heapify(heap)
        return _Search(found, heap)

    def _cheapest(self, pod: Pod, priority: int, search: _Search) -> Found | None:
        search.columns.refresh(self.floor, self.going)
        while search.heap:
            cost, name, row = heappop(search.heap)
            victims = self._victims(search.columns, row, priority)
            if victims is None:
                continue
            now = self._cost(victims)
            heappush(search.heap, (now, name, row))
            if now <= cost:
                return {pod.key: row}, victims
        return None

    def _victims(self, found: Columns, row: int, priority: int) -> tuple[Unit, ...] | None:
        """Who has to go from a node; None if even all would not do."""
        units = self._below(row, priority)
        takes = {
            id(unit): found.taken(m.wants.shape for m in unit.pods if self._on(m, row)) for unit in units
        }
        room = found.room(row)
        for taken in takes.values():
            room = [have + more for have, more in zip(room, taken, strict=True)]
        if not units or not all(have >= 0 for have in room):
            return None
        breaking, others = self.budgets.split(units)
        victims = []
        for unit in (*breaking, *others):
            less = [have - taken for have, taken in zip(room, takes[id(unit)], strict=True)]
            if all(have >= 0 for have in less):
                room = less
            else:
                victims.append(unit)
        return tuple(victims) or None

    def _on(self, pod: Pod, row: int) -> bool:
        return self.floor.row(pod.node) == row

    def _below(self, row: int, priority: int) -> list[Unit]:
        assert self.by_row is not None
        return [
            unit
            for unit in self.by_row.get(row, ())
            if unit.priority < priority and unit.pods[0].key not in self.going
        ]

    def _cost(self, victims: Sequence[Unit]) -> Cost:
        """Fewest broken budgets, the least important victims, the fewest, those that ran the shortest."""
        highest = max(unit.priority for unit in victims)
        total = sum((unit.priority + WEIGHT) * len(unit.pods) for unit in victims)
        started = min(unit.started for unit in victims if unit.priority == highest)
        size = sum(len(unit.pods) for unit in victims)
        return self.budgets.broken(victims), highest, total, size, -started if started < inf else -inf

    # ── with all that matters to the pod ───────────────────────────────────────────────────────────

    def _one_by_one(self, pod: Pod, priority: int, within: Bools | None) -> Found | None:
        floor, shape = self.floor, pod.wants.shape
        mark = floor.mark()
        floor.lift_many(self.going)
        rows = [row for row in curable_rows(floor, shape, within) if self._below(row, priority)]
        rows.sort(key=lambda row: (self._worst(row, priority), row))
        best: tuple[Choice, tuple[Unit, ...]] | None = None
        for row in rows[:ROWS_MAX]:
            victims = self._victims_tried(shape, row, self._below(row, priority))
            if victims:
                choice = self._cost(victims), floor.node(row), row
                best = min(best or (choice, victims), (choice, victims), key=lambda found: found[0])
        floor.undo(mark)
        return None if best is None else ({pod.key: best[0][-1]}, best[1])

    def _worst(self, row: int, priority: int) -> tuple[int, int]:
        units = self._below(row, priority)
        return max(unit.priority for unit in units), len(units)

    def _victims_tried(self, shape: Shape, row: int, units: Sequence[Unit]) -> tuple[Unit, ...]:
        floor = self.floor
        mark = floor.mark()
        floor.lift_many(key for unit in units for key in unit.keys)
        victims = []
        if floor.judge(shape).fits[row]:
            breaking, others = self.budgets.split(units)
            for unit in (*breaking, *others):
                before = floor.mark()
                floor.put_back(unit.keys)
                if not floor.judge(shape).fits[row]:
                    floor.undo(before)
                    victims.append(unit)
        floor.undo(mark)
        return tuple(victims)
