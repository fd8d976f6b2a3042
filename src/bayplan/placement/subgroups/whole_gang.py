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
from bayplan.placement.domains.node_caps import fenced
from bayplan.placement.domains.scope import Located, scope_of
from bayplan.placement.gang.complete import complete
from bayplan.placement.gang.place import place_in
from bayplan.placement.numa.snapshot import copies_of, minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment, parties_of
from bayplan.placement.pods.counting import COUNT_MAX, is_free, repels_itself, room_for

COUNTED_ANYWAY = (FilterReason.LACKING, FilterReason.TAINT, FilterReason.AFFINITY, FilterReason.CORDONED)
"""What the count by topology knows itself."""
HELPED = (FilterReason.NOT_NEAR, FilterReason.SPREAD)
"""What other pods of the gang may cure; looked at when they sit."""
SHAPES_MAX = 8
NOBODY = Ref("", "", "", "")


def tree_seats(
    floor: NodeOverlay, supply: CapacitySnapshot, tree: Group, waiting: Sequence[Pod], standing: Sequence[Pod], *,
    profile: Profile, within: Bools | None = None,
) -> NodeAssignment | Misfit:  # fmt: skip
    """Seat a gang that has a tree, whole: pods in rank order onto hosts in rank order.

    `supply` is that of its topology as it was when the floor was opened; what has happened on the floor
    since is taken into account. A gang that runs in part is completed where its pods stand.
    If pods then get in each other's way, nobody is seated and the answer is unsure.
    """
    by_set: dict[str, list[Pod]] = {}
    for pod in waiting:
        by_set.setdefault(pod.pod_set, []).append(pod)
    rows = rows_in(supply, floor.scene.ground.land)
    here = _as_on(floor, supply, rows, within)
    here, tree = _fenced(floor, here, rows, tree, by_set)
    found = _place(here, tree, by_set, standing, profile)
    if isinstance(found, Misfit):
        return found
    wanted: list[tuple[Pod, int]] = []
    for name, located in found.items():
        places = rows[np.repeat(located.leaves, located.pods)].tolist()
        wanted += zip(by_set.get(name, ()), places, strict=False)
    return take_seats(floor, waiting, wanted)


def _place(
    supply: CapacitySnapshot,
    tree: Group,
    waiting: Mapping[str, Sequence[Pod]],
    standing: Sequence[Pod],
    profile: Profile,
) -> dict[str, Located] | Misfit:
    gang, scope = Gang(NOBODY, tree), scope_of(supply, profile)
    missing = {name: len(pods) for name, pods in waiting.items()}
    asked = sum(pod_set.count for pod_set in tree.pod_sets())
    if sum(missing.values()) == asked and not any(pod.did_its_part for pod in standing):
        return place_in(scope, gang)
    stands: dict[str, list[str]] = {}
    for pod in standing:
        stands.setdefault(pod.pod_set, []).append(pod.node)
    return complete(scope, gang, stands, Counter(missing))


# ── the room that the topology counts ──────────────────────────────────────────────────────────────


def rows_in(supply: CapacitySnapshot, land: NodeIndex) -> Ints:
    """The row on the floor of each row of a topology."""
    return land.remember(("rows of", supply.tree), lambda: _rows_by_name(supply, land))


def _rows_by_name(supply: CapacitySnapshot, land: NodeIndex) -> Ints:
    nodes, numbers = supply.tree.nodes, land.known.numbers
    names = [node.name for node in nodes]
    slots = np.fromiter(map(numbers.get, names, repeat(ABSENT)), np.int64, len(names))
    rows = np.append(land.rows(), ABSENT)  # the last is for names never heard of
    return np.where(slots < len(rows) - 1, rows[np.minimum(slots, len(rows) - 1)], ABSENT)


def _as_on(
    floor: NodeOverlay, supply: CapacitySnapshot, rows: Ints, within: Bools | None
) -> CapacitySnapshot:
    """The supply with what has happened on the floor, and without nodes that are out of bounds."""
    active, free = supply.active & (rows != ABSENT), supply.free
    if within is not None:
        active = active & within[rows]
    ground = floor.scene.ground
    free = free.copy()
    for name, at in supply.resources.items():
        mine = ground.resources.get(name)
        if mine is not None:
            free[at] += np.where(rows != ABSENT, (ground.free[mine] - floor.before[mine])[rows], 0)
    return replace(supply, free=free, active=active, memory={})


