"""gang/unit_*_wap_unit: who has to go for a gang, and who of two is more important."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from bayplan.dialects.kube.fields.times import seconds
from bayplan.model.gang import DisruptionBudget, GangSpec, Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.node_rules import Requirement
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodSignature, PodSpec, Selector
from bayplan.scheduling.preemption.victim_units import VictimUnit
from bayplan.state.scheduling.snapshot import SchedulingCandidate
from tests.support.gang_snapshots import decide, look

SEAT = "seat"
Obj = dict[str, Any]


def check(case: Obj) -> list[str]:
    """Two tables in one file."""
    return _more_important(case) if "vi1" in case else _victims(case)


def _more_important(case: Obj) -> list[str]:
    first, second = _unit(case["vi1"]), _unit(case["vi2"])
    got = first.rank()[:-1] < second.rank()[:-1]  # names do not matter here
    return [] if got == case["want"] else [f"want {case['want']}, got {got}: {first} {second}"]


def _unit(given: Obj) -> VictimUnit:
    pods = tuple(_pod(one["pod"], {}) for one in given.get("pods") or [{"pod": {"metadata": {}, "spec": {}}}])
    started = seconds(given["earliestStartTime"]) if "earliestStartTime" in given else 0.0
    return VictimUnit(pods, given["priority"], pods[0].gang is not None, started)


def _victims(case: Obj) -> list[str]:
    """A rule says: so many pods fit once these are gone. Each becomes a node that any one of them fills."""
    rules = _least(case["blockingRules"], len(case["preemptor"]["pods"]))
    place = {name: number for number, rule in enumerate(rules) for name in rule["blockingVictims"]}
    nodes = [_node(f"rule-{number}", rule["capacity"]) for number, rule in enumerate(rules)]
    taken = {name: ((SEAT, max(rules[number]["capacity"], 1)), (PODS, 1)) for name, number in place.items()}
    running = [
        _pod(one, taken, f"rule-{place[name]}" if (name := one["metadata"]["name"]) in place else "elsewhere")
        for one in case["initPods"]
    ]
    charters = [
        GangSpec(
            _ref(group["metadata"]["name"]),
            priority=group["spec"].get("priority"),
            disrupt_together=group["spec"].get("disruptionMode") == "PodGroup",
        )
        for group in case.get("initPodGroups") or []
    ]
    given = case["preemptor"]
    waiting = [_pod(one, {}, gang="preemptor") for one in given["pods"]]
    rules_of = GangSpec(
        _ref("preemptor"),
        len(waiting),
        priority=given["priority"],
        preempts=given["preemptionPolicy"] != "Never",
    )
    seen = look(
        [*nodes, _node("elsewhere", 0)],
        running,
        SchedulingCandidate(rules_of, tuple(waiting)),
        charters=charters,
        budgets=[_budget(one) for one in case.get("pdbs") or []],
    )
    found = decide(seen)
    want = sorted(case["expectedPods"])
    told = [] if list(found.displaced) == want else [f"want {want}, got {list(found.displaced)}"]
    if bool(found.nominates) != (case["expectedStatus"]["code"] == "Success"):
        told.append(f"want {case['expectedStatus']}, got {found.plan}")
    return told


def _least(rules: list[Obj], wanted: int) -> list[Obj]:
    """Without rules that ask for more than another does, if the others have room enough."""
    least = [
        rule
        for rule in rules
        if not any(set(other["blockingVictims"]) < set(rule["blockingVictims"]) for other in rules)
    ]
    return least if sum(rule["capacity"] for rule in least) >= min(wanted, 1) else rules


def _node(name: str, seats: int) -> Node:
    return Node(name, {HOSTNAME: name}, {SEAT: seats, PODS: 1000})


def _ref(name: str) -> Ref:
    return Ref("test", "PodGroup", "", name)


def _pod(given: Obj, taken: dict[str, Any], on: str = "", gang: str = "") -> Pod:
    about, spec = given.get("metadata", {}), given.get("spec", {})
    name = about.get("name", "")
    amounts: Iterable[tuple[str, int]] = taken.get(name, ((PODS, 1),)) if on else ((SEAT, 1), (PODS, 1))
    labels = tuple(sorted((about.get("labels") or {}).items()))
    group = gang or spec.get("schedulingGroup", {}).get("podGroupName", "")
    started = given.get("status", {}).get("startTime")
    return Pod(
        PodKey("", name),
        about.get("uid", ""),
        dict(amounts),
        on,
        gang=_ref(group) if group else None,
        spec=PodSpec(PodSignature("", labels, tuple(amounts)), spec.get("priority", 0)),
        started=seconds(started) + 1 if started else 0.0,  # nought would be: not yet
    )


def _budget(given: Obj) -> DisruptionBudget:
    wanted = given["spec"]["selector"]["matchLabels"]
    selector = Selector(tuple(Requirement(key, "In", (value,)) for key, value in wanted.items()))
    return DisruptionBudget("", "", selector, given["status"]["disruptionsAllowed"])


FILES = {"gang/unit_*_wap_unit": check}
