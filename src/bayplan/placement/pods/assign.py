"""Assigns the pods of a gang to nodes, one batch of identical pods after the other.

The assigned pods are added to the overlay. The caller takes a checkpoint before the call and rolls back to it
to discard the result.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.cluster.node_index import NodeSnapshot
from bayplan.placement.cluster.node_index import domains as values_of
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import first_unaligned
from bayplan.placement.numa.snapshot import numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment, PodBatch
from bayplan.placement.pods.counting import (
    capacity_for,
    follows_first_pod,
    is_unconstrained,
    most_pods,
    needs_only_resources,
    needs_own_batch,
    repels_itself,
    shared_device_domains,
)
from bayplan.placement.pods.exact_assign import assign_by_search, assign_most_by_search
from bayplan.placement.pods.node_choice import choose, packed_order, preferred_rows, ranked_order
from bayplan.placement.pods.rack_packing import rows_in_racks
from bayplan.placement.pods.spread import best_rows

PASSES_MAX = 8
DOMAINS_TRIED_MAX = 8


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentTask:
    """One assignment: the batches, how many pods have to fit, and the nodes they may use."""

    overlay: NodeOverlay
    batches: tuple[PodBatch, ...]  # in the order in which they are assigned
    need: int
    profile: Profile
    allowed_nodes: Bools | None
    lone: bool

    @property
    def asked(self) -> int:
        return sum(len(batch.keys) for batch in self.batches)

    @property
    def packs(self) -> bool:
        return not self.lone and self.profile.gang_nodes is not NodeChoice.SPREAD


def assign_pods(
    overlay: NodeOverlay, batches: Sequence[PodBatch], *, need: int, profile: Profile,
    allowed_nodes: Bools | None = None, lone: bool = False, most: bool = False,
) -> NodeAssignment:  # fmt: skip
    """Assign pods to nodes in `allowed_nodes`, large ones first; if fewer than `need` fit, try other ways.

    `lone`: choose nodes as for single pods, whatever the profile says about gangs. `most`: assign the most
    pods, whichever they are; without it a large pod may take the room of several small ones.
    """
    ordered = _largest_first(overlay.filter_input.node_snapshot, batches)
    task = AssignmentTask(overlay, ordered, need, profile, allowed_nodes, lone)
    checkpoint = overlay.checkpoint()
    assigned = _assign(task, task.batches, allowed_nodes)
    unsure = False
    if len(assigned) < min(need, task.asked):
        assigned, unsure = _try_harder(task, checkpoint, assigned)
    elif most and len(assigned) < task.asked:
        assigned = _assign_most(task, checkpoint, assigned)
    in_order = {key: assigned[key] for batch in batches for key in batch.keys if key in assigned}
    return NodeAssignment(in_order, unassigned(overlay, batches, in_order, allowed_nodes), unsure)


def unassigned(
    overlay: NodeOverlay,
    batches: Sequence[PodBatch],
    assigned: Mapping[PodKey, int],
    allowed_nodes: Bools | None,
) -> dict[PodKey, FilterFailure]:
    """The pods without a node, each with the reason why one more of its batch does not fit."""
    left: dict[PodKey, FilterFailure] = {}
    for batch in batches:
        unassigned_keys = [key for key in batch.keys if key not in assigned]
        if unassigned_keys:
            left |= dict.fromkeys(unassigned_keys, _failure(overlay, batch.shape, allowed_nodes))
    return left


def _failure(overlay: NodeOverlay, shape: PodSignature, allowed_nodes: Bools | None) -> FilterFailure:
    """Why one more pod does not fit in the current overlay, counted over the nodes it may use."""
    filter_result = overlay.run_filters(shape)
    if allowed_nodes is None:
        return filter_result.why
    counts = {lack: int((where & allowed_nodes).sum()) for lack, where in filter_result.rejections.items()}
    reasons = {lack: count for lack, count in counts.items() if count}
    curable = int((filter_result.resolvable & allowed_nodes).sum())
    first = first_unaligned(overlay.filter_input, shape, filter_result.rejections, allowed_nodes)
    return FilterFailure(
        int(allowed_nodes.sum()), reasons, filter_result.why.error, filter_result.why.about, first, curable
    )


def _largest_first(node_snapshot: NodeSnapshot, batches: Sequence[PodBatch]) -> tuple[PodBatch, ...]:
    """Order batches by dominant resource share, largest first; ties keep the order given."""
    if len(batches) < 2:
        return tuple(batches)
    totals = dict(zip(node_snapshot.resources, node_snapshot.allocatable.sum(axis=1).tolist(), strict=True))

    def share(batch: PodBatch) -> float:
        return max((amount / max(totals.get(name, 0), 1) for name, amount in batch.shape.amounts), default=0)

    return tuple(sorted(batches, key=share, reverse=True))


# ── batch by batch ─────────────────────────────────────────────────────────────────────────────────


def _assign(
    task: AssignmentTask, batches: Sequence[PodBatch], allowed_nodes: Bools | None
) -> dict[PodKey, int]:
    """Assign each batch in turn; retry the rest while newly assigned pods may satisfy their affinity."""
    assigned: dict[PodKey, int] = {}
    pending = [batch for batch in batches if batch.keys]
    for _ in range(PASSES_MAX):
        before = len(assigned)
        for batch in pending:
            assigned |= _assign_batch(task, batch, allowed_nodes)
        pending = [
            rest
            for batch in pending
            if (rest := _rest(batch, assigned)).keys and not is_unconstrained(batch.shape)
        ]
        if not pending or len(assigned) == before:
            break
    return assigned


def _rest(batch: PodBatch, assigned: Mapping[PodKey, int]) -> PodBatch:
    left = [at for at, key in enumerate(batch.keys) if key not in assigned]
    own = tuple(batch.own[at] for at in left) if batch.own else ()
    return PodBatch(batch.shape, tuple(batch.keys[at] for at in left), own)


def _assign_batch(task: AssignmentTask, batch: PodBatch, allowed_nodes: Bools | None) -> dict[PodKey, int]:
    shape = batch.shape
    rows: Ints | None = None
    if task.packs and needs_only_resources(shape):
        rows = _packed(task, batch, allowed_nodes)
    elif task.packs and len(batch.keys) > 1 and follows_first_pod(task.overlay.filter_input, shape):
        first = _one_by_one(task.overlay, batch.part(0, 1), allowed_nodes)
        return first | _assign_rows(task.overlay, rest := batch.part(1), _packed(task, rest, allowed_nodes))
    elif len(batch.keys) > 1 and not is_unconstrained(shape):
        rows = _scattered(task.overlay, batch, allowed_nodes)
    elif len(batch.keys) > 1:
        rows = best_rows(task.overlay, shape, allowed_nodes, len(batch.keys))
    if rows is None:
        return _one_by_one(task.overlay, batch, allowed_nodes)
    checkpoint = task.overlay.checkpoint()
    assigned = _assign_rows(task.overlay, batch, rows)
    if task.overlay.lacks_devices(assigned):  # nodes share devices: each pod changes what is left for others
        task.overlay.rollback(checkpoint)
        return _one_by_one(task.overlay, batch, allowed_nodes)
    return assigned


def _assign_rows(overlay: NodeOverlay, batch: PodBatch, rows: Ints) -> dict[PodKey, int]:
    assigned_part = batch.part(0, len(rows))
    overlay.add_pods(batch.shape, assigned_part.keys, rows, assigned_part.own)
    return dict(zip(assigned_part.keys, rows.tolist(), strict=True))


def _packed(task: AssignmentTask, batch: PodBatch, allowed_nodes: Bools | None) -> Ints:
    """A row for each pod that fits, the fullest nodes first; the pods compete only for resources."""
    overlay, wanted = task.overlay, len(batch.keys)
    fits = overlay.run_filters(batch.shape).fits
    fitting = fits if allowed_nodes is None else fits & allowed_nodes
    rows, counts = capacity_for(overlay.filter_input, batch.shape, fitting, wanted)
    by_row = np.zeros(len(overlay), dtype=np.int64)
    by_row[rows] = counts
    if task.profile.gang_nodes is NodeChoice.PACK_RACKS and overlay.filter_input.node_snapshot.levels:
        best = preferred_rows(overlay, batch.shape, rows)
        if int(by_row[best].sum()) >= wanted:
            return rows_in_racks(overlay.filter_input.node_snapshot, batch.shape, best, by_row[best], wanted)
    order = packed_order(overlay, batch.shape, rows)
    sorted_counts = by_row[order]
    enough = int(np.searchsorted(np.cumsum(sorted_counts), wanted)) + 1
    return np.repeat(order[:enough], sorted_counts[:enough])[:wanted]


def _scattered(overlay: NodeOverlay, batch: PodBatch, allowed_nodes: Bools | None) -> Ints | None:
    """A row per pod where no two may share a node or a domain; None if there are further constraints."""
    keys = repels_itself(overlay.filter_input, batch.shape)
    if keys is None or len(keys) != 1:
        return None
    node_index, shape = overlay.filter_input.node_snapshot.node_index, batch.shape
    fits = overlay.run_filters(shape).fits
    fitting = fits if allowed_nodes is None else fits & allowed_nodes
    order = ranked_order(overlay, shape, fitting, np.flatnonzero(fitting))
    if keys[0]:
        value = values_of(node_index, keys[0])[0][order]
        if (value == ABSENT).any():
            return None  # anti-affinity does not apply between nodes that lack the label
        order = order[np.sort(np.unique(value, return_index=True)[1])]
    return order[: len(batch.keys)]


def _one_by_one(overlay: NodeOverlay, batch: PodBatch, allowed_nodes: Bools | None) -> dict[PodKey, int]:
    assigned: dict[PodKey, int] = {}
    for at, key in enumerate(batch.keys):
        row = choose(overlay, batch.shape, allowed_nodes)
        if row == ABSENT:
            break
        overlay.add_pod(key, batch.own[at] if batch.own else batch.shape, row)
        assigned[key] = row
    return assigned


# ── other ways to assign ───────────────────────────────────────────────────────────────────────────


def _try_harder(
    task: AssignmentTask, checkpoint: int, assigned: dict[PodKey, int]
) -> tuple[dict[PodKey, int], bool]:
    """Try other ways until one assigns as many pods as needed; and whether more might have been possible."""
    overlay, goal = task.overlay, min(task.need, task.asked)
    if len(task.batches) == 1 and is_unconstrained(task.batches[0].shape):
        return assigned, False
    overlay.rollback(checkpoint)
    best, best_order = assigned, (task.batches, task.allowed_nodes)
    proven = _is_hopeless(task)
    if not proven and all(is_unconstrained(batch.shape) for batch in task.batches):
        found, proven = assign_by_search(overlay, task.batches, task.allowed_nodes, task.profile)
        if found is not None:
            assigned_by_search = _assign_as_found(task, found, checkpoint)
            if assigned_by_search is not None:
                return assigned_by_search, False
        proven = proven and found is None and goal == task.asked
    orders = _other_orders(task)
    if proven:  # only so that the reported count of pods that fit is not too low
        orders = islice(orders, int(len(task.batches) == 1))
    for batches, allowed_nodes in orders:
        attempt = _assign(task, batches, allowed_nodes)
        if len(attempt) >= goal:
            return attempt, False
        if len(attempt) > len(best):
            best, best_order = attempt, (batches, allowed_nodes)
        overlay.rollback(checkpoint)
    if len(task.batches) > 1 and any(
        numa_request_of(overlay.filter_input.zones, batch.shape) for batch in task.batches
    ):
        with overlay.in_order():
            hopeless = _is_hopeless(task)
            in_turn = () if hopeless else ((task.batches, task.allowed_nodes), *_other_orders(task))
            for batches, allowed_nodes in in_turn:
                attempt = _assign(task, batches, allowed_nodes)
                if len(attempt) >= goal:
                    return attempt, False
                overlay.rollback(checkpoint)
        proven = proven and hopeless
    return _assign(task, *best_order), not proven


def _assign_most(task: AssignmentTask, checkpoint: int, assigned: dict[PodKey, int]) -> dict[PodKey, int]:
    """Assign more pods than large ones first do, by other orders or a search."""
    unconstrained = all(is_unconstrained(batch.shape) for batch in task.batches)
    if len(task.batches) == 1 and unconstrained:
        return assigned
    overlay, best, best_order = task.overlay, assigned, (task.batches, task.allowed_nodes)
    overlay.rollback(checkpoint)
    possible = sum(
        min(len(batch.keys), int(counts.sum()))
        for batch in task.batches
        for _, counts in (most_pods(overlay, batch.shape, task.allowed_nodes, len(batch.keys)),)
    )
    for order in _other_orders(task):
        if len(best) < possible:
            attempt = _assign(task, *order)
            if len(attempt) > len(best):
                best, best_order = attempt, order
            overlay.rollback(checkpoint)
    if len(best) < possible and unconstrained:
        found = assign_most_by_search(overlay, task.batches, task.allowed_nodes, task.profile)
        if found is not None and sum(map(len, found)) > len(best):
            by_search = _assign_as_found(task, found, checkpoint)
            if by_search is not None:
                return by_search
    return _assign(task, *best_order)


def _assign_as_found(task: AssignmentTask, found: list[Ints], checkpoint: int) -> dict[PodKey, int] | None:
    """Assign the rows that the search returned; None if NUMA alignment fails in any order of the pods.

    The search knows how many pods of each batch a node can align, but not how many of several batches.
    """
    assigned = _assign_if_aligned(task, found)
    if assigned is None:
        task.overlay.rollback(checkpoint)
        with task.overlay.in_order():
            assigned = _assign_if_aligned(task, found)
            if assigned is None:
                task.overlay.rollback(checkpoint)
    return assigned


def _assign_if_aligned(task: AssignmentTask, found: list[Ints]) -> dict[PodKey, int] | None:
    overlay = task.overlay
    assigned: dict[PodKey, int] = {}
    for batch, rows in zip(task.batches, found, strict=True):
        if assigned and _shares_nodes(overlay, batch):
            asked = np.bincount(rows, minlength=len(overlay))
            at, room = capacity_for(overlay.filter_input, batch.shape, asked > 0, len(rows))
            asked[at] -= room
            if (asked > 0).any():
                return None
        assigned |= _assign_rows(overlay, batch, rows)
    return None if overlay.lacks_devices(assigned) else assigned


def _shares_nodes(overlay: NodeOverlay, batch: PodBatch) -> bool:
    """Whether pods of other batches on a node change how many of this batch fit, beside resources."""
    zones, shape = overlay.filter_input.zones, batch.shape
    return shape.devices is not None or numa_request_of(zones, shape) is not None


def _is_hopeless(task: AssignmentTask) -> bool:
    """Whether a count of resources already shows that fewer pods fit than needed."""
    node_snapshot, possible = task.overlay.filter_input.node_snapshot, 0
    useful = np.zeros(len(task.overlay), dtype=bool)
    total: dict[str, int] = {}
    for batch in task.batches:
        rows, counts = most_pods(task.overlay, batch.shape, task.allowed_nodes, len(batch.keys))
        possible += min(len(batch.keys), int(counts.sum()), _together_at_most(task, batch))
        useful[rows] = True
        for name, amount in batch.shape.amounts:
            total[name] = total.get(name, 0) + amount * len(batch.keys)
    if possible < task.need:
        return True
    if task.need < task.asked:
        return False
    return any(
        amount > int(np.maximum(node_snapshot.free[node_snapshot.resources[name]][useful], 0).sum())
        for name, amount in total.items()
        if name in node_snapshot.resources
    )


def _together_at_most(task: AssignmentTask, batch: PodBatch) -> int:
    """How many pods the best domain holds, if the pods of the batch have affinity only to each other."""
    if len(task.batches) > 1 or not needs_own_batch(task.overlay, batch.shape):
        return len(batch.keys)
    rooms = [_room_by_value(task, (batch,), term.key)[1] for term in batch.shape.affinity.required]
    return min(int(room.max(initial=0)) for room in rooms)


def _other_orders(task: AssignmentTask) -> Iterator[tuple[tuple[PodBatch, ...], Bools | None]]:
    """Batches in other orders; then, for pods that have to be together, one domain at a time."""
    constrained_first = tuple(sorted(task.batches, key=lambda batch: is_unconstrained(batch.shape)))
    for order in dict.fromkeys((constrained_first, task.batches[::-1])):
        if order != task.batches:
            yield order, task.allowed_nodes
    for key in dict.fromkeys(term.key for batch in task.batches for term in batch.shape.affinity.required):
        value, room = _room_by_value(task, task.batches, key)
        for domain in np.argsort(-room, kind="stable")[:DOMAINS_TRIED_MAX].tolist():
            if room[domain]:
                in_domain = value == domain
                yield task.batches, _within(task, in_domain)
    for in_domain in shared_device_domains(task.overlay, task.batches, task.allowed_nodes, DOMAINS_TRIED_MAX):
        yield task.batches, _within(task, in_domain)


def _within(task: AssignmentTask, domain: Bools) -> Bools:
    return domain if task.allowed_nodes is None else domain & task.allowed_nodes


def _room_by_value(task: AssignmentTask, batches: Sequence[PodBatch], key: str) -> tuple[Ints, Ints]:
    """The code of each node's value of a label, and by code how many pods fit there at most."""
    value, size = values_of(task.overlay.filter_input.node_snapshot.node_index, key)
    room = np.zeros(size, dtype=np.int64)
    for batch in batches:
        rows, counts = most_pods(task.overlay, batch.shape, task.allowed_nodes, len(batch.keys))
        labelled = value[rows] != ABSENT
        per_value = np.bincount(value[rows][labelled], weights=counts[labelled], minlength=size).astype(
            np.int64
        )
        room += np.minimum(per_value, len(batch.keys))
    return value, room
