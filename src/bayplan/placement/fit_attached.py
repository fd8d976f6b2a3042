"""How many volumes of each driver are attached to each node, and whether a pod's own would still go on."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np

from bayplan.model.storage import ClaimKey, Handle, Storage
from bayplan.model.wants import Shape
from bayplan.placement.fit_index import PodIndex
from bayplan.placement.fit_nodes import Land
from bayplan.placement.nodes import ABSENT
from bayplan.placement.tree import Bools, Ints

UNLIMITED = np.iinfo(np.int64).max // 2


@dataclass(frozen=True, slots=True, eq=False)
class Attachments:
    """Per driver what is attached to each node, and per volume where it is in use by pods."""

    counts: dict[str, Ints]
    limits: dict[str, Ints]
    used: dict[Handle, Bools]


def too_many_attached(land: Land, index: PodIndex, storage: Storage, shape: Shape) -> Bools:
    """Nodes whose limit would be passed if the pod's volumes came, too."""
    handles = {handle_of(storage, (shape.namespace, use.name)) for use in shape.claims} - {None}
    over = np.zeros(len(land), dtype=bool)
    if not handles or not storage.limits:
        return over
    key = ("attached", storage, index, index.claims_version)
    found = land.remember(key, lambda: _attachments(land, index, storage))
    arriving: dict[str, Ints] = {}
    for handle in handles:
        assert handle is not None
        new = ~found.used[handle] if handle in found.used else np.ones(len(land), dtype=bool)
        arriving[handle[0]] = arriving.get(handle[0], np.zeros(len(land), dtype=np.int64)) + new
    for driver, count in arriving.items():
        if driver in found.limits:
            attached = found.counts.get(driver, np.zeros(len(land), dtype=np.int64))
            over |= (count > 0) & (attached + count > found.limits[driver])
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


def _attachments(land: Land, index: PodIndex, storage: Storage) -> Attachments:
    rows = np.full(max(len(index.slots), 1), ABSENT, dtype=np.int64)
    rows[land.slots] = np.arange(len(land))
    used: dict[Handle, Bools] = {}
    for key, tally in index.claims.items():
        handle = handle_of(storage, key)
        if handle is not None and tally:
            at = rows[np.fromiter(tally.few, np.int64, len(tally.few))]
            where = used.setdefault(handle, np.zeros(len(land), dtype=bool))
            where[at[at != ABSENT]] = True
    counts: dict[str, Ints] = {}
    for (driver, _), where in used.items():
        counts[driver] = counts.get(driver, np.zeros(len(land), dtype=np.int64)) + where
    for node, handles in storage.attached.items():
        row = land.names.get(node)
        if row is not None:
            _count_left_over(counts, used, handles, row, len(land))
    limits: dict[str, Ints] = {}
    for node, most in storage.limits.items():
        row = land.names.get(node)
        for driver, limit in most.items() if row is not None else ():
            limits.setdefault(driver, np.full(len(land), UNLIMITED, dtype=np.int64))[row] = limit
    return Attachments(counts, limits, used)


def _count_left_over(
    counts: dict[str, Ints], used: dict[Handle, Bools], handles: frozenset[Handle], row: int, size: int
) -> None:
    """Volumes attached though no pod on the node uses them."""
    idle = Counter(handle[0] for handle in handles if handle not in used or not used[handle][row])
    for driver, count in idle.items():
        counts.setdefault(driver, np.zeros(size, dtype=np.int64))[row] += count
