"""Seats for a gang that has a tree of pod sets: counted by topology, then held against each node."""

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
from bayplan.placement.gang.complete import complete
from bayplan.placement.gang.place import place_in
from bayplan.placement.numa.snapshot import copies_of, minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment, parties_of
from bayplan.placement.pods.counting import COUNT_MAX, is_free, repels_itself, room_for

COUNTED_BY_TOPOLOGY = (FilterReason.LACKING, FilterReason.TAINT, FilterReason.AFFINITY, FilterReason.CORDONED)
"""What the count by topology knows itself."""
CURED_BY_PEERS = (FilterReason.NOT_NEAR, FilterReason.SPREAD)
"""What other pods of the gang may cure; looked at when they sit."""
SHAPES_MAX = 8
NO_OWNER = Ref("", "", "", "")


def tree_seats(
    overlay: NodeOverlay, snapshot: CapacitySnapshot, tree: Group, pending: Sequence[Pod], bound: Sequence[Pod],
    *, profile: Profile, within: Bools | None = None,
) -> NodeAssignment | Misfit:  # fmt: skip
    """Seat a gang that has a tree, whole: pods in rank order onto hosts in rank order.

    `snapshot` is that of its topology as it was when the floor was opened; what has happened on the floor
    since is taken into account. A gang that runs in part is completed where its pods stand.
    If pods then get in each other's way, nobody is seated and the answer is unsure.
    """
    by_set: dict[str, list[Pod]] = {}
    for pod in pending:
        by_set.setdefault(pod.pod_set, []).append(pod)
    rows = rows_in(snapshot, overlay.scene.ground.land)
    here = _as_in_overlay(overlay, snapshot, rows, within)
    here, tree = _with_caps(overlay, here, rows, tree, by_set)
    found = _place(here, tree, by_set, bound, profile)
    if isinstance(found, Misfit):
        return found
    wanted: list[tuple[Pod, int]] = []
    for name, located in found.items():
        places = rows[np.repeat(located.leaves, located.pods)].tolist()
        wanted += zip(by_set.get(name, ()), places, strict=False)
    return assign_rows(overlay, pending, wanted)


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
    if sum(missing.values()) == asked and not any(pod.did_its_part for pod in bound):
        return place_in(scope, gang)
    bound_by_set: dict[str, list[str]] = {}
    for pod in bound:
        bound_by_set.setdefault(pod.pod_set, []).append(pod.node)
    return complete(scope, gang, bound_by_set, Counter(missing))


# ── the room that the topology counts ──────────────────────────────────────────────────────────────


def rows_in(snapshot: CapacitySnapshot, node_index: NodeIndex) -> Ints:
    """The row on the floor of each row of a topology."""
    return node_index.remember(("rows of", snapshot.tree), lambda: _rows_by_name(snapshot, node_index))


def _rows_by_name(snapshot: CapacitySnapshot, node_index: NodeIndex) -> Ints:
    nodes, numbers = snapshot.tree.nodes, node_index.known.numbers
    names = [node.name for node in nodes]
    slots = np.fromiter(map(numbers.get, names, repeat(ABSENT)), np.int64, len(names))
    rows = np.append(node_index.rows(), ABSENT)  # the last is for names never heard of
    return np.where(slots < len(rows) - 1, rows[np.minimum(slots, len(rows) - 1)], ABSENT)


def _as_in_overlay(
    overlay: NodeOverlay, snapshot: CapacitySnapshot, rows: Ints, allowed_nodes: Bools | None
) -> CapacitySnapshot:
    """The supply with what has happened on the floor, and without nodes that are out of bounds."""
    active, free = snapshot.active & (rows != ABSENT), snapshot.free
    if allowed_nodes is not None:
        active = active & allowed_nodes[rows]
    node_snapshot = overlay.scene.ground
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
    """Nodes closed to a pod set for reasons that counts know nothing of, as a resource that they lack."""
    caps: dict[str, Ints] = {}
    for name, pods in pending.items():
        cap = pod_caps(overlay, tuple(batch.shape for batch in parties_of(overlay, pods)))
        if cap is not None:
            caps[name] = np.where(rows != ABSENT, cap[rows], 0)
    return with_node_caps(snapshot, tree, caps, "room beside other pods")


