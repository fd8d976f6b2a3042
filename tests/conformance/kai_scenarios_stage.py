"""Clusters of the KAI scenarios: nodes, queues, jobs and their tasks, as objects read by the dialect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from bayplan.dialects.api import Event, Happened
from bayplan.dialects.kai.api import wire
from bayplan.dialects.kai.api.gang_tree import DEFAULT
from bayplan.dialects.kai.api.pod_group import Constraint, PodGroup, SubGroup, pod_group_object
from bayplan.dialects.kai.api.queues import CPU, GPU, MEMORY
from bayplan.dialects.kai.decode.events import PRIORITY_CLASSES, GroupDecoder, PriorityClassWire
from bayplan.dialects.kube.decode.wire import Metadata
from bayplan.model.change import Change, NodeSeen, PodSeen
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME, PODS, Node
from bayplan.model.node_rules import NodeRules, NodeSelectorTerm, Requirement
from bayplan.model.pod import Pod, PodKey
from bayplan.model.pod_spec import PodAffinity, PodAffinityTerm, PodSignature, PodSpec, Selector

Case = dict[str, Any]
NOW = 1_800_000_000.0
MINUTE = 60.0
NAMESPACE = "default"
UNLIMITED = -1
AFFINITY = "kai.scheduler/type"
CORES = 20_000
MEMORY_OF_NODE = 20 * 10**9
MEMORY_OF_TASK = 10**9
RUNS = ("Running", "Bound", "Binding", "Releasing")


@dataclass(frozen=True, slots=True)
class Standing:
    """How a task stands."""

    status: str
    node: str = ""
    promised: str = ""


Standings = dict[str, Standing]
"""By id of the task."""


def standings(case: Case) -> Standings:
    """As the case begins."""
    tasks = [task for job in case["input"]["jobs"] for task in job["tasks"]]
    return {
        task["id"]: Standing(task["state"], task.get("nodeName", "") if task["state"] != "Pending" else "")
        for task in tasks
    }


def names_of(case: Case) -> dict[PodKey, str]:
    """The task of every pod."""
    return {
        PodKey(_namespace(job), _pod_name(job, at)): task["id"]
        for job in case["input"]["jobs"]
        for at, task in enumerate(job["tasks"])
    }


def changes_of(case: Case, now: Standings) -> Iterator[Change]:
    """All that is there if the tasks stand like that."""
    reading = GroupDecoder()
    found = case["input"]
    for name, node in found["nodes"].items():
        yield NodeSeen(_node(name, node))
    for obj in _topologies(found):
        yield from reading.decode(Event(Happened.SEEN, wire.TOPOLOGIES, obj))
    for queue in _queues(found):
        yield from reading.decode(Event(Happened.SEEN, wire.QUEUES, queue))
    jobs = sorted(found["jobs"], key=lambda job: -job["priority"])
    for priority in {job["priority"] for job in jobs}:
        known = PriorityClassWire(Metadata(name=f"p{priority}"), value=priority)
        yield from reading.decode(Event(Happened.SEEN, PRIORITY_CLASSES, known))
    for at, job in enumerate(jobs):
        group = msgspec.convert(pod_group_object(_group(job)), wire.KaiPodGroupWire)
        yield from reading.decode(Event(Happened.SEEN, wire.POD_GROUPS, group))
        age = job.get("jobAgeInMinutes") or len(jobs) - at
        known_group = reading.groups[_group(job).ref]
        known_group.created = NOW - age * MINUTE
        yield from reading.position_pods(PodSeen(pod) for pod in _pods(job, now, known_group.created))
    yield from reading.flush()


# ── nodes and queues ───────────────────────────────────────────────────────────────────────────────


def _node(name: str, node: Mapping[str, Any]) -> Node:
    labels = {HOSTNAME: name, AFFINITY: name, **(node.get("labels") or {})}
    amounts = {
        CPU: int(1000 * (node.get("cpuMillis") or CORES)),
        MEMORY: int(node.get("cpuMemory") or MEMORY_OF_NODE),
        GPU: 0 if node.get("migStrategy") == "mixed" else node.get("gpus") or 0,
        PODS: node.get("maxTaskNum") or 110,
    }
    return Node(name, labels, amounts)


def _topologies(found: Mapping[str, Any]) -> Iterator[wire.KaiTopologyWire]:
    for topology in found["topologies"]:
        levels = [wire.LevelWire(level) for level in topology["levels"]]
        yield wire.KaiTopologyWire(Metadata(name=topology["name"]), wire.TopologySpecWire(levels))


def _queues(found: Mapping[str, Any]) -> Iterator[wire.QueueWire]:
    """Without departments every queue is below one that is bounded by nothing."""
    departments = found["departments"]
    alone = not departments and not found["disableDefaultDepartment"]
    for at, queue in enumerate(found["queues"]):
        parent = "default" if alone else queue.get("parentQueue", "")
        yield _queue(queue, parent, queue.get("gpuOverQuotaWeight", 0), at)
    if alone:
        departments = [{"name": "default", "deservedGPUs": UNLIMITED}]
    for at, department in enumerate(departments):
        yield _queue(department, "", department.get("deservedGPUs", 0), at)


def _queue(queue: Mapping[str, Any], parent: str, weight: float, at: int) -> wire.QueueWire:
    gpu = wire.QueueResourceWire(
        queue.get("deservedGPUs", 0), queue.get("maxAllowedGPUs") or UNLIMITED, weight
    )
    cpu = wire.QueueResourceWire(
        queue.get("deservedCPUs", UNLIMITED), queue.get("maxAllowedCPUs", UNLIMITED), 1
    )
    memory = wire.QueueResourceWire(
        queue.get("deservedMemory", UNLIMITED), queue.get("maxAllowedMemory", UNLIMITED), 1
    )
    spec = wire.QueueSpecWire(parent, queue.get("priority"), wire.ResourcesWire(cpu, memory, gpu))
    made = f"2026-01-01T00:{at:02}:00Z"
    return wire.QueueWire(Metadata(name=queue["name"], creation_timestamp=made), spec)


# ── jobs ───────────────────────────────────────────────────────────────────────────────────────────


def _group(job: Mapping[str, Any]) -> PodGroup:
    root = job["rootSubGroupSet"] or {"podSets": [], "subGroupSets": [], "topologyConstraint": None}
    parts = tuple(_sub_groups(root, ""))
    alone = root["podSets"][0] if len(root["podSets"]) == 1 and not root["subGroupSets"] else None
    minimum, constraint = len(job["tasks"]), _constraint(root["topologyConstraint"])
    if alone is not None and alone["name"] == DEFAULT and alone["topologyConstraint"] is None:
        minimum, parts = alone["minAvailable"], ()
    return PodGroup(
        job["name"], _namespace(job), job["queueName"], f"p{job['priority']}", job["preemptibility"],
        minimum, constraint, parts, uid=f"uid-{job['name']}",
    )  # fmt: skip


def _sub_groups(root: Mapping[str, Any], parent: str) -> Iterator[SubGroup]:
    for inner in root["subGroupSets"]:
        yield SubGroup(inner["name"], 1, parent, _constraint(inner["topologyConstraint"]))
        yield from _sub_groups(inner, inner["name"])
    for leaf in root["podSets"]:
        yield SubGroup(leaf["name"], leaf["minAvailable"], parent, _constraint(leaf["topologyConstraint"]))


def _constraint(found: Mapping[str, str] | None) -> Constraint | None:
    if not found:
        return None
    return Constraint(found["topology"], found["requiredLevel"], found["preferredLevel"])


def _pods(job: Mapping[str, Any], now: Standings, created: float) -> Iterator[Pod]:
    for at, task in enumerate(job["tasks"]):
        stands = now[task["id"]]
        amounts = _amounts(job, task)
        shape = PodSignature(
            _namespace(job),
            tuple(sorted((task.get("podAffinityLabels") or {}).items())),
            tuple(amounts.items()),
            rules=_rules(task.get("nodeAffinityNames") or ()),
            affinity=_neighbours(_namespace(job), task),
        )
        name = _pod_name(job, at)
        pod = Pod(
            PodKey(_namespace(job), name),
            f"uid-{name}",
            amounts,
            gang=Ref("kai", "PodGroup", _namespace(job), job["name"]),
            pod_set=task.get("subGroupName", ""),
            rank=at - 1000 * (task.get("priority") or 0),
            spec=PodSpec(shape, job["priority"], nominated=stands.promised),
            ours=True,
            created=created,
        )
        if stands.status in RUNS:
            gone = stands.status == "Releasing"
            pod = replace(pod, node=stands.node, started=NOW - MINUTE, terminating=gone, was_started=True)
        elif stands.status == "Failed":
            pod = replace(pod, node=stands.node, started=NOW - MINUTE, finished=True, was_started=True)
        yield pod


def _namespace(job: Mapping[str, Any]) -> str:
    return job["namespace"] or NAMESPACE


def _pod_name(job: Mapping[str, Any], at: int) -> str:
    return f"{job['name']}-{at}"


def _amounts(job: Mapping[str, Any], task: Mapping[str, Any]) -> dict[str, int]:
    if job.get("isBestEffortJob"):
        return {PODS: 1}
    gpus = task.get("requiredGPUs", job["requiredGPUsPerTask"])
    amounts = {
        CPU: int(1000 * (job["requiredCPUsPerTask"] or 1)),
        MEMORY: int(job["requiredMemoryPerTask"] or MEMORY_OF_TASK),
        PODS: 1,
    }
    return amounts | ({GPU: int(gpus)} if gpus else {})


def _rules(nodes: Sequence[str]) -> NodeRules:
    if not nodes:
        return NodeRules()
    return NodeRules(affinity=(NodeSelectorTerm((Requirement(AFFINITY, "In", tuple(nodes)),)),))


def _neighbours(namespace: str, task: Mapping[str, Any]) -> PodAffinity:
    labels = task.get("podAffinityLabels") or {}
    selector = Selector(tuple(Requirement(key, "In", (value,)) for key, value in sorted(labels.items())))
    near, apart = task.get("podAffinityTopologyKey"), task.get("podAntiAffinityTopologyKey")
    return PodAffinity(
        required=(PodAffinityTerm(near, selector, (namespace,)),) if near else (),
        required_anti=(PodAffinityTerm(apart, selector, (namespace,)),) if apart else (),
    )
