"""The alert rules for Prometheus: what is wrong, since when, and where it is written what to do."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

GUIDE = "docs/guide/monitoring.md"
GROUP = "bayplan"

Object = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Alert:
    """One rule. Its runbook is the section of the guide that has its name."""

    name: str
    expression: str
    lasts: str
    severity: str
    summary: str

    def rule(self) -> Object:
        """The rule as Prometheus reads it."""
        return {
            "alert": self.name,
            "expr": self.expression,
            "for": self.lasts,
            "labels": {"severity": self.severity},
            "annotations": {"summary": self.summary, "runbook": f"{GUIDE}#{self.name.lower()}"},
        }


ALERTS = (
    Alert(
        "BayplanNoLeader",
        "absent(bayplan_leader) or sum(bayplan_leader) == 0",
        "2m",
        "critical",
        "No replica of Bayplan leads: no gang is admitted and no pod is bound.",
    ),
    Alert(
        "BayplanLoopStuck",
        "(time() - bayplan_last_step_timestamp_seconds) * on (instance) (bayplan_leader == 1) > 60",
        "1m",
        "critical",
        "The loop of the leading replica has not completed a step for a minute.",
    ),
    Alert(
        "BayplanStepSlow",
        "histogram_quantile(0.99, sum by (le) (rate(bayplan_step_seconds_bucket[10m]))) > 2.5",
        "15m",
        "warning",
        "One of a hundred steps of the loop takes longer than 2.5 seconds.",
    ),
    Alert(
        "BayplanContainedErrors",
        "sum by (where, kind) (increase(bayplan_contained_errors_total[10m])) > 0",
        "0m",
        "warning",
        "Bayplan contained an error: one object, gang or thread is affected. The log has its id.",
    ),
    Alert(
        "BayplanWritesRefused",
        'sum by (verb, kind) (rate(bayplan_writes_total{ended="refused"}[10m])) > 0.1',
        "10m",
        "warning",
        "The API server refuses writes of Bayplan.",
    ),
    Alert(
        "BayplanWatchFailing",
        'sum by (kind) (increase(bayplan_watch_restarts_total{reason=~"refused|broken"}[10m])) > 5',
        "10m",
        "warning",
        "Bayplan cannot watch a kind of objects: permissions, or the connection to the API server.",
    ),
    Alert(
        "BayplanCertificateExpires",
        "bayplan_certificate_expiry_timestamp_seconds - time() < 7 * 86400",
        "1h",
        "warning",
        "The webhook certificate expires within a week and was not renewed.",
    ),
    Alert(
        "BayplanWebhookErrors",
        'sum(rate(bayplan_webhook_reviews_total{answer="failed"}[10m])) > 0',
        "5m",
        "warning",
        "Webhook reviews end with an internal error.",
    ),
    Alert(
        "BayplanQueueInactive",
        'max by (cluster_queue) (kueue_cluster_queue_status{status="active"}) == 0',
        "15m",
        "warning",
        "A ClusterQueue is not active: its gangs wait.",
    ),
    Alert(
        "BayplanGangsPendingLong",
        "sum by (cluster_queue) (kueue_pending_workloads) > 0 unless on (cluster_queue)"
        " sum by (cluster_queue) (increase(kueue_admitted_workloads_total[6h])) > 0",
        "6h",
        "info",
        "A queue has pending gangs and admitted none of them for six hours.",
    ),
    Alert(
        "BayplanFragmented",
        "bayplan_topology_fragmentation > 0.5 and on () sum(kueue_pending_workloads) > 0",
        "1h",
        "info",
        "Half of the free capacity of a level is in pieces while gangs are pending.",
    ),
)


def rule_groups() -> list[Object]:
    """The groups of a rule file, or of a PrometheusRule."""
    return [{"name": GROUP, "rules": [alert.rule() for alert in ALERTS]}]