def pod_caps(
    overlay: NodeOverlay,
    shapes: Sequence[PodSignature],
    known: Collection[FilterReason] = COUNTED_BY_TOPOLOGY,
) -> Ints | None:
    """How many pods each node may have besides what room says; None if nothing else has a say.

    `known` are the causes that need not be told.
    """
    cap: Ints | None = None
    for shape in shapes[:SHAPES_MAX]:
        filter_result = overlay.judge(shape)
        closed = [
            w for (cause, _), w in filter_result.refusals.items() if cause not in (*known, *CURED_BY_PEERS)
        ]
        alone = not is_free(shape) and bool(_repels_on_node(overlay, shape))
        wants = minds(overlay.scene.zones, shape)
        if not closed and not alone and filter_result.why.bar is None and wants is None:
            continue
        mine = np.full(len(overlay), 1 if alone else COUNT_MAX, dtype=np.int64)
        if wants is not None and overlay.scene.zones is not None:
            mine = np.minimum(mine, copies_of(overlay.scene.zones, wants, COUNT_MAX))
        for where in closed:
            mine[where] = 0
        if filter_result.why.bar is not None:
            mine[:] = 0
        cap = mine if cap is None else np.minimum(cap, mine)
    return cap


def _repels_on_node(overlay: NodeOverlay, shape: PodSignature) -> bool:
    bare = replace(shape, claims=(), disks=(), neighbours=replace(shape.neighbours, near=()), spread=())
    node_index = overlay.scene.ground.land
    return any(
        not key or bool((node_index.table.column(key) != ABSENT).all())
        for key in repels_itself(overlay.scene, bare) or ()
    )


# ── taking the seats ───────────────────────────────────────────────────────────────────────────────


def assign_rows(
    overlay: NodeOverlay, pending: Sequence[Pod], wanted: Sequence[tuple[Pod, int]]
) -> NodeAssignment:
    """Everybody sits where the count says, if the nodes agree; who needs others nearby sits after them."""
    checkpoint = overlay.mark()
    left: dict[PodKey, FilterFailure] = {}
    if all(is_free(pod.wants.shape) for pod, _ in wanted):
        left = _assign_all(overlay, wanted)
        if left:
            overlay.undo(checkpoint)
            with overlay.in_order():
                left = _assign_all(overlay, wanted)
        if left:
            overlay.undo(checkpoint)
            return NodeAssignment({}, left, unsure=True)
    else:
        late = list(wanted)
        while late:
            still = [(pod, row) for pod, row in late if not _assign_one(overlay, pod, row)]
            if len(still) == len(late):
                left = {pod.key: overlay.judge(pod.wants.shape).why for pod, _ in still}
                overlay.undo(checkpoint)
                return NodeAssignment({}, left, unsure=True)
            late = still
    assigned = {pod.key: row for pod, row in wanted}
    left = {pod.key: overlay.judge(pod.wants.shape).why for pod in pending if pod.key not in assigned}
    return NodeAssignment(assigned, left)


def _assign_all(overlay: NodeOverlay, wanted: Sequence[tuple[Pod, int]]) -> dict[PodKey, FilterFailure]:
    """Seat everybody; only zones may still object, if pods that differ share a node: then to whom."""
    places = {pod.key: row for pod, row in wanted}
    for number, batch in enumerate(parties_of(overlay, (pod for pod, _ in wanted))):
        rows = np.array([places[key] for key in batch.keys], dtype=np.int64)
        if number and minds(overlay.scene.zones, batch.shape) is not None:
            asked = np.bincount(rows, minlength=len(overlay))
            at, room = room_for(overlay.scene, batch.shape, asked > 0, len(rows))
            asked[at] -= room
            if (asked > 0).any():
                return dict.fromkeys(batch.keys, overlay.judge(batch.shape).why)
        overlay.seat_many(batch.shape, batch.keys, rows, batch.own)
    return {}


def _assign_one(overlay: NodeOverlay, pod: Pod, row: int) -> bool:
    fits = bool(overlay.judge(pod.wants.shape).fits[row])
    if fits:
        overlay.seat(pod.key, pod.wants.shape, row)
    return fits
