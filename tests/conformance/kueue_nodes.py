"""kueue/node_controller: nodes fail under Workloads; what our role writes, compared with what the peer wrote.

The peer's ways that are not ours by default are set here: one failed node at a time (the second evicts the
gang), pods failed together with their node, none of them if there is no node, and no time to reconsider.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bayplan.dialects.api import Ended, Event, Happened, Kind, Write, WriteOutcome
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.pods.node_health import HealthRules
from bayplan.runtime.controllers.node_health.controller import NodeHealthController

Case = dict[str, Any]
KINDS: dict[str, Kind] = {
    "Node": NODES, "Pod": PODS_KIND, "Workload": api_kinds.WORKLOADS, "ResourceFlavor": api_kinds.FLAVORS,
}  # fmt: skip
UNHEALTHY = 1


def check(case: Case) -> list[str]:
    """Lists, evictions, failed pods, events and timers must be the peer's."""
    given, now = case["case"], seconds(case["now"])
    if "wantStatus" in given:
        return _check_status(case, now)
    role = _furnished(case, given["initObjs"])
    done = _Done(role, now, {request["Name"] for request in given["reconcileRequests"]})
    due = role.next_due(now)
    waits = 0.0 if due == float("inf") else due - now
    problems = [] if f"{waits:.0f}s" == given["wantRequeue"] else [f"looks again after {waits}s"]
    problems += _check_list(given, done)
    problems += _check_condition(given.get("wantEvictedCond"), done, given)
    problems += _check_pods(case, done)
    return problems + _check_events(case, done)


def _check_status(case: Case, now: float) -> list[str]:
    """What the peer thinks of one node alone: as if its time were up already."""
    given = case["case"]
    others = [obj for obj in given["initObjs"] if obj["kind"] != "Node"]
    role = _furnished(case, [{**given["node"], "kind": "Node"}, *others], seconds_left=0.0)
    done = _Done(role, now, {given["nodeName"]})
    listed = any({"name": given["nodeName"]} in _listed(status) for status in done.statuses.values())
    problems = [] if listed is (given["wantStatus"] == UNHEALTHY) else [f"failed: {listed}"]
    if sorted(done.pods) != sorted(given.get("wantDeleted") or []):
        problems.append(f"pods failed: {sorted(done.pods)}")
    return problems


def _furnished(case: Case, objects: list[Case], seconds_left: float = 30.0) -> NodeHealthController:
    gates = case.get("gates") or {}
    by_pods = gates.get("TASReplaceNodeOnPodTermination", True)
    rules = HealthRules(
        not_ready_seconds=seconds_left,
        by_time=gates.get("TASReplaceNodeDueToNotReadyOverFixedTime", False) or not by_pods,
        by_pods=by_pods,
        by_taints=gates.get("TASReplaceNodeOnNodeTaints", True),
        replace_together=False,
        fail_pods_at_once=True,
        fail_pods_of_lost_nodes=False,
        unbindable_seconds=0.0,
    )
    role = NodeHealthController(rules)
    flavor = [case["resourceFlavor"]] if case.get("resourceFlavor") else []
    for number, obj in enumerate([*flavor, *objects], start=1):
        kind = KINDS[obj["kind"]]
        meta = {"uid": f"uid-{number}", "resourceVersion": str(number), **obj["metadata"]}
        shown: Any = {**obj, "metadata": meta}
        list(
            role.decode(Event(Happened.SEEN, kind, msgspec.convert(shown, kind.wire) if kind.wire else shown))
        )
    return role


class _Done:
    """All that a role writes until it has nothing more to write, if it looks at some hosts only."""

    def __init__(self, role: NodeHealthController, now: float, hosts: set[str]) -> None:
        self.statuses: dict[str, Case] = {}
        self.pods: dict[str, Case] = {}
        self.events: list[tuple[str, str, str, str]] = []
        for _ in range(10):
            for unit in list(role.reconciler.queue):
                if unit[1] not in hosts:
                    role.reconciler.queue.drop(unit)
            writes = list(role.reconcile(now))
            if not writes:
                break
            for write in writes:
                self._do(role, write, now)

    def _do(self, role: NodeHealthController, write: Write, now: float) -> None:
        answer: Any = None
        if write.kind == api_kinds.WORKLOADS:
            self.statuses[write.name] = write.body["status"]
            answer = {**write.body, "metadata": {**write.body["metadata"], "resourceVersion": "1000"}}
        elif write.kind == PODS_KIND:
            assert write.name not in self.pods, "a pod is failed once"
            self.pods[write.name] = dict(write.body["status"])
        else:
            about, body = write.body["involvedObject"], write.body
            self.events.append((about["name"], body["type"], body["reason"], body["message"]))
            return
        for more in role.on_outcome(WriteOutcome(write, Ended.DONE, 200, "", answer), now):
            self._do(role, more, now)
        if write.kind == PODS_KIND:
            role.reconciler.begin(("Pod", write.uid), None)  # the watch would tell that it is over


def _listed(status: Case) -> list[Case]:
    return status.get("unhealthyNodes") or []


def _check_list(given: Case, done: _Done) -> list[str]:
    if given["ignoreUnhealthyNodes"]:
        return []
    before = {obj["metadata"]["name"]: obj for obj in given["initObjs"] if obj["kind"] == "Workload"}
    got = [
        node
        for name, obj in before.items()
        for node in _listed(done.statuses.get(name, obj.get("status") or {}))
    ]
    want = given.get("wantUnhealthyNodes") or []
    return [] if got == want else [f"unhealthyNodes {got} instead of {want}"]


def _check_condition(want: Case | None, done: _Done, given: Case) -> list[str]:
    statuses = [
        done.statuses.get(obj["metadata"]["name"], obj.get("status") or {})
        for obj in given["initObjs"]
        if obj["kind"] == "Workload"
    ]
    found = [c for status in statuses for c in status.get("conditions") or () if c["type"] == "Evicted"]
    got = [{key: c.get(key, "") for key in ("type", "status", "reason", "message")} for c in found]
    wanted = [{key: want.get(key, "") for key in ("type", "status", "reason", "message")}] if want else []
    return [] if got == wanted else [f"Evicted {got} instead of {wanted}"]


def _check_pods(case: Case, done: _Done) -> list[str]:
    """Named ones must be failed; and all that the peer failed, with its condition, and no other."""
    problems = [
        f"{name} is not failed" for name in case["case"].get("wantPatchedPods") or [] if name not in done.pods
    ]
    wanted = {
        pod["metadata"]["name"]: pod["status"]
        for pod in case.get("gotPods") or []
        if any(c["type"] == "TerminatedByKueue" for c in pod.get("status", {}).get("conditions") or ())
    }
    if set(wanted) != set(done.pods):
        problems.append(f"failed {sorted(done.pods)} instead of {sorted(wanted)}")
    for name, status in wanted.items():
        if name in done.pods and done.pods[name] != {key: status[key] for key in ("phase", "conditions")}:
            problems.append(f"{name}: {done.pods[name]} instead of {status}")
    return problems


def _check_events(case: Case, done: _Done) -> list[str]:
    wanted = sorted(
        (e["Key"]["Name"], e["EventType"], e["Reason"], e["Message"]) for e in case.get("gotEvents") or []
    )
    return [] if sorted(done.events) == wanted else [f"events {sorted(done.events)} instead of {wanted}"]


FILES = {"kueue/node_controller*": check}
