"""kueue/usage_and_nodes: which pods take room, which nodes take part, and which events matter."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bayplan.dialects.kube.decode.node_fields import has_labels, node
from bayplan.dialects.kube.decode.pod_fields import PodUsage, usage_by_node, usage_of
from bayplan.dialects.kube.decode.relevance import node_changes, pod_arrival_matters, pod_removal_matters
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.fields.pods import is_outside_assignments, is_placed_by_topology, update_counts
from bayplan.model.node import Node, Topology
from bayplan.placement.cluster.snapshot import CapacitySnapshot
from bayplan.state.cluster.topology_state import TopologyState

Given = dict[str, Any]


def check_usage(case: dict[str, Any]) -> list[str]:
    """Every table of the file has its own check, named after the table."""
    check = TABLES.get(case["test"])
    return [f"no counterpart of {case['test']}"] if check is None else check(case["case"])


def _same(want: object, got: object) -> list[str]:
    return [] if want == got else [f"want {want}, got {got}"]


def _pod_table(decide: Callable[[Field], bool]) -> Callable[[Given], list[str]]:
    def check(given: Given) -> list[str]:
        return _same(given["want"], decide(Field(given.get("pod") or {})))

    return check


def _pod_update(given: Given) -> list[str]:
    return _same(given["want"], update_counts(Field(given["oldPod"]), Field(given["newPod"])))


def _node_update(given: Given) -> list[str]:
    return _same(
        given.get("wantChanged", 0), int(node_changes(Field(given["oldNode"]), Field(given["newNode"])))
    )


def _usage(given: Given) -> list[str]:
    uses: dict[tuple[str, str], PodUsage] = {}
    for pod in [*given.get("initialPods", ()), *given.get("podsUpdate", ())]:
        use = usage_of(Field(pod))
        key = (pod["metadata"]["namespace"], pod["metadata"]["name"])
        uses.pop(key, None)
        if use is not None:
            uses[key] = use
    for key in given.get("podsDelete", ()):
        uses.pop((key["Namespace"], key["Name"]), None)
    return _same(given.get("wantNodeUsage") or {}, usage_by_node(uses.values()))


# The nodes of the find table are not part of its cases, but all of them are in the answer to the widest one.
FIND_NODES = {
    "test1": {},
    "test2": {"cloud.provider.com/zone": "us-east-1a"},
    "test3": {"cloud.provider.com/topology-block": "b1", "cloud.provider.com/zone": "us-east-1a"},
    "test4": {"cloud.provider.com/zone": "us-east-1"},
}


def _find(given: Given) -> list[str]:
    known = [Node(name, labels, {}) for name, labels in FIND_NODES.items()]
    labels, levels = given.get("nodeLabels") or {}, tuple(given.get("levels") or ())
    found = [each.name for each in known if has_labels(each, labels, levels)]
    return _same(sorted(each["metadata"]["name"] for each in given.get("wantNodes") or ()), found)


def _sync(given: Given) -> list[str]:
    known = node(Field(given["node"]))
    usable = [known.name] if known.ready and known.schedulable else []
    # Nodes that cannot be used are kept or dropped by the peer as a switch has it; only usable ones show.
    kept = [known.name] if usable or given["enableSchedulerLibraryIntegration"] else []
    return _same(given.get("wantSchedulableAndReady") or [], usable) + _same(
        [each["metadata"]["name"] for each in given.get("wantNodes") or ()], kept
    )


def _tree(given: Given) -> list[str]:
    cluster = TopologyState(Topology("default", tuple(given["levels"])))
    cluster.load([node(Field(each)) for each in given["nodes"]])
    return _same(given["want"], _drawn(cluster.snapshot()))


def _drawn(supply: CapacitySnapshot) -> dict[str, Any]:
    """The tree as the peer's test writes it: one entry per domain."""
    tree, cpu = supply.tree, supply.resources["cpu"]
    drawn: dict[str, Any] = {}
    for level in range(len(tree.levels)):
        leaf = level == tree.lowest
        for domain in range(tree.size(level)):
            first, last = tree.row_range(level, domain)
            path = tree.path(level, domain)
            entry: dict[str, Any] = {
                "CPUCapacity": int(supply.free[cpu, first:last].sum()) if leaf else 0,
                "Leaf": leaf,
                "LevelValues": list(path),
                "NodeName": str(tree.names[first]) if leaf and tree.topology.ends_at_host else "",
                "Parent": _identity(supply, level - 1, path[:-1]) if level else {"ID": "", "Level": 0},
                "Root": level == 0,
            }
            if not leaf:
                start = int(tree.children[level][domain])
                children = range(start, start + int(tree.spans[level][domain]))
                below = [tree.path(level + 1, child) for child in children]
                entry["Children"] = [_identity(supply, level + 1, each) for each in below]
            key = json.dumps(_identity(supply, level, path), separators=(",", ":"))
            drawn[key] = entry
    return drawn


def _identity(supply: CapacitySnapshot, level: int, path: tuple[str, ...]) -> dict[str, Any]:
    """A host is known by its name alone, any other domain by its whole path."""
    host = level == supply.tree.lowest and supply.tree.topology.ends_at_host
    return {"ID": path[-1] if host else ",".join(path), "Level": level}


TABLES: dict[str, Callable[[Given], list[str]]] = {
    "TestIsTAS": _pod_table(is_placed_by_topology),
    "TestBelongsToNonTASCache": _pod_table(is_outside_assignments),
    "TestPodUsageReconcilerCreate": _pod_table(pod_arrival_matters),
    "TestPodUsageReconcilerDelete": _pod_table(pod_removal_matters),
    "TestPodUsageReconcilerUpdatePredicate": _pod_update,
    "TestNodeHandler_Update": _node_update,
    "TestNonTasUsageCacheIncrementalUpdates": _usage,
    "TestNodesCacheFind": _find,
    "TestNodesCacheSync": _sync,
    "TestNewTopologyTree": _tree,
}

FILES = {"kueue/usage_and_nodes*": check_usage}
