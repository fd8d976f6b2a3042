"""The objects of gang/steps_* and preemption_* as a cluster of some Kubernetes version takes them."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.gang_api.gates import GROUP, V1ALPHA1, V1ALPHA2, V1ALPHA3, V1BETA1

Object = dict[str, Any]

NODES = Kind("", "v1", "Node", "nodes", namespaced=False)
PODS = Kind("", "v1", "Pod", "pods")
EVENTS = Kind("", "v1", "Event", "events")
NAMESPACES = Kind("", "v1", "Namespace", "namespaces", namespaced=False)
BUDGETS = Kind("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets")
CLASSES = Kind(GROUP, "v1", "PriorityClass", "priorityclasses", namespaced=False)

COMPOSITES = Kind(GROUP, V1ALPHA3, "CompositePodGroup", "compositepodgroups")

SCHEDULER = "bayplan"
VERSIONS = {"v1.35": V1ALPHA1, "v1.36": V1ALPHA2, "v1.37": V1BETA1}
CONDITIONS = {V1ALPHA2: "PodGroupScheduled", V1BETA1: "PodGroupInitiallyScheduled"}


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one version of the gang API says things."""

    version: str

    @property
    def workloads(self) -> Kind:
        return Kind(GROUP, self.version, "Workload", "workloads")

    @property
    def groups(self) -> Kind:
        """What the rules of a gang are kept in."""
        return (
            self.workloads if self.version == V1ALPHA1 else Kind(GROUP, self.version, "PodGroup", "podgroups")
        )

    @property
    def condition(self) -> str:
        """The condition of a group that says whether it was scheduled; none in the first version."""
        return CONDITIONS.get(self.version, "")

    def workload(self, said: Object) -> Object:
        return self._made(self.workloads, said["name"], said["spec"])

    def group(self, said: Object) -> Object:
        """A group; in the first version a Workload with one group of the same name."""
        name = said["name"]
        if self.version == V1ALPHA1:
            return self._made(self.groups, name, {"podGroups": [{"name": name, "policy": said["policy"]}]})
        return self._made(self.groups, name, _group_spec(said))

    def composite(self, said: Object) -> Object:
        """A group of groups."""
        return self._made(COMPOSITES, said["name"], _group_spec(said))

    def pod(self, said: Object) -> Object:
        spec: Object = {
            "schedulerName": SCHEDULER,
            "containers": list(_containers(said.get("requests") or {}, said.get("port"))),
            **copy.deepcopy(said.get("spec") or {}),
        }
        if said.get("priority"):
            spec["priorityClassName"] = class_name(said["priority"], spec.pop("preemptionPolicy", None))
        for key in ("nodeName", "terminationGracePeriodSeconds", "workloadRef"):
            if key in said:
                spec[key] = said[key]
        if group := said.get("group"):
            spec |= self._membership(group)
        return _object(PODS, said["name"], {"spec": spec}, said.get("labels"))

    def injected(self, pod: Object) -> Object:
        """A pod that the tables give as an object."""
        spec = {**pod["spec"], "schedulerName": SCHEDULER}
        group = spec.pop("schedulingGroup")["podGroupName"]
        spec.pop("priority", None)
        return _object(PODS, pod["metadata"]["name"], {"spec": spec | self._membership(group)})

    def _membership(self, group: str) -> Object:
        if self.version == V1ALPHA1:
            return {"workloadRef": {"name": group, "podGroup": group}}
        return {"schedulingGroup": {"podGroupName": group}}

    def _made(self, kind: Kind, name: str, spec: Object) -> Object:
        return _object(kind, name, {"spec": spec})


def _group_spec(said: Object) -> Object:
    spec: Object = {"schedulingPolicy": said["policy"]}
    for key in ("podGroupTemplateRef", "workloadRef", "disruptionMode", "parentCompositePodGroupName"):
        if key in said:
            spec[key] = said[key]
    if "topologyKey" in said:
        spec["schedulingConstraints"] = {"topology": [{"key": said["topologyKey"]}]}
    if "priority" in said:
        spec["priorityClassName"] = class_name(said["priority"], said.get("preemptionPolicy"))
    return spec


