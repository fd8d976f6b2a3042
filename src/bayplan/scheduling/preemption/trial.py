"""A preemption trial: all candidate units are removed, then reprieved as long as the gang keeps its rows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import pairwise

from bayplan.model.numa import FitRule
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import NodeChoice
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.numa.snapshot import minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import is_plain
from bayplan.placement.preemption.numa_removals import AlignedCapacity, NumaVictims, leavers
from bayplan.placement.preemption.removals import VictimMatrix, let_stay, minds_nobody
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, attempt, narrowed
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.victim_units import VictimUnit

TRIES_MAX = 400  # attempts to place the gang, each over all nodes
MANY = 256  # units; above this number fewer attempts are made
TRIES_OF_MANY = 24


class PreemptionTrial:
    """Removes units and reprieves them in order; without inter-pod constraints only capacity is counted.

    If NUMA alignment is the only other constraint, it is computed for all nodes at once as well.
    """

    def __init__(
        self,
        context: PreemptionContext,
        request: AttemptRequest,
        units: Sequence[VictimUnit],
        allowed_nodes: Bools | None,
        *,
        single: bool = False,
        tries_max: int | None = None,
        among: PreemptionTrial | None = None,
    ) -> None:
        """`among`: an untouched trial for the same pods with a superset of these units."""
        self.context, self.asked, self.units, self.within, self.single = (
            context,
            request,
            units,
            allowed_nodes,
            single,
        )
        self.floor = context.floor
        signatures = dict.fromkeys(pod.wants.shape for pod in request.waiting)
        self.shape = next(iter(signatures)) if len(signatures) == 1 else None
        self.plain = all(minds_nobody(self.floor.scene, signature) for signature in signatures)
        self.zoned = (
            not self.plain and self.floor.zones is not None and minds_zones_only(self.floor, signatures)
        )
        self.crowd, self.leavers = self._crowd() if among is None else among._part(units)
        self.swift = self.zoned and self._is_swift(signatures)
        self.counted = self._is_counted(single)
        self.lifts = not (self.plain or (self.leavers is not None and (self.swift or self.counted)))
        self.seats: AlignedCapacity | None = None
        self.tries = 0
        many = len(units) > MANY and not (self.counted and self.leavers is not None)
        self.tries_max = tries_max or (TRIES_OF_MANY if many else TRIES_MAX)
        self.mark = self.floor.mark()

    def _crowd(self) -> tuple[VictimMatrix, NumaVictims | None]:
        pods = [unit.pods for unit in self.units]
        matrix, numa_overlay = VictimMatrix(self.floor, pods, self.context.leaving), self.floor.zones
        return matrix, leavers(
            matrix, numa_overlay, pods
        ) if self.zoned and numa_overlay is not None else None

    def _part(self, units: Sequence[VictimUnit]) -> tuple[VictimMatrix, NumaVictims | None]:
        numbers = [self._numbers[id(unit)] for unit in units]
        matrix = self.crowd.part(numbers)
        return matrix, None if self.leavers is None else self.leavers.part(matrix, numbers)

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {id(unit): number for number, unit in enumerate(self.units)}

    def _is_counted(self, single: bool) -> bool:
        """Whether the number of rows the gang gets is just the sum of the capacity of all nodes."""
        spec = self.asked.candidate.charter
        if self.shape is None or spec.tree is not None:
            return False
        if not (single or spec.locality.required is None):
            return False
        if not (self.plain or single or spec.locality.preferred is None):
            return False  # with enough pods in one domain, the others are not placed elsewhere
        numa_overlay, numa_request = self.floor.zones, self.shape.zones
        if self.plain or self.swift or numa_overlay is None or numa_request is None:
            return True
        # under the plain rule the containers of one pod are checked independently, those of several pods are
        # not
        return numa_overlay.ground.rules.fit is not FitRule.PLAIN or len(numa_request.containers) == 1

    def _is_swift(self, signatures: Collection[PodSignature]) -> bool:
        """Whether only resources and NUMA zones of the victims affect where the pods are placed."""
        packs = self.context.profile.gang_nodes is NodeChoice.PACK and not self.asked.lone
        alike = len(signatures) == 1 or not self.floor.scene.index.keys
        return packs and alike and all(map(is_plain, signatures))

    def __enter__(self) -> PreemptionTrial:
        if self.lifts:
            self.floor.lift_many(self.context.leaving.keys)
            self.floor.lift_many(pod.key for unit in self.units for pod in unit.pods)
        return self

    def __exit__(self, *_: object) -> None:
        self.floor.undo(self.mark)

    @contextmanager
    def emptied(self) -> Iterator[NodeOverlay]:
        """The overlay with all units removed."""
        with self, self._floor_if(0, 0) as overlay:
            yield overlay

    def let_stay(self) -> Mapping[PodKey, int] | None:
        """Reprieve all units that can stay; returns the gang's rows, or None if it does not fit at all."""
        if self.counted and self.plain:
            assert self.shape is not None
            if let_stay(self.crowd, self.shape, len(self.asked.waiting), self.within) < self.asked.need:
                return None
            return self._try(0, 0).seats
        numa_request = minds(self.floor.scene.zones, self.shape) if self.shape is not None else None
        if self.counted and self.leavers is not None and self.shape is not None and numa_request is not None:
            self.seats = AlignedCapacity(
                self.leavers, self.shape, numa_request, len(self.asked.waiting), self.within
            )
        found = self._try(0, 0).seats if self.seats is None else None
        first = self._seats_if(0, 0) if found is None else len(found)
        if first < self.asked.need:
            return None
        if found is not None:
            self.asked = narrowed(self.asked, found)
        self._ask_back(first)
        return self._try(0, 0).seats

    def who_goes(self) -> list[VictimUnit]:
        """The units that could not be reprieved."""
        return [self.units[number] for number in self.crowd.leaving()]

    def near(self, nodes: Bools) -> list[VictimUnit]:
        """The units that matter on these nodes: if capacity is only counted, those with pods there."""
        limit = self.plain or (self.zoned and self._is_counted(single=True))
        return [self.units[at] for at in self.crowd.on(nodes)] if limit else list(self.units)

    def _ask_back(self, rows: int) -> None:
        """Reprieve the longest run of units that can stay, skip the next unit, and continue."""
        at, size = 0, len(self.units)
        while at < size and self.tries < self.tries_max:
            low, high, step = at, size + 1, 1  # up to `low` the units can stay, up to `high` they cannot
            while low < size and high > low + 1:
                middle = min(low + step, size) if high > size else (low + high) // 2
                if self._seats_if(at, middle) >= rows:
                    low, step = middle, 2 * step
                else:
                    high = middle
            if low > at:
                self._stay(at, low)
            at = low + 1
        if at < size:
            self._ask_back_roughly(at, rows)

    def _ask_back_roughly(self, at: int, rows: int) -> None:
        """For very many units: the gang keeps its rows, and every unit that is not on them stays."""
        if self.plain:
            with self._floor_if(0, 0) as overlay:
                taken = self._seat(overlay).seats
                self.crowd.stay_beside(overlay, at, taken.values())
            return
        near = [number for number in self.crowd.on_rows(self._try(0, 0).seats.values()) if number >= at]
        checkpoint = self.floor.mark()
        before = (
            self.crowd.stays.copy(),
            self.crowd.free,
            None if self.leavers is None else self.leavers.now.copy(),
        )
        for start, stop in pairwise((at - 1, *near, len(self.units))):
            self._stay(start + 1, stop)
        if len(self._try(0, 0).seats) < rows:  # the estimate does not hold: no further unit stays
            self.floor.undo(checkpoint)
            self.crowd.stays, self.crowd.free, now = before
            if self.leavers is not None and now is not None:
                self.leavers.now = now

    def _seats_if(self, start: int, stop: int) -> int:
        """The number of rows the gang gets if these units stay as well."""
        if self.seats is None:
            return len(self._try(start, stop).seats)
        self.tries += 1
        return self.seats.if_stay(start, stop)

    def _try(self, start: int, stop: int) -> AttemptResult:
        """The attempt if these units stay as well."""
        self.tries += 1
        with self._floor_if(start, stop) as overlay:
            return self._seat(overlay)

    def _seat(self, overlay: NodeOverlay) -> AttemptResult:
        context = self.context
        return attempt(context.look, overlay, self.asked, context.profile, self.within, single=self.single)

    @contextmanager
    def _floor_if(self, start: int, stop: int) -> Iterator[NodeOverlay]:
        if self.plain:
            with self.crowd.floor_if(start, stop) as overlay:
                yield overlay
            return
        if self.swift and self.leavers is not None:
            with self.leavers.floor_if(start, stop) as overlay:
                yield overlay
            return
        checkpoint = self.floor.mark()
        try:
            if not self.lifts:
                self.floor.lift_many(self.context.leaving.keys)
                self.floor.lift_many(pod.key for unit in self.who_goes() for pod in unit.pods)
            self.floor.put_back(pod.key for unit in self.units[start:stop] for pod in unit.pods)
            yield self.floor
        finally:
            self.floor.undo(checkpoint)

    def _stay(self, start: int, stop: int) -> None:
        if self.seats is not None:
            self.seats.stay(start, stop)
        if self.leavers is not None:
            self.leavers.stay(start, stop)
        self.crowd.stay(start, stop)
        if self.lifts:
            self.floor.put_back(pod.key for unit in self.units[start:stop] for pod in unit.pods)


def minds_zones_only(overlay: NodeOverlay, signatures: Collection[PodSignature]) -> bool:
    """Whether pods of these signatures have no constraints but resources and NUMA alignment."""
    return all(minds_nobody(overlay.scene, replace(signature, zones=None)) for signature in signatures)
