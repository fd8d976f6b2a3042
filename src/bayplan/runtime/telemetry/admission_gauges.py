"""Queue summaries as gauge samples: names, labels, and a bound on the number of series.

The names are those of Kueue's metrics, for existing dashboards. At most `NAMES_MAX` queues, namespace queues
and cohorts have series of their own, the busiest first; all others are `other`, summed where a sum makes
sense.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isinf, nan
from typing import TypeVar

from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.model.summary import GangCounts, NamespaceQueueSummary, QueueSummary, Summaries
from bayplan.runtime.telemetry.metrics import OTHER

T = TypeVar("T")
NAMES_MAX = 200
SETS_MAX = 2000
Labels = tuple[str, ...]
Samples = dict[str, dict[Labels, float]]
"""By gauge and label values."""


@dataclass(frozen=True, slots=True)
class Gauged:
    """The help and labels of a gauge; `adds` if its sum over several label sets is meaningful."""

    help: str
    labels: Labels
    adds: bool = True


_QUEUE, _WAY = ("cluster_queue",), ("name", "namespace")
_CELL = ("cohort", "cluster_queue", "flavor", "resource")
_WAY_CELL = (*_WAY, "flavor", "resource")
_LEVEL = ("topology", "level")

GAUGES = {
    "pending_workloads": Gauged(
        "Pending gangs: active, or inadmissible until an event may help.", (*_QUEUE, "status")
    ),
    "pending_scheduling_hashes": Gauged("Pending gangs with different requests.", (*_QUEUE, "status")),
    "unadmitted_workloads": Gauged(
        "Gangs that are not admitted, by what they wait for.", (*_QUEUE, "reason", "underlying_cause")
    ),
    "reserving_active_workloads": Gauged("Gangs with quota reserved.", _QUEUE),
    "admitted_active_workloads": Gauged("Admitted gangs.", _QUEUE),
    "cluster_queue_status": Gauged("1 for the current status of a queue.", (*_QUEUE, "status")),
    "cluster_queue_info": Gauged(
        "Always 1; the labels name the parents of a queue.",
        (*_QUEUE, "parent_cohort", "root_cohort"),
        adds=False,
    ),
    "cluster_queue_resource_reservation": Gauged("Quota reserved by gangs.", _CELL),
    "cluster_queue_resource_usage": Gauged("Quota used by admitted gangs.", _CELL),
    "cluster_queue_resource_pending": Gauged("Quota requested by pending gangs.", (*_QUEUE, "resource")),
    "cluster_queue_nominal_quota": Gauged("Nominal quota of a queue.", _CELL),
    "cluster_queue_borrowing_limit": Gauged("Borrowing limit of a queue; +Inf: unlimited.", _CELL),
    "cluster_queue_lending_limit": Gauged("Lending limit of a queue; +Inf: unlimited.", _CELL),
    "cluster_queue_weighted_share": Gauged(
        "Usage of a queue above its quota, in thousandths of what it could borrow; NaN: weight 0.",
        ("cluster_queue", "cohort"),
        adds=False,
    ),
    "cohort_weighted_share": Gauged("The same for a cohort.", ("cohort",), adds=False),
    "cohort_subtree_quota": Gauged(
        "Quota of a cohort and all its descendants.", ("cohort", "flavor", "resource")
    ),
    "cohort_subtree_resource_reservations": Gauged(
        "Quota reserved by gangs of all queues of a cohort.", ("cohort", "flavor", "resource")
    ),
    "cohort_subtree_admitted_active_workloads": Gauged(
        "Admitted gangs of all queues of a cohort.", ("cohort",)
    ),
    "cohort_info": Gauged(
        "Always 1; the labels name the parents of a cohort.",
        ("cohort", "parent_cohort", "root_cohort"),
        adds=False,
    ),
    "local_queue_pending_workloads": Gauged("As above, by local queue.", (*_WAY, "status")),
    "local_queue_unadmitted_workloads": Gauged(
        "As above, by local queue.", (*_WAY, "cluster_queue", "reason", "underlying_cause")
    ),
    "local_queue_reserving_active_workloads": Gauged("As above, by local queue.", _WAY),
    "local_queue_admitted_active_workloads": Gauged("As above, by local queue.", _WAY),
    "local_queue_status": Gauged("1 for the current status, active or not.", (*_WAY, "active")),
    "local_queue_resource_reservation": Gauged("As above, by local queue.", _WAY_CELL),
    "local_queue_resource_usage": Gauged("As above, by local queue.", _WAY_CELL),
}
TOPOLOGY_GAUGES = {
    "topology_domains": Gauged("Domains of a level that have a usable node.", _LEVEL),
    "topology_free": Gauged("Free capacity of usable nodes.", (*_LEVEL, "resource")),
    "topology_largest_gang": Gauged(
        "Largest free capacity of one domain of the level.", (*_LEVEL, "resource"), adds=False
    ),
    "topology_fragmentation": Gauged(
        "Fragmentation: the fraction by which that is less than if the free capacity were contiguous.",
        (*_LEVEL, "resource"),
        adds=False,
    ),
}


def samples(summaries: Summaries) -> Samples:
    """All samples at this moment."""
    found: Samples = {name: {} for name in GAUGES}
    put = _Sums(found)
    busy = {name: _busyness(queue.counts) for name, queue in summaries.queues.items()}
    shown = busiest(busy)
    for queue in summaries.queues.values():
        _queue(put, queue, queue.name in shown)
    ways = {
        key: _busyness(namespace_queue.counts) for key, namespace_queue in summaries.namespace_queues.items()
    }
    shown_ways = busiest(ways)
    for key, namespace_queue in summaries.namespace_queues.items():
        _namespace_queue(put, namespace_queue, key in shown_ways, namespace_queue.queue in shown)
    _shared(put, summaries)
    return {name: bounded(values, GAUGES[name].adds) for name, values in found.items()}


def topology_samples(summaries: Summaries) -> Samples:
    """All samples of topology capacity."""
    found: Samples = {name: {} for name in TOPOLOGY_GAUGES}
    for level in summaries.levels:
        labels = (level.topology, level.level)
        found["topology_domains"][labels] = level.domains
        for room in level.capacities:
            here = (*labels, room.resource)
            found["topology_free"][here] = amount(room.resource, room.free)
            found["topology_largest_gang"][here] = amount(room.resource, room.largest)
            found["topology_fragmentation"][here] = room.fragmentation
    return {name: bounded(values, TOPOLOGY_GAUGES[name].adds) for name, values in found.items()}


def busiest(counts: Mapping[T, int], limit: int = NAMES_MAX) -> set[T]:
    """The names with series of their own."""
    if len(counts) <= limit:
        return set(counts)
    return set(sorted(counts, key=lambda name: (-counts[name], str(name)))[:limit])


def bounded(values: dict[Labels, float], adds: bool, limit: int = SETS_MAX) -> dict[Labels, float]:
    """At most `limit` label sets: the largest stay, the others are summed, or dropped."""
    if len(values) <= limit:
        return values
    ranked = sorted(values, key=lambda labels: (-values[labels] if values[labels] > 0 else 0.0, labels))
    kept = {labels: values[labels] for labels in ranked[: limit - 1]}
    if adds:
        kept[(OTHER,) * len(ranked[0])] = sum(values[labels] for labels in ranked[limit - 1 :])
    return kept


def amount(resource: str, value: int) -> float:
    """An amount in the unit of users: CPUs, not millicores."""
    return value / 1000 if resource == "cpu" else float(value)


class _Sums:
    """Adds up samples. For unnamed label sets, gauges that cannot be summed are left out."""

    def __init__(self, found: Samples) -> None:
        self.found = found

    def __call__(self, name: str, labels: Labels, value: float) -> None:
        if OTHER not in labels[:2] or GAUGES[name].adds:
            known = self.found[name]
            known[labels] = known.get(labels, 0.0) + value


Put = Callable[[str, Labels, float], None]


def _busyness(counts: GangCounts) -> int:
    return counts.pending + counts.reserving


def _queue(put: Put, queue: QueueSummary, shown: bool) -> None:
    name, parent = (queue.name, queue.path[0] if queue.path else "") if shown else (OTHER, OTHER)
    counts = queue.counts
    for status, gangs, shapes in (
        ("active", counts.ready, queue.ready_shapes),
        ("inadmissible", counts.inadmissible, queue.inadmissible_shapes),
    ):
        put("pending_workloads", (name, status), gangs)
        put("pending_scheduling_hashes", (name, status), shapes)
    put("reserving_active_workloads", (name,), counts.reserving)
    put("admitted_active_workloads", (name,), counts.admitted)
    for why, cause, number in _unadmitted(counts):
        put("unadmitted_workloads", (name, why, cause), number)
    for status in ("pending", "active", "terminating"):
        put("cluster_queue_status", (name, status), status == ("active" if queue.active else "pending"))
    put("cluster_queue_info", (name, parent, queue.path[-1] if queue.path else ""), 1)
    for resource, wanted in queue.wanted.items():
        put("cluster_queue_resource_pending", (name, resource), amount(resource, wanted))
    for cell in queue.cells:
        labels, quota = (parent, name, cell.flavor, cell.resource), cell.quota
        put("cluster_queue_resource_reservation", labels, amount(cell.resource, cell.reserved))
        put("cluster_queue_resource_usage", labels, amount(cell.resource, cell.used))
        put("cluster_queue_nominal_quota", labels, amount(cell.resource, quota.nominal))
        put("cluster_queue_borrowing_limit", labels, _limit(cell.resource, quota.borrowing))
        put("cluster_queue_lending_limit", labels, _limit(cell.resource, quota.lending))
    if queue.share is not None:
        put("cluster_queue_weighted_share", (name, parent), nan if isinf(queue.share) else queue.share)


def _namespace_queue(
    put: Put, namespace_queue: NamespaceQueueSummary, shown: bool, queue_shown: bool
) -> None:
    name, namespace = (namespace_queue.name, namespace_queue.namespace) if shown else (OTHER, OTHER)
    queue, counts = namespace_queue.queue if queue_shown else OTHER, namespace_queue.counts
    put("local_queue_pending_workloads", (name, namespace, "active"), counts.ready)
    put("local_queue_pending_workloads", (name, namespace, "inadmissible"), counts.inadmissible)
    put("local_queue_reserving_active_workloads", (name, namespace), counts.reserving)
    put("local_queue_admitted_active_workloads", (name, namespace), counts.admitted)
    for why, cause, number in _unadmitted(counts):
        put("local_queue_unadmitted_workloads", (name, namespace, queue, why, cause), number)
    for answer in ("True", "False", "Unknown"):
        put("local_queue_status", (name, namespace, answer), answer == str(namespace_queue.active))
    for cell in namespace_queue.cells:
        labels = (name, namespace, cell.flavor, cell.resource)
        put("local_queue_resource_reservation", labels, amount(cell.resource, cell.reserved))
        put("local_queue_resource_usage", labels, amount(cell.resource, cell.used))


def _shared(put: Put, summaries: Summaries) -> None:
    shown = busiest({name: node.admitted for name, node in summaries.shared.items()})
    for node in summaries.shared.values():
        name, above = node.name if node.name in shown else OTHER, node.path
        put("cohort_info", (name, above[0] if above else "", above[-1] if above else name), 1)
        put("cohort_subtree_admitted_active_workloads", (name,), node.admitted)
        for cell in node.cells:
            labels = (name, cell.flavor, cell.resource)
            if cell.quota > 0:
                put("cohort_subtree_quota", labels, amount(cell.resource, cell.quota))
            if cell.reserved > 0:
                put("cohort_subtree_resource_reservations", labels, amount(cell.resource, cell.reserved))
        if node.share is not None:
            put("cohort_weighted_share", (name,), nan if isinf(node.share) else node.share)


def _unadmitted(counts: GangCounts) -> Iterator[tuple[str, str, int]]:
    """Pending gangs by the reason of one condition, and the reason of its underlying cause."""
    for token, number in counts.rejected.items():
        yield "NoReservation", reason(token), number
    yield from _if_any("UnsatisfiedAdmissionChecks", counts.unchecked)
    yield from _if_any("PendingDelayedTopologyRequests", counts.unplaced)


def _if_any(why: str, number: int) -> Iterable[tuple[str, str, int]]:
    return ((why, "", number),) if number else ()


def _limit(resource: str, limit: int | None) -> float:
    return inf if limit is None else amount(resource, limit)
