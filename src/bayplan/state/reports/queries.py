"""Queries about the state for people: positions in queues, gangs by domain, and free capacity."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile

import numpy as np

from bayplan.model.assignment import Path
from bayplan.model.gang import Ref
from bayplan.model.node import PODS
from bayplan.model.queued_gang import QueuedGang
from bayplan.model.quota import Cell
from bayplan.placement.cluster.capacity import AssumedUsage, free_per_leaf, pods_per_leaf, with_slot
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.state.admission.queues import QueueEntryState
from bayplan.state.admission.state import AdmissionState

CPU = "cpu"
_PLAIN = (CPU, "memory", "ephemeral-storage", PODS)
_NO_DEVICES = ("hugepages-", "attachable-volumes-")


@dataclass(frozen=True, slots=True)
class QueuePosition:
    """A gang's position in its queue; 1 is first."""

    position: int
    of: int
    first: Ref  # the head of the queue


@dataclass(frozen=True, slots=True)
class Holder:
    """A gang with pods in a domain."""

    gang: Ref
    pods: int


@dataclass(frozen=True, slots=True)
class Largest:
    """The most that one domain of a level holds: unused hosts, and pods with given requests."""

    hosts: int
    pods: int | None  # None: no requests were given


def positions(state: AdmissionState) -> dict[Ref, QueuePosition]:
    """The positions of all pending gangs, including those in backoff."""
    pending: dict[str, list[tuple[tuple[int, float, str, str], Ref]]] = {}
    for ref, queue_entry in state.pending.entries.items():
        if queue_entry.state in (QueueEntryState.PENDING, QueueEntryState.BACKOFF):
            pending.setdefault(queue_entry.queue, []).append((queue_entry.rank, ref))
    found = {}
    for pending_queue in pending.values():
        pending_queue.sort(key=lambda entry: entry[0])
        for position, (_, ref) in enumerate(pending_queue, start=1):
            found[ref] = QueuePosition(position, len(pending_queue), pending_queue[0][1])
    return found


def holders(state: AdmissionState, supply: CapacitySnapshot, domain: Path) -> list[Holder]:
    """The admitted gangs with pods in a domain, most pods first."""
    found = []
    for ref, usage in state.usage.by_gang.items():
        pods = 0
        for placement in usage.placements:
            for path, count in _paths(supply, placement.place.levels, placement.place.shares):
                pods += count if path[: len(domain)] == domain else 0
        if pods:
            found.append(Holder(ref, pods))
    return sorted(found, key=lambda one: (-one.pods, one.gang.namespace, one.gang.name))


def other_pods(state: AdmissionState, supply: CapacitySnapshot, domain: Path) -> int:
    """Pods in a domain that belong to no admitted gang."""
    claims = state.unmanaged.ledger.claims.values()
    return sum((supply.paths.get(claim.node) or ())[: len(domain)] == domain for claim in claims)


def usage_by_gang(state: AdmissionState, queue: str, cell: Cell) -> list[tuple[Ref, str, int]]:
    """The gangs that use a flavor's resource, in a queue and its quota tree; the largest usage first."""
    account = state.usage.quota_tree().queues.get(queue)
    queues = {each.name for each in account.root().queues()} if account is not None else set()
    found = [
        (ref, usage.queue, usage.quota[cell])
        for ref, usage in state.usage.by_gang.items()
        if usage.queue in queues and usage.quota.get(cell)
    ]
    return sorted(found, key=lambda one: (-one[2], one[0].namespace, one[0].name))


def common_domain(supply: CapacitySnapshot, queued: QueuedGang) -> tuple[Path, int]:
    """The smallest domain that contains all placed pods of a gang, and on how many leaves they are."""
    given = queued.admission.pod_sets if queued.admission is not None else ()
    places = [part.assignment for part in given if part.assignment is not None]
    leaves = {path for place in places for path, _ in _paths(supply, place.levels, place.shares)}
    if not leaves:
        return (), 0
    same = takewhile(lambda values: len(set(values)) == 1, zip(*leaves, strict=True))
    return tuple(values[0] for values in same), len(leaves)


