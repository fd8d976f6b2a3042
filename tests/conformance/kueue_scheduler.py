"""Whole admission rounds of the peer: its objects in, our plan out, compared with what it did."""

from __future__ import annotations

import re
from dataclasses import replace
from fractions import Fraction
from typing import Any

import msgspec

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode.node_fields import node
from bayplan.dialects.kube.decode.wire import PODS_KIND, PodWire
from bayplan.dialects.kube.fields.quantity import parse_quantity
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.decode import events
from bayplan.dialects.kueue.decode.workloads import decode_workload
from bayplan.dialects.kueue.fields.counting import NO_TRANSFORMATIONS, Counting, Transformation
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status import events as notices
from bayplan.model.assignment import Assignment
from bayplan.model.change import NodeSeen
from bayplan.model.plan import Admit, EvictGang, Plan, ReportNotAdmitted
from bayplan.model.profile import Profile
from bayplan.model.queued_gang import Admission
from bayplan.scheduling.admission.cycle import decide_admissions
from bayplan.state.admission.state import AdmissionState
from tests.conformance.kueue_placement import profile_of

Case = dict[str, Any]

OBJECTS = {
    "topologies": api_kinds.TOPOLOGIES,
    "resourceFlavors": api_kinds.FLAVORS,
    "admissionChecks": api_kinds.CHECKS,
    "cohorts": api_kinds.COHORTS,
    "clusterQueues": api_kinds.CLUSTER_QUEUES,
    "localQueues": api_kinds.LOCAL_QUEUES,
    "workloads": api_kinds.WORKLOADS,
}


def check(case: Case) -> list[str]:
    """Compare who was admitted where, who has to leave, who is left where, and the events."""
    state, plan = decided(case)
    want = case["want"]
    problems = _admissions(plan, want)
    if "wantLeft" in want or "wantInadmissibleLeft" in want or case["test"] != "TestScheduleForTAS":
        problems += _left(state, plan, case)
    problems += _events(plan, case)
    return problems


def decided(case: Case) -> tuple[AdmissionState, Plan]:
    """Our round."""
    state, now = AdmissionState(), seconds(case["now"]) + 60.0
    counting = _counting(case)
    for entry in case["nodes"]:
        state.apply(NodeSeen(_node(entry)))
    for name, kind in OBJECTS.items():
        for obj in case.get(name) or []:
            _put(state, kind, obj, counting)
    for pod in case.get("pods") or []:
        wire = msgspec.convert(pod, PodWire)
        for change in events.decode(Event(Happened.SEEN, PODS_KIND, wire)):
            state.apply(change)
    heads = state.heads(now)
    plan = decide_admissions(state.snapshot(heads), _profile(case["gates"]), now)
    state.assume(plan, now)
    return state, plan


def _profile(gates: dict[str, bool]) -> Profile:
    return replace(
        profile_of(gates),
        recompute=gates.get("TASRecomputeAssignmentWithinSchedulingCycle", True),
        replace_fast=gates.get("TASFailedNodeReplacementFailFast", True),
    )


def _counting(case: Case) -> Counting:
    found = tuple(
        Transformation(
            rule["input"],
            {
                name: parse_quantity(value)
                * Fraction(1000 if name == "cpu" else 1)
                / Fraction(1000 if rule["input"] == "cpu" else 1)
                for name, value in rule["outputs"].items()
            },
            rule.get("strategy") != "Replace",
        )
        for rule in case.get("resourceTransformations") or []
    )
    return Counting(found) if found else NO_TRANSFORMATIONS


def _put(state: AdmissionState, kind: Kind, obj: Case, counting: Counting) -> None:
    for change in events.decode(Event(Happened.SEEN, kind, obj), counting):
        state.apply(change)


def _node(entry: Case) -> Any:
    spec = {"taints": entry["taints"], "unschedulable": entry["unschedulable"]}
    conditions = [{"type": "Ready", "status": entry["ready"]}] if entry["ready"] else []
    status = {"allocatable": entry["allocatable"], "conditions": conditions}
    meta = {"name": entry["name"], "labels": entry["labels"]}
    return node(Field({"kind": "Node", "metadata": meta, "spec": spec, "status": status}))


