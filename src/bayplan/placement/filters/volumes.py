"""Which nodes a pod's volumes leave it: who reaches them, where new ones can be made, how many attach."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from bayplan.model.filter_failure import FilterReason, PodError
from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.model.pod_spec import ClaimUse, Disk, PodSignature, Selector
from bayplan.model.storage import ONE_POD, Storage, Volume, VolumeClaim
from bayplan.placement.cluster.node_index import NodeIndex, terms_mask
from bayplan.placement.cluster.node_table import ABSENT, NodeTable
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.filters.volume_limits import too_many_attached

NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
OLD_ZONE, ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
OLD_REGION, REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"
ZONE_LABELS = {OLD_ZONE: ZONE, OLD_REGION: REGION, ZONE: ZONE, REGION: REGION}
ALWAYS_CONFLICTS = ("aws",)
Step = dict[FilterReason, Bools]
"""For each cause the nodes that it rules out. Causes of one step stand together: a node has them all."""


@dataclass(frozen=True, slots=True)
class Barred:
    """What is wrong with the pod's claims, so that no node can help."""

    bar: PodError
    about: tuple[str, ...] = ()


def barred(storage: Storage, shape: PodSignature) -> Barred | None:
    """What is wrong with the claims themselves, in the order in which it is looked at."""
    for use in shape.claims:
        if not use.owner and (shape.namespace, use.name) not in storage.claims:
            return Barred(PodError.CLAIM_MISSING, (use.name,))
    for use in shape.claims:
        found = _unusable(storage, shape.namespace, use)
        if found is not None:
            return found
    claims = [storage.claims[shape.namespace, use.name] for use in shape.claims]
    if any(not claim.bound and not waits(storage, claim) for claim in claims):
        return Barred(PodError.CLAIM_UNBOUND)
    for use, claim in zip(shape.claims, claims, strict=True):
        if claim.volume and claim.volume not in storage.volumes and not use.owner:
            return Barred(PodError.VOLUME_MISSING, (claim.volume,))
    return None


def _unusable(storage: Storage, namespace: str, use: ClaimUse) -> Barred | None:
    claim = storage.claims.get((namespace, use.name))
    if claim is None:
        return Barred(PodError.CLAIM_AWAITED, (use.name,))
    if claim.lost:
        return Barred(PodError.CLAIM_LOST, (claim.name, claim.volume))
    if claim.leaving:
        return Barred(PodError.CLAIM_LEAVING, (claim.name,))
    if use.owner and claim.owner != use.owner:
        return Barred(PodError.CLAIM_FOREIGN, (f"{namespace}/{use.name}", f"{namespace}/{use.pod}"))
    return None


def waits(storage: Storage, claim: VolumeClaim) -> bool:
    """Whether a claim without a volume gets one only when its pod has a node."""
    found = storage.classes.get(claim.storage_class)
    return found is not None and found.waits and not claim.volume


def volume_steps(land: NodeIndex, index: PodIndex, storage: Storage, shape: PodSignature) -> list[Step]:
    """What the pod's disks and claims rule out. The pod is not barred."""
    steps: list[Step] = []
    if shape.disks:
        steps.append({FilterReason.DISK: _disk_taken(land, index, shape)})
    if not shape.claims:
        return steps
    claims = [storage.claims[shape.namespace, use.name] for use in shape.claims]
    alone = any(ONE_POD in claim.modes and index.claims.get(claim.key) for claim in claims)
    steps.append({FilterReason.ONE_POD: np.full(len(land), alone)})
    steps.append({FilterReason.ATTACHED: too_many_attached(land, index, storage, shape)})
    key = ("volumes", storage, shape.namespace, shape.claims)
    steps += land.remember(key, lambda: _reaching(land, storage, shape, claims))
    return steps


def _reaching(
    land: NodeIndex, storage: Storage, shape: PodSignature, claims: list[VolumeClaim]
) -> list[Step]:
    """What is ruled out whoever runs where."""
    bound, unbound = [c for c in claims if c.bound], [c for c in claims if not c.bound]
    elsewhere, gone = _out_of_reach(land, storage, bound)
    nothing, full = _not_found(land, storage, unbound)
    named = [claim for use, claim in zip(shape.claims, claims, strict=True) if not use.owner and claim.volume]
    return [
        {
            FilterReason.VOLUME_ELSEWHERE: elsewhere,
            FilterReason.NO_VOLUME: nothing,
            FilterReason.NO_STORE_ROOM: full,
            FilterReason.VOLUME_GONE: gone,
        },
        {FilterReason.VOLUME_ZONE: _wrong_zone(land, [storage.volumes[claim.volume] for claim in named])},
    ]