def _paths(
    supply: CapacitySnapshot, levels: tuple[str, ...], shares: Iterable[object]
) -> Iterator[tuple[Path, int]]:
    """Domain assignments with full paths, as far as this topology has the domains."""
    tree = supply.tree
    if levels[-1] != tree.levels[-1]:
        return
    for share in shares:
        values, count = share.values, share.count  # type: ignore[attr-defined]
        path = supply.hosts.get(values[-1]) if tree.topology.ends_at_host else values
        if path is not None and len(path) == len(tree.levels):
            yield path, count


def commonest_shape(state: AdmissionState) -> Mapping[str, int]:
    """The most common pod requests over all gangs; empty without gangs."""
    shapes: Counter[tuple[tuple[str, int], ...]] = Counter()
    for entry in state.pending.entries.values():
        for pod_set in entry.queued_gang.gang.root.pod_sets():
            shapes[tuple(sorted(pod_set.requests.items()))] += pod_set.count
    ranked = sorted(shapes, key=lambda shape: (-shapes[shape], shape))
    return dict(ranked[0]) if ranked else {}


def main_resource(supply: CapacitySnapshot) -> str:
    """The resource a cluster is measured by: the device with the largest total, else CPU."""
    devices = [n for n in supply.resources if n not in _PLAIN and not n.startswith(_NO_DEVICES)]
    totals = {name: total(supply, name) for name in devices}
    best = min(devices, key=lambda name: (-totals[name], name), default="")
    return best if best and totals[best] else CPU


def largest_by_level(supply: CapacitySnapshot, shape: Mapping[str, int]) -> list[Largest]:
    """The largest gang that fits in one domain, for every level from the top down."""
    levels = range(len(supply.tree.levels))
    if not supply.leaves:
        return [Largest(0, 0 if shape else None) for _ in levels]
    hosts, pods = _whole_hosts(supply, main_resource(supply)), _pods(supply, shape) if shape else None
    return [
        Largest(
            int(_sums(supply, level, hosts).max()),
            None if pods is None else int(_sums(supply, level, pods).max()),
        )
        for level in levels
    ]


def pods_by_domain(supply: CapacitySnapshot, level: int, shape: Mapping[str, int]) -> Ints:
    """How many pods with these requests fit now in each domain of a level."""
    return _sums(supply, level, _pods(supply, shape)) if supply.leaves else np.zeros(0, np.int64)


def total(supply: CapacitySnapshot, resource: str) -> int:
    """Total allocatable of a resource over all usable nodes."""
    return int(_totals(supply, resource).sum())


def _sums(supply: CapacitySnapshot, level: int, leaves: Ints) -> Ints:
    tree = supply.tree
    found: Ints = np.add.reduceat(leaves, tree.first_leaves(level, np.arange(tree.size(level))))
    return found


def _by_leaf(supply: CapacitySnapshot, rows: Ints) -> Ints:
    found: Ints = np.add.reduceat(rows, supply.tree.starts[supply.tree.lowest])
    return found


def _free(supply: CapacitySnapshot, resource: str) -> Ints:
    left = free_per_leaf(supply, supply.active, resource)
    if supply.claimed is None:
        left = np.where(supply.active, left, 0)
    return np.maximum(left, 0)


def _totals(supply: CapacitySnapshot, resource: str) -> Ints:
    amounts = (node.allocatable.get(resource, 0) for node in supply.tree.nodes)
    return np.where(supply.active, np.fromiter(amounts, np.int64, supply.tree.rows), 0)


def _whole_hosts(supply: CapacitySnapshot, main: str) -> Ints:
    """Hosts on which the main resource is unused; in leaves of many hosts, as many as are free in sum."""
    row = supply.resources.get(main)
    if row is None:
        return np.zeros(supply.leaves, np.int64)
    each = np.fromiter((n.allocatable.get(main, 0) for n in supply.tree.nodes), np.int64, supply.tree.rows)
    whole = supply.active & (each > 0) & (supply.free[row] >= each)
    hosts = _by_leaf(supply, whole.astype(np.int64))
    if supply.claimed is None:
        return hosts
    return np.minimum(hosts, _free(supply, main) // max(1, int(each.max())))


def _pods(supply: CapacitySnapshot, shape: Mapping[str, int]) -> Ints:
    counts = pods_per_leaf(supply, supply.active, with_slot(shape), {}, AssumedUsage.nothing(supply))
    return np.where(supply.active_leaves(), counts, 0)
