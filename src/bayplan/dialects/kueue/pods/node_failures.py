"""What is written when nodes fail under gangs: nodes to replace, evictions, and pods that wait in vain."""

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
from bayplan.dialects.kueue.status.reconcile import left

Object = dict[str, Any]

LISTED_MAX = 8
"""The API allows no more. Others are listed when the first have been replaced."""
CONDITION, REASON = "TerminatedByKueue", "UnschedulableOnAssignedNode"
EVENT, MESSAGE = "PodTerminatedByKueue", "Pod terminated by Kueue NodeController due to node taint"


def with_failures(
    workload: Object, failed: Iterable[str], recovered: Collection[str], rules: HealthRules, now: float
) -> Object | None:
    """The status of a Workload under which nodes failed or recovered; None if it has nothing to add."""
    draft = Draft.of(workload, now)
    before = [str(node.get("name", "")) for node in draft.status.get("unhealthyNodes") or ()]
    listed = list(dict.fromkeys([*(name for name in before if name not in recovered), *failed]))
    if not rules.together and len(listed) > 1 and set(listed) - set(before):
        names = ", ".join(listed)
        told = f"Workload eviction triggered due to multiple TAS assigned node failures, including: {names}"
        return left(workload, NODE_FAILURES, told, now)
    listed = listed[:LISTED_MAX]
    if listed != before:
        draft.put("unhealthyNodes", [{"name": name} for name in listed])
    return draft.done()


def fail_pod(member: GangPod, now: float, tag: object) -> Write:
    """Have a pod fail that can never be bound where it was told to go, so that its job makes another."""
    condition = {
        "type": CONDITION,
        "status": "True",
        "reason": REASON,
        "message": MESSAGE,
        "lastTransitionTime": timestamp(now),
    }
    body = {"status": {"phase": "Failed", "conditions": [condition]}}
    return Write(
        Verb.APPLY, PODS_KIND, *member.key, body, "status", uid=member.uid, version=member.version, tag=tag
    )


def pod_notice(member: GangPod, now: float) -> Write:
    """The event about it."""
    namespace, name = member.key
    about = {"apiVersion": "v1", "kind": "Pod", "namespace": namespace, "name": name, "uid": member.uid}
    return event_write(about, EVENT, MESSAGE, "Normal", timestamp(now))
