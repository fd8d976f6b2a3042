"""Volume filters: nodes that reach bound volumes, nodes where new ones can be provisioned, attach limits."""

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
from bayplan.placement.filters.volume_limits import over_attach_limit

NO_PROVISIONER = ("", "kubernetes.io/no-provisioner")
OLD_ZONE, ZONE = "failure-domain.beta.kubernetes.io/zone", "topology.kubernetes.io/zone"
OLD_REGION, REGION = "failure-domain.beta.kubernetes.io/region", "topology.kubernetes.io/region"
ZONE_LABELS = {OLD_ZONE: ZONE, OLD_REGION: REGION, ZONE: ZONE, REGION: REGION}
ALWAYS_CONFLICTS = ("aws",)
Step = dict[FilterReason, Bools]
"""The nodes that each reason of one filter rejects. A node has all reasons of the filter it fails."""


@dataclass(frozen=True, slots=True)
class ClaimError:
    """An error of the pod's claims that no node can resolve."""

    error: PodError
    about: tuple[str, ...] = ()


def claim_error(storage: Storage, shape: PodSignature) -> ClaimError | None:
    """The first error of the pod's claims themselves; None if they are usable."""
    for use in shape.claims:
        if not use.owner and (shape.namespace, use.name) not in storage.claims:
            return ClaimError(PodError.CLAIM_MISSING, (use.name,))
    for use in shape.claims:
        error = _claim_unusable(storage, shape.namespace, use)
        if error is not None:
            return error
    claims = [storage.claims[shape.namespace, use.name] for use in shape.claims]
    if any(not claim.bound and not binds_late(storage, claim) for claim in claims):
        return ClaimError(PodError.CLAIM_UNBOUND)
    for use, claim in zip(shape.claims, claims, strict=True):
        if claim.volume and claim.volume not in storage.volumes and not use.owner:
            return ClaimError(PodError.VOLUME_MISSING, (claim.volume,))
    return None


def _claim_unusable(storage: Storage, namespace: str, use: ClaimUse) -> ClaimError | None:
    claim = storage.claims.get((namespace, use.name))
    if claim is None:
        return ClaimError(PodError.CLAIM_PENDING, (use.name,))
    if claim.lost:
        return ClaimError(PodError.CLAIM_LOST, (claim.name, claim.volume))
    if claim.terminating:
        return ClaimError(PodError.CLAIM_TERMINATING, (claim.name,))
    if use.owner and claim.owner != use.owner:
        return ClaimError(PodError.CLAIM_FOREIGN, (f"{namespace}/{use.name}", f"{namespace}/{use.pod}"))
    return None


def binds_late(storage: Storage, claim: VolumeClaim) -> bool:
    """Whether an unbound claim is bound only when its pod has a node (WaitForFirstConsumer)."""
    storage_class = storage.classes.get(claim.storage_class)
    return storage_class is not None and storage_class.wait_for_consumer and not claim.volume


def volume_steps(node_index: NodeIndex, index: PodIndex, storage: Storage, shape: PodSignature) -> list[Step]:
    """The nodes that the pod's disks and claims reject, filter by filter. The claims have no error."""
    steps: list[Step] = []
    if shape.disks:
        steps.append({FilterReason.DISK: _disk_conflicts(node_index, index, shape)})
    if not shape.claims:
        return steps
    claims = [storage.claims[shape.namespace, use.name] for use in shape.claims]
    in_use = any(ONE_POD in claim.modes and index.claims.get(claim.key) for claim in claims)
    steps.append({FilterReason.CLAIM_IN_USE: np.full(len(node_index), in_use)})
    steps.append({FilterReason.ATTACHED: over_attach_limit(node_index, index, storage, shape)})
    key = ("volumes", storage, shape.namespace, shape.claims)
    steps += node_index.remember(key, lambda: _static_steps(node_index, storage, shape, claims))
    return steps


def _static_steps(
    node_index: NodeIndex, storage: Storage, shape: PodSignature, claims: list[VolumeClaim]
) -> list[Step]:
    """The filters that do not depend on the running pods."""
    bound, unbound = [c for c in claims if c.bound], [c for c in claims if not c.bound]
    elsewhere, missing = _unreachable(node_index, storage, bound)
    no_volume, no_capacity = _not_bindable(node_index, storage, unbound)
    named = [claim for use, claim in zip(shape.claims, claims, strict=True) if not use.owner and claim.volume]
    return [
        {
            FilterReason.VOLUME_NODE_AFFINITY: elsewhere,
            FilterReason.NO_VOLUME: no_volume,
            FilterReason.NO_STORAGE_CAPACITY: no_capacity,
            FilterReason.VOLUME_GONE: missing,
        },
        {
            FilterReason.VOLUME_ZONE: _wrong_zone(
                node_index, [storage.volumes[claim.volume] for claim in named]
            )
        },
    ]


def _disk_conflicts(node_index: NodeIndex, index: PodIndex, shape: PodSignature) -> Bools:
    conflicts = np.zeros(len(node_index), dtype=bool)
    for disk in shape.disks:
        rivals = [Disk(disk.kind, disk.name, read_only=False)]
        if not disk.read_only or disk.kind in ALWAYS_CONFLICTS:
            rivals.append(Disk(disk.kind, disk.name, read_only=True))
        for rival in rivals:
            counter = index.disks.get(rival)
            if counter is not None:
                conflicts |= counter.dense(len(index.slots))[node_index.slots] > 0
    return conflicts


def conflicts_with_itself(shape: PodSignature) -> bool:
    """Whether no two such pods may run on one node because of their disks."""
    return any(not disk.read_only or disk.kind in ALWAYS_CONFLICTS for disk in shape.disks)


