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
from bayplan.model.rejection import PreemptionSearchOutcome
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.numa.snapshot import numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.counting import needs_only_resources
from bayplan.placement.preemption.numa_removals import AlignedCapacity, NumaVictims, numa_victims_of
from bayplan.placement.preemption.removals import VictimMatrix, only_resources_constrain, reprieve_units
from bayplan.placement.preemption.victim_search import reprieve
from bayplan.scheduling.attempt.gang import AttemptRequest, AttemptResult, attempt, narrowed_to
from bayplan.scheduling.preemption.context import PreemptionContext, PreemptionResult
from bayplan.scheduling.preemption.victim_units import VictimUnit

TRIES_MAX = 400  # attempts to place the gang, each over all nodes
MANY_UNITS = 256  # units; above this number fewer attempts are made
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
        self.context, self.request, self.units, self.allowed_nodes, self.single = (
            context,
            request,
            units,
            allowed_nodes,
            single,
        )
        self.overlay = context.overlay
        signatures = dict.fromkeys(pod.spec.signature for pod in request.pending)
        self.signature = next(iter(signatures)) if len(signatures) == 1 else None
        self.is_unconstrained = all(
            only_resources_constrain(self.overlay.filter_input, signature) for signature in signatures
        )
        self.has_only_numa = (
            not self.is_unconstrained
            and self.overlay.zones is not None
            and has_only_numa_constraints(self.overlay, signatures)
        )
        self.matrix, self.numa_victims = self._matrices() if among is None else among._part(units)
        self.is_counted_by_numa = self.has_only_numa and self._is_swift(signatures)
        self.is_counted = self._is_counted(single)
        self.changes_overlay = not (
            self.is_unconstrained
            or (self.numa_victims is not None and (self.is_counted_by_numa or self.is_counted))
        )
        self.aligned_capacity: AlignedCapacity | None = None
        self.tries = 0
        many = len(units) > MANY_UNITS and not (self.is_counted and self.numa_victims is not None)
        self.tries_max = tries_max or (TRIES_OF_MANY if many else TRIES_MAX)
        self.checkpoint = self.overlay.checkpoint()

    def _matrices(self) -> tuple[VictimMatrix, NumaVictims | None]:
        pods = [unit.pods for unit in self.units]
        matrix, numa_overlay = VictimMatrix(self.overlay, pods, self.context.terminating), self.overlay.zones
        return matrix, numa_victims_of(
            matrix, numa_overlay, pods
        ) if self.has_only_numa and numa_overlay is not None else None

    def _part(self, units: Sequence[VictimUnit]) -> tuple[VictimMatrix, NumaVictims | None]:
        numbers = [self._numbers[id(unit)] for unit in units]
        matrix = self.matrix.part(numbers)
        return matrix, None if self.numa_victims is None else self.numa_victims.part(matrix, numbers)

    @cached_property
    def _numbers(self) -> dict[int, int]:
        return {id(unit): number for number, unit in enumerate(self.units)}

    def _is_counted(self, single: bool) -> bool:
        """Whether the number of rows the gang gets is just the sum of the capacity of all nodes."""
        spec = self.request.candidate.spec
        if self.signature is None or spec.tree is not None:
            return False
        if not (single or spec.locality.required is None):
            return False
        if not (self.is_unconstrained or single or spec.locality.preferred is None):
            return False  # with enough pods in one domain, the others are not placed elsewhere
        numa_overlay, numa_request = self.overlay.zones, self.signature.zones
        if self.is_unconstrained or self.is_counted_by_numa or numa_overlay is None or numa_request is None:
            return True
        # under the plain rule the containers of one pod are checked independently, those of several pods are
        # not
        return numa_overlay.snapshot.rules.fit is not FitRule.PLAIN or len(numa_request.containers) == 1

    def _is_swift(self, signatures: Collection[PodSignature]) -> bool:
        """Whether only resources and NUMA zones of the victims affect where the pods are placed."""
        packs = self.context.profile.gang_nodes is not NodeChoice.SPREAD and not self.request.is_single_pod
        alike = len(signatures) == 1 or not self.overlay.filter_input.index.keys
        return packs and alike and all(map(needs_only_resources, signatures))

    def __enter__(self) -> PreemptionTrial:
        if self.changes_overlay:
            self.overlay.remove_pods(self.context.terminating.keys)
            self.overlay.remove_pods(pod.key for unit in self.units for pod in unit.pods)
        return self

    def __exit__(self, *_: object) -> None:
        self.overlay.rollback(self.checkpoint)

    @contextmanager
    def emptied(self) -> Iterator[NodeOverlay]:
        """The overlay with all units removed."""
        with self, self._overlay_if(0, 0) as overlay:
            yield overlay

    def run(self) -> PreemptionResult:
        """Remove all units and reprieve those that can stay; the overlay is as before at the end."""
        with self:
            rows = self._reprieve()
            if rows is None:
                return PreemptionResult(PreemptionSearchOutcome.INSUFFICIENT)
            return PreemptionResult(PreemptionSearchOutcome.FOUND, rows, tuple(self._victims()))

    def _reprieve(self) -> Mapping[PodKey, int] | None:
        """Reprieve all units that can stay; returns the gang's rows, or None if it does not fit at all."""
        if self.is_counted and self.is_unconstrained:
            assert self.signature is not None
            if (
                reprieve_units(self.matrix, self.signature, len(self.request.pending), self.allowed_nodes)
                < self.request.need
            ):
                return None
            return self._try(0, 0).rows
        numa_request = (
            numa_request_of(self.overlay.filter_input.zones, self.signature)
            if self.signature is not None
            else None
        )
        if (
            self.is_counted
            and self.numa_victims is not None
            and self.signature is not None
            and numa_request is not None
        ):
            self.aligned_capacity = AlignedCapacity(
                self.numa_victims, self.signature, numa_request, len(self.request.pending), self.allowed_nodes
            )
        found = self._try(0, 0).rows if self.aligned_capacity is None else None
        first = self._count_if(0, 0) if found is None else len(found)
        if first < self.request.need:
            return None
        if found is not None:
            self.request = narrowed_to(self.request, found)
        at = reprieve(
            len(self.units),
            lambda start, stop: self._count_if(start, stop) >= first,
            self._keep,
            together=len(self.units),
            may_try=lambda: self.tries < self.tries_max,
        )
        if at < len(self.units):
            self._reprieve_roughly(at, first)
        return self._try(0, 0).rows

    def _victims(self) -> list[VictimUnit]:
        """The units that could not be reprieved."""
        return [self.units[number] for number in self.matrix.removed_units()]

    def near(self, nodes: Bools) -> list[VictimUnit]:
        """The units that matter on these nodes: if capacity is only counted, those with pods there."""
        limit = self.is_unconstrained or (self.has_only_numa and self._is_counted(single=True))
        return [self.units[at] for at in self.matrix.on(nodes)] if limit else list(self.units)

    def _reprieve_roughly(self, at: int, rows: int) -> None:
        """For very many units: the gang keeps its rows, and every unit that is not on them stays."""
        if self.is_unconstrained:
            with self._overlay_if(0, 0) as overlay:
                taken = self._attempt(overlay).rows
                self.matrix.reprieve_beside(overlay, at, taken.values())
            return
        near = [number for number in self.matrix.on_rows(self._try(0, 0).rows.values()) if number >= at]
        checkpoint = self.overlay.checkpoint()
        before = (
            self.matrix.reprieved.copy(),
            self.matrix.free,
            None if self.numa_victims is None else self.numa_victims.now.copy(),
        )
        for start, stop in pairwise((at - 1, *near, len(self.units))):
            self._keep(start + 1, stop)
        if len(self._try(0, 0).rows) < rows:  # the estimate does not hold: no further unit stays
            self.overlay.rollback(checkpoint)
            self.matrix.reprieved, self.matrix.free, now = before
            if self.numa_victims is not None and now is not None:
                self.numa_victims.now = now

    def _count_if(self, start: int, stop: int) -> int:
        """The number of rows the gang gets if these units stay as well."""
        if self.aligned_capacity is None:
            return len(self._try(start, stop).rows)
        self.tries += 1
        return self.aligned_capacity.count_if_reprieved(start, stop)

    def _try(self, start: int, stop: int) -> AttemptResult:
        """The attempt if these units stay as well."""
        self.tries += 1
        with self._overlay_if(start, stop) as overlay:
            return self._attempt(overlay)

    def _attempt(self, overlay: NodeOverlay) -> AttemptResult:
        context = self.context
        return attempt(
            context.snapshot, overlay, self.request, context.profile, self.allowed_nodes, single=self.single
        )

    @contextmanager
    def _overlay_if(self, start: int, stop: int) -> Iterator[NodeOverlay]:
        if self.is_unconstrained:
            with self.matrix.overlay_if(start, stop) as overlay:
                yield overlay
            return
        if self.is_counted_by_numa and self.numa_victims is not None:
            with self.numa_victims.overlay_if(start, stop) as overlay:
                yield overlay
            return
        checkpoint = self.overlay.checkpoint()
        try:
            if not self.changes_overlay:
                self.overlay.remove_pods(self.context.terminating.keys)
                self.overlay.remove_pods(pod.key for unit in self._victims() for pod in unit.pods)
            self.overlay.restore_pods(pod.key for unit in self.units[start:stop] for pod in unit.pods)
            yield self.overlay
        finally:
            self.overlay.rollback(checkpoint)

    def _keep(self, start: int, stop: int) -> None:
        if self.aligned_capacity is not None:
            self.aligned_capacity.reprieve(start, stop)
        if self.numa_victims is not None:
            self.numa_victims.reprieve(start, stop)
        self.matrix.reprieve(start, stop)
        if self.changes_overlay:
            self.overlay.restore_pods(pod.key for unit in self.units[start:stop] for pod in unit.pods)


def has_only_numa_constraints(overlay: NodeOverlay, signatures: Collection[PodSignature]) -> bool:
    """Whether pods of these signatures have no constraints but resources and NUMA alignment."""
    return all(
        only_resources_constrain(overlay.filter_input, replace(signature, zones=None))
        for signature in signatures
    )
