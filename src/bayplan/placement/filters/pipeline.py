"""The filter pipeline: which nodes fit a pod, and which filter rejected each of the others first."""

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
    affinity_nodes,
    named_nodes,
    schedulable_nodes,
    tolerated_nodes,
)
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.resource_fit import lacking, too_small
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.devices.supply import DeviceSupply
from bayplan.placement.filters.pod_affinity import pod_affinity_fit
from bayplan.placement.filters.topology_spread import spread_fit
from bayplan.placement.filters.volumes import claim_error, volume_steps
from bayplan.placement.numa.snapshot import NumaSnapshot, first_shortage, numa_request_of, unaligned_nodes

REMEMBERED_MAX = 64
Step = dict[Lack, Bools]
"""The nodes that each reason of one filter rejects. A node has all reasons of the first filter it fails."""

RESOLVABLE = frozenset(
    {
        FilterReason.PORT,
        FilterReason.INSUFFICIENT,
        FilterReason.UNALIGNED,
        FilterReason.DISK,
        FilterReason.CLAIM_IN_USE,
        FilterReason.ATTACHED,
        FilterReason.SPREAD,
        FilterReason.DEVICES,
    }
    | {FilterReason.POD_ANTI_AFFINITY, FilterReason.EXISTING_ANTI_AFFINITY}
)
"""Reasons that the preemption of pods on the node may resolve."""


@dataclass(frozen=True, slots=True, eq=False)
class FilterInput:
    """Input of the filters at one moment: free node amounts, running pods, volumes, images, NUMA zones."""

    node_snapshot: NodeSnapshot
    index: PodIndex
    storage: Storage = NO_STORAGE
    images: ImageIndex | None = None
    zones: NumaSnapshot | None = None  # None: no node reports zones
    devices: DeviceSupply | None = None  # None: no pod needs devices by claim


@dataclass(frozen=True, slots=True, eq=False)
class FilterResult:
    """The nodes a pod fits, those it may fit after preemption, and why the others reject it."""

    fits: Bools
    resolvable: Bools
    why: FilterFailure
    rejections: dict[Lack, Bools] = field(default_factory=dict)

    def reasons(self, row: int) -> list[Lack]:
        """Why one node rejects the pod."""
        return [lack for lack, nodes in self.rejections.items() if nodes[row]]


def run_filters(filter_input: FilterInput, shape: PodSignature) -> FilterResult:
    """Run all filters for a pod of this signature on every node; cached until anything changes."""
    cache = filter_input.node_snapshot.memory
    key = (
        shape, filter_input.index, filter_input.index.version, filter_input.storage, filter_input.zones,
        None if shape.devices is None else (filter_input.devices, device_version(filter_input)),
    )  # fmt: skip
    result: FilterResult | None = cache.get(key)
    if result is None:
        while len(cache) >= REMEMBERED_MAX:
            del cache[next(iter(cache))]
        result = cache[key] = _run_filters(filter_input, shape)
    return result


def device_version(filter_input: FilterInput) -> int:
    """Changes with every change of devices that is none of pods."""
    return 0 if filter_input.devices is None else filter_input.devices.version


def _run_filters(filter_input: FilterInput, shape: PodSignature) -> FilterResult:
    node_index = filter_input.node_snapshot.node_index
    names = named_nodes(shape.rules)
    error = claim_error(filter_input.storage, shape)
    if names is not None and not names:
        return _rejected_everywhere(node_index, PodError.AFFINITY_CONFLICT, ())
    if error is not None:
        return _rejected_everywhere(node_index, error.error, error.about)
    by_rules = _rejected_by_rules(node_index, shape, names)
    fits, rejections = by_rules.fits.copy(), dict(by_rules.rejections)
    resolvable = np.zeros(len(node_index), dtype=bool)
    for step in _steps(filter_input, shape) if np.count_nonzero(fits) else ():
        if _apply_step(step, fits, rejections):
            for lack in step.keys() & rejections.keys():
                if lack[0] in RESOLVABLE and not _zones_unknown_after_preemption(filter_input, lack[0]):
                    resolvable |= rejections[lack]
            if not np.count_nonzero(fits):
                break
    if resolvable.any() and any(reason is FilterReason.INSUFFICIENT for reason, _ in rejections):
        short = np.logical_or.reduce(
            [nodes for lack, nodes in rejections.items() if lack[0] is FilterReason.INSUFFICIENT]
        )
        resolvable &= ~(short & too_small(filter_input.node_snapshot, shape))
    counts = {lack: int(nodes.sum()) for lack, nodes in rejections.items()}
    first = first_unaligned(filter_input, shape, rejections)
    why = FilterFailure(len(node_index), counts, unaligned=first, preemptible_nodes=int(resolvable.sum()))
    return FilterResult(fits, resolvable, why, rejections)


def _apply_step(step: Step, fits: Bools, rejections: dict[Lack, Bools]) -> bool:
    """Take the nodes that a filter rejects out of those that fit, and note why; whether there were any."""
    failed: Bools | None = None
    for lack, rejected in step.items():
        newly_rejected = rejected & fits
        if np.count_nonzero(newly_rejected):  # several times as fast as `any` on small clusters
            rejections[lack] = newly_rejected
            failed = newly_rejected if failed is None else failed | newly_rejected
    if failed is not None:
        fits &= ~failed
    return failed is not None


@dataclass(frozen=True, slots=True, eq=False)
class _RuleRejections:
    """The nodes that the node rules of a pod accept, and the reasons of the others. Shared: read only."""

    fits: Bools
    rejections: Mapping[Lack, Bools]


