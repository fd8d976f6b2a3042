"""Volume attach limits: the volumes attached to each node, and whether a pod's volumes exceed the limit."""

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
    """By driver, the number of volumes attached to each node; by volume, the rows of nodes that use it."""

    counts: dict[str, Ints]
    used: dict[Handle, set[int]]


def over_attach_limit(node_index: NodeIndex, index: PodIndex, storage: Storage, shape: PodSignature) -> Bools:
    """Nodes whose attach limit the pod's volumes would exceed."""
    handles = {handle_of(storage, (shape.namespace, use.name)) for use in shape.claims} - {None}
    over = np.zeros(len(node_index), dtype=bool)
    if not handles or not storage.limits:
        return over
    key = ("attached", storage, index, index.claims_version)
    attachments = node_index.remember(key, lambda: _attachments(node_index, index, storage))
    limits = node_index.remember(("limits", storage), lambda: _limits(node_index, storage))
    arriving: dict[str, Ints] = {}
    for handle in handles:
        assert handle is not None
        arriving_count = arriving.setdefault(handle[0], np.zeros(len(node_index), dtype=np.int64))
        arriving_count += 1
        arriving_count[list(attachments.used.get(handle, ()))] -= 1
    for driver, arriving_count in arriving.items():
        if driver in limits:
            attached = attachments.counts.get(driver, np.zeros(len(node_index), dtype=np.int64))
            over |= (arriving_count > 0) & (attached + arriving_count > limits[driver])
    return over


def handle_of(storage: Storage, key: ClaimKey) -> Handle | None:
    """Driver and handle of a claim's volume; before provisioning the handle is made of the claim's name."""
    claim = storage.claims.get(key)
    if claim is None:
        return None
    volume = storage.volumes.get(claim.volume) if claim.volume else None
    if volume is not None:
        return (volume.driver, volume.handle) if volume.driver and volume.handle else None
    storage_class = storage.classes.get(claim.storage_class)
    if storage_class is None or not storage_class.provisioner:
        return None
    # no driver's handle starts with a blank
    return storage_class.provisioner, f" {claim.namespace}/{claim.name}"


def _attachments(node_index: NodeIndex, index: PodIndex, storage: Storage) -> Attachments:
    rows = np.full(len(index.slots), ABSENT, dtype=np.int64)
    rows[node_index.slots] = np.arange(len(node_index))
    used: dict[Handle, set[int]] = {}
    for key, counter in index.claims.items():
        handle = handle_of(storage, key)
        if handle is not None:
            used.setdefault(handle, set()).update(int(rows[slot]) for slot in counter.sparse)
    counts: dict[str, Ints] = {}

    def count(driver: str, where: list[int]) -> None:
        counts.setdefault(driver, np.zeros(len(node_index), dtype=np.int64))[where] += 1

    for handle, where in used.items():
        where.discard(ABSENT)
        count(handle[0], list(where))
    for node, handles in storage.attached.items():
        row = node_index.row(node)
        for handle in handles if row != ABSENT else ():
            if row not in used.get(handle, ()):  # attached though no pod on the node uses it
                count(handle[0], [row])
    return Attachments(counts, used)


def _limits(node_index: NodeIndex, storage: Storage) -> dict[str, Ints]:
    limits: dict[str, Ints] = {}
    for node, by_driver in storage.limits.items():
        row = node_index.row(node)
        for driver, limit in by_driver.items() if row != ABSENT else ():
            limits.setdefault(driver, np.full(len(node_index), UNLIMITED, dtype=np.int64))[row] = limit
    return limits
