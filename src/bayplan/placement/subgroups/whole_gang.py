"""Assigns a gang with a tree of pod sets as a whole: placed by topology, then checked on each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from itertools import repeat

import numpy as np

from bayplan.model.assignment import Misfit
from bayplan.model.filter_failure import FilterFailure, FilterReason
from bayplan.model.gang import Gang, Group, Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_index import NodeIndex
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.domains.node_caps import with_node_caps
from bayplan.placement.domains.scope import Located, scope_of
from bayplan.placement.gang.beside import complete
from bayplan.placement.gang.place import place_in
from bayplan.placement.numa.snapshot import aligned_copies, numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment, batch_pods
from bayplan.placement.pods.counting import COUNT_MAX, capacity_for, is_unconstrained, repels_itself

COUNTED_BY_TOPOLOGY = (
    FilterReason.INSUFFICIENT,
    FilterReason.TAINT,
    FilterReason.AFFINITY,
    FilterReason.CORDONED,
)
"""Filter reasons that the placement by topology checks itself."""
CURED_BY_PEERS = (FilterReason.POD_AFFINITY, FilterReason.SPREAD)
"""Filter reasons that other pods of the gang may remove; checked on assignment."""
SHAPES_MAX = 8
NO_OWNER = Ref("", "", "", "")


def assign_whole_gang(
    overlay: NodeOverlay, snapshot: CapacitySnapshot, tree: Group, pending: Sequence[Pod],
    bound: Sequence[Pod], *, profile: Profile, allowed_nodes: Bools | None = None,
) -> NodeAssignment | Misfit:  # fmt: skip
    """Assign all pods of a gang that has a tree: pods in rank order to hosts in rank order.

    `snapshot` is that of its topology when the overlay was created; the steps of the overlay since then are
    applied. A gang that runs in part is completed next to its bound pods. If the constraints between its pods
    then conflict, no pod is assigned and the answer is unsure.
    """
    by_set: dict[str, list[Pod]] = {}
    for pod in pending:
        by_set.setdefault(pod.pod_set, []).append(pod)
    rows = rows_in(snapshot, overlay.filter_input.node_snapshot.node_index)
    current = _as_in_overlay(overlay, snapshot, rows, allowed_nodes)
    current, tree = _with_caps(overlay, current, rows, tree, by_set)
    located_by_set = _place(current, tree, by_set, bound, profile)
    if isinstance(located_by_set, Misfit):
        return located_by_set
    targets: list[tuple[Pod, int]] = []
    for name, located in located_by_set.items():
        places = rows[np.repeat(located.leaves, located.pods)].tolist()
        targets += zip(by_set.get(name, ()), places, strict=False)
    return assign_rows(overlay, pending, targets)


def _place(
    snapshot: CapacitySnapshot,
    tree: Group,
    pending: Mapping[str, Sequence[Pod]],
    bound: Sequence[Pod],
    profile: Profile,
) -> dict[str, Located] | Misfit:
    gang, scope = Gang(NO_OWNER, tree), scope_of(snapshot, profile)
    missing = {name: len(pods) for name, pods in pending.items()}
    asked = sum(pod_set.count for pod_set in tree.pod_sets())
    if sum(missing.values()) == asked and not any(pod.done for pod in bound):
        return place_in(scope, gang)
    bound_nodes: dict[str, list[str]] = {}
    for pod in bound:
        bound_nodes.setdefault(pod.pod_set, []).append(pod.node)
    return complete(scope, gang, bound_nodes, Counter(missing))


# ── capacity by topology ───────────────────────────────────────────────────────────────────────────


def rows_in(snapshot: CapacitySnapshot, node_index: NodeIndex) -> Ints:
    """The row in the overlay of each row of a topology."""
    return node_index.remember(("rows of", snapshot.tree), lambda: _rows_by_name(snapshot, node_index))


def _rows_by_name(snapshot: CapacitySnapshot, node_index: NodeIndex) -> Ints:
    nodes, numbers = snapshot.tree.nodes, node_index.node_ids.numbers
    names = [node.name for node in nodes]
    slots = np.fromiter(map(numbers.get, names, repeat(ABSENT)), np.int64, len(names))
    rows = np.append(node_index.rows(), ABSENT)  # the last entry is for unknown names
    return np.where(slots < len(rows) - 1, rows[np.minimum(slots, len(rows) - 1)], ABSENT)


def _as_in_overlay(
    overlay: NodeOverlay, snapshot: CapacitySnapshot, rows: Ints, allowed_nodes: Bools | None
) -> CapacitySnapshot:
    """The snapshot with the steps of the overlay applied, and only the allowed nodes active."""
    active, free = snapshot.active & (rows != ABSENT), snapshot.free
    if allowed_nodes is not None:
        active = active & allowed_nodes[rows]
    node_snapshot = overlay.filter_input.node_snapshot
    free = free.copy()
    for name, at in snapshot.resources.items():
        mine = node_snapshot.resources.get(name)
        if mine is not None:
            free[at] += np.where(rows != ABSENT, (node_snapshot.free[mine] - overlay.before[mine])[rows], 0)
    return replace(snapshot, free=free, active=active, memory={})


def _with_caps(
    overlay: NodeOverlay,
    snapshot: CapacitySnapshot,
    rows: Ints,
    tree: Group,
    pending: Mapping[str, Sequence[Pod]],
) -> tuple[CapacitySnapshot, Group]:
    """Express filters that resource counts do not cover as an additional resource per pod set."""
    caps: dict[str, Ints] = {}
    for name, pods in pending.items():
        cap = pod_caps(overlay, tuple(batch.shape for batch in batch_pods(overlay, pods)))
        if cap is not None:
            caps[name] = np.where(rows != ABSENT, cap[rows], 0)
    return with_node_caps(snapshot, tree, caps, "room beside other pods")


def pod_caps(
    overlay: NodeOverlay,
    shapes: Sequence[PodSignature],
    known: Collection[FilterReason] = COUNTED_BY_TOPOLOGY,
) -> Ints | None:
    """The most pods of these signatures on each node, apart from resources; None if there is no such limit.

    `known` are the filter reasons that the caller checks itself.
    """
    cap: Ints | None = None
    for shape in shapes[:SHAPES_MAX]:
        filter_result = overlay.run_filters(shape)
        closed = [
            w for (cause, _), w in filter_result.rejections.items() if cause not in (*known, *CURED_BY_PEERS)
        ]
        alone = not is_unconstrained(shape) and bool(_repels_on_node(overlay, shape))
        numa_request = numa_request_of(overlay.filter_input.zones, shape)
        devices = shape.devices if overlay.devices is not None else None
        if not (closed or alone or filter_result.why.error is not None or numa_request or devices):
            continue
        limit = np.full(len(overlay), 1 if alone else COUNT_MAX, dtype=np.int64)
        if numa_request is not None and overlay.filter_input.zones is not None:
            limit = np.minimum(limit, aligned_copies(overlay.filter_input.zones, numa_request, COUNT_MAX))
        if devices is not None and overlay.devices is not None:
            node_index = overlay.filter_input.node_snapshot.node_index
            limit = np.minimum(limit, overlay.devices.counts(node_index, devices, COUNT_MAX))
        for where in closed:
            limit[where] = 0
        if filter_result.why.error is not None:
            limit[:] = 0
        cap = limit if cap is None else np.minimum(cap, limit)
    return cap


def _repels_on_node(overlay: NodeOverlay, shape: PodSignature) -> bool:
    bare = replace(shape, claims=(), disks=(), affinity=replace(shape.affinity, required=()), spread=())
    node_index = overlay.filter_input.node_snapshot.node_index
    return any(
        not key or bool((node_index.table.column(key) != ABSENT).all())
        for key in repels_itself(overlay.filter_input, bare) or ()
    )


# ── assignment ─────────────────────────────────────────────────────────────────────────────────────


def assign_rows(
    overlay: NodeOverlay, pending: Sequence[Pod], targets: Sequence[tuple[Pod, int]]
) -> NodeAssignment:
    """Assign the rows if the filters of each node pass; pods with affinity come after the pods they need."""
    checkpoint = overlay.checkpoint()
    left: dict[PodKey, FilterFailure] = {}
    if all(is_unconstrained(pod.spec.signature) for pod, _ in targets):
        left = _assign_all(overlay, targets)
        if left:
            overlay.rollback(checkpoint)
            with overlay.in_order():
                left = _assign_all(overlay, targets)
        if left:
            overlay.rollback(checkpoint)
            return NodeAssignment({}, left, unsure=True)
    else:
        remaining = list(targets)
        while remaining:
            still = [(pod, row) for pod, row in remaining if not _assign_one(overlay, pod, row)]
            if len(still) == len(remaining):
                left = {pod.key: overlay.run_filters(pod.spec.signature).why for pod, _ in still}
                overlay.rollback(checkpoint)
                return NodeAssignment({}, left, unsure=True)
            remaining = still
    assigned = {pod.key: row for pod, row in targets}
    left = {
        pod.key: overlay.run_filters(pod.spec.signature).why for pod in pending if pod.key not in assigned
    }
    return NodeAssignment(assigned, left)


def _assign_all(overlay: NodeOverlay, targets: Sequence[tuple[Pod, int]]) -> dict[PodKey, FilterFailure]:
    """Assign all pods without filters; returns the pods for which NUMA alignment on a shared node fails."""
    rows_by_pod = {pod.key: row for pod, row in targets}
    for number, batch in enumerate(batch_pods(overlay, (pod for pod, _ in targets))):
        rows = np.array([rows_by_pod[key] for key in batch.keys], dtype=np.int64)
        numa_request = numa_request_of(overlay.filter_input.zones, batch.shape)
        if number and (numa_request is not None or batch.shape.devices is not None):
            asked = np.bincount(rows, minlength=len(overlay))
            at, room = capacity_for(overlay.filter_input, batch.shape, asked > 0, len(rows))
            asked[at] -= room
            if (asked > 0).any():
                return dict.fromkeys(batch.keys, overlay.run_filters(batch.shape).why)
        overlay.add_pods(batch.shape, batch.keys, rows, batch.own)
        if overlay.lacks_devices(batch.keys):
            return dict.fromkeys(batch.keys, overlay.run_filters(batch.shape).why)
    return {}


def _assign_one(overlay: NodeOverlay, pod: Pod, row: int) -> bool:
    fits = bool(overlay.run_filters(pod.spec.signature).fits[row])
    if fits:
        overlay.add_pod(pod.key, pod.spec.signature, row)
    return fits