def _admissions(plan: Plan, want: Case) -> list[str]:
    got = {_key(a): _shown(a.admission) for a in plan.actions if isinstance(a, Admit)}
    held = {
        _key(a): _shown(a.queued_gang.admission)
        for a in plan.actions
        if isinstance(a, ReportNotAdmitted | EvictGang) and a.queued_gang.admission is not None
    }
    wanted = {name: _wanted(found) for name, found in (want.get("wantNewAssignments") or {}).items()}
    problems = [f"{name}: not admitted: {_why(plan, name)}" for name in wanted if name not in got | held]
    for name, shown in got.items():
        if name not in wanted:
            problems.append(f"{name}: admitted, unlike the peer's: {shown}")
        elif shown != wanted[name]:
            problems.append(f"{name}: {shown} instead of {wanted[name]}")
    return problems


def _why(plan: Plan, name: str) -> str:
    return "; ".join(str(getattr(a, "rejection", a)) for a in plan.actions if _key(a) == name) or "not tried"


def _key(action: Any) -> str:
    return f"{action.gang.namespace}/{action.gang.name}"


def _shown(admission: Admission) -> Any:
    return {
        given.name: (
            given.count,
            dict(given.flavors),
            dict(given.usage),
            _place(given.assignment),
            given.delayed,
        )
        for given in admission.pod_sets
    }


def _place(found: Assignment | None) -> Any:
    if found is None:
        return None
    return list(found.levels), [(list(share.values), share.count) for share in found.shares]


def _wanted(admission: Case) -> Any:
    change = {"kind": "Workload", "metadata": {"name": "w"}, "spec": {"podSets": [{"name": "main"}]}}
    status = {"admission": admission, "conditions": [{"type": "QuotaReserved", "status": "True"}]}
    found = decode_workload(Field(change | {"status": status})).admission
    assert found is not None
    return _shown(found)


def _left(state: AdmissionState, plan: Plan, case: Case) -> list[str]:
    problems = []
    refused = {name: line.rejected() for name, line in state.pending.queues.items()}
    got: dict[str, dict[str, set[str]]] = {"wantLeft": {}, "wantInadmissibleLeft": {}}
    parked = {
        _key(a) for a in plan.actions if isinstance(a, ReportNotAdmitted) and a.requeue.value == "on_event"
    }
    for name, line in state.pending.queues.items():
        for standing in line.entries():
            source = standing.queued_gang.gang.source
            key = f"{source.namespace}/{source.name}"
            strict = line.strict
            where = "wantInadmissibleLeft" if key in parked and not strict else "wantLeft"
            if (
                standing.shape in refused[name]
                and where == "wantLeft"
                and key not in {_key(a) for a in plan.actions}
            ):
                where = "wantInadmissibleLeft"
            got[where].setdefault(name, set()).add(key)
    for what, found in got.items():
        wanted = {name: set(keys) for name, keys in (case["want"].get(what) or {}).items()}
        if wanted != found:
            problems.append(f"{what}: {found} instead of {wanted}")
    return problems


def _events(plan: Plan, case: Case) -> list[str]:
    """Events with their sentences; those of a write that the API refused are never sent."""
    workloads = {_name(obj): obj for obj in case["workloads"]}
    now = seconds(case["now"])
    told = [
        notice
        for action in plan.actions
        if isinstance(action, Admit | EvictGang | ReportNotAdmitted)
        and not (isinstance(action, EvictGang) and case["extra"].get("patchStatusErr"))
        for notice in notices.events(action, workloads[_key(action)], now)
    ]
    got = sorted((f"{n.namespace}/{n.name}", n.kind, n.reason, _timeless(n.message)) for n in told)
    wanted = sorted(
        (f"{e['Key']['Namespace']}/{e['Key']['Name']}", e["EventType"], e["Reason"], _timeless(e["Message"]))
        for e in case["got"].get("events") or []
    )
    return [] if got == wanted else [f"events {got} instead of {wanted}"]


def _timeless(message: str) -> str:
    return re.sub(r"was \d+s", "was …s", message)


def _name(obj: Case) -> str:
    return f"{obj['metadata'].get('namespace', 'default')}/{obj['metadata']['name']}"


FILES = {"kueue/scheduler": check}
