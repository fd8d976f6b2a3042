"""Zones as pods are held against them: columns, the rules that count, and what is known of who sits where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
from bayplan.placement.numa.alignment import CAUSES, FITS, STALE, USUAL, aligned, why_unaligned
from bayplan.placement.numa.capacity import aligned_counts
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.evictions import Seats
from bayplan.placement.numa.releases import NumaReleases
from bayplan.placement.numa.resources import is_indifferent
from bayplan.placement.numa.score import zone_scores

CARELESS = NumaStalenessPolicy()


def _nobody_knows(node: str) -> Seats | None:
    return None


@dataclass(frozen=True, slots=True, eq=False)
class NumaSnapshot:
    """The zones of all nodes at one moment; rows as on the ground."""

    columns: NumaColumns
    rules: ZoneRules = USUAL
    care: NumaStalenessPolicy = CARELESS
    believed: Mapping[str, NodeZones] = field(default_factory=dict)  # by node, what the columns are made of
    seats: Callable[[str], Seats | None] = _nobody_knows  # by node, which zones pods sit in
    gifts: NumaReleases = field(
        default_factory=NumaReleases
    )  # what pods would give back, as far as anybody asked
    beside: Callable[[NumaRequest], NumaColumns] | None = None  # as they are to pods that ask for this

    def columns_for(self, wants: NumaRequest) -> NumaColumns:
        """The zones as such a pod finds them."""
        return self.columns if self.beside is None else self.beside(wants)

    def gift_number(self, node: str, key: PodKey, wants: NumaRequest) -> int:
        """The number of what a pod that runs on a node would release; SILENT if that is unknown."""
        known = self.gifts.known(node, key)
        if known is not None:
            return known
        report = self.believed.get(node)
        seats = None if report is None else self.seats(node)
        return self.gifts.number(node, key, wants, report, seats)


def minds(zones: NumaSnapshot | None, shape: PodSignature) -> NumaRequest | None:
    """What a pod asks of zones, if there are any that it has to care about."""
    if zones is None or shape.zones is None or is_indifferent(shape.zones, zones.rules):
        return None
    return shape.zones


def few(zones: NumaSnapshot, wants: NumaRequest, rows: Ints) -> NumaSnapshot:
    """Some rows by themselves, as a pod finds them that asks for this."""
    return NumaSnapshot(narrowed(zones.columns_for(wants), rows), zones.rules, zones.care)


def unaligned(zones: NumaSnapshot, wants: NumaRequest) -> dict[AlignmentTarget, Bools]:
    """The nodes that cannot align a pod, by what stands in the way."""
    stopped = aligned(zones.columns_for(wants), wants, zones.rules).stopped
    if not (stopped != FITS).any():
        return {}
    found = {
        AlignmentTarget.STALE: stopped == STALE,
        AlignmentTarget.POD: zones.columns.whole & (stopped >= 0),
    }
    parts = stopped >= 0
    if zones.rules.fit is not zones.rules.fit.PLAIN:
        parts &= ~zones.columns.whole
        roles = [container.role for container in wants.containers]
    else:
        del found[AlignmentTarget.POD]
        roles = [container.role for container in wants.containers if container.role is ContainerType.APP]
    for role, cause in CAUSES.items():
        numbers = [at for at, one in enumerate(roles) if one is role]
        found[cause] = parts & np.isin(stopped, numbers)
    return {cause: where for cause, where in found.items() if where.any()}


def example(zones: NumaSnapshot, wants: NumaRequest, node: str, row: int) -> Unaligned | None:
    """What exactly one node lacks."""
    return why_unaligned(zones.columns_for(wants), row, node, wants, zones.rules)


def copies_of(zones: NumaSnapshot, wants: NumaRequest, most: int, nodes: Bools | None = None) -> Ints:
    """By node, how many such pods it can align, as far as zones have a say."""
    return aligned_counts(zones.columns_for(wants), wants, zones.rules, most, nodes)


def scored(zones: NumaSnapshot, wants: NumaRequest) -> Ints:
    """By node, how well such a pod would sit in its zones."""
    return zone_scores(zones.columns_for(wants), wants, zones.rules)