def ready_node(said: Object) -> Object:
    """A node that is ready to be used."""
    amounts = dict(said["allocatable"])
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
    status = {"capacity": amounts, "allocatable": amounts, "conditions": [ready]}
    return _object(NODES, said["name"], {"spec": said.get("spec") or {}, "status": status}, said["labels"])


def budget(said: Object) -> Object:
    return _object(BUDGETS, said["metadata"]["name"], {"spec": said["spec"]})


def class_name(value: int, policy: str | None = None) -> str:
    """The class that gives this priority: a number alone is not taken by an API server."""
    return f"p{value}-never" if policy == "Never" else f"p{value}"


def priority_class(name: str) -> Object:
    value, _, never = name.removeprefix("p").partition("-")
    policy = {"preemptionPolicy": "Never"} if never else {}
    return _object(CLASSES, name, {"value": int(value), **policy})


def class_names(objects: Iterable[Object]) -> set[str]:
    """The classes that objects name."""
    named = {(one.get("spec") or {}).get("priorityClassName") for one in objects}
    return {name for name in named if name}


def on_the_first(case: Object) -> Object | None:
    """A case of a later version as one of the first; None if it is about what the first lacks."""
    steps, priorities = [], _priorities(case)
    for step in case["steps"]:
        said = step.get("podgroup")
        if step["op"] in ("update_podgroup", "create_compositepodgroup"):
            return None
        if step["op"] == "create_podgroup" and not _fits_the_first(said, priorities.get(said["name"], set())):
            return None
        if step["op"] not in ("create_workload", "create_workloads", "expect_podgroup_condition"):
            steps.append(step)  # a Workload of later versions is a template, and groups had no status
    return {**case, "steps": steps}


def counts_on_priority_of_pods(case: Object) -> bool:
    """Whether others make room for a group that is given no priority, and has pods with one.

    With the feature WorkloadAwarePreemption an API server gives such a group the default priority.
    """
    groups = [step["podgroup"] for step in case["steps"] if step["op"] == "create_podgroup"]
    silent = {group["name"] for group in groups if "priority" not in group}
    if not any(step["op"] in ("expect_removed", "expect_preempted") for step in case["steps"]):
        return False
    return any(name in silent and values - {0} for name, values in _priorities(case).items())


def _fits_the_first(group: Object, priorities: set[int]) -> bool:
    if {"topologyKey", "disruptionMode", "preemptionPolicy", "parentCompositePodGroupName"} & set(group):
        return False
    return not priorities or "priority" not in group or priorities == {group["priority"]}


def _priorities(case: Object) -> dict[str, set[int]]:
    """Of the pods of each group."""
    found: dict[str, set[int]] = {}
    for step in case["steps"]:
        for pod in step["pods"] if step["op"] == "create_pods" else ():
            if "group" in pod:
                found.setdefault(pod["group"], set()).add(pod.get("priority", 0))
    return found


def _containers(requests: Object, port: int | None) -> Iterator[Object]:
    """One for each summand: "1+2" is what two containers ask for together. The first has the port."""
    count = max((len(text.split("+")) for text in requests.values()), default=1)
    for index in range(count):
        parts = {name: text.split("+") for name, text in requests.items()}
        asked = {name: summands[index] for name, summands in parts.items() if index < len(summands)}
        ports = [{"containerPort": port, "hostPort": port}] if port and not index else []
        resources = {"requests": asked} if asked else {}
        yield {"name": f"c{index}", "image": "pause", "resources": resources, "ports": ports}


def _object(kind: Kind, name: str, parts: Object, labels: Object | None = None) -> Object:
    metadata: Object = {"name": name, "labels": dict(labels)} if labels else {"name": name}
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": metadata, **parts}
