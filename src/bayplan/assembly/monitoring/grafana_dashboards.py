"""The dashboards for Grafana, as data: rows of panels, each with its queries."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]

COLUMNS = 24  # the width of a dashboard in Grafana's grid
HEIGHT = 8
PER_ROW = 2
SCHEMA = 39  # the version of the format


@dataclass(frozen=True, slots=True)
class Panel:
    """A graph over time, or a single number (`stat`)."""

    title: str
    queries: tuple[str, ...]
    unit: str = "short"
    kind: str = "timeseries"
    says: str = ""


@dataclass(frozen=True, slots=True)
class Dashboard:
    """One page. Its uid stays the same, so that links to it stay valid."""

    uid: str
    title: str
    panels: tuple[Panel, ...]

    def content(self) -> Object:
        """The dashboard as Grafana reads it."""
        return {
            "uid": self.uid,
            "title": self.title,
            "tags": ["bayplan"],
            "schemaVersion": SCHEMA,
            "refresh": "30s",
            "time": {"from": "now-6h", "to": "now"},
            "templating": {"list": [_SOURCE]},
            "panels": [_panel(at, panel) for at, panel in enumerate(self.panels)],
        }

    def text(self) -> str:
        """The same as the text of a file."""
        return json.dumps(self.content(), indent=2) + "\n"


_SOURCE = {"name": "source", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _panel(at: int, panel: Panel) -> Object:
    width = COLUMNS // PER_ROW
    source = {"type": "prometheus", "uid": "${source}"}
    return {
        "id": at + 1,
        "type": panel.kind,
        "title": panel.title,
        "description": panel.says,
        "datasource": source,
        "gridPos": {"x": at % PER_ROW * width, "y": at // PER_ROW * HEIGHT, "w": width, "h": HEIGHT},
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": source, "expr": query, "legendFormat": "__auto"}
            for number, query in enumerate(panel.queries)
        ],
    }


def _quantiles(metric: str, by: str = "", *shares: float) -> tuple[str, ...]:
    labels = f"le, {by}" if by else "le"
    rate = f"sum by ({labels}) (rate({metric}_bucket[5m]))"
    return tuple(f"histogram_quantile({share}, {rate})" for share in shares or (0.5, 0.99))


OVERVIEW = Dashboard(
    "bayplan-overview",
    "Bayplan / Overview",
    (
        Panel("Leader", ("sum(bayplan_leader)",), kind="stat", says="1 while a replica leads."),
        Panel("Pending gangs", ("sum(kueue_pending_workloads)",), kind="stat"),
        Panel("Admitted gangs", ("sum(kueue_admitted_active_workloads)",), kind="stat"),
        Panel(
            "Contained errors in the last hour",
            ("sum(increase(bayplan_contained_errors_total[1h]))",),
            kind="stat",
        ),
        Panel("Admissions per minute", ("60 * sum(rate(kueue_admitted_workloads_total[5m]))",)),
        Panel("Wait until admission", _quantiles("kueue_admission_wait_time_seconds"), "s"),
        Panel("Pods bound per second", ('sum(rate(bayplan_plan_actions_total{action="Bind"}[5m]))',)),
        Panel("Rejections by reason", ("sum by (code) (rate(bayplan_placement_refusals_total[5m]))",)),
        Panel("Evictions by reason", ("sum by (reason) (increase(kueue_evicted_workloads_total[15m]))",)),
        Panel("Largest gang that fits", ("bayplan_topology_largest_gang",)),
    ),
)

QUEUES = Dashboard(
    "bayplan-queues",
    "Bayplan / Queues",
    (
        Panel("Pending gangs", ("sum by (cluster_queue, status) (kueue_pending_workloads)",)),
        Panel("Admitted gangs", ("sum by (cluster_queue) (kueue_admitted_active_workloads)",)),
        Panel(
            "Quota used",
            (
                "sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_resource_usage)"
                " / sum by (cluster_queue, flavor, resource) (kueue_cluster_queue_nominal_quota > 0)",
            ),
            "percentunit",
            says="Above 100 %: the queue borrows.",
        ),
        Panel(
            "Quota that pending gangs ask for",
            ("sum by (cluster_queue, resource) (kueue_cluster_queue_resource_pending)",),
        ),
        Panel(
            "Wait until admission", _quantiles("kueue_admission_wait_time_seconds", "cluster_queue", 0.5), "s"
        ),
        Panel("What pending gangs wait for", ("sum by (reason) (kueue_unadmitted_workloads)",)),
        Panel(
            "Preemptions",
            ("sum by (preempting_cluster_queue) (increase(kueue_preempted_workloads_total[15m]))",),
        ),
        Panel("Share above quota", ("kueue_cluster_queue_weighted_share",), says="In thousandths."),
        Panel("Queues of pod groups", ("sum by (queue, state) (bayplan_queue_gangs)",)),
        Panel("Queues that are not active", ('kueue_cluster_queue_status{status="active"} == 0',)),
    ),
)

TOPOLOGY = Dashboard(
    "bayplan-topology",
    "Bayplan / Topology and fragmentation",
    (
        Panel("Free capacity", ("sum by (topology, level, resource) (bayplan_topology_free)",)),
        Panel("Fragmentation", ("bayplan_topology_fragmentation",), "percentunit"),
        Panel("Largest gang in one domain", ("bayplan_topology_largest_gang",)),
        Panel("Usable domains", ("bayplan_topology_domains",)),
        Panel("Rejections by reason", ("sum by (code) (rate(bayplan_placement_refusals_total[5m]))",)),
        Panel("From admission to ungated pod", _quantiles("kueue_pod_scheduling_gate_removal_seconds"), "s"),
    ),
)

SCHEDULER = Dashboard(
    "bayplan-scheduler",
    "Bayplan / Scheduler",
    (
        Panel("Step of the loop", _quantiles("bayplan_step_seconds"), "s"),
        Panel("Decision", _quantiles("bayplan_decision_seconds"), "s"),
        Panel("Snapshot", _quantiles("bayplan_snapshot_seconds"), "s"),
        Panel("Admission cycle", _quantiles("kueue_admission_attempt_duration_seconds"), "s"),
        Panel("Watch events", ("sum by (kind) (rate(bayplan_events_total[5m]))",), "ops"),
        Panel("Writes by outcome", ("sum by (verb, kind, ended) (rate(bayplan_writes_total[5m]))",), "ops"),
        Panel("Writes in flight", ("bayplan_writes_in_flight",)),
        Panel("Restarted watches", ("sum by (kind, reason) (increase(bayplan_watch_restarts_total[15m]))",)),
        Panel(
            "Webhook reviews", ("sum by (review, answer) (rate(bayplan_webhook_reviews_total[5m]))",), "ops"
        ),
        Panel("Duration of webhook reviews", _quantiles("bayplan_webhook_seconds", "review", 0.99), "s"),
        Panel("Memory", ("process_resident_memory_bytes",), "bytes"),
        Panel("CPU", ("rate(process_cpu_seconds_total[5m])",)),
        Panel("Certificate is valid for", ("bayplan_certificate_expiry_timestamp_seconds - time()",), "s"),
        Panel("Changes of the leader", ("increase(bayplan_leader_terms_total[1h])",)),
    ),
)

DASHBOARDS = (OVERVIEW, QUEUES, TOPOLOGY, SCHEDULER)
