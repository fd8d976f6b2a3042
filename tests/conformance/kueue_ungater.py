"""kueue/ungater: which pods lose their gate, where they are sent, and how long that took since admission."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from bayplan.dialects.api import Ended, Event, Happened, WriteOutcome
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.pods.ungating import (
    PodUngating,
    admitted_placement,
    gang_of_pod,
    gang_of_workload,
    ungating_write,
    ungatings,
)
from bayplan.dialects.kueue.status.conditions import ADMITTED, condition_of
from bayplan.model.assignment import Path
from bayplan.runtime.controllers.ungating import UngatingController

Object = dict[str, Any]
METRIC_DELAY = 2.0
"""Seconds from admission to ungating in the table of the metric; its clock is not part of the data."""


def check(case: dict[str, Any]) -> list[str]:
    """Ungate the pods of the case as the role would, and compare what has become of them."""
    given = case["case"]
    after = {_name(pod): pod for pod in given["pods"]}
    troubles: list[str] = []
    for workload in given["workloads"]:
        found, trouble = _ungated(workload, given)
        troubles += [trouble] if trouble else []
        for one in found:
            after[one.pod.metadata.name] = _patched(after[one.pod.metadata.name], one)
    return [*_pods(given, after), *_metric(given), *_wrong(given, troubles)]


def _ungated(workload: Object, given: Object) -> tuple[tuple[PodUngating, ...], str]:
    gang = admitted_placement(workload)
    if gang is None:
        return (), ""
    pods = [_wire(pod) for pod in given["pods"]]
    mine = [pod for pod in pods if gang_of_pod(pod) == gang_of_workload(workload)]
    expected: dict[str, Path | None] = dict.fromkeys(given.get("expectUIDs") or ())  # to places unknown
    answer = ungatings(gang, mine, expected)
    return answer.pods, answer.error


def _wire(pod: Object) -> PodWire:
    """The pod, with the uid that an API would have given it."""
    meta = {"uid": f"uid-of-{_name(pod)}", **pod["metadata"]}
    return msgspec.convert({**pod, "metadata": meta}, PodWire, strict=False)


def _patched(pod: Object, one: PodUngating) -> Object:
    patch = ungating_write(one).body["spec"]
    selector = {**(pod["spec"].get("nodeSelector") or {}), **patch["nodeSelector"]}
    spec = {**pod["spec"], "nodeSelector": selector, "schedulingGates": patch["schedulingGates"]}
    return {**pod, "spec": spec}


def _pods(given: Object, after: dict[str, Object]) -> list[str]:
    wrong = []
    exact = given.get("nodeSelectorAssertMode", "Exact") == "Exact"
    for want in given["wantPods"]:
        got = after[_name(want)]
        if _gates(want) != _gates(got):
            wrong.append(f"{_name(want)}: want gates {_gates(want)}, got {_gates(got)}")
        if exact and _selector(want) != _selector(got):
            wrong.append(f"{_name(want)}: want selector {_selector(want)}, got {_selector(got)}")
    if given.get("wantCounts") is not None:
        counted = {_frozen(one["NodeSelector"]): one["Count"] for one in given["wantCounts"]}
        found = Counter(_frozen(_selector(pod)) for pod in after.values() if _counts(pod))
        if counted != dict(found):
            wrong.append(f"want counts {counted}, got {dict(found)}")
    return wrong


def _metric(given: Object) -> list[str]:
    """Play the role through, and listen to what it tells of gates that were removed."""
    if "wantMetricsCount" not in given:
        return []
    seen: list[tuple[str, bool, float]] = []
    role = UngatingController(0.0, lambda *told: seen.append(told))
    now = METRIC_DELAY
    for workload in given["workloads"]:
        list(role.decode(Event(Happened.SEEN, WORKLOADS, workload)))
        admitted = condition_of(workload, ADMITTED) or {}
        now = seconds(admitted["lastTransitionTime"]) + METRIC_DELAY
    for pod in given["pods"]:
        list(role.decode(Event(Happened.SEEN, PODS_KIND, _wire(pod))))
    for write in list(role.reconcile(now)):
        list(role.on_outcome(WriteOutcome(write, Ended.DONE), now))
    want = [("cq", given["isGroup"])] * given["wantMetricsCount"], given["wantMetricsSeconds"]
    got = [told[:2] for told in seen], sum(told[2] for told in seen)
    return [] if want == got else [f"want metric {want}, got {got}"]


def _wrong(given: Object, troubles: list[str]) -> list[str]:
    """A wait is nothing wrong; what somebody has to mend is told."""
    mend = (given.get("wantErr") or {}).get("error") == "failed to parse offset annotation"
    return [] if mend == bool(troubles) else [f"want trouble: {mend}, got {troubles}"]


def _name(pod: Object) -> str:
    return str(pod["metadata"]["name"])


def _gates(pod: Object) -> list[str]:
    return [gate["name"] for gate in pod["spec"].get("schedulingGates") or ()]


def _selector(pod: Object) -> dict[str, str]:
    return dict(pod["spec"].get("nodeSelector") or {})


def _frozen(selector: dict[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(selector.items()))


def _counts(pod: Object) -> bool:
    """Whether a pod is counted by the table: it was sent somewhere, and has not come to its end."""
    return bool(_selector(pod)) and pod.get("status", {}).get("phase") not in ("Failed", "Succeeded")


FILES = {"kueue/ungater*": check}
