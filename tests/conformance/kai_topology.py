"""kai/topology_plugin*: which nodes and levels are looked at, how many pods a domain holds, what is said."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from bayplan.dialects.kai.api.gang_tree import Pods, constraint_errors, decode, gang_spec, levels_to_try
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup
from bayplan.dialects.kai.status import messages
from bayplan.model.assignment import Code, DomainFit, Lack, Misfit
from bayplan.model.gang import Gang, Group, Locality, PodSet
from bayplan.model.node import HOSTNAME, PODS, Node, Topology
from bayplan.model.node_rules import ANY_NODE
from bayplan.model.profile import Profile
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.placement.cluster.capacity import AssumedUsage, pods_per_leaf, with_slot
from bayplan.placement.cluster.node_table import mask
from bayplan.placement.cluster.resource_fit import by_weight
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.placement.domains.counts import LeafCounts, count_up
from bayplan.placement.domains.request import PlacementRequest, resolve
from bayplan.placement.gang.place import place
from bayplan.state.cluster.topology_state import TopologyState
from tests.conformance import kai_topology_trees as trees
from tests.conformance.kai_topology_trees import same

Object = dict[str, Any]

GPU = "nvidia.com/gpu"
NO_COUNTERPART = ["no counterpart"]


def check_case(case: Object) -> list[str]:
    """One call of one function upstream, by what answers the same question here."""
    check = CHECKS.get(case["func"])
    return NO_COUNTERPART if check is None else check(case)


# ── levels ─────────────────────────────────────────────────────────────────────────────────────────


def _relevant(case: Object) -> list[str]:
    constraint, given = _constraint(case["constraint"]), case["topology"]
    wanted = case["expected"]
    told = _complaint(constraint, case["subGroup"], given)
    if told or wanted.get("error"):
        return same(wanted.get("error"), told)
    return same(wanted["levels"], levels_to_try(constraint, given["levels"]))


def _complaint(constraint: Constraint, sub_group: str, given: Object) -> str:
    if not constraint.has_level:
        return messages.no_levels(sub_group, given["name"])
    named = Constraint(given["name"], constraint.required, constraint.preferred)
    group = PodGroup("g", sub_groups=(SubGroup(sub_group, 1, "", named),))
    return next(iter(constraint_errors(group, {given["name"]: given["levels"] or []})), "")


# ── counts ─────────────────────────────────────────────────────────────────────────────────────────


def _counts(case: Object) -> list[str]:
    supply = _supply(case)
    tasks = case["job"]["tasks"]
    requests = _requests(case["job"])
    levels = case["topology"]["levels"]
    pod_set = PodSet("all", len(tasks), len(tasks), requests)
    request = resolve(pod_set, Locality(), supply.tree.topology, Profile())
    assert isinstance(request, PlacementRequest)
    nodes = mask(supply.table, ANY_NODE) & supply.active
    pods = pods_per_leaf(supply, nodes, with_slot(requests), {}, AssumedUsage.nothing(supply), len(tasks))
    counts = count_up(supply.tree, request, LeafCounts(pods, pods, np.ones(len(pods), bool)))
    found = {
        ".".join(reversed(supply.tree.path(depth, domain))): int(counts.pods[depth][domain])
        for depth in range(len(levels))
        for domain in range(supply.tree.size(depth))
    }
    wanted = {name: one["allocatablePods"] for name, one in (case["expected"].get("domains") or {}).items()}
    return same(wanted, {name: count for name, count in found.items() if count})


def _job_domains(case: Object) -> list[str]:
    """Which domains will do, level by level from the narrowest; or what is said if none does."""
    wanted = case["expected"]
    if wanted["error"]:
        told = _complaint(_constraint(case["constraint"]), "test", case["topology"])
        return same(wanted["error"], told)
    if not wanted["fitErrors"]:
        return _candidates(case)
    told = messages.group_message(_standstill(case), PodGroup(case["jobName"], case["jobNamespace"]), "test")
    *details, sentence = [one["detailed"] for one in wanted["fitErrors"]]
    lines = [*details, sentence.removeprefix("subgroup test: ")]  # the part is named in it already
    return same("\n".join(["Unable to schedule podgroup.", *(f"{line}." for line in lines)]), told)


def _standstill(case: Object) -> Rejection:
    """Why a gang waits, by the table of what domains have; all of them together have enough."""
    level = case["constraint"]["requiredLevel"]
    asked = _amounts(case["tasksResources"])
    holds = []
    for domain in case["topology"]["domainsByLevel"][level].values():
        fit, lacks = domain["allocatablePods"], tuple[Lack, ...]()
        if fit < 0:  # it was not counted, as not all pods ask for the same
            free = _amounts(domain["idleOrReleasing"])
            short = (Lack(one, asked[one], free.get(one, 0)) for one in by_weight(asked))
            lacks = tuple(lack for lack in short if lack.free < lack.asked)
        holds.append(DomainFit(tuple(domain["id"].split(".")), fit, lacks))
    count = case["tasksCount"]
    found = Misfit(Code.NO_ROOM, ("test",), case["topology"]["name"], level, asked=count, total_fit=count)
    return Rejection(RejectionReason.NO_CAPACITY, minimum=count, misfit=replace(found, domains=tuple(holds)))


def _candidates(case: Object) -> list[str]:
    """Domains with enough room, in a cluster made of the table; those where pods run are the only ones."""
    given, constraint = case["topology"], _constraint(case["constraint"])
    tables = given["domainsByLevel"]
    depth = max(at for at, level in enumerate(given["levels"]) if level in tables)
    levels = [level for level in given["levels"][: depth + 1] if level in tables]
    room: dict[tuple[str, ...], int] = {}
    for level in reversed(levels):
        for domain in tables[level].values():
            path = tuple(reversed(domain["id"].split(".")))
            inside = sum(pods for known, pods in room.items() if known[: len(path)] == path)
            rest = domain["allocatablePods"] - inside
            if rest < 0:
                return NO_COUNTERPART  # its numbers contradict each other
            room[(*path, *["rest"] * (len(levels) - len(path)))] = rest
    nodes = {".".join(path): (dict(zip(levels, path, strict=True)), pods) for path, pods in room.items()}
    cluster = TopologyState(Topology(given["name"], tuple(levels)))
    cluster.load(Node(name, labels, {PODS: pods}) for name, (labels, pods) in nodes.items())
    pods = [pod for one in case["podSets"].values() for pod in one["pods"].values()]
    there = {pod["nodeName"] for pod in pods if pod["nodeName"]}
    found = []
    for level in levels_to_try(constraint, given["levels"]):
        if level in levels:
            counts = _pods_by_domain(cluster.snapshot(), levels.index(level), case["tasksCount"])
            found += [
                (name, count) for name, count in sorted(counts.items()) if _stays(tables, level, name, there)
            ]
    wanted = [(one["id"], one["allocatablePods"]) for one in case["expected"]["domains"]]
    return same(wanted, found)


def _stays(tables: Object, level: str, name: str, there: set[str]) -> bool:
    listed = tables[level].get(name)  # what makes up the numbers is none of its domains
    return listed is not None and (not there or bool(there & set(listed["nodes"])))


def _pods_by_domain(supply: CapacitySnapshot, depth: int, asked: int) -> dict[str, int]:
    pods = pods_per_leaf(supply, supply.active, {PODS: 1}, {}, AssumedUsage.nothing(supply))
    request = resolve(PodSet("all", asked, asked), Locality(), supply.tree.topology, Profile())
    assert isinstance(request, PlacementRequest)
    counts = count_up(supply.tree, request, LeafCounts(pods, pods, np.ones(len(pods), bool))).pods[depth]
    tree = supply.tree
    names = [".".join(reversed(tree.path(depth, domain))) for domain in range(tree.size(depth))]
    return {name: int(count) for name, count in zip(names, counts.tolist(), strict=True) if count >= asked}


def _order(case: Object) -> list[str]:
    """The order in which domains are taken: each time the best, which is then struck off."""
    wrong: list[str] = []
    for name, wanted in case["expected"].items():
        root = case["root"]
        if name != "rootChildrenOrder":
            root = next(one for one in root["children"] if name == f"{one['id']}ChildrenOrder")
        asked = root is not None and case["maxDepthLevel"]
        wrong += same(wanted, _taken(root["children"], case["tasksResources"]) if asked else None)
    return wrong


def _taken(domains: list[Object], tasks: Object) -> list[str]:
    requests = _amounts(tasks)
    left = {one["id"]: Node(one["id"], {"d": one["id"]}, _amounts(one["idleOrReleasing"]) | {PODS: 100})
            for one in domains}  # fmt: skip
    gang = Gang(PodGroup("g").ref, Group("g", (PodSet("all", 1, 1, requests, Locality("d")),), 1))
    found: list[str] = []
    while left:
        cluster = TopologyState(Topology("t", ("d",)))
        cluster.load(left.values())
        placed = place(cluster.snapshot(), gang)
        assert placed.ok, placed
        found.append(placed.assignments["all"].shares[0].values[-1])
        del left[found[-1]]
    return found


def _amounts(given: Object) -> dict[str, int]:
    amounts = {"cpu": int(given["milliCPU"]), GPU: int(given["gpus"])}
    return {name: amount for name, amount in amounts.items() if amount}


def _subset(case: Object) -> list[str]:
    """The gang is placed: within the first set of nodes that upstream would try, or refused in its words."""
    wanted, job = case["expected"], case["job"]
    group = _group(job)
    pods = _pods(job)
    given = case["topology"]
    found = decode(group, {"": pods} if pods else None)
    flaw = gang_spec(group, found, topologies={given["name"]: given["levels"] or []}).flaw
    refused = wanted.get("error") or (wanted.get("jobFitError") if "does not exist" in flaw else "")
    if flaw or refused:  # a root has no name upstream, and is told as a sub-group
        return same(refused, flaw.replace(f"workload {group.name} ", "sub-group  "))
    supply = _supply(case)
    placed = place(supply, Gang(group.ref, _with_mixed(found.root, job)))
    if wanted.get("jobFitError"):
        told = "" if placed.misfit is None else messages.misfit(placed.misfit, group)
        return [] if told.startswith(wanted["jobFitError"]) else same(wanted["jobFitError"], told)
    used = {share.values[-1] for one in placed.assignments.values() for share in one.shares}
    allowed = set(wanted.get("nodesFirstSubset") or case["nodes"])
    return [] if placed.ok and used <= allowed else [f"want within {allowed}, got {placed}"]


def _with_mixed(root: Any, job: Object) -> Any:
    """Tasks that ask for something else than the rest are a pod set of their own."""
    odd = [one for one in job["tasks"] if one.get("requiredGPUs")]
    if not odd:
        return root

    def changed(member: Any) -> tuple[Any, ...]:
        if isinstance(member, PodSet):
            rest = member.count - len(odd)
            special = {**_requests(job), GPU: odd[0]["requiredGPUs"]}
            return (
                _sized(member, "plain", rest, member.requests),
                _sized(member, "special", len(odd), special),
            )
        members = tuple(new for one in member.members for new in changed(one))
        return (type(member)(member.name, members, len(members), member.locality),)

    return changed(root)[0]


def _sized(member: PodSet, name: str, count: int, requests: Mapping[str, int]) -> PodSet:
    return PodSet(name, count, count, requests, member.locality)


def _group(job: Object) -> PodGroup:
    constraint = job["rootSubGroupSet"]["topologyConstraint"]
    found = _constraint(constraint) if constraint else None
    minimum = sum(one["minAvailable"] for one in job["rootSubGroupSet"]["podSets"])
    return PodGroup(job["name"], job["namespace"], minimum=minimum, constraint=found)


def _pods(job: Object) -> Pods:
    return Pods(len(job["tasks"]), _requests(job))


def _requests(job: Object) -> dict[str, int]:
    found = {"cpu": int(job["requiredCPUsPerTask"]), GPU: int(job["requiredGPUsPerTask"])}
    return {name: amount for name, amount in found.items() if amount and not job.get("isBestEffortJob")}


# ── making them ────────────────────────────────────────────────────────────────────────────────────


def _supply(case: Object) -> CapacitySnapshot:
    """Nodes in the domains that the table puts them in, written from the bottom."""
    known = case["nodesToDomains"] or {}
    levels = case["topology"]["levels"] if known else []
    cluster = TopologyState(Topology(case["topology"]["name"], (*levels, HOSTNAME)))
    nodes = []
    for name, one in case["nodes"].items():
        path = known.get(name, "").split(".")[::-1]
        labels = dict(zip(levels, path, strict=False)) | {HOSTNAME: name}
        amounts = {"cpu": one["CPUMillis"], GPU: one["GPUs"], PODS: one["MaxTaskNum"]}
        nodes.append(Node(name, labels, amounts))
    cluster.load(nodes)
    return cluster.snapshot()


def _constraint(one: Object) -> Constraint:
    return Constraint(one["topology"], one["requiredLevel"], one["preferredLevel"])


CHECKS: Mapping[str, Callable[[Object], list[str]]] = {
    "isNodePartOfTopology": trees.is_part,
    "initializeTopologyTree": trees.initialised,
    "getLevelDomains": trees.level_domains,
    "lowestCommonDomainID": trees.common_domain,
    "calculateRelevantDomainLevels": _relevant,
    "calcTreeAllocatable": _counts,
    "getJobAllocatableDomains": _job_domains,
    "subSetNodesFn": _subset,
    "sortTree": _order,
    "reverseLevelOrder": trees.bottom_up,
    "calculateNodeScores": trees.fill_order,
}
FILES = {"kai/topology_plugin*": check_case}