def _unreachable(node_index: NodeIndex, storage: Storage, claims: list[VolumeClaim]) -> tuple[Bools, Bools]:
    """Nodes that do not reach a claim's volume, and nodes for which a volume is missing."""
    elsewhere, missing = np.zeros(len(node_index), dtype=bool), np.zeros(len(node_index), dtype=bool)
    for claim in claims:
        volume = storage.volumes.get(claim.volume)
        if volume is None:
            return elsewhere, ~elsewhere
        elsewhere |= ~reach(node_index, volume)
    return elsewhere, missing


def reach(node_index: NodeIndex, volume: Volume) -> Bools:
    """Nodes that can use a volume, by its node affinity."""
    return terms_mask(node_index, volume.affinity)  # not cached: there may be too many volumes


def _not_bindable(node_index: NodeIndex, storage: Storage, claims: list[VolumeClaim]) -> tuple[Bools, Bools]:
    """Nodes without a volume, existing or to be provisioned, for an unbound claim; nodes without capacity."""
    no_volume, no_capacity = np.zeros(len(node_index), dtype=bool), np.zeros(len(node_index), dtype=bool)
    for claim in claims:
        if claim.selected_node:
            no_volume |= ~node_index.named((claim.selected_node,))
    decided = no_volume.copy()
    searching = sorted((claim for claim in claims if not claim.selected_node), key=lambda claim: claim.size)
    to_provision = [(claim, np.ones(len(node_index), dtype=bool)) for claim in claims if claim.selected_node]
    to_provision += _without_existing_volume(node_index, storage, searching)
    for claim, nodes in to_provision:
        allowed, has_capacity = _provisionable(node_index, storage, claim)
        no_volume |= nodes & ~decided & ~allowed
        no_capacity |= nodes & ~decided & allowed & ~has_capacity
        decided |= nodes & ~(allowed & has_capacity)
    return no_volume, no_capacity


def _without_existing_volume(
    node_index: NodeIndex, storage: Storage, claims: list[VolumeClaim]
) -> list[tuple[VolumeClaim, Bools]]:
    """For each claim, the nodes where no existing volume matches. No volume is used for two claims."""
    taken: dict[str, Bools] = {}
    unmatched = []
    for claim in claims:
        open_nodes = np.ones(len(node_index), dtype=bool)
        for volume in candidates(storage, claim):
            usable = open_nodes & reach(node_index, volume)
            if volume.name in taken:
                usable &= ~taken[volume.name]
            taken[volume.name] = taken.get(volume.name, np.zeros(len(node_index), dtype=bool)) | usable
            open_nodes &= ~usable
        unmatched.append((claim, open_nodes))
    return unmatched


def candidates(storage: Storage, claim: VolumeClaim) -> list[Volume]:
    """Volumes that match a claim: the one reserved for it, else smallest first."""
    fitting = [volume for volume in storage.volumes.values() if _matches_claim(volume, claim)]
    reserved = [volume for volume in fitting if volume.claim == claim.key]
    if reserved:
        return reserved[:1]
    free = [
        v for v in fitting if v.available and (claim.selector is None or claim.selector.accepts(v.labels))
    ]
    free = [v for v in free if v.claim is None and set(claim.modes) <= set(v.modes)]
    return sorted(free, key=lambda volume: volume.size)


def _matches_claim(volume: Volume, claim: VolumeClaim) -> bool:
    return (
        volume.storage_class == claim.storage_class
        and volume.size >= claim.size
        and volume.block == claim.block
        and volume.attributes == claim.attributes
        and not volume.terminating
    )


def _provisionable(node_index: NodeIndex, storage: Storage, claim: VolumeClaim) -> tuple[Bools, Bools]:
    """Nodes where a volume may be provisioned, and nodes with storage capacity for it."""
    everywhere, nowhere = np.ones(len(node_index), dtype=bool), np.zeros(len(node_index), dtype=bool)
    storage_class = storage.classes.get(claim.storage_class)
    if storage_class is None or storage_class.provisioner in NO_PROVISIONER:
        return nowhere, everywhere
    allowed = terms_mask(node_index, storage_class.topologies or None)
    if storage_class.provisioner not in storage.measured or not claim.size:
        return allowed, everywhere
    has_capacity = nowhere
    for capacity in storage.capacities:
        if capacity.storage_class == storage_class.name and capacity.largest >= claim.size:
            has_capacity = has_capacity | labelled_mask(node_index, capacity.nodes)
    return allowed, has_capacity


def labelled_mask(node_index: NodeIndex, selector: Selector) -> Bools:
    """Nodes whose labels a selector accepts."""
    if not selector.requirements:
        return np.full(len(node_index), selector.requirements is not None)
    return terms_mask(node_index, (NodeSelectorTerm(selector.requirements),))


def _wrong_zone(node_index: NodeIndex, volumes: list[Volume]) -> Bools:
    """Nodes outside the zones of a volume's labels; nodes without any zone label are accepted."""
    wrong = np.zeros(len(node_index), dtype=bool)
    table = node_index.table
    for volume in volumes:
        for key in ZONE_LABELS.keys() & volume.labels.keys():
            zones = set(volume.labels[key].split("__"))
            column, newer = table.column(key), table.column(ZONE_LABELS[key])
            good = np.isin(column, _codes(table, key, zones))
            fallback = np.isin(newer, _codes(table, ZONE_LABELS[key], zones))
            wrong |= ~np.where(column != ABSENT, good, fallback)
    if wrong.any():
        labelled = [table.column(key) != ABSENT for key in ZONE_LABELS]
        wrong &= np.logical_or.reduce(labelled)
    return wrong


def _codes(table: NodeTable, key: str, values: Iterable[str]) -> list[int]:
    known = table.codes(key)
    return [known[value] for value in values if value in known]