def _rejected_by_rules(
    node_index: NodeIndex, shape: PodSignature, names: frozenset[str] | None
) -> _RuleRejections:
    """The filters that depend on nothing but the pod's node rules and the nodes, until a node changes."""

    def rejected() -> _RuleRejections:
        fits, rejections = np.ones(len(node_index), dtype=bool), dict[Lack, Bools]()
        for step in _rule_steps(node_index, shape, names):
            _apply_step(step, fits, rejections)
        return _RuleRejections(fits, rejections)

    return node_index.remember(("rejected by rules", shape.rules, shape.node), rejected)


def _zones_unknown_after_preemption(filter_input: FilterInput, reason: FilterReason) -> bool:
    """Whether the zones after a preemption are unknown."""
    return (
        reason is FilterReason.UNALIGNED
        and filter_input.zones is not None
        and not filter_input.zones.policy.simulates_evictions
    )


def first_unaligned(
    filter_input: FilterInput,
    shape: PodSignature,
    rejections: Mapping[Lack, Bools],
    allowed_nodes: Bools | None = None,
) -> Unaligned | None:
    """Why the first of the nodes that cannot align the pod cannot."""
    numa_request = numa_request_of(filter_input.zones, shape)
    masks = [mask for (reason, _), mask in rejections.items() if reason is FilterReason.UNALIGNED]
    if not masks or numa_request is None or filter_input.zones is None:
        return None
    unaligned = np.logical_or.reduce(masks)
    rows = np.flatnonzero(unaligned if allowed_nodes is None else unaligned & allowed_nodes)
    if not len(rows):
        return None
    row = int(rows[0])
    return first_shortage(
        filter_input.zones, numa_request, filter_input.node_snapshot.node_index.table.nodes[row].name, row
    )


def _rejected_everywhere(node_index: NodeIndex, error: PodError, about: tuple[str, ...]) -> FilterResult:
    nowhere = np.zeros(len(node_index), dtype=bool)
    return FilterResult(nowhere, nowhere, FilterFailure(len(node_index), {}, error, about))


def _rule_steps(node_index: NodeIndex, shape: PodSignature, names: frozenset[str] | None) -> Iterator[Step]:
    """The first filters in order: none of them can be resolved by preemption."""
    rules = shape.rules
    if names is not None:
        yield {(FilterReason.OUTSIDE, ""): ~node_index.named(names)}
    if node_index.cordoned.any():
        yield {(FilterReason.CORDONED, ""): ~schedulable_nodes(node_index, rules.tolerations)}
    if shape.node:
        yield {(FilterReason.OTHER_NODE, ""): ~node_index.named((shape.node,))}
    yield {(FilterReason.TAINT, ""): ~tolerated_nodes(node_index, rules.tolerations)}
    yield {(FilterReason.AFFINITY, ""): ~affinity_nodes(node_index, rules)}


def _steps(filter_input: FilterInput, shape: PodSignature) -> Iterator[Step]:
    """The other filters in order; a filter is not evaluated once no node is left."""
    node_snapshot, index = filter_input.node_snapshot, filter_input.index
    node_index = node_snapshot.node_index
    if shape.ports:
        yield {(FilterReason.PORT, ""): _port_conflicts(node_index, index, shape.ports)}
    yield {
        (FilterReason.INSUFFICIENT, resource): short
        for resource, short in lacking(node_snapshot, shape).items()
    }
    numa_request = numa_request_of(filter_input.zones, shape)
    if numa_request is not None and filter_input.zones is not None:
        unaligned_by_target = unaligned_nodes(filter_input.zones, numa_request)
        yield {(FilterReason.UNALIGNED, reason.value): nodes for reason, nodes in unaligned_by_target.items()}
    if shape.claims or shape.disks:
        for step in volume_steps(node_index, index, filter_input.storage, shape):
            yield {(reason, ""): nodes for reason, nodes in step.items()}
    if shape.spread:
        spread = spread_fit(node_index, index, shape)
        yield {(FilterReason.SPREAD_LABEL, ""): spread.unlabelled, (FilterReason.SPREAD, ""): spread.uneven}
    affinity = pod_affinity_fit(node_index, index, shape)
    yield {(FilterReason.POD_AFFINITY, ""): ~affinity.affinity}
    yield {(FilterReason.POD_ANTI_AFFINITY, ""): ~affinity.anti_affinity}
    yield {(FilterReason.EXISTING_ANTI_AFFINITY, ""): ~affinity.existing_anti_affinity}
    if shape.devices is not None and filter_input.devices is not None:
        supply = filter_input.devices
        yield {(FilterReason.DEVICES_ELSEWHERE, ""): supply.unreachable(node_index, shape.devices)}
        short = supply.shortages(node_index, shape.devices)
        yield {(FilterReason.DEVICES, reason): nodes for reason, nodes in short.items()}


def _port_conflicts(node_index: NodeIndex, index: PodIndex, ports: tuple[HostPort, ...]) -> Bools:
    conflicts = np.zeros(len(node_index), dtype=bool)
    for port in ports:
        for used, counter in index.ports.items():
            if conflict(port, used):
                conflicts |= counter.dense(len(index.slots))[node_index.slots] > 0
    return conflicts


def conflict(wanted: HostPort, used: HostPort) -> bool:
    """Whether two host ports conflict on one node."""
    if (wanted.port, wanted.protocol) != (used.port, used.protocol):
        return False
    return wanted.address == used.address or ANY_ADDRESS in (wanted.address, used.address)
