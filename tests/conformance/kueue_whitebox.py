"""kueue/whitebox: tables about the inside of the peer, as far as we have the same thing inside."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.kube.decode.node_fields import node
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode import events
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.status import queue_status
from bayplan.model.assignment import Assignment, DomainAssignment
from bayplan.model.node import Topology
from bayplan.placement.gang.resize import _truncated
from bayplan.state.admission.state import AdmissionState
from bayplan.state.cluster.topology_state import TopologyState
from bayplan.state.reports.summaries import summaries

Object = dict[str, Any]
Given = dict[str, Any]
NOW = 1_790_000_000.0


def check_whitebox(case: dict[str, Any]) -> list[str]:
    """Every table has its own check, named after the table."""
    check = TABLES.get(case["test"])
    return [f"no counterpart of {case['test']}"] if check is None else check(case["case"])


def _same(want: object, got: object) -> list[str]:
    return [] if want == got else [f"want {want}, got {got}"]


def _assignment(given: Given) -> Assignment:
    shares = tuple(DomainAssignment(tuple(one["Values"]), one["Count"]) for one in given.get("Domains") or ())
    return Assignment(tuple(given["Levels"]), shares)


def _counted(given: Given) -> list[str]:
    return _same(given["want"], _assignment(given["assignment"]).count)


def _cut(given: Given) -> list[str]:
    return _same(_assignment(given["want"]), _truncated(_assignment(given["assignment"]), given["newCount"]))


def _stale(given: Given) -> list[str]:
    """A place is stale if the topology has no such domain any more."""
    tree = given["tree"]
    cluster = TopologyState(Topology("default", tuple(tree["levelKeys"])))
    cluster.load([node(Field(one)) for one in tree["nodes"] or ()])
    supply = cluster.snapshot()
    places = [tuple(one["Values"]) for one in given["assignment"]["Domains"]]
    return _same(given["wantStale"], any(supply.leaf(place, usable=False) is None for place in places))


# ── whether a queue can admit ──────────────────────────────────────────────────────────────────────


def _ready(given: Given) -> list[str]:
    state, queue = AdmissionState(), given["cq"]
    for kind, obj in _around(queue, without_topology=bool(given.get("skipTopology"))):
        shown = {"apiVersion": kind.api_version, "kind": kind.kind, **obj}
        state.apply_all(list(events.decode(Event(Happened.SEEN, kind, shown))))
    status = queue_status.cluster_queue(queue, summaries(state).queues[queue["metadata"]["name"]], NOW) or {}
    (active,) = [one for one in status["conditions"] if one["type"] == "Active"]
    return _same((given["wantReason"], given["wantMessage"]), (active["reason"], active["message"]))


def _around(queue: Object, *, without_topology: bool) -> Iterator[tuple[Kind, Object]]:
    """What the table makes besides the queue: its flavor, the topology of that, and its checks."""
    if not without_topology:
        levels = [{"nodeLabel": "tas-level-0"}]
        yield api_kinds.TOPOLOGIES, {"metadata": {"name": "example-topology"}, "spec": {"levels": levels}}
    for group in queue["spec"]["resourceGroups"]:
        for flavor in group["flavors"]:
            yield (
                api_kinds.FLAVORS,
                {
                    "metadata": {"name": flavor["name"]},
                    "spec": {"topologyName": "example-topology", "nodeLabels": {"tas-node-group": "tas"}},
                },
            )
    for check in (queue["spec"].get("admissionChecksStrategy") or {}).get("admissionChecks") or ():
        active = [{"type": "Active", "status": "True", "reason": "Active"}]
        spec = {"controllerName": "example.com/any"}
        yield (
            api_kinds.CHECKS,
            {"metadata": {"name": check["name"]}, "spec": spec, "status": {"conditions": active}},
        )
    yield api_kinds.CLUSTER_QUEUES, queue


TABLES: dict[str, Callable[[Given], list[str]]] = {
    "TestCountPodsInAssignment": _counted,
    "TestTruncateAssignment": _cut,
    "TestIsTopologyAssignmentStale": _stale,
    "TestClusterQueueReadinessWithTAS": _ready,
}

FILES = {"kueue/whitebox": check_whitebox}