def _disk_taken(land: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    taken = np.zeros(len(land), dtype=bool)
    for disk in shape.disks:
        rivals = [Disk(disk.kind, disk.name, read_only=False)]
        if not disk.read_only or disk.kind in ALWAYS_CONFLICTS:
            rivals.append(Disk(disk.kind, disk.name, read_only=True))
        for rival in rivals:
            tally = index.disks.get(rival)
            if tally is not None:
                taken |= tally.dense(len(index.slots))[land.slots] > 0
    return taken


def _out_of_reach(land: NodeIndex, storage: Storage, claims: list[VolumeClaim]) -> tuple[Bools, Bools]:
    """Nodes that do not reach a claim's volume, and nodes for which one is gone; the first claim decides."""
    elsewhere, gone = np.zeros(len(land), dtype=bool), np.zeros(len(land), dtype=bool)
    for claim in claims:
        volume = storage.volumes.get(claim.volume)
        if volume is None:
            return elsewhere, ~elsewhere
        elsewhere |= ~reach(land, volume)
    return elsewhere, gone


def reach(land: NodeIndex, volume: Volume) -> Bools:
    """Nodes that a volume can be used from."""
    return terms_mask(land, volume.affinity)  # not kept: there may be more volumes than is worth keeping


def _not_found(land: NodeIndex, storage: Storage, claims: list[VolumeClaim]) -> tuple[Bools, Bools]:
    """Nodes for which a claim finds no volume and none can be made, and nodes without room to make it."""
    nothing, full = np.zeros(len(land), dtype=bool), np.zeros(len(land), dtype=bool)
    for claim in claims:
        if claim.selected_node:
            nothing |= ~land.named((claim.selected_node,))
    decided = nothing.copy()
    searching = sorted((claim for claim in claims if not claim.selected_node), key=lambda claim: claim.size)
    to_make = [(claim, np.ones(len(land), dtype=bool)) for claim in claims if claim.selected_node]
    to_make += _unmatched(land, storage, searching)
    for claim, where in to_make:
        made, room = _makeable(land, storage, claim)
        nothing |= where & ~decided & ~made
        full |= where & ~decided & made & ~room
        decided |= where & ~(made & room)
    return nothing, full


def _unmatched(
    land: NodeIndex, storage: Storage, claims: list[VolumeClaim]
) -> list[tuple[VolumeClaim, Bools]]:
    """For each claim, the nodes on which no volume that exists would do. No volume is given twice."""
    taken: dict[str, Bools] = {}
    left = []
    for claim in claims:
        open_ = np.ones(len(land), dtype=bool)
        for volume in candidates(storage, claim):
            good = open_ & reach(land, volume)
            if volume.name in taken:
                good &= ~taken[volume.name]
            taken[volume.name] = taken.get(volume.name, np.zeros(len(land), dtype=bool)) | good
            open_ &= ~good
        left.append((claim, open_))
    return left


def candidates(storage: Storage, claim: VolumeClaim) -> list[Volume]:
    """Volumes that may be given to a claim, the one meant for it or else the smallest first."""
    fitting = [volume for volume in storage.volumes.values() if _suits(volume, claim)]
    meant = [volume for volume in fitting if volume.claim == claim.key]
    if meant:
        return meant[:1]
    free = [
        v for v in fitting if v.available and (claim.selector is None or claim.selector.accepts(v.labels))
    ]
    free = [v for v in free if v.claim is None and set(claim.modes) <= set(v.modes)]
    return sorted(free, key=lambda volume: volume.size)


def _suits(volume: Volume, claim: VolumeClaim) -> bool:
    return (
        volume.storage_class == claim.storage_class
        and volume.size >= claim.size
        and volume.block == claim.block
        and volume.attributes == claim.attributes
        and not volume.leaving
    )


def _makeable(land: NodeIndex, storage: Storage, claim: VolumeClaim) -> tuple[Bools, Bools]:
    """Nodes for which a volume may be made, and nodes with room for it."""
    everywhere, nowhere = np.ones(len(land), dtype=bool), np.zeros(len(land), dtype=bool)
    found = storage.classes.get(claim.storage_class)
    if found is None or found.provisioner in NO_PROVISIONER:
        return nowhere, everywhere
    made = terms_mask(land, found.topologies or None)
    if found.provisioner not in storage.measured or not claim.size:
        return made, everywhere
    room = nowhere
    for store in storage.rooms:
        if store.storage_class == found.name and store.largest >= claim.size:
            room = room | labelled_mask(land, store.nodes)
    return made, room


def labelled_mask(land: NodeIndex, selector: Selector) -> Bools:
    """Nodes whose labels a selector accepts."""
    if not selector.requirements:
        return np.full(len(land), selector.requirements is not None)
    return terms_mask(land, (NodeSelectorTerm(selector.requirements),))


def _wrong_zone(land: NodeIndex, volumes: list[Volume]) -> Bools:
    """Nodes outside the zones that a volume's own labels name; nodes that name no zone are let off."""
    wrong = np.zeros(len(land), dtype=bool)
    table = land.table
    for volume in volumes:
        for key in ZONE_LABELS.keys() & volume.labels.keys():
            zones = set(volume.labels[key].split("__"))
            column, newer = table.column(key), table.column(ZONE_LABELS[key])
            good = np.isin(column, _codes(table, key, zones))
            fallback = np.isin(newer, _codes(table, ZONE_LABELS[key], zones))
            wrong |= ~np.where(column != ABSENT, good, fallback)
    if wrong.any():
        placed = [table.column(key) != ABSENT for key in ZONE_LABELS]
        wrong &= np.logical_or.reduce(placed)
    return wrong


def _codes(table: NodeTable, key: str, values: Iterable[str]) -> list[int]:
    known = table.codes(key)
    return [known[value] for value in values if value in known]
