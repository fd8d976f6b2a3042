"""Snapshot of all NUMA zones for scheduling: columns, alignment rules, and the zones of containers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from bayplan.model.numa import (
    AlignmentTarget,
    ContainerType,
    NodeZones,
    NumaRequest,
    NumaStalenessPolicy,
    Unaligned,
    ZoneRules,
)
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.alignment import FITS, STALE, TARGETS, USUAL, aligned, why_unaligned
from bayplan.placement.numa.capacity import aligned_counts
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.evictions import ContainerZones
from bayplan.placement.numa.releases import NumaReleases
from bayplan.placement.numa.resources import is_indifferent
from bayplan.placement.numa.score import zone_scores

DEFAULT_POLICY = NumaStalenessPolicy()


def _unknown_zones(node: str) -> ContainerZones | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class NumaSnapshot:
    """The zones of all nodes at one moment; rows as in the node snapshot."""

    columns: NumaColumns
    rules: ZoneRules = USUAL
    policy: NumaStalenessPolicy = DEFAULT_POLICY
    reports: Mapping[str, NodeZones] = field(default_factory=dict)  # by node, the reports behind the columns
    container_zones: Callable[[str], ContainerZones | None] = (
        _unknown_zones  # by node, the zones of containers
    )
    releases: NumaReleases = field(default_factory=NumaReleases)  # cache of what pods would release
    columns_seen_by: Callable[[NumaRequest], NumaColumns] | None = (
        None  # columns as a pod with this request sees them
    )
    claims: Mapping[str, Sequence[tuple[NumaRequest, int]]] = field(
        default_factory=dict
    )  # by node: pods that do not exist yet, to which zones are promised
    limited: Callable[[NumaRequest, Ints], Ints] | None = None  # counts of pods beside promised ones

    def columns_for(self, request: NumaRequest) -> NumaColumns:
        """The columns as a pod with this request sees them."""
        return self.columns if self.columns_seen_by is None else self.columns_seen_by(request)

    def release_number(self, node: str, key: PodKey, request: NumaRequest) -> int:
        """The number of what a running pod would release; UNKNOWN_ZONES if that is unknown."""
        known = self.releases.known(node, key)
        if known is not None:
            return known
        report = self.reports.get(node)
        container_zones = None if report is None else self.container_zones(node)
        return self.releases.number(node, key, request, report, container_zones)


def numa_request_of(zones: NumaSnapshot | None, shape: PodSignature) -> NumaRequest | None:
    """The NUMA request of a pod, or None if zones do not matter to it."""
    if zones is None or shape.zones is None or is_indifferent(shape.zones, zones.rules):
        return None
    return shape.zones


def narrowed_snapshot(zones: NumaSnapshot, request: NumaRequest, rows: Ints) -> NumaSnapshot:
    """A snapshot of some rows only, as a pod with this request sees them."""
    return NumaSnapshot(narrowed(zones.columns_for(request), rows), zones.rules, zones.policy)


def unaligned_nodes(zones: NumaSnapshot, request: NumaRequest) -> dict[AlignmentTarget, Bools]:
    """The nodes that cannot align a pod, by what could not be aligned."""
    stopped = aligned(zones.columns_for(request), request, zones.rules).stopped
    if not (stopped != FITS).any():
        return {}
    by_target = {
        AlignmentTarget.STALE: stopped == STALE,
        AlignmentTarget.POD: zones.columns.whole & (stopped >= 0),
    }
    parts = stopped >= 0
    if zones.rules.fit is not zones.rules.fit.PLAIN:
        parts &= ~zones.columns.whole
        roles = [container.type for container in request.containers]
    else:
        del by_target[AlignmentTarget.POD]
        roles = [container.type for container in request.containers if container.type is ContainerType.APP]
    for role, target in TARGETS.items():
        numbers = [index for index, container_role in enumerate(roles) if container_role is role]
        by_target[target] = parts & np.isin(stopped, numbers)
    return {target: nodes for target, nodes in by_target.items() if nodes.any()}


def first_shortage(zones: NumaSnapshot, request: NumaRequest, node: str, row: int) -> Unaligned | None:
    """Why one node cannot align the pod, in detail."""
    return why_unaligned(zones.columns_for(request), row, node, request, zones.rules)


def aligned_copies(zones: NumaSnapshot, request: NumaRequest, limit: int, nodes: Bools | None = None) -> Ints:
    """By node, how many such pods its zones can align."""
    counts = aligned_counts(zones.columns_for(request), request, zones.rules, limit, nodes)
    return counts if zones.limited is None else zones.limited(request, counts)


def numa_scores(zones: NumaSnapshot, request: NumaRequest) -> Ints:
    """The NUMA score of each node for such a pod."""
    return zone_scores(zones.columns_for(request), request, zones.rules)
