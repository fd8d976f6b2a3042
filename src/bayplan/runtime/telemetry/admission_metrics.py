"""Admission metrics: decisions, waiting times, and the state of queues and topologies.

Names and labels are those of Kueue, for existing dashboards; only the topology metrics are new. At most
`NAMES_MAX` queues, namespace queues and cohorts have series of their own, the busiest first; all others are
`other`, summed where a sum makes sense.
"""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from math import inf, isinf, nan
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE
from bayplan.dialects.kueue.status.decisions import PREEMPTIONS, eviction_reason
from bayplan.dialects.kueue.status.rejection_messages import reason
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.queued_gang import CheckState, Delayed, QueuedGang
from bayplan.model.rejection import AdmissionRemark, FlavorMode
from bayplan.model.summary import GangCounts, NamespaceQueueSummary, QueueSummary, Summaries
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.telemetry.metrics import OTHER, Children

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


PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
"""The label of a queued gang that names its priority class."""

STANDALONE, LEADER, FOLLOWER = "standalone", "leader", "follower"
_PRIORITY = ("priority_class",)
ROLE = "replica_role"
SKIPS = (
    "admission_cycle_preemption_skips",
    Gauged("Gangs whose victims other gangs took in the last cycle.", _QUEUE),
)

COUNTERS = {
    "admission_attempts": ("Admission cycles, by whether they admitted a gang (success).", ("result",)),
    "quota_reserved_workloads": ("Gangs that got a quota reservation.", _QUEUE + _PRIORITY),
    "admitted_workloads": ("Gangs that were admitted.", _QUEUE + _PRIORITY),
    "evicted_workloads": (
        "Gangs that were evicted.",
        (*_QUEUE, "reason", "underlying_cause", *_PRIORITY),
    ),
    "preempted_workloads": (
        "Gangs that were preempted.",
        ("preempting_cluster_queue", "reason"),
    ),
    "cohort_subtree_admitted_workloads": (
        "Gangs of all queues of a cohort that were admitted.",
        ("cohort", *_PRIORITY),
    ),
    "local_queue_quota_reserved_workloads": ("As above, by local queue.", _WAY + _PRIORITY),
    "local_queue_admitted_workloads": ("As above, by local queue.", _WAY + _PRIORITY),
    "local_queue_evicted_workloads": (
        "As above, by local queue.",
        (*_WAY, "reason", "underlying_cause", *_PRIORITY),
    ),
}
HISTOGRAMS = {
    "admission_attempt_duration_seconds": ("Duration of an admission cycle.", ("result",)),
    "quota_reserved_wait_time_seconds": ("Time from queueing to the quota reservation.", _QUEUE + _PRIORITY),
    "admission_wait_time_seconds": ("Time from queueing to admission.", _QUEUE + _PRIORITY),
    "admission_checks_wait_time_seconds": (
        "Time from the quota reservation to admission.",
        _QUEUE + _PRIORITY,
    ),
    "pod_scheduling_gate_removal_seconds": (
        "Time from admission to the ungating of a pod.",
        ("name", *_QUEUE, "is_group"),
    ),
    "local_queue_quota_reserved_wait_time_seconds": ("As above, by local queue.", _WAY + _PRIORITY),
    "local_queue_admission_wait_time_seconds": ("As above, by local queue.", _WAY + _PRIORITY),
    "local_queue_admission_checks_wait_time_seconds": ("As above, by local queue.", _WAY + _PRIORITY),
}
BUILD = ("git_version", "git_commit", "build_date", "go_version", "compiler", "platform")

# Seconds: a cycle takes milliseconds, waiting takes up to hours.
_ROUND_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_MOMENT_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
_WAIT_BUCKETS = (1.0, *(2.5 * 2**power for power in range(13)))
_LONG_WAIT_BUCKETS = (1.0, *(2.5 * 2**power for power in range(15)))
_BUCKETS = {
    "admission_attempt_duration_seconds": _ROUND_BUCKETS,
    "admission_wait_time_seconds": _LONG_WAIT_BUCKETS,
    "pod_scheduling_gate_removal_seconds": _MOMENT_BUCKETS,
}


