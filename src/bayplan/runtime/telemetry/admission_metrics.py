"""Admission metrics: decisions, waiting times, and the state of queues and topologies.

Names and labels are those of Kueue; only the topology metrics are new.
"""

from __future__ import annotations

from collections import Counter as Numbers
from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from bayplan.dialects.kueue.names.annotations import TOPOLOGY_GATE
from bayplan.dialects.kueue.status.decisions import PREEMPTIONS, eviction_reason
from bayplan.model.admission_rejection import AdmissionRemark, FlavorMode
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.queued_gang import CheckState, Delayed, QueuedGang
from bayplan.model.summary import Summaries
from bayplan.runtime.core.clock import Clock, SystemClock
from bayplan.runtime.telemetry.admission_gauges import (
    GAUGES,
    SETS_MAX,
    TOPOLOGY_GAUGES,
    Gauged,
    Labels,
    samples,
    topology_samples,
)
from bayplan.runtime.telemetry.metrics import Children

PRIORITY_CLASS = "kueue.x-k8s.io/priority-class"
"""The label of a queued gang that names its priority class."""

STANDALONE, LEADER, FOLLOWER = "standalone", "leader", "follower"
_QUEUE, _WAY = ("cluster_queue",), ("name", "namespace")
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
