"""Consolidation: running pods move to free capacity; each has a new node before any is preempted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.scheduling.attempt.gang import AttemptRequest, attempt, request_for
from bayplan.scheduling.fair_share.accounts import amounts_of
from bayplan.scheduling.preemption.context import PreemptionContext
from bayplan.scheduling.preemption.victim_units import VictimUnit
from bayplan.state.scheduling.snapshot import SchedulingCandidate

UNITS_MAX = 256  # victim units considered
TRIES_MAX = 32  # attempts to place all pods again

Seats = Mapping[PodKey, int]


class Consolidation:
    """Searches new nodes for running pods in the overlay of one cycle."""

    def __init__(self, context: PreemptionContext) -> None:
        self.context, self.overlay, self.snapshot = context, context.overlay, context.snapshot
        self.tries = 0  # attempts of the last search

    def search(
        self, request: AttemptRequest, allowed_nodes: Bools | None, units: Iterable[VictimUnit]
    ) -> tuple[Seats, dict[PodKey, int], list[Pod]] | None:
        """Rows of the gang if some units move, the new rows of moved pods, and these pods; or None."""
        self.tries = 0
        if not self._has_total_capacity(request):
            return None
        request = replace(request, without_reason=True)
        pool: list[VictimUnit] = []
        for unit in units:
            pool.append(unit)
            for removed in _removal_sets(pool):
                self.tries += 1
                found = self._all_move(removed, request, allowed_nodes)
                if found is not None:
                    return *found, [pod for pod in removed if pod.key in found[1]]
            if len(pool) >= UNITS_MAX or self.tries >= TRIES_MAX:
                break
        return None

    def _has_total_capacity(self, request: AttemptRequest) -> bool:
        """Whether the cluster as a whole has enough free capacity: moved pods use capacity elsewhere."""
        pods = sorted(request.pending, key=_size)[: request.need]
        free = self.context.terminating.total_free()
        return all(amount <= free.get(resource, 0) for resource, amount in amounts_of(pods).items())

    def new_rows(
        self, victims: Sequence[VictimUnit], rows: Seats, request: AttemptRequest
    ) -> dict[PodKey, int]:
        """New rows for victims that fit elsewhere, gang by gang, at least with the core of the gang."""
        found: dict[PodKey, int] = {}
        with self.overlay.tentative():
            self.overlay.remove_pods(self.context.terminating.keys)
            self.overlay.remove_pods(pod.key for unit in victims for pod in unit.pods)
            for pod in request.pending:
                if pod.key in rows:
                    self.overlay.add_pod(pod.key, pod.spec.signature, rows[pod.key])
            for gang in dict.fromkeys(unit.gang for unit in reversed(victims) if unit.gang is not None):
                mine = [unit for unit in victims if unit.gang == gang]
                new_rows = self._place_elsewhere(gang, [pod for unit in mine for pod in unit.pods])
                core = [pod for unit in mine if unit.core for pod in unit.pods]
                if new_rows is None and 0 < len(core) < sum(len(unit.pods) for unit in mine):
                    new_rows = self._place_elsewhere(gang, core)
                found |= new_rows or {}
        return found

    def _all_move(
        self, removed: Sequence[Pod], request: AttemptRequest, allowed_nodes: Bools | None
    ) -> tuple[Seats, dict[PodKey, int]] | None:
        """Assign the gang first, then keep every lifted pod that still fits on its node, and move the others.

        Highest priority stays first; if that fails, the largest pods first: they are the hardest to move.
        """
        with self.overlay.tentative():
            self.overlay.remove_pods(self.context.terminating.keys)
            self.overlay.remove_pods(pod.key for pod in removed)
            found = attempt(self.snapshot, self.overlay, request, self.context.profile, allowed_nodes)
            if len(found.rows) < request.need:
                return None
            for order in (removed[::-1], sorted(removed, key=_size, reverse=True)):
                with self.overlay.tentative():
                    moves = self._place_again(order)
                if moves is not None:
                    return found.rows, moves
        return None

    def _place_again(self, pods: Sequence[Pod]) -> dict[PodKey, int] | None:
        """Rows for all pods; returns only the pods that move."""
        moving: dict[Ref, list[Pod]] = {}
        for pod in pods:
            row = self.overlay.row(pod.node)
            if row >= 0 and self.overlay.run_filters(pod.spec.signature).fits[row]:
                self.overlay.add_pod(pod.key, pod.spec.signature, row)
            elif pod.gang is not None:
                moving.setdefault(pod.gang, []).append(pod)
        moves: dict[PodKey, int] = {}
        for gang, some in moving.items():
            new_rows = self._place_elsewhere(gang, some)
            if new_rows is None:
                return None
            moves |= new_rows
        return moves

    def _place_elsewhere(self, gang: Ref, pods: Sequence[Pod]) -> dict[PodKey, int] | None:
        """Rows for all of these pods of a gang, consistent with its pods that stay."""
        keys = {pod.key for pod in pods} | self.context.terminating.keys
        mine = (self.snapshot.pods.get(key) for key in self.snapshot.members.get(gang, ()) if key not in keys)
        bound = tuple(pod for pod in mine if pod is not None and not pod.terminating)
        waiting = tuple(
            replace(pod, node="") for pod in sorted(pods, key=lambda pod: (pod.pod_set, pod.rank))
        )
        spec = self.snapshot.specs[gang]
        candidate = SchedulingCandidate(spec, waiting, bound, topology=spec.topology)
        checkpoint = self.overlay.checkpoint()
        request = replace(request_for(candidate), need=len(waiting))
        found = attempt(self.snapshot, self.overlay, request, self.context.profile)
        if len(found.rows) == len(waiting):
            return dict(found.rows)
        self.overlay.rollback(checkpoint)
        return None


def _removal_sets(pool: Sequence[VictimUnit]) -> list[list[Pod]]:
    """Pods to lift together: by node of the last unit, last node first; then all pods of the pool."""
    pods = [pod for unit in pool for pod in unit.pods]
    nodes = dict.fromkeys(pod.node for pod in reversed(pool[-1].pods))
    found = [[pod for pod in pods if pod.node == node] for node in nodes]
    return found if pods in found else [*found, pods]


def _size(pod: Pod) -> tuple[int, ...]:
    """Sort key by size: the largest amount first, as resource names say nothing about scarcity."""
    return tuple(sorted((amount for amount in pod.amounts.values()), reverse=True))
