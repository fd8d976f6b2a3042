"""Victims on single nodes with NUMA zones: which candidates can be reprieved, on all nodes at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.numa import NumaRequest, QosClass
from bayplan.model.pod import Pod
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.alignment import aligned
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.numa.evictions import freed
from bayplan.placement.numa.reports import RunningPod
from bayplan.placement.numa.snapshot import NumaSnapshot, narrowed_snapshot
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.preemption.removals import requested_rows

NOTHING = NumaRequest(QosClass.BEST_EFFORT, ())
Units = Sequence[Sequence[Pod]]
"""Units of pods of one node; the pods of a unit are preempted together."""


@dataclass(frozen=True, slots=True, eq=False)
class _UnitArrays:
    """By turn and row, what a unit uses of the node and what its removal frees in zones."""

    uses: Ints  # turn, resource, row
    frees: Ints  # turn, resource of zones, place, row
    present: Bools  # turn, row


def victims_by_row(
    overlay: NodeOverlay,
    shape: PodSignature,
    request: NumaRequest,
    rows: Sequence[int],
    units: Sequence[Units],
) -> list[list[int] | None]:
    """By row, which of its units must be preempted for a pod to fit; None if all together are not enough.

    The units of a row are given in the order of reprieve: a unit that can stay does. Pods that the overlay
    added count with the zones that they have now.
    """
    zones, requested = overlay.filter_input.zones, requested_rows(overlay, shape)
    if zones is None or requested is None or not rows:
        return [None] * len(rows)
    at = np.array(rows, dtype=np.int64)
    snapshot = narrowed_snapshot(zones, request, at)
    unit_arrays, zones_known, zone_limit = _arrays_of(
        overlay, zones, snapshot.columns, requested, rows, units
    )
    need = np.array([amount for _, amount in requested], dtype=np.int64)[:, None]
    free = overlay.filter_input.node_snapshot.free[[row for row, _ in requested]][
        :, at
    ] + unit_arrays.uses.sum(axis=0)
    available = snapshot.columns.available + unit_arrays.frees.sum(axis=0)
    removed = unit_arrays.present.sum(axis=0)

    def fits(free: Ints, available: Ints, removed: Ints) -> Bools:
        """Upstream's rule: victims must free something, and no zone may exceed its allocatable amount."""
        gained = available - snapshot.columns.available
        implausible = (gained == 0).all(axis=(0, 1)) | ((gained > 0) & (available > zone_limit)).any(
            axis=(0, 1)
        )
        plausible = ~zones_known | (removed == 0) | ~implausible
        good = aligned(replace(snapshot.columns, available=available), request, snapshot.rules).good
        good_rows: Bools = (free >= need).all(axis=0) & good & plausible
        return good_rows

    feasible = fits(free, available, removed)
    preempted = np.zeros_like(unit_arrays.present)
    for turn in range(len(unit_arrays.present)):
        present = unit_arrays.present[turn] & feasible
        if not present.any():
            continue
        less_free, less_available = free - unit_arrays.uses[turn], available - unit_arrays.frees[turn]
        reprieved = present & fits(less_free, less_available, removed - present)
        preempted[turn] = present & ~reprieved
        free, available = np.where(reprieved, less_free, free), np.where(reprieved, less_available, available)
        removed = removed - reprieved
    return [np.flatnonzero(preempted[:, n]).tolist() if feasible[n] else None for n in range(len(rows))]


def _arrays_of(
    overlay: NodeOverlay, zones: NumaSnapshot, columns: NumaColumns, requested: Sequence[tuple[int, int]],
    rows: Sequence[int], units: Sequence[Units],
) -> tuple[_UnitArrays, Bools, Ints]:  # fmt: skip
    """The units as arrays, the rows with known container zones, and the allocatable amounts of zones."""
    turns = max(map(len, units), default=0)
    names = {at: name for name, at in overlay.filter_input.node_snapshot.resources.items()}
    order = {names[row]: at for at, (row, _) in enumerate(requested)}
    uses = np.zeros((turns, len(requested), len(rows)), dtype=np.int64)
    frees = np.zeros((turns, *columns.available.shape), dtype=np.int64)
    present = np.zeros((turns, len(rows)), dtype=bool)
    zones_known = np.zeros(len(rows), dtype=bool)
    zone_limit = np.zeros_like(columns.available)
    for n, row in enumerate(rows):
        name = overlay.node(row)
        report = zones.reports.get(name) if zones.policy.simulates_evictions else None
        container_zones = zones.container_zones(name) if report is not None else None
        zones_known[n] = container_zones is not None
        places = {zone.number: at for at, zone in enumerate(report.zones)} if report is not None else {}
        for place, zone in enumerate(report.zones if report is not None else ()):
            for resource, amount in zone.allocatable.items():
                if resource in columns.resources:
                    zone_limit[columns.resources[resource], place, n] = amount
        for turn, pods in enumerate(units[n]):
            present[turn, n] = True
            for pod in pods:
                for resource, amount in pod.spec.signature.amounts:
                    if resource in order:
                        uses[turn, order[resource], n] += amount
            if report is None or container_zones is None:
                continue
            victims = [_running(pod) for pod in pods]
            for number, amounts in freed(report, victims, container_zones).items():
                for resource, amount in amounts.items():
                    at = columns.resources.get(resource)
                    if at is not None and number in places and columns.available[at, places[number], n] >= 0:
                        frees[turn, at, places[number], n] += amount
    return _UnitArrays(uses, frees, present), zones_known, zone_limit


def _running(pod: Pod) -> RunningPod:
    return RunningPod((pod.key.namespace, pod.key.name), pod.spec.signature.zones or NOTHING)
