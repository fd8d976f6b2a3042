"""The reference of metrics, from the registry that a replica serves."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from bayplan.runtime.telemetry.admission_metrics import NAMES_MAX, ROLE, SETS_MAX, AdmissionMetrics
from bayplan.runtime.telemetry.metrics import CHILDREN_MAX, Metrics
from tools.reference.markdown import code, generated, plain, table

HEAD = f"""# Metrics

{generated("src/bayplan/runtime/telemetry")}

Replicas serve them at `/metrics` beside the probes, or over HTTPS to
[clients that may read them](../guide/operations.md#metrics-for-those-who-may-read-them). Alert rules and dashboards that use them:
[dashboards and alerts](../guide/monitoring.md).

## Every replica

No metric has more than {CHILDREN_MAX} label sets; what comes after those is counted under `other`,
except that of queues the longest are shown.

"""
WATCHES = """
A watch begins again because it `ended` (as servers close one every few minutes, so some of these are always there), was
`stale` (everything of that kind is listed again), `broken` (no connection, no readable answer), `refused` (rights,
credentials) or its kind is `absent`.

The metrics of the process (`process_*`: CPU, memory, file descriptors) are those of the Prometheus client library.
"""
ADMISSION = f"""
## Admission

With the role `admission`. Names and labels are those that Kueue's users have dashboards
for; each `kueue_` metric but `kueue_build_info` also has the label `{ROLE}` (`leader`, `follower` or `standalone`).
At most {NAMES_MAX} queues, {NAMES_MAX} local queues and {NAMES_MAX} cohorts go by name, those with the most Workloads; the others are
summed up as `other`, and left out where a sum means nothing, such as of shares. No gauge or counter has more than {SETS_MAX:,} label
sets and no histogram more than {CHILDREN_MAX}. CPU is in CPUs, memory in bytes.

"""
TOPOLOGY = """
`bayplan_topology_largest_gang` is, for each resource by itself, what the emptiest domain
of a level has left: a gang that must stay within one such domain and asks for more has no place now.
`bayplan_topology_fragmentation` compares this with what it would be if the same free capacity were contiguous, which is the
whole of it or the largest domain without any gang, whichever is less: 0 is the best value, 0.75 means that
only a quarter of what could be had in one domain can be.
"""


def page() -> str:
    """The page."""
    own = Metrics(of_process=False).registry
    admission = CollectorRegistry()
    AdmissionMetrics(admission)
    return HEAD + _table(own) + WATCHES + ADMISSION + _table(admission) + TOPOLOGY


def _table(registry: CollectorRegistry) -> str:
    rows = []
    for family in registry.collect():
        collector = registry._names_to_collectors[family.name]
        labels = [name for name in collector._labelnames if name != ROLE]  # type: ignore[attr-defined]
        name = family.name + ("_total" if family.type == "counter" else "")
        rows.append((code(name), family.type, ", ".join(map(code, labels)), plain(family.documentation)))
    return table(("metric", "type", "labels", "meaning"), rows)