def _fenced(
    floor: NodeOverlay,
    supply: CapacitySnapshot,
    rows: Ints,
    tree: Group,
    waiting: Mapping[str, Sequence[Pod]],
) -> tuple[CapacitySnapshot, Group]:
    """Nodes closed to a pod set for reasons that counts know nothing of, as a resource that they lack."""
    caps: dict[str, Ints] = {}
    for name, pods in waiting.items():
        cap = cap_beside(floor, tuple(party.shape for party in parties_of(floor, pods)))
        if cap is not None:
            caps[name] = np.where(rows != ABSENT, cap[rows], 0)
    return fenced(supply, tree, caps, "room beside other pods")


def cap_beside(
    floor: NodeOverlay, shapes: Sequence[PodSignature], known: Collection[FilterReason] = COUNTED_ANYWAY
) -> Ints | None:
    """How many pods each node may have besides what room says; None if nothing else has a say.

    `known` are the causes that need not be told.
    """
    cap: Ints | None = None
    for shape in shapes[:SHAPES_MAX]:
        verdict = floor.judge(shape)
        closed = [w for (cause, _), w in verdict.refusals.items() if cause not in (*known, *HELPED)]
        alone = not is_free(shape) and bool(_repels_on_node(floor, shape))
        wants = minds(floor.scene.zones, shape)
        if not closed and not alone and verdict.why.bar is None and wants is None:
            continue
        mine = np.full(len(floor), 1 if alone else COUNT_MAX, dtype=np.int64)
        if wants is not None and floor.scene.zones is not None:
            mine = np.minimum(mine, copies_of(floor.scene.zones, wants, COUNT_MAX))
        for where in closed:
            mine[where] = 0
        if verdict.why.bar is not None:
            mine[:] = 0
        cap = mine if cap is None else np.minimum(cap, mine)
    return cap


def _repels_on_node(floor: NodeOverlay, shape: PodSignature) -> bool:
    bare = replace(shape, claims=(), disks=(), neighbours=replace(shape.neighbours, near=()), spread=())
    land = floor.scene.ground.land
    return any(
        not key or bool((land.table.column(key) != ABSENT).all())
        for key in repels_itself(floor.scene, bare) or ()
    )


# ── taking the seats ───────────────────────────────────────────────────────────────────────────────


def take_seats(
    floor: NodeOverlay, waiting: Sequence[Pod], wanted: Sequence[tuple[Pod, int]]
) -> NodeAssignment:
    """Everybody sits where the count says, if the nodes agree; who needs others nearby sits after them."""
    mark = floor.mark()
    left: dict[PodKey, FilterFailure] = {}
    if all(is_free(pod.wants.shape) for pod, _ in wanted):
        left = _seat_blindly(floor, wanted)
        if left:
            floor.undo(mark)
            with floor.in_order():
                left = _seat_blindly(floor, wanted)
        if left:
            floor.undo(mark)
            return NodeAssignment({}, left, unsure=True)
    else:
        late = list(wanted)
        while late:
            still = [(pod, row) for pod, row in late if not _sits(floor, pod, row)]
            if len(still) == len(late):
                left = {pod.key: floor.judge(pod.wants.shape).why for pod, _ in still}
                floor.undo(mark)
                return NodeAssignment({}, left, unsure=True)
            late = still
    seats = {pod.key: row for pod, row in wanted}
    left = {pod.key: floor.judge(pod.wants.shape).why for pod in waiting if pod.key not in seats}
    return NodeAssignment(seats, left)


def _seat_blindly(floor: NodeOverlay, wanted: Sequence[tuple[Pod, int]]) -> dict[PodKey, FilterFailure]:
    """Seat everybody; only zones may still object, if pods that differ share a node: then to whom."""
    places = {pod.key: row for pod, row in wanted}
    for number, party in enumerate(parties_of(floor, (pod for pod, _ in wanted))):
        rows = np.array([places[key] for key in party.keys], dtype=np.int64)
        if number and minds(floor.scene.zones, party.shape) is not None:
            asked = np.bincount(rows, minlength=len(floor))
            at, room = room_for(floor.scene, party.shape, asked > 0, len(rows))
            asked[at] -= room
            if (asked > 0).any():
                return dict.fromkeys(party.keys, floor.judge(party.shape).why)
        floor.seat_many(party.shape, party.keys, rows, party.own)
    return {}


def _sits(floor: NodeOverlay, pod: Pod, row: int) -> bool:
    fits = bool(floor.judge(pod.wants.shape).fits[row])
    if fits:
        floor.seat(pod.key, pod.wants.shape, row)
    return fits
