"""Writes after node failures: unhealthy nodes of Workloads, evictions, and pods that cannot be bound."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from bayplan.dialects.api import Verb, Write
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.encode.binding import event_write
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.pods.node_health import GangPod, HealthRules
from bayplan.dialects.kueue.status.conditions import Draft
from bayplan.dialects.kueue.status.decisions import NODE_FAILURES
from bayplan.dialects.kueue.status.reconcile import evicted_for

Object = dict[str, Any]

LISTED_MAX = 8
"""The limit of the API. Further nodes are listed when the first have been replaced."""
CONDITION, REASON = "TerminatedByKueue", "UnschedulableOnAssignedNode"
EVENT, MESSAGE = "PodTerminatedByKueue", "Pod terminated by Kueue NodeController due to node taint"


def with_unhealthy_nodes(
    workload: Object, failed: Iterable[str], recovered: Collection[str], rules: HealthRules, now: float
) -> Object | None:
    """The status of a Workload whose nodes failed or recovered; None if unchanged."""
    draft = Draft.of(workload, now)
    before = [str(node.get("name", "")) for node in draft.status.get("unhealthyNodes") or ()]
    listed = list(dict.fromkeys([*(name for name in before if name not in recovered), *failed]))
    if not rules.replace_together and len(listed) > 1 and set(listed) - set(before):
        names = ", ".join(listed)
        message = (
            f"Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"
        )
        return evicted_for(workload, NODE_FAILURES, message, now)
    listed = listed[:LISTED_MAX]
    if listed != before:
        draft.put("unhealthyNodes", [{"name": name} for name in listed])
    return draft.done()


def fail_pod(pod: GangPod, now: float, tag: object) -> Write:
    """Fail a pod that cannot be bound to its assigned host, so that its job creates another."""
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": REASON,
        "message": MESSAGE,
        "lastTransitionTime": timestamp(now),
    }
    body = {"status": {"phase": "Failed", "conditions": [condition]}}
    return Write(Verb.APPLY, PODS_KIND, *pod.key, body, "status", uid=pod.uid, version=pod.version, tag=tag)


def pod_event(pod: GangPod, now: float) -> Write:
    """The event about a pod that was failed."""
    namespace, name = pod.key
    regarding = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": pod.uid}
    return event_write(regarding, EVENT, MESSAGE, "Normal", timestamp(now))
