"""Caps of pods per node below what resources allow (NUMA, filters), expressed as one more resource."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from bayplan.model.assignment import Assignment, Code, Misfit, Placement
from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.numa import ALIGNED, ZoneRules
from bayplan.placement.cluster.capacity import COUNT_MAX, with_slot
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.cluster.topology_tree import find as find_rows
from bayplan.placement.numa.alignment import why_unaligned
from bayplan.placement.numa.capacity import aligned_counts, with_copies
from bayplan.placement.numa.columns import NumaColumns, narrowed
from bayplan.placement.numa.resources import is_indifferent

TRIES_MAX = 16  # times that different pod sets are moved to other nodes
ZERO = np.zeros(1, dtype=np.int64)
NO_ASSIGNMENTS: Mapping[str, Assignment] = MappingProxyType({})

Find = Callable[[CapacitySnapshot, Gang], Placement]


def cap_resource(what: str, pod_set: str) -> str:
    """The name of the resource that expresses the cap of a pod set."""
    return f"{what} ({pod_set})"


def with_node_caps(
    snapshot: CapacitySnapshot, tree: Group, caps: Mapping[str, Ints], what: str
) -> tuple[CapacitySnapshot, Group]:
    """Add the caps of pods per node, by pod set and row, as resources to a snapshot and a tree."""
    if not caps:
        return snapshot, tree
    names = {name: cap_resource(what, name) for name in caps}
    resources, first = dict(snapshot.resources), len(snapshot.free)
    resources |= {resource: first + at for at, resource in enumerate(names.values())}
    free = np.concatenate((snapshot.free, np.array(list(caps.values()), np.int64)))
    largest = {**snapshot.largest, **dict.fromkeys(names.values(), COUNT_MAX)}
    claimed = snapshot.claimed
    if claimed is not None:
        claimed = np.concatenate((claimed, np.zeros((len(caps), claimed.shape[1]), np.int64)))
    capped = replace(
        snapshot, resources=resources, free=free, largest=largest, claimed=claimed, gang_usage=None, memory={}
    )
    return capped, _with_requests(tree, names)


def _with_requests(tree: Group, cap_resources: Mapping[str, str]) -> Group:
    """The tree with each capped pod set requesting one unit of its cap resource."""

    def with_requests(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return _with_requests(member, cap_resources)
        if member.name not in cap_resources:
            return member
        return replace(member, requests={**member.requests, cap_resources[member.name]: 1})

    return replace(tree, members=tuple(with_requests(member) for member in tree.members))


@dataclass(frozen=True, slots=True, eq=False)
class Aligned:
    """A placement, with the snapshot and gang (including NUMA caps) that it was found for."""

    placement: Placement
    snapshot: CapacitySnapshot
    gang: Gang


def place_aligned(
    snapshot: CapacitySnapshot, gang: Gang, columns: NumaColumns | None, rules: ZoneRules, find: Find,
    held: Mapping[str, Assignment] = NO_ASSIGNMENTS, *, lifted: bool = False,
) -> Aligned:  # fmt: skip
    """Run `find` so that no node gets more pods, of all pod sets together, than it can align.

    Pods that are `held` use their NUMA nodes already; with `lifted` the snapshot does not count them. Rows of
    the snapshot and of the columns are the same; without columns the result is that of `find`.
    """
    if columns is None:
        return Aligned(find(snapshot, gang), snapshot, gang)
    caps = aligned_caps(gang, columns, rules)
    bound = {name: _spread(snapshot, place) for name, place in held.items()}
    if lifted:
        caps = {name: cap + bound[name] if name in bound else cap for name, cap in caps.items()}
    asked, name = Aligned(Placement({}), snapshot, gang), ""
    for _ in range(TRIES_MAX):
        here, root = with_node_caps(snapshot, gang.root, caps, ALIGNED)
        capped_gang = replace(gang, root=root)
        asked = Aligned(find(here, capped_gang), here, capped_gang)
        misfit = asked.placement.misfit
        if misfit is not None:
            explained = _explained(misfit, snapshot, gang, caps, columns, rules)
            return replace(asked, placement=replace(asked.placement, misfit=explained))
        conflict = _conflict(snapshot, gang, asked.placement, columns, rules, bound)
        if conflict is None:
            return asked
        name, limit = conflict
        caps[name] = np.minimum(caps[name], limit) if name in caps else limit
    undecided = Misfit(Code.NOT_DECIDED, (name,), topology=snapshot.tree.topology.name)
    return replace(asked, placement=Placement({}, undecided))


def aligned_caps(gang: Gang, columns: NumaColumns, rules: ZoneRules) -> dict[str, Ints]:
    """By pod set and row: how many pods a node can align; each pod set alone, and only if it limits."""
    caps = {}
    for pod_set in gang.root.pod_sets():
        if pod_set.zones is not None and not is_indifferent(pod_set.zones, rules):
            counts = aligned_counts(columns, pod_set.zones, rules, pod_set.count)
            if (counts < pod_set.count).any():
                caps[pod_set.name] = counts
    return caps


def _conflict(
    snapshot: CapacitySnapshot, gang: Gang, placement: Placement, columns: NumaColumns, rules: ZoneRules,
    bound: Mapping[str, Ints],
) -> tuple[str, Ints] | None:  # fmt: skip
    """The first pod set that does not align beside those before it, and the pods that each row aligns."""
    aligned_sets = [
        p for p in gang.root.pod_sets() if p.zones is not None and p.name in placement.assignments
    ]
    if len(aligned_sets) < 2 or not snapshot.tree.topology.ends_at_host:
        return None
    for number, pod_set in enumerate(aligned_sets):
        assert pod_set.zones is not None
        pods = _spread(snapshot, placement.assignments[pod_set.name])
        if pod_set.name in bound:
            pods = np.maximum(pods - bound[pod_set.name], 0)
        rows = np.flatnonzero(pods)
        room = aligned_counts(narrowed(columns, rows), pod_set.zones, rules, pod_set.count)
        if number and (room < pods[rows]).any():
            limit = np.full(columns.rows, pod_set.count, dtype=np.int64)
            limit[rows] = room
            return pod_set.name, limit
        columns = with_copies(columns, rows, pods[rows], pod_set.zones, rules)
    return None


def _spread(snapshot: CapacitySnapshot, place: Assignment) -> Ints:
    """The pods of an assignment by row, if leaves are hosts."""
    pods = np.zeros(snapshot.tree.rows, dtype=np.int64)
    for share in place.shares if snapshot.tree.topology.ends_at_host else ():
        leaf = snapshot.leaf(share.values, usable=False)
        if leaf is not None:
            pods[leaf] += share.count
    return pods


def _explained(
    misfit: Misfit,
    snapshot: CapacitySnapshot,
    gang: Gang,
    caps: Mapping[str, Ints],
    columns: NumaColumns,
    rules: ZoneRules,
) -> Misfit:
    """Add why a node that has the resources for one more pod cannot align it, if there is such a node."""
    near = misfit.nearest
    capped_sets = [p for p in gang.root.pod_sets() if p.name in misfit.pod_sets and p.name in caps]
    if near is None or not capped_sets:
        return misfit
    pod_set, cap = capped_sets[0], caps[capped_sets[0].name]
    rows = _unaligned_rows(snapshot, pod_set, cap)
    low, high = find_rows(snapshot.tree, near.domain) if near.domain else (0, snapshot.tree.rows)
    inside = rows[(rows >= low) & (rows < high)]
    row = (inside if len(inside) else rows)[:1]
    if not len(row) or pod_set.zones is None:
        return misfit
    room = aligned_use(narrowed(columns, row), pod_set, ZERO, cap[row], rules)
    why = why_unaligned(room, 0, snapshot.tree.nodes[row[0]].name, pod_set.zones, rules)
    return replace(misfit, unaligned=why)


def _unaligned_rows(snapshot: CapacitySnapshot, pod_set: PodSet, cap: Ints) -> Ints:
    """The rows with resources for one more pod than they can align."""
    unaligned = snapshot.active & (cap < pod_set.count)
    for resource, amount in with_slot(pod_set.requests).items():
        at = snapshot.resources.get(resource)
        unaligned &= at is not None and snapshot.free[at] >= amount * (cap + 1)
    return np.flatnonzero(unaligned)


def aligned_use(
    columns: NumaColumns, pod_set: PodSet, rows: Ints, pods: Ints, rules: ZoneRules
) -> NumaColumns:
    """The NUMA columns with pods of a pod set added to some rows, as the kubelets would align them."""
    return columns if pod_set.zones is None else with_copies(columns, rows, pods, pod_set.zones, rules)
