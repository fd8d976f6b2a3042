"""Placement cases: a cluster, what is used on it, a gang, and where every pod has to go (or the sentence)."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kube.decode.node_rule_fields import node_rules
from bayplan.dialects.kube.fields.quantity import amount
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.status.misfit_messages import misfit_message
from bayplan.model.assignment import Assignment, DomainAssignment, Placement
from bayplan.model.gang import Gang, Group, Locality, PodSet, Ref, Segment
from bayplan.model.node import PODS, Node, Topology
from bayplan.model.node_rules import Taint
from bayplan.model.profile import LeaderRules, Profile, Remainder, Strategy
from bayplan.placement.gang.place import place
from bayplan.placement.gang.replace import replace_nodes
from bayplan.placement.gang.resize import resize
from bayplan.state.cluster.topology_state import TopologyState

Case = dict[str, Any]
Shown = tuple[list[str], list[tuple[list[str], int]]]


def check(case: Case) -> list[str]:
    """Every difference between our answer and the expected one."""
    answer = answer_of(case)
    got: dict[str, tuple[Shown | None, str]] = {
        name: (_shown(found), "") for name, found in answer.assignments.items()
    }
    if answer.misfit is not None:
        got |= {name: (None, misfit_message(answer.misfit)) for name in answer.misfit.pod_sets}
    want = {name: (_wanted(entry["assignment"]), entry["reason"]) for name, entry in case["want"].items()}
    return [
        f"pod set {name!r}: want {want.get(name)}, got {got.get(name)}"
        for name in sorted(want | got)
        if want.get(name) != got.get(name)
    ]


def answer_of(case: Case) -> Placement:
    """Our answer to a case."""
    supply, profile = cluster_of(case).snapshot(), profile_of(case["gates"])
    gang = gang_of(case)
    workload = case["workload"]
    if workload and workload["unhealthyNodes"]:
        held = {name: _assignment(entry["assignment"]) for name, entry in workload["admission"].items()}
        if _belongs_to_one_pod(workload) and case["gates"].get("SkipReassignmentForPodOwnedWorkloads", True):
            names = [pod_set.name for pod_set in gang.root.pod_sets()]
            return Placement({name: held[name] for name in names if name in held})
        return replace_nodes(supply, gang, held, workload["unhealthyNodes"][:1], profile)
    if case["gates"].get("ElasticJobsViaWorkloadSlicesWithTAS"):
        before = {entry["name"]: entry["previousAssignment"] for entry in case["podSets"]}
        running = {name: _assignment(found) for name, found in before.items() if found}
        return resize(supply, gang, running, profile)
    return place(supply, gang, profile)


def _belongs_to_one_pod(workload: Case) -> bool:
    owners = workload["ownerReferences"]
    return len(owners) == 1 and owners[0]["kind"] == "Pod"


def profile_of(gates: dict[str, bool]) -> Profile:
    """The peer's switches as a profile; what it always does is stated here too."""
    mixed = gates.get("TASProfileMixed", True)
    return Profile(
        preferred=Strategy.BALANCED if gates.get("TASBalancedPlacement") else Strategy.BEST_FIT,
        unconstrained=Strategy.LEAST_FREE if mixed else Strategy.BEST_FIT,
        remainder=Remainder.LEAVE_OUT,
        leader_rules=LeaderRules.WORKERS,
        preferred_affinity=gates.get("TASRespectNodeAffinityPreferred", False),
        rules_below_leaf=False,
        binding_filters=False,
        pack_segments=False,
    )


def cluster_of(case: Case) -> TopologyState:
    """Nodes, other pods and placed gangs."""
    cluster = TopologyState(
        Topology(case["topologyName"], tuple(case["levels"])), case["flavor"]["nodeLabels"]
    )
    cluster.load(_node(node) for node in case["nodes"])
    for pod in case["nonTASPods"]:
        if pod["nodeName"] and pod["phase"] not in ("Succeeded", "Failed"):
            used: dict[str, int] = {PODS: 1}
            for container in pod["containers"]:
                for resource, value in container.items():
                    used[resource] = used.get(resource, 0) + amount(resource, value)
            cluster.use_node(pod["nodeName"], used)
    for held in case["tasUsage"]:
        amounts = {name: each * held["count"] for name, each in held["perPod"].items()}
        cluster.use_domain(tuple(held["values"]), amounts | {PODS: amounts.get(PODS, 0) + held["count"]})
    return cluster


def _node(node: Case) -> Node:
    return Node(
        name=node["name"],
        labels=node["labels"] or {},
        allocatable={name: amount(name, value) for name, value in node["allocatable"].items()},
        taints=tuple(Taint(t["key"], t.get("value", ""), t["effect"]) for t in node["taints"]),
        ready=node["ready"] == "True",
        schedulable=not node["unschedulable"],
    )


def gang_of(case: Case) -> Gang:
    """Pod sets with the same group name become one group, where the first of them stood."""
    tolerations = case["flavor"]["tolerations"] or []
    groups: dict[str, list[PodSet]] = {}
    for index, entry in enumerate(case["podSets"]):
        key = entry["podSetGroupName"] if entry["podSetGroupName"] is not None else f"{index}"
        groups.setdefault(key, []).append(_pod_set(entry, tolerations))
    members = tuple(
        found[0] if len(found) == 1 else Group(name, tuple(found), len(found))
        for name, found in groups.items()
    )
    return Gang(Ref("kueue", "Workload", "ns", "wl"), Group("", members, len(members)))


def _pod_set(entry: Case, tolerations: list[Any]) -> PodSet:
    asked = entry["topologyRequest"] or {}
    spec = {
        "nodeSelector": entry["nodeSelector"],
        "tolerations": (entry["tolerations"] or []) + tolerations,
        "affinity": {"nodeAffinity": entry["nodeAffinity"]},
    }
    layers = asked.get("podsetSliceRequiredTopologyConstraints") or []
    segments = tuple(Segment(layer["size"], layer["topology"]) for layer in layers)
    if asked.get("podSetSliceRequiredTopology"):
        segments = (Segment(asked.get("podSetSliceSize") or 0, asked["podSetSliceRequiredTopology"]),)
    return PodSet(
        entry["name"],
        entry["count"],
        entry["count"],
        entry["requestsPerPod"],
        Locality(asked.get("required"), asked.get("preferred")),
        segments,
        node_rules(Field(spec)),
    )


def _assignment(found: Case) -> Assignment:
    return Assignment(
        tuple(found["levels"]),
        tuple(DomainAssignment(tuple(d["values"]), d["count"]) for d in found["domains"] or []),
    )


def _shown(found: Assignment) -> Shown:
    return list(found.levels), [(list(share.values), share.count) for share in found.shares]


def _wanted(found: Case | None) -> Shown | None:
    return None if found is None else _shown(_assignment(found))


FILES = {"kueue/placement*": check}
