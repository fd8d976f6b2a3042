"""The preemption search for a single pod: victims node by node, then the node with the lowest cost."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from heapq import heappop, heappush
from itertools import groupby, islice

from bayplan.model.gang import Ref
from bayplan.model.numa import NumaRequest
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.model.rejection import PreemptionSearchOutcome
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.numa.snapshot import numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.node_columns import Columns, resolvable_rows
from bayplan.placement.preemption.numa_nodes import victims_by_row
from bayplan.placement.preemption.removals import LeavingPods, only_resources_constrain
from bayplan.placement.preemption.victim_search import reprieve
from bayplan.scheduling.preemption.context import PreemptionResult
from bayplan.scheduling.preemption.victim_units import DisruptionBudgets, VictimUnit

ROWS_MAX = 100  # nodes tried one by one for a pod with inter-pod constraints
SURE_MAX = 16  # nodes verified against the current overlay
AT_ONCE = 256  # nodes whose cost is computed together; more if none of them fits
WEIGHT = 2**31  # so that one victim less always counts, whatever its priority

Cost = tuple[int, int, int, int, float]
Found = tuple[int, tuple[VictimUnit, ...]]
"""A row, and the units to preempt there."""
Choice = tuple[Cost, str, int]


class VictimsByNode:
    """Victim units by node, during one cycle. Excluded units do not count."""

    def __init__(
        self,
        overlay: NodeOverlay,
        budgets: DisruptionBudgets,
        units: Sequence[VictimUnit],
        removed: LeavingPods,
    ) -> None:
        self.overlay, self.budgets, self.units, self.terminating = overlay, budgets, units, removed
        self.excluded: set[int] = set()  # units that are preempted already or get nodes, by id()
        self.searches: dict[object, _Search] = {}

    @cached_property
    def by_row(self) -> dict[int, list[VictimUnit]]:
        """The units with pods on a node, highest priority first."""
        found: dict[int, list[VictimUnit]] = {}
        rows: dict[str, int] = {}
        for unit in self.units:
            pods = unit.pods
            for node in {pod.node for pod in pods} if len(pods) > 1 else (pods[0].node,):
                if node not in rows:
                    rows[node] = self.overlay.row(node)
                found.setdefault(rows[node], []).append(unit)
        return found

    def victims_for(self, pod: Pod, priority: int, allowed_nodes: Bools | None) -> PreemptionResult:
        """The row of the pod and its victims, if preemption helps."""
        found = self._cheapest(pod.spec.signature, priority, allowed_nodes)
        if found is None:
            return PreemptionResult(PreemptionSearchOutcome.INSUFFICIENT)
        return PreemptionResult(PreemptionSearchOutcome.FOUND, {pod.key: found[0]}, found[1])

    def _cheapest(self, signature: PodSignature, priority: int, allowed_nodes: Bools | None) -> Found | None:
        if not only_resources_constrain(self.overlay.filter_input, signature):
            numa_request = numa_request_of(self.overlay.filter_input.zones, signature)
            if numa_request is not None and only_resources_constrain(
                self.overlay.filter_input, replace(signature, zones=None)
            ):
                return self._by_numa(signature, numa_request, priority, allowed_nodes)
            return self._one_by_one(signature, priority, allowed_nodes)
        key = (signature, priority, None if allowed_nodes is None else allowed_nodes.tobytes())
        if key not in self.searches:
            self.searches[key] = _Search(self, signature, priority, allowed_nodes)
        return self.searches[key].cheapest()

    @cached_property
    def by_gang(self) -> Mapping[Ref, Sequence[VictimUnit]]:
        """The units by the gangs of their pods; needed only once a gang gets nodes."""
        found: dict[Ref, list[VictimUnit]] = {}
        for unit in self.units:
            for gang in {pod.gang for pod in unit.pods if pod.gang is not None}:
                found.setdefault(gang, []).append(unit)
        return found

    def exclude(self, gangs: Iterable[Ref]) -> None:
        """No pod of these gangs is a victim."""
        for gang in gangs:
            self.excluded.update(map(id, self.by_gang.get(gang, ())))

    def below(self, row: int, priority: int) -> list[VictimUnit]:
        """Units on a node below a priority, highest priority first."""
        return [u for u in self.by_row.get(row, ()) if u.priority < priority and id(u) not in self.excluded]

    def cost(self, victims: Sequence[VictimUnit]) -> Cost:
        """Violated budgets, highest priority, sum of priorities, number of pods, latest start."""
        highest = max(unit.priority for unit in victims)
        total = sum((unit.priority + WEIGHT) * len(unit.pods) for unit in victims)
        started = min(unit.started for unit in victims if unit.priority == highest)
        size = sum(len(unit.pods) for unit in victims)
        return self.budgets.broken(victims), highest, total, size, -started

    # ── with all constraints of the pod ────────────────────────────────────────────────────────────

    def _one_by_one(
        self, signature: PodSignature, priority: int, allowed_nodes: Bools | None
    ) -> Found | None:
        overlay = self.overlay
        best: tuple[Choice, tuple[VictimUnit, ...]] | None = None
        with overlay.tentative():
            rows = self._rows(signature, priority, allowed_nodes)
            rows.sort(key=lambda row: (*self._worst(row, priority), row))
            for row in rows[:ROWS_MAX]:
                victims = self._victims_on(signature, row, self.below(row, priority))
                if victims:
                    choice = self.cost(victims), overlay.node(row), row
                    if best is None or choice < best[0]:
                        best = choice, victims
        return None if best is None else (best[0][-1], best[1])

    def _by_numa(
        self, signature: PodSignature, numa_request: NumaRequest, priority: int, allowed_nodes: Bools | None
    ) -> Found | None:
        """The same if only resources and NUMA alignment matter: all nodes at once, the best verified."""
        overlay = self.overlay
        with overlay.tentative():
            rows = self._rows(signature, priority, allowed_nodes)
            units = [self._reprieve_order(self.below(row, priority)) for row in rows]
            names = [overlay.node(row) for row in rows]
            there = [[_on(unit, name) for unit in mine] for name, mine in zip(names, units, strict=True)]
            choices: list[Choice] = []
            for n, go in enumerate(victims_by_row(overlay, signature, numa_request, rows, there)):
                if go:
                    choices.append((self.cost([units[n][turn] for turn in go]), names[n], n))
            for _, _, n in sorted(choices)[:SURE_MAX]:
                victims = self._victims_on(signature, rows[n], units[n])
                if victims:
                    return rows[n], victims
        return None

    def _rows(self, signature: PodSignature, priority: int, allowed_nodes: Bools | None) -> list[int]:
        """The nodes with units below a priority where preemption may help; terminating pods are removed."""
        self.overlay.remove_pods(self.terminating.keys)
        rows = resolvable_rows(self.overlay, signature, allowed_nodes)
        return [row for row in rows if self.below(row, priority)]

    def _reprieve_order(self, units: Sequence[VictimUnit]) -> list[VictimUnit]:
        """The order of reprieve: units that would violate a budget first."""
        breaking, others = self.budgets.split(units)
        return [*breaking, *others]

    def _worst(self, row: int, priority: int) -> tuple[int, int]:
        units = self.below(row, priority)
        return max(unit.priority for unit in units), len(units)

    def _victims_on(
        self, signature: PodSignature, row: int, units: Sequence[VictimUnit]
    ) -> tuple[VictimUnit, ...]:
        overlay, order = self.overlay, self._reprieve_order(units)
        kept: set[int] = set()

        def restore(start: int, stop: int) -> None:
            overlay.restore_pods(pod.key for unit in order[start:stop] for pod in unit.pods)

        def fits_if(start: int, stop: int) -> bool:
            with overlay.tentative():
                restore(start, stop)
                return bool(overlay.run_filters(signature).fits[row])

        def keep(start: int, stop: int) -> None:
            restore(start, stop)
            kept.update(range(start, stop))

        with overlay.tentative():
            overlay.remove_pods(pod.key for unit in units for pod in unit.pods)
            if not overlay.run_filters(signature).fits[row]:
                return ()
            reprieve(len(order), fits_if, keep)
        return tuple(unit for number, unit in enumerate(order) if number not in kept)


class _Search:
    """Nodes where preemption helps pods of one signature, cheapest first, computed incrementally.

    The cost of a node is computed again before it is used: other gangs may have used its capacity since.
    """

    def __init__(
        self, nodes: VictimsByNode, signature: PodSignature, priority: int, allowed_nodes: Bools | None
    ) -> None:
        self.nodes, self.priority = nodes, priority
        self.columns = Columns(nodes.overlay, signature, allowed_nodes, nodes.terminating)
        self.columns.refresh()
        self.heap: list[Choice] = []
        self.more = self._rows()
        self.next = next(self.more, None)

    def _rows(self) -> Iterator[tuple[int, list[int]]]:
        """Nodes in batches: first those where victims of the lowest priority suffice, with that priority."""
        seen: set[int] = set()
        units = [u for u in reversed(self.nodes.units) if u.priority < self.priority]
        pods: list[Pod] = []
        for priority, level in groupby(units, key=lambda unit: unit.priority):
            pods += (pod for unit in level for pod in unit.pods)
            if self.nodes.budgets.budgets and len(pods) < sum(len(unit.pods) for unit in units):
                continue  # a violated budget outweighs a higher priority: all levels at once
            rows = iter([row for row in self.columns.rows_without(pods) if row not in seen])
            while portion := list(islice(rows, None if self.nodes.budgets.budgets else AT_ONCE)):
                seen.update(portion)
                yield priority, portion

    def cheapest(self) -> Found | None:
        """The node of the lowest cost, and its victims."""
        self.columns.refresh()
        while self.heap or self.next is not None:
            if not self.heap or (self.next is not None and self.next[0] < self.heap[0][0][1]):
                self._compute_more()
                continue
            cost, name, row = heappop(self.heap)
            victims = self._victims(row)
            if victims:
                now = self.nodes.cost(victims)
                heappush(self.heap, (now, name, row))
                if now <= cost:
                    return row, victims
        return None

    def _compute_more(self) -> None:
        assert self.next is not None
        for row in self.next[1]:
            victims = self._victims(row)
            if victims:
                heappush(self.heap, (self.nodes.cost(victims), self.nodes.overlay.node(row), row))
        self.next = next(self.more, None)

    def _victims(self, row: int) -> tuple[VictimUnit, ...]:
        """The victims on a node; empty if even all of them are not enough."""
        units = self.nodes.below(row, self.priority)
        takes = {id(unit): self.columns.usage_of(self._on(unit, row)) for unit in units}
        result = self.columns.left_free(row)
        for taken in takes.values():
            result = [have + more for have, more in zip(result, taken, strict=True)]
        if min(result, default=0) < 0:
            return ()
        breaking, others = self.nodes.budgets.split(units)
        victims = []
        for unit in (*breaking, *others):
            less = [have - taken for have, taken in zip(result, takes[id(unit)], strict=True)]
            if min(less, default=0) >= 0:
                result = less
            else:
                victims.append(unit)
        return tuple(victims)

    def _on(self, unit: VictimUnit, row: int) -> Iterator[PodSignature]:
        yield from (pod.spec.signature for pod in _on(unit, self.nodes.overlay.node(row)))


def _on(unit: VictimUnit, node: str) -> Sequence[Pod]:
    """The pods of a unit that are on a node."""
    return [pod for pod in unit.pods if pod.node == node] if len(unit.pods) > 1 else unit.pods
