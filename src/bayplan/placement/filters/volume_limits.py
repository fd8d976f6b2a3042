"""How many volumes of each driver are attached to each node, and whether a pod's own would still go on."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayplan.model.pod_spec import PodSignature
from bayplan.model.storage import ClaimKey, Handle, Storage
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.pod_index import PodIndex
from bayplan.placement.cluster.topology_tree import Bools, Ints

UNLIMITED = np.iinfo(np.int64).max // 2


@dataclass(frozen=True, slots=True, eq=False)
class Attachments:
    """Per driver how much is attached to each node, and per volume the nodes on which pods use it."""

    counts: dict[str, Ints]
    used: dict[Handle, set[int]]


def too_many_attached(land: NodeIndex, index: PodIndex, storage: Storage, shape: PodSignature) -> Bools:
    """Nodes whose limit would be passed if the pod's volumes came, too."""
    handles = {handle_of(storage, (shape.namespace, use.name)) for use in shape.claims} - {None}
    over = np.zeros(len(land), dtype=bool)
    if not handles or not storage.limits:
        return over
    key = ("attached", storage, index, index.claims_version)
    found = land.remember(key, lambda: _attachments(land, index, storage))
    limits = land.remember(("limits", storage), lambda: _limits(land, storage))
    arriving: dict[str, Ints] = {}
    for handle in handles:
        assert handle is not None
        count = arriving.setdefault(handle[0], np.zeros(len(land), dtype=np.int64))
        count += 1
        count[list(found.used.get(handle, ()))] -= 1
    for driver, count in arriving.items():
        if driver in limits:
            attached = found.counts.get(driver, np.zeros(len(land), dtype=np.int64))
            over |= (count > 0) & (attached + count > limits[driver])
    return over


def handle_of(storage: Storage, key: ClaimKey) -> Handle | None:
    """The driver of a claim's volume and its name there; one yet to be made goes by the claim's name."""
    claim = storage.claims.get(key)
    if claim is None:
        return None
    volume = storage.volumes.get(claim.volume) if claim.volume else None
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    found = storage.classes.get(claim.storage_class)
    if found is None or not found.provisioner:
        return None
    return found.provisioner, f" {claim.namespace}/{claim.name}"  # no driver's own name starts with a blank


def _attachments(land: NodeIndex, index: PodIndex, storage: Storage) -> Attachments:
    rows = np.full(len(index.slots), ABSENT, dtype=np.int64)
    rows[land.slots] = np.arange(len(land))
    used: dict[Handle, set[int]] = {}
    for key, tally in index.claims.items():
        handle = handle_of(storage, key)
        if handle is not None:
            used.setdefault(handle, set()).update(int(rows[slot]) for slot in tally.few)
    counts: dict[str, Ints] = {}

    def count(driver: str, where: list[int]) -> None:
        counts.setdefault(driver, np.zeros(len(land), dtype=np.int64))[where] += 1

    for handle, where in used.items():
        where.discard(ABSENT)
        count(handle[0], list(where))
    for node, handles in storage.attached.items():
        row = land.row(node)
        for handle in handles if row != ABSENT else ():
            if row not in used.get(handle, ()):  # attached though no pod on the node uses it
                count(handle[0], [row])
    return Attachments(counts, used)


def _limits(land: NodeIndex, storage: Storage) -> dict[str, Ints]:
    limits: dict[str, Ints] = {}
    for node, most in storage.limits.items():
        row = land.row(node)
        for driver, limit in most.items() if row != ABSENT else ():
            limits.setdefault(driver, np.full(len(land), UNLIMITED, dtype=np.int64))[row] = limit
    return limits
