"""Summaries of the state: the numbers in status fields and metrics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import inf

import numpy as np

from bayplan.model.quota import Cell, Queue, Quota, StopPolicy
from bayplan.model.summary import (
    CellUse,
    Flaw,
    GangCounts,
    LevelCapacity,
    LevelSummary,
    NamespaceQueueSummary,
    QueueFault,
    QueueSummary,
    SharedCell,
    SharedSummary,
    Summaries,
)
from bayplan.placement.cluster.capacity import free_per_leaf
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.state.admission.quota_tree import QuotaAccount, dominant_share
from bayplan.state.admission.state import AdmissionState
from bayplan.state.reports.counters import QueueCounters, QueueTotals

_NOTHING = QueueTotals()
_KNOWN_FLAWS = {flaw.value for flaw in Flaw}


def summaries(
    state: AdmissionState,
    counters: QueueCounters | None = None,
    *,
    fair: bool = True,
    with_levels: bool = True,
) -> Summaries:
    """The current numbers of all queues, namespace queues, shared quota nodes and topology levels.

    Counters that are passed in again make the next call cheap. Without `fair` no shares are computed, and
    without `with_levels` no topology level is looked at: both are for those who show them.
    """
    counters = QueueCounters() if counters is None else counters
    counters.count(state)
    config = state.config
    topologies = sorted(state.usage.topologies) if with_levels else ()
    queues = {
        name: _queue(state, queue, counters.queues.get(name, _NOTHING), fair)
        for name, queue in config.queues.items()
    }
    return Summaries(
        queues=queues,
        namespace_queues={
            key: _namespace_queue(state, key, counters, queues) for key in config.namespace_queues
        },
        shared={
            name: _shared(account, counters.queues, fair)
            for name, account in state.usage.quota_tree().shared.items()
        },
        levels=tuple(level for name in topologies for level in levels(state, name)),
        flavors_in_use=frozenset(flavor for queue in config.queues.values() for flavor in queue.flavors()),
        checks_in_use=frozenset(check for queue in config.queues.values() for check in queue.checks),
        topologies_in_use=frozenset(f.topology for f in config.flavors.values() if f.topology),
    )


def weighted_share(account: QuotaAccount) -> float:
    """The weighted dominant resource share of a node, in thousandths."""
    infinite, weighted, _ = dominant_share(account)
    return inf if infinite else float(weighted)


def levels(state: AdmissionState, topology: str) -> Iterator[LevelSummary]:
    """The levels of a topology, from the top."""
    supply = state.usage.topologies[topology].snapshot()
    usable = supply.active_leaves()
    free = {name: _free_leaves(supply, name) for name in sorted(supply.resources)}
    emptied = supply.without_gangs()
    most = {name: _free_leaves(emptied, name) for name in free}
    for index, level in enumerate(supply.tree.levels):
        tree = supply.tree
        firsts = tree.first_leaves(index, np.arange(tree.size(index)))
        if not len(firsts):
            yield LevelSummary(topology, level, 0)
            continue
        rooms = tuple(
            _capacity(name, np.add.reduceat(free[name], firsts), np.add.reduceat(most[name], firsts))
            for name in free
        )
        domains = int(np.count_nonzero(np.logical_or.reduceat(usable, firsts)))
        yield LevelSummary(topology, level, domains, rooms)


def _queue(state: AdmissionState, queue: Queue, totals: QueueTotals, fair: bool) -> QueueSummary:
    account = state.usage.quota_tree().queues[queue.name]
    faults = tuple(_faults(state, queue))
    parked = sum(1 for is_parked, _ in totals.shapes if is_parked)
    ready = len(totals.shapes) - parked
    if faults:  # pending gangs stay so until the queue is active again
        parked, ready = len({shape for _, shape in totals.shapes}), 0
    return QueueSummary(
        name=queue.name,
        counts=_counts(totals, bool(faults)),
        cells=tuple(_cells(queue, totals, account.parent is not None)),
        wanted={resource: 0 for group in queue.groups for resource in group.resources} | totals.wanted,
        ready_shapes=ready,
        inadmissible_shapes=parked,
        faults=faults,
        path=tuple(above.name for above in account.ancestors()),
        share=weighted_share(account) if fair else None,
    )


def _faults(state: AdmissionState, queue: Queue) -> Iterator[QueueFault]:
    """The problems that make a queue inactive, in the order of `Flaw`; names of one kind together."""
    found: dict[Flaw, list[str]] = {}
    for what, name in state.flaws(queue):
        found.setdefault(Flaw(what) if what in _KNOWN_FLAWS else Flaw.OTHER, []).append(name)
    for flaw in Flaw:
        names = found.get(flaw, [])
        if flaw is Flaw.TOPOLOGY_MISSING:
            yield from (QueueFault(flaw, (name, state.config.flavors[name].topology)) for name in names)
        elif names:
            yield QueueFault(flaw, tuple(names if flaw is Flaw.FLAVOR_MISSING else sorted(names)))


def _counts(totals: QueueTotals, closed: bool) -> GangCounts:
    return GangCounts(
        0 if closed else totals.ready,
        totals.inadmissible + (totals.ready if closed else 0),
        totals.reserving,
        totals.admitted,
        totals.unchecked,
        totals.unplaced,
        dict(totals.rejected),
    )


def _cells(queue: Queue, totals: QueueTotals, lent: bool) -> Iterator[CellUse]:
    for group in queue.groups:
        for flavor in group.flavors:
            for resource in sorted(group.resources):
                cell = (flavor, resource)
                quota = queue.node.quotas.get(cell, Quota(0))
                reserved, used = totals.reserved.get(cell, 0), totals.used.get(cell, 0)
                yield CellUse(flavor, resource, quota, reserved, used, lent)


def _namespace_queue(
    state: AdmissionState, key: tuple[str, str], counters: QueueCounters, queues: Mapping[str, QueueSummary]
) -> NamespaceQueueSummary:
    namespace_queue, totals = state.config.namespace_queues[key], counters.namespace_queues.get(key, _NOTHING)
    queue, summary = state.config.queues.get(namespace_queue.queue), queues.get(namespace_queue.queue)
    active = summary is not None and summary.active
    return NamespaceQueueSummary(
        namespace_queue.namespace,
        namespace_queue.name,
        namespace_queue.queue,
        _counts(totals, not active),
        () if queue is None else tuple(_cells(queue, totals, False)),
        namespace_queue.stop is not StopPolicy.OPEN,
        queue is not None,
        active,
    )


def _shared(account: QuotaAccount, all_totals: Mapping[str, QueueTotals], fair: bool) -> SharedSummary:
    below = [all_totals.get(queue.name, _NOTHING) for queue in account.queues()]
    reserved: dict[Cell, int] = {}
    for totals in below:
        for cell, amount in totals.reserved.items():
            reserved[cell] = reserved.get(cell, 0) + amount
    cells = sorted(account.subtree.keys() | reserved.keys())
    return SharedSummary(
        account.name,
        tuple(above.name for above in account.ancestors()),
        tuple(SharedCell(*cell, account.subtree.get(cell, 0), reserved.get(cell, 0)) for cell in cells),
        sum(totals.admitted for totals in below),
        weighted_share(account) if fair else None,
    )


def _free_leaves(supply: CapacitySnapshot, resource: str) -> Ints:
    """The free amount of a resource on each usable leaf; 0 where it is overcommitted."""
    if not supply.leaves:
        return np.zeros(0, np.int64)
    left = free_per_leaf(supply, supply.active, resource)
    return np.where(supply.active_leaves(), np.maximum(left, 0), 0)


def _capacity(resource: str, free: Ints, most: Ints) -> LevelCapacity:
    """Capacity at a level, from the amounts per domain: `free` now, and `most` without any placed gang."""
    total, largest = int(free.sum()), int(free.max())
    possible = min(total, int(most.max()))
    return LevelCapacity(resource, total, largest, 1 - largest / possible if possible else 0.0)
