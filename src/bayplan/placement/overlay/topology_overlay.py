"""What-if overlay of free capacity by topology: usage is added and removed as gangs are tried."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace

import numpy as np

from bayplan.model.assignment import Assignment, Path
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, ROOM_MAX
from bayplan.model.node_rules import NodeRules
from bayplan.model.numa import NumaRequest
from bayplan.model.quota import Flavor
from bayplan.placement.cluster.capacity import with_slot
from bayplan.placement.cluster.node_table import host_row, labelled, mask
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree, find
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.overlay.topology_numa_overlay import PodMove, TopologyNumaOverlay
from bayplan.placement.overlay.undo_log import UndoLog

KNOWN_MAX = 20_000

Beside = Callable[[CapacitySnapshot], CapacitySnapshot]
"""A snapshot → the same beside pods that are known to need hosts, without a row of their own in it."""
_Key = tuple[str, int, int]
_Usage = tuple[int, str, Assignment, Mapping[str, int], NumaRequest | None]
"""How many times, and the objects themselves: they are kept alive so that their ids stay unique."""


@dataclass(frozen=True, slots=True, eq=False)
class UsageDelta:
    """Usage of pods: amounts in flat cells (resource by leaf, row-major) of an array."""

    rows: Ints  # resources
    leaves: Ints
    cells: Ints
    amounts: Ints
    requests: Mapping[str, int]  # kept alive, so that its id stays unique


@dataclass(slots=True)
class KnownRows:
    """Cache of the rows of assignments in a tree, valid as long as the nodes stay the same."""

    trees: dict[str, tuple[Tree, int]] = field(default_factory=dict)
    located: dict[tuple[str, int], tuple[Assignment, Ints, Ints]] = field(default_factory=dict)
    deltas: dict[tuple[str, int, int], UsageDelta] = field(default_factory=dict)

    def refresh(self, snapshots: Mapping[str, CapacitySnapshot]) -> None:
        """Clear the cache if rows or resources changed, or if it has grown too large."""
        current = {name: (snapshot.tree, len(snapshot.resources)) for name, snapshot in snapshots.items()}
        same = current.keys() == self.trees.keys() and all(
            self.trees[name][0] is tree and self.trees[name][1] == size
            for name, (tree, size) in current.items()
        )
        if not same or len(self.located) > KNOWN_MAX:
            self.trees, self.located, self.deltas = current, {}, {}


class TopologyOverlay:
    """Capacity by topology. A flavor sees the nodes with its labels; host usage counts in all topologies."""

    def __init__(
        self, snapshots: Mapping[str, CapacitySnapshot], flavors: Mapping[str, Flavor],
        known: KnownRows | None = None, zones: TopologyNumaOverlay | None = None,
        beside: Beside | None = None,
    ) -> None:  # fmt: skip
        self.flavors, self.zones, self.beside = flavors, zones, beside
        self.known = known if known is not None else KnownRows()
        self.known.refresh(snapshots)
        self._initial, self._now = snapshots, dict(snapshots)
        self._written: set[str] = set()
        self._active: dict[str, Bools] = {}
        self._beside: dict[str, CapacitySnapshot] = {}  # by topology
        self._snapshots: dict[str, CapacitySnapshot] = {}
        self._empty: dict[str, CapacitySnapshot] = {}
        self.log = UndoLog(self._collect)
        self._pending: dict[_Key, _Usage] = {}  # not applied yet
        self._applied: dict[_Key, _Usage] = {}  # applied
        self._columns: dict[str, NumaColumns | None] = {}

    def has_topology(self, flavor: str) -> bool:
        """Whether gangs can be placed on the flavor's nodes."""
        known_flavor = self.flavors.get(flavor)
        return known_flavor is not None and known_flavor.topology in self._now

    def levels(self, flavor: str) -> tuple[str, ...]:
        return self._now[self.flavors[flavor].topology].tree.levels

    def supply(self, flavor: str, *, empty: bool = False) -> CapacitySnapshot:
        """The capacity of the flavor's nodes now, or without any placed gang if `empty`."""
        if not empty:
            self._apply_pending()
        cache = self._empty if empty else self._snapshots
        if flavor not in cache:
            flavor_spec = self.flavors[flavor]
            whole = self._now[flavor_spec.topology]
            if flavor not in self._active:
                has_labels = labelled(whole.table, flavor_spec.labels) if flavor_spec.labels else True
                self._active[flavor] = whole.active & has_labels
            if empty and whole.claimed is None:  # usage added since would wrongly count as free
                whole = self._initial[flavor_spec.topology]
            if not empty:
                whole = self._beside_others(flavor_spec.topology)
            snapshot = whole.limited(self._active[flavor])
            cache[flavor] = snapshot.without_gangs() if empty else snapshot
        return cache[flavor]

    def _beside_others(self, topology: str) -> CapacitySnapshot:
        """The capacity beside gangs that are placed in domains of other topologies."""
        if self.beside is None:
            return self._now[topology]
        if topology not in self._beside:
            self._beside[topology] = self.beside(self._now[topology])
        return self._beside[topology]

    def add_usage(
        self, flavor: str, assignment: Assignment, requests: Mapping[str, int], sign: int = 1,
        zones: NumaRequest | None = None,
    ) -> None:  # fmt: skip
        """Add the usage of an assignment (sign -1: remove it). Removed nodes are ignored."""
        self.log.push((sign, flavor, assignment, requests, zones))

    def _collect(self, usage: _Usage, undone: bool) -> None:
        """Most usage is reverted before it is read, so it is collected here and applied when it is read."""
        sign, flavor, assignment, requests, _ = usage
        key = flavor, id(assignment), id(requests)
        _add(self._pending, key, (-sign if undone else sign, *usage[1:]))

    def checkpoint(self) -> int:
        """A checkpoint for `rollback`."""
        return self.log.checkpoint()

    def rollback(self, mark: int) -> None:
        """Undo all usage added or removed since the checkpoint."""
        self.log.rollback(mark)

    def tentative(self) -> AbstractContextManager[None]:
        """Roll back at the end what happens inside."""
        return self.log.tentative()

    def columns(self, flavor: str, *, empty: bool = False) -> NumaColumns | None:
        """The zones of the nodes under the flavor's topology; None if no node reports zones."""
        topology = self.flavors[flavor].topology
        if self.zones is None:
            return None
        if empty:
            return self.zones.empty(topology)
        self._apply_pending()
        if topology not in self._columns:
            self._columns[topology] = self.zones.after(topology, self._moves(topology))
        return self._columns[topology]

    def _moves(self, topology: str) -> Iterator[PodMove]:
        """The usage added to or removed from hosts; for wider domains the zones are unknown."""
        for times, _, assignment, requests, request in self._applied.values():
            if request is not None and assignment.levels[-1] == HOSTNAME:
                located = self._located(topology, self._now[topology], assignment)
                yield PodMove(times, (id(assignment), id(requests)), request, *located)

    @property
    def unchanged(self) -> bool:
        """Whether there is no change from the start."""
        return not self._pending and not self._applied

    def _apply_pending(self) -> None:
        """Apply the usage that was added and not removed since the last read."""
        pending, self._pending = self._pending, {}
        if pending:
            self._columns.clear()
        changed: set[str] = set()
        for key, usage in pending.items():
            _add(self._applied, key, usage)
            changed.update(self._apply_usage(*usage[:4]))
            if self.beside is not None and usage[2].levels[-1] != HOSTNAME:  # its pods need hosts, too
                changed.update(self._now)
        for flavor in [name for name in self._snapshots if self.flavors[name].topology in changed]:
            del self._snapshots[flavor]
        for topology in changed:
            self._beside.pop(topology, None)

    def _apply_usage(
        self, times: int, flavor: str, assignment: Assignment, requests: Mapping[str, int]
    ) -> Iterator[str]:
        """Apply the usage of pods; yields the topologies that it changes."""
        own = self.flavors[flavor].topology if flavor in self.flavors else ""
        on_host = assignment.levels[-1] == HOSTNAME
        for topology, snapshot in self._now.items():
            if not on_host and (topology != (own or topology) or snapshot.tree.levels != assignment.levels):
                continue
            delta = self._delta(topology, snapshot, assignment, requests)
            if delta.cells.size:
                self._apply(topology, delta, times, on_host)
                yield topology

    def fits(
        self,
        flavor: str,
        assignment: Assignment,
        requests: Mapping[str, int],
        zones: NumaRequest | None = None,
    ) -> bool:
        """Whether an earlier assignment still fits."""
        self._apply_pending()
        topology = self.flavors[flavor].topology
        snapshot = self._beside_others(topology)
        if any(amount and name not in snapshot.resources for name, amount in with_slot(requests).items()):
            return False
        delta = self._delta(topology, snapshot, assignment, requests)
        if snapshot.claimed is None:
            left = snapshot.free.take(delta.cells)
        else:
            active_free = np.where(snapshot.active, snapshot.free[delta.rows], 0)
            sums = np.add.reduceat(active_free, snapshot.tree.starts[snapshot.tree.lowest], axis=1)
            left = (sums - snapshot.claimed[delta.rows])[:, delta.leaves].ravel()
        return not (left < delta.amounts).any() and self._aligns(flavor, assignment, zones)

    def _aligns(self, flavor: str, assignment: Assignment, request: NumaRequest | None) -> bool:
        columns = self.columns(flavor) if request is not None and assignment.levels[-1] == HOSTNAME else None
        if columns is None or request is None or self.zones is None:
            return True
        topology = self.flavors[flavor].topology
        return self.zones.fits(columns, request, *self._located(topology, self._now[topology], assignment))

    def leaves(self, flavor: str, assignments: Iterable[Assignment]) -> frozenset[int]:
        """The leaves of the pods of assignments."""
        topology = self.flavors[flavor].topology
        snapshot = self._now[topology]
        leaf_lists = [self._located(topology, snapshot, assignment)[0].tolist() for assignment in assignments]
        return frozenset(itertools.chain.from_iterable(leaf_lists))

    def path(self, flavor: str, values: Path) -> Path:
        """A domain from the top of the flavor's topology; assignments name hosts by their last value only."""
        levels, snapshot = self.levels(flavor), self.supply(flavor, empty=True)
        row = host_row(snapshot.table, values[-1]) if len(values) < len(levels) else None
        labels = {} if row is None else snapshot.table.nodes[row].labels
        return values if row is None else tuple(labels.get(level, "") for level in levels)

    def usable(self, flavor: str, rules: Iterable[NodeRules]) -> frozenset[int] | None:
        """The leaves that any of the rules accept; None if leaves have several nodes, which may differ."""
        snapshot = self.supply(flavor)
        if not snapshot.tree.topology.ends_at_host:
            return None
        accepted = [mask(snapshot.table, each) for each in rules]
        return frozenset(np.flatnonzero(snapshot.active & np.logical_or.reduce(accepted)).tolist())

    def by_domain(
        self, flavor: str, level: str, by_gang: Mapping[Ref, Iterable[Assignment]]
    ) -> dict[int, set[Ref]]:
        """The gangs that have pods in each domain of a level."""
        topology = self.flavors[flavor].topology
        snapshot = self._now[topology]
        tree, gangs_by_domain = snapshot.tree, dict[int, set[Ref]]()
        for ref, assignments in by_gang.items():
            for assignment in assignments:
                leaves = self._located(topology, snapshot, assignment)[0]
                for domain in np.unique(tree.ancestors(tree.lowest, leaves, tree.levels.index(level))):
                    gangs_by_domain.setdefault(int(domain), set()).add(ref)
        return gangs_by_domain

    def _located(
        self, topology: str, snapshot: CapacitySnapshot, assignment: Assignment
    ) -> tuple[Ints, Ints]:
        """The existing leaves of an assignment (rows, for hosts below leaves), and the pods on each."""
        key = (topology, id(assignment))
        if key not in self.known.located:
            on_host = assignment.levels[-1] == HOSTNAME
            pods_by_leaf: dict[int, int] = {}
            for share in assignment.shares:
                leaf = (
                    host_row(snapshot.table, share.values[-1]) if on_host else _leaf(snapshot, share.values)
                )
                if leaf is not None:
                    pods_by_leaf[leaf] = pods_by_leaf.get(leaf, 0) + share.count
            arrays = np.array(list(pods_by_leaf), np.int64), np.array(list(pods_by_leaf.values()), np.int64)
            # the assignment is kept alive, so that its id stays unique
            self.known.located[key] = (assignment, *arrays)
        return self.known.located[key][1:]

    def _delta(
        self, topology: str, snapshot: CapacitySnapshot, assignment: Assignment, requests: Mapping[str, int]
    ) -> UsageDelta:
        key = (topology, id(assignment), id(requests))
        if key not in self.known.deltas:
            leaves, pods = self._located(topology, snapshot, assignment)
            rows, each = _vector(snapshot, with_slot(requests))
            claims = snapshot.claimed is not None and assignment.levels[-1] != HOSTNAME
            width = snapshot.leaves if claims else snapshot.tree.rows
            cells = rows[:, None] * width + leaves
            amounts = each * np.minimum(pods, ROOM_MAX // each)  # bounded, and equal when it is removed again
            self.known.deltas[key] = UsageDelta(rows, leaves, cells.ravel(), amounts.ravel(), requests)
        return self.known.deltas[key]

    def _apply(self, topology: str, delta: UsageDelta, times: int, on_host: bool) -> None:
        snapshot = self._now[topology]
        if topology not in self._written:
            self._written.add(topology)
            snapshot = self._now[topology] = _writable(snapshot)
        if snapshot.claimed is not None and not on_host:
            snapshot.claimed.reshape(-1)[delta.cells] += delta.amounts * times
        else:
            snapshot.free.reshape(-1)[delta.cells] -= delta.amounts * times


def _add(usages: dict[_Key, _Usage], key: _Key, more: _Usage) -> None:
    """Add to a count; usage removed as often as added is dropped."""
    times = more[0] + (usages[key][0] if key in usages else 0)
    if times:
        usages[key] = (times, *more[1:])
    else:
        del usages[key]


def _vector(snapshot: CapacitySnapshot, amounts: Mapping[str, int]) -> tuple[Ints, Ints]:
    """The rows of the requested resources, and the amount of each as a column."""
    known = snapshot.resources
    requested = [
        (known[name], min(value, ROOM_MAX)) for name, value in amounts.items() if value and name in known
    ]
    pairs = np.array(requested, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1:]


def in_domains(
    snapshot: CapacitySnapshot, domains: Iterable[Path], *, inverted: bool = False
) -> CapacitySnapshot:
    """The snapshot with only the nodes of these domains, or with all others."""
    inside = np.zeros_like(snapshot.active)
    for domain in domains:
        low, high = find(snapshot.tree, domain)
        inside[low:high] = True
    return snapshot.limited(snapshot.active & (~inside if inverted else inside))


def _writable(snapshot: CapacitySnapshot) -> CapacitySnapshot:
    """A writable copy."""
    claimed = None if snapshot.claimed is None else snapshot.claimed.copy()
    return replace(snapshot, free=snapshot.free.copy(), claimed=claimed, memory={})


def _leaf(snapshot: CapacitySnapshot, values: tuple[str, ...]) -> int | None:
    tree = snapshot.tree
    low, high = find(tree, values)
    if low >= high:
        return None
    return int(np.searchsorted(tree.starts[tree.lowest], low, side="right")) - 1
