"""Prometheus metrics: one method per event to count. Labels are bounded, and looked up once."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Generic, TypeVar

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)
from prometheus_client.metrics import MetricWrapperBase

from bayplan.dialects.api import Event, WriteOutcome

OTHER = "other"
"""The value of every label once a metric has reached its limit of children."""

CHILDREN_MAX = 200

# Seconds. A decision takes from a tenth of a millisecond (a small cluster) to seconds (an exact search).
_BUCKETS = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0)

M = TypeVar("M", bound=MetricWrapperBase)
Queue = tuple[str, str]
"""The name of a queue, and what its gangs wait for."""


class Children(Generic[M]):
    """Children of a metric by label values, found in one lookup. Beyond the limit all share `other`."""

    def __init__(self, metric: M, children_max: int = CHILDREN_MAX) -> None:
        self._metric = metric
        self._children_max = children_max
        self._known: dict[tuple[str, ...], M] = {}

    def of(self, *labels: str) -> M:
        known = self._known.get(labels)
        if known is None:
            if len(self._known) >= self._children_max:
                labels = (OTHER,) * len(labels)
            known = self._known[labels] = self._metric.labels(*labels)
        return known

    def keep(self, wanted: Iterable[tuple[str, ...]]) -> None:
        """Remove all children but these."""
        for labels in self._known.keys() - set(wanted):
            del self._known[labels]
            self._metric.remove(*labels)


class Metrics:
    """All metrics, in a registry of their own. May be called from any thread."""

    def __init__(self, version: str = "", *, of_process: bool = True) -> None:
        disable_created_metrics()  # type: ignore[no-untyped-call]  # a second series per counter, never read
        self.registry = CollectorRegistry()
        if of_process:
            ProcessCollector(registry=self.registry)
        build = self._gauge(
            "bayplan_build_info", "Always 1; the label names the version that runs.", "version"
        )
        build.labels(version).set(1)
        self._leading = False
        self._make_loop_metrics()
        self._make_edge_metrics()

    def _make_loop_metrics(self) -> None:
        self._step = self._histogram("bayplan_step_seconds", "Duration of a step of the loop.")
        self._last_step = self._gauge(
            "bayplan_last_step_timestamp_seconds", "Time of the last completed step."
        )
        self._snapshot = self._histogram("bayplan_snapshot_seconds", "Duration of making a snapshot.")
        self._decision = self._histogram("bayplan_decision_seconds", "Duration of a decision.")
        self._actions = Children(self._counter("bayplan_plan_actions", "Actions of plans.", "action"))
        self._refusals = Children(
            self._counter("bayplan_placement_refusals", "Rejected gangs, by reason.", "code")
        )
        self._contained = Children(
            self._counter(
                "bayplan_contained_errors",
                "Errors contained within one object, gang or thread.",
                "where",
                "kind",
            )
        )
        self._queues = Children(
            self._gauge("bayplan_queue_gangs", "Gangs in a queue, by state.", "queue", "state")
        )

    def _make_edge_metrics(self) -> None:
        self._events = Children(
            self._counter("bayplan_events", "Watch events by kind and type.", "kind", "happened")
        )
        self._restarts = Children(
            self._counter("bayplan_watch_restarts", "Watches that were restarted.", "kind", "reason")
        )
        self._writes = Children(
            self._counter("bayplan_writes", "Writes by outcome.", "verb", "kind", "ended")
        )
        self._in_flight = self._gauge("bayplan_writes_in_flight", "Writes in flight.")
        self._leader = self._gauge("bayplan_leader", "1 while this replica leads, else 0.")
        self._terms = self._counter("bayplan_leader_terms", "How often this replica became the leader.")
        self._reviews = Children(
            self._counter(
                "bayplan_webhook_reviews", "Webhook reviews answered.", "review", "resource", "answer"
            )
        )
        self._review = Children(
            self._histogram("bayplan_webhook_seconds", "Duration of a webhook review.", "review")
        )
        self._expiry = self._gauge(
            "bayplan_certificate_expiry_timestamp_seconds", "Expiry of the webhook certificate."
        )

        self._searches = Children(
            self._counter(
                "bayplan_defragment_searches", "Searches for moves that make room, by result.", "result"
            )
        )
        self._moves = self._counter("bayplan_defragment_moves", "Gangs that were moved to make room.")
        self._lost = self._counter(
            "bayplan_defragment_lost_gpu_hours", "GPU-hours of work that moved gangs do again."
        )

    # ── the loop ───────────────────────────────────────────────────────────────────────────────────

    def stepped(self, seconds: float, wall: float) -> None:
        """A step of the loop ended."""
        self._step.observe(seconds)
        self._last_step.set(wall)

    def snapshot_made(self, seconds: float) -> None:
        self._snapshot.observe(seconds)

    def decided(self, seconds: float, actions: Mapping[str, int]) -> None:
        """A plan was made, with this many actions of each kind."""
        self._decision.observe(seconds)
        for action, count in actions.items():
            self._actions.of(action).inc(count)

    def refused(self, code: str) -> None:
        """A gang found no place."""
        self._refusals.of(code).inc()

    def contained(self, where: str, kind: str) -> None:
        """An error was contained in the unit of work that caused it."""
        self._contained.of(where, kind).inc()

    def queues(self, lengths: Mapping[Queue, int]) -> None:
        """The length of all queues now; the longest are shown by name, the rest as one."""
        ranked = sorted(lengths, key=lambda queue: (-lengths[queue], queue))
        shown = {queue: lengths[queue] for queue in ranked[: CHILDREN_MAX - 1]}
        for _, state in ranked[CHILDREN_MAX - 1 :]:
            shown[OTHER, state] = shown.get((OTHER, state), 0)
        for queue in ranked[CHILDREN_MAX - 1 :]:
            shown[OTHER, queue[1]] += lengths[queue]
        self._queues.keep(shown)
        for queue, length in shown.items():
            self._queues.of(*queue).set(length)

    # ── watches, writes and webhooks ───────────────────────────────────────────────────────────────

    def event_seen(self, event: Event) -> None:
        self._events.of(event.kind.kind, event.happened).inc()

    def watch_restarted(self, kind: str, reason: str) -> None:
        self._restarts.of(kind, reason).inc()

    def submitted(self, writes: int) -> None:
        self._in_flight.inc(writes)

    def write_ended(self, outcome: WriteOutcome) -> None:
        self._in_flight.dec()
        self._writes.of(outcome.write.verb, outcome.write.kind.kind, outcome.ended).inc()

    def leads(self, leading: bool) -> None:
        """Whether this replica leads now."""
        if leading and not self._leading:
            self._terms.inc()
        self._leading = leading
        self._leader.set(leading)

    def reviewed(self, review: str, resource: str, answer: str, seconds: float) -> None:
        """A webhook responded."""
        self._reviews.of(review, resource, answer).inc()
        self._review.of(review).observe(seconds)

    def searched_moves(self, result: str, moved: int, lost_gpu_hours: float) -> None:
        """A search for moves that make room ended, and its moves were made."""
        self._searches.of(result).inc()
        self._moves.inc(moved)
        self._lost.inc(lost_gpu_hours)

    def certificate_ends(self, wall: float) -> None:
        self._expiry.set(wall)

    def text(self) -> bytes:
        """All metrics in the Prometheus text format."""
        return generate_latest(self.registry)

    def described(self) -> dict[str, str]:
        """The names of Bayplan's own metrics, each with its help."""
        families = [family for family in self.registry.collect() if family.name.startswith("bayplan_")]
        suffixes = {"counter": "_total"}
        return {family.name + suffixes.get(family.type, ""): family.documentation for family in families}

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(name, help_text, labels, registry=self.registry)

    def _gauge(self, name: str, help_text: str, *labels: str) -> Gauge:
        return Gauge(name, help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, *labels: str) -> Histogram:
        return Histogram(name, help_text, labels, buckets=_BUCKETS, registry=self.registry)
