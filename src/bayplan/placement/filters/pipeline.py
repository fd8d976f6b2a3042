"""Where a pod fits: every filter over all nodes at once, and what refused each of the others first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from bayplan.model.filter_failure import FilterFailure, FilterReason, Lack, PodError
from bayplan.model.numa import Unaligned
from bayplan.model.pod_spec import ANY_ADDRESS, HostPort, PodSignature
from bayplan.model.storage import NO_STORAGE, Storage
from bayplan.placement.cluster.images import ImageIndex
from bayplan.placement.cluster.node_index import (
    NodeIndex,
    NodeSnapshot,
    chosen,
    named_rows,
    untainted,
    welcomed,
)
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.resource_fit import hopeless, lacking
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.filters.pod_affinity import neighbour_fit
from bayplan.placement.filters.topology_spread import spread_fit
from bayplan.placement.filters.volumes import barred, volume_steps
from bayplan.placement.numa.snapshot import NumaSnapshot, example, minds, unaligned

REMEMBERED_MAX = 64
Step = dict[Lack, Bools]
"""The nodes that each cause of one step rules out. A node has all causes of the first step that it fails."""

CURABLE = frozenset(
    {
        FilterReason.PORT,
        FilterReason.LACKING,
        FilterReason.UNALIGNED,
        FilterReason.DISK,
        FilterReason.ONE_POD,
        FilterReason.ATTACHED,
        FilterReason.SPREAD,
    }
    | {FilterReason.NOT_APART, FilterReason.UNWELCOME}
)
"""Causes that pods leaving a node may remove."""


@dataclass(frozen=True, slots=True, eq=False)
class FilterInput:
    """One moment: nodes with what is free, pods that run, volumes, images, zones."""

    ground: NodeSnapshot
    index: PodIndex
    storage: Storage = NO_STORAGE
    images: ImageIndex | None = None
    zones: NumaSnapshot | None = None  # None: no node tells of any


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """The nodes a pod fits, those it might fit if others left, and why the rest refuse it."""

    fits: Bools
    curable: Bools
    why: FilterFailure
    refusals: dict[Lack, Bools] = field(default_factory=dict)

    def reasons(self, row: int) -> list[Lack]:
        """Why one node refuses."""
        return [lack for lack, where in self.refusals.items() if where[row]]


def judge(scene: FilterInput, shape: PodSignature) -> FilterResult:
    """Hold a pod of this shape against every node. Asked again before anything changed, it costs nothing."""
    memory = scene.ground.memory
    key = (shape, scene.index, scene.index.version, scene.storage, scene.zones)
    found: FilterResult | None = memory.get(key)
    if found is None:
        while len(memory) >= REMEMBERED_MAX:
            del memory[next(iter(memory))]
        found = memory[key] = _judge(scene, shape)
    return found


def _judge(scene: FilterInput, shape: PodSignature) -> FilterResult:
    land = scene.ground.land
    names = named_rows(shape.rules)
    bar = barred(scene.storage, shape)
    if names is not None and not names:
        return _refused_everywhere(land, PodError.AFFINITY_CONFLICT, ())
    if bar is not None:
        return _refused_everywhere(land, bar.bar, bar.about)
    fits = np.ones(len(land), dtype=bool)
    curable = np.zeros(len(land), dtype=bool)
    refusals: dict[Lack, Bools] = {}
    for step in _steps(scene, shape, names):
        failed = np.zeros(len(land), dtype=bool)
        for lack, ruled_out in step.items():
            new = ruled_out & fits
            if new.any():
                refusals[lack] = new
                failed |= new
                if lack[0] in CURABLE and not _unthinkable(scene, lack[0]):
                    curable |= new
        fits &= ~failed
        if not fits.any():
            break
    if curable.any() and any(cause is FilterReason.LACKING for cause, _ in refusals):
        short = np.logical_or.reduce(
            [where for lack, where in refusals.items() if lack[0] is FilterReason.LACKING]
        )
        curable &= ~(short & hopeless(scene.ground, shape))
    counts = {lack: int(where.sum()) for lack, where in refusals.items()}
    first = first_unaligned(scene, shape, refusals)
    why = FilterFailure(len(land), counts, unaligned=first, curable=int(curable.sum()))
    return FilterResult(fits, curable, why, refusals)


def _unthinkable(scene: FilterInput, cause: FilterReason) -> bool:
    """Whether nobody can say what zones would hold if others left."""
    return cause is FilterReason.UNALIGNED and scene.zones is not None and not scene.zones.care.thinks_ahead


def first_unaligned(
    scene: FilterInput, shape: PodSignature, refusals: Mapping[Lack, Bools], within: Bools | None = None
) -> Unaligned | None:
    """What stands in the way on the first node that cannot align the pod."""
    wants = minds(scene.zones, shape)
    where = [mask for (cause, _), mask in refusals.items() if cause is FilterReason.UNALIGNED]
    if not where or wants is None or scene.zones is None:
        return None
    refused = np.logical_or.reduce(where)
    rows = np.flatnonzero(refused if within is None else refused & within)
    if not len(rows):
        return None
    row = int(rows[0])
    return example(scene.zones, wants, scene.ground.land.table.nodes[row].name, row)


def _refused_everywhere(land: NodeIndex, bar: PodError, about: tuple[str, ...]) -> FilterResult:
    nowhere = np.zeros(len(land), dtype=bool)
    return FilterResult(nowhere, nowhere, FilterFailure(len(land), {}, bar, about))


def _steps(scene: FilterInput, shape: PodSignature, names: frozenset[str] | None) -> Iterator[Step]:
    """The filters in order; a later one is not even worked out once no node is left."""
    ground, index = scene.ground, scene.index
    land, rules = ground.land, shape.rules
    if names is not None:
        yield {(FilterReason.OUTSIDE, ""): ~land.named(names)}
    if land.cordoned.any():
        yield {(FilterReason.CORDONED, ""): ~welcomed(land, rules.tolerations)}
    if shape.node:
        yield {(FilterReason.OTHER_NODE, ""): ~land.named((shape.node,))}
    yield {(FilterReason.TAINT, ""): ~untainted(land, rules.tolerations)}
    yield {(FilterReason.AFFINITY, ""): ~chosen(land, rules)}
    if shape.ports:
        yield {(FilterReason.PORT, ""): _port_taken(land, index, shape.ports)}
    yield {(FilterReason.LACKING, resource): short for resource, short in lacking(ground, shape).items()}
    wants = minds(scene.zones, shape)
    if wants is not None and scene.zones is not None:
        refused = unaligned(scene.zones, wants)
        yield {(FilterReason.UNALIGNED, cause.value): where for cause, where in refused.items()}
    if shape.claims or shape.disks:
        for step in volume_steps(land, index, scene.storage, shape):
            yield {(cause, ""): where for cause, where in step.items()}
    if shape.spread:
        spread = spread_fit(land, index, shape)
        yield {(FilterReason.SPREAD_LABEL, ""): spread.unlabelled, (FilterReason.SPREAD, ""): spread.uneven}
    neighbours = neighbour_fit(land, index, shape)
    yield {(FilterReason.NOT_NEAR, ""): ~neighbours.near}
    yield {(FilterReason.NOT_APART, ""): ~neighbours.apart}
    yield {(FilterReason.UNWELCOME, ""): ~neighbours.welcome}


def _port_taken(land: NodeIndex, index: PodIndex, ports: tuple[HostPort, ...]) -> Bools:
    taken = np.zeros(len(land), dtype=bool)
    for port in ports:
        for used, tally in index.ports.items():
            if conflict(port, used):
                taken |= tally.dense(len(index.slots))[land.slots] > 0
    return taken


def conflict(wanted: HostPort, used: HostPort) -> bool:
    """Whether two ports cannot be had on one node."""
    if (wanted.port, wanted.protocol) != (used.port, used.protocol):
        return False
    return wanted.address == used.address or ANY_ADDRESS in (wanted.address, used.address)