class AdmissionMetrics:
    """Counts decisions and shows queue state, in a shared registry."""

    def __init__(self, registry: CollectorRegistry, version: str = "", *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._role = STANDALONE
        self._paths: dict[str, Labels] = {}  # queues: their ancestors
        self._counters = {
            name: Children(Counter(f"kueue_{name}", help_text, (*labels, ROLE), registry=registry), SETS_MAX)
            for name, (help_text, labels) in COUNTERS.items()
        }
        self._histograms = {
            name: Children(_histogram(registry, name, help_text, (*labels, ROLE)))
            for name, (help_text, labels) in HISTOGRAMS.items()
        }
        self._skips = _Board(registry, "kueue_", *SKIPS)
        self._gauges = {name: _Board(registry, "kueue_", name, gauge) for name, gauge in GAUGES.items()}
        self._levels = {
            name: _Board(registry, "bayplan_", name, gauge) for name, gauge in TOPOLOGY_GAUGES.items()
        }
        build = Gauge(
            "kueue_build_info", "Always 1; the labels name the version that runs.", BUILD, registry=registry
        )
        build.labels(version, "", "", "", "", "").set(1)

    def leads(self, leading: bool) -> None:
        """Whether this replica leads now; a standby shows no queue state."""
        self._role = LEADER if leading else FOLLOWER
        for board in (self._skips, *self._gauges.values(), *self._levels.values()):
            board.show({}, ())

    # ── decisions ──────────────────────────────────────────────────────────────────────────────────

    def decided(self, plan: Plan, seconds: float) -> None:
        """A cycle produced a plan."""
        result = "success" if any(isinstance(action, Admit) for action in plan.actions) else "inadmissible"
        self._inc("admission_attempts", result)
        self._observe("admission_attempt_duration_seconds", seconds, result)
        for action in plan.actions:
            match action:
                case Admit():
                    self._admit(action)
                case EvictGang():
                    self._evict(action)
        self._show_skips(action for action in plan.actions if isinstance(action, ReportNotAdmitted))

    def admitted(self, queued_gang: QueuedGang, queue: str) -> None:
        """A gang is fully admitted: at once, or when its checks and placement are complete."""
        now, which = self._clock.wall(), queued_gang.labels.get(PRIORITY_CLASS, "")
        waited = max(0.0, now - queued_gang.queued)
        since = max(0.0, now - queued_gang.reserved) if queued_gang.reserved else 0.0
        for prefix, names in _places(queued_gang, queue):
            self._inc(f"{prefix}admitted_workloads", *names, which)
            self._observe(f"{prefix}admission_wait_time_seconds", waited, *names, which)
            if queued_gang.check_statuses:
                self._observe(f"{prefix}admission_checks_wait_time_seconds", since, *names, which)
        for cohort in self._paths.get(queue, ()):
            self._inc("cohort_subtree_admitted_workloads", cohort, which)

    def evicted(self, queued_gang: QueuedGang, reason: str, cause: str = "") -> None:
        """A gang is evicted, by a decision or by another controller."""
        queue = queued_gang.admission.queue if queued_gang.admission is not None else ""
        which = queued_gang.labels.get(PRIORITY_CLASS, "")
        for prefix, names in _places(queued_gang, queue):
            self._inc(f"{prefix}evicted_workloads", *names, reason, cause, which)

    def gate_removed(self, queue: str, is_group: bool, seconds: float) -> None:
        """A pod was ungated, this long after its gang was admitted."""
        labels = (TOPOLOGY_GATE, queue, str(is_group).lower())
        self._observe("pod_scheduling_gate_removal_seconds", seconds, *labels)

    def _admit(self, action: Admit) -> None:
        queued_gang, queue = action.queued_gang, action.admission.queue
        if queued_gang.admission is None:
            waited = max(0.0, self._clock.wall() - queued_gang.queued)
            which = queued_gang.labels.get(PRIORITY_CLASS, "")
            for prefix, names in _places(queued_gang, queue):
                self._inc(f"{prefix}quota_reserved_workloads", *names, which)
                self._observe(f"{prefix}quota_reserved_wait_time_seconds", waited, *names, which)
        if _may_start(action):
            self.admitted(queued_gang, queue)

    def _evict(self, action: EvictGang) -> None:
        self.evicted(action.queued_gang, eviction_reason(action))
        if action.reason in PREEMPTIONS and action.by_path:
            self._inc("preempted_workloads", action.by_path[-1], PREEMPTIONS[action.reason][0])

    def _show_skips(self, declined: Iterable[ReportNotAdmitted]) -> None:
        skipped = Numbers(action.rejection.queue for action in declined if _is_skip(action))
        self._skips.show({(queue,): number for queue, number in skipped.items()}, (self._role,))

    # ── queue state ────────────────────────────────────────────────────────────────────────────────

    def summarised(self, summaries: Summaries) -> None:
        """Show the current summaries; series that no longer exist are removed."""
        self._paths = {name: queue.path for name, queue in summaries.queues.items()}
        for name, values in samples(summaries).items():
            self._gauges[name].show(values, (self._role,))
        for name, values in topology_samples(summaries).items():
            self._levels[name].show(values, ())

    def _inc(self, name: str, *labels: str) -> None:
        self._counters[name].of(*labels, self._role).inc()

    def _observe(self, name: str, seconds: float, *labels: str) -> None:
        self._histograms[name].of(*labels, self._role).observe(seconds)


class _Board:
    """A gauge that shows exactly the last values."""

    def __init__(self, registry: CollectorRegistry, prefix: str, name: str, spec: Gauged) -> None:
        labels = (*spec.labels, ROLE) if prefix == "kueue_" else spec.labels
        gauge = Gauge(prefix + name, spec.help, labels, registry=registry)
        self._children = Children(gauge, SETS_MAX)

    def show(self, values: dict[Labels, float], more: Labels) -> None:
        shown = {(*labels, *more): value for labels, value in values.items()}
        self._children.keep(shown)
        for labels, value in shown.items():
            self._children.of(*labels).set(value)


def _histogram(registry: CollectorRegistry, name: str, help_text: str, labels: Labels) -> Histogram:
    buckets = _BUCKETS.get(name, _WAIT_BUCKETS)
    return Histogram(f"kueue_{name}", help_text, labels, buckets=buckets, registry=registry)


def _places(queued_gang: QueuedGang, queue: str) -> tuple[tuple[str, Labels], tuple[str, Labels]]:
    """The label sets of a gang: its queue, and its namespace queue."""
    namespace, name = queued_gang.namespace_queue
    return ("", (queue,)), ("local_queue_", (name, namespace))


def _may_start(action: Admit) -> bool:
    """Whether this admission completes what was missing before."""
    ready = {
        verdict.check for verdict in action.queued_gang.check_statuses if verdict.state is CheckState.READY
    }
    return (
        not action.queued_gang.admitted
        and ready.issuperset(action.checks)
        and not any(
            part.delayed is Delayed.PENDING and part.assignment is None for part in action.admission.pod_sets
        )
    )


def _is_skip(action: ReportNotAdmitted) -> bool:
    """Whether a gang had victims but other gangs of the cycle came first."""
    refusal = action.rejection
    if refusal.remark is AdmissionRemark.OVERTAKEN:
        best = (max((_CHANCES.index(one.mode) for one in part.attempts), default=0) for part in refusal.tried)
        return any(_CHANCES[chance] in (FlavorMode.PREEMPT, FlavorMode.RECLAIM) for chance in best)
    return refusal.remark in (AdmissionRemark.SAME_VICTIMS, AdmissionRemark.SAME_VICTIMS_WILL_FIT)


_CHANCES = tuple(FlavorMode)  # from worst to best
