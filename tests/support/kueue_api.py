"""Objects of the Kueue API as people write them, good and bad, for every backend that serves them."""

from __future__ import annotations

from typing import Any, NamedTuple

Object = dict[str, Any]

GROUP = "kueue.x-k8s.io"
PLURALS = {
    "AdmissionCheck": "admissionchecks",
    "ClusterQueue": "clusterqueues",
    "Cohort": "cohorts",
    "LocalQueue": "localqueues",
    "ProvisioningRequestConfig": "provisioningrequestconfigs",
    "ResourceFlavor": "resourceflavors",
    "Topology": "topologies",
    "Workload": "workloads",
    "WorkloadPriorityClass": "workloadpriorityclasses",
}
NAMESPACED = {"LocalQueue", "Workload"}
HOST = "kubernetes.io/hostname"


def made(kind: str, name: str, spec: Object, version: str = "v1beta2", **more: Any) -> Object:
    metadata = {"name": name} | ({"namespace": "default"} if kind in NAMESPACED else {})
    found = {"apiVersion": f"{GROUP}/{version}", "kind": kind, "metadata": metadata, **more}
    return found if kind == "WorkloadPriorityClass" else {**found, "spec": spec}


def quota(nominal: Any = 9, **limits: Any) -> list[Object]:
    resource = {"name": "cpu", "nominalQuota": nominal, **limits}
    return [{"coveredResources": ["cpu"], "flavors": [{"name": "default-flavor", "resources": [resource]}]}]


def pod_set(**fields: Any) -> Object:
    limits = {"cpu": 1, "memory": "200Mi"}
    container = {
        "name": "c",
        "image": "x",
        "resources": {"requests": limits},
        "ports": [{"containerPort": 80}],
    }
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"restartPolicy": "Never", "containers": [container]},
    }
    return {"template": template, "count": 1, **fields}


def levels(*labels: str) -> Object:
    return {"levels": [{"nodeLabel": label} for label in labels]}


TOLERATION = {"key": "gpu", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}
TAINT = {"key": "gpu", "value": "yes", "effect": "NoSchedule"}
FLAVOR = {"nodeLabels": {"type": "gpu"}, "nodeTaints": [TAINT], "tolerations": [TOLERATION]}
REFERENCE = {"group": GROUP, "kind": "WorkloadPriorityClass", "name": "high"}
REQUEST = {"required": "rack", "podSetSliceRequiredTopology": HOST, "podSetSliceSize": 1}
PARAMETERS = {"apiGroup": GROUP, "kind": "ProvisioningRequestConfig", "name": "prov"}
RECLAIM = {
    "reclaimWithinCohort": "Any",
    "withinClusterQueue": "LowerPriority",
    "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
}


def good(version: str) -> list[Object]:
    """One of each kind, with most of what it can say."""
    old = version == "v1beta1"
    cohort = "cohort" if old else "cohortName"
    priority = (
        {"priorityClassName": "high", "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass"}
        if old
        else {"priorityClassRef": REFERENCE}
    )
    checks = (
        {"admissionChecks": ["prov"]}
        if old
        else {"admissionChecksStrategy": {"admissionChecks": [{"name": "prov"}]}}
    )
    stop = "Borrow" if old else "MayStopSearch"
    queue = {
        cohort: "all",
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
        "resourceGroups": quota("9", borrowingLimit="500m", lendingLimit=2),
        "flavorFungibility": {"whenCanBorrow": stop, "whenCanPreempt": "TryNextFlavor"},
        "preemption": RECLAIM,
        "fairSharing": {"weight": "2"},
        **checks,
    }
    update = {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "Pool"}]}
    provisioning = {
        "provisioningClassName": "queued.example.com",
        "managedResources": ["gpu"],
        "podSetUpdates": update,
    }
    workload = {"queueName": "team", "priority": 7, "podSets": [pod_set(topologyRequest=REQUEST)], **priority}
    return [
        made("Topology", "racks", levels("block", "rack", HOST), version),
        made("ResourceFlavor", "default-flavor", {**FLAVOR, "topologyName": "racks"}, version),
        made("Cohort", "all", {"parentName": "root", "resourceGroups": quota()}, version),
        made("ClusterQueue", "team-queue", queue, version),
        made("LocalQueue", "team", {"clusterQueue": "team-queue"}, version),
        made("WorkloadPriorityClass", "high", {}, version, value=7, description="for a demonstration"),
        made("AdmissionCheck", "prov", {"controllerName": "x/y", "parameters": PARAMETERS}, version),
        made("ProvisioningRequestConfig", "prov", provisioning, version),
        made("Workload", "job-a", workload, version),
    ]


class Bad(NamedTuple):
    """An object that is refused, and a part of what is said of it."""

    what: str
    object: Object
    said: str


def _queue(version: str = "v1beta2", **spec: Any) -> Object:
    return made("ClusterQueue", "bad", spec, version)


def _workload(version: str = "v1beta2", **spec: Any) -> Object:
    return made("Workload", "bad", {"podSets": [pod_set()], **spec}, version)


BOTH_WAYS = {"preference": "BorrowingOverPreemption"}
TWO_FOR_ONE = [{**quota()[0], "coveredResources": ["cpu", "memory"]}]
BAD = [
    Bad(
        "seventeen levels", made("Topology", "bad", levels(*(f"l{n}" for n in range(17)))), "at most 16 items"
    ),
    Bad("no level", made("Topology", "bad", levels()), "at least 1 items"),
    Bad("a level twice", made("Topology", "bad", levels("rack", "rack")), "must be unique"),
    Bad(
        "hosts above racks", made("Topology", "bad", levels(HOST, "rack")), "at the lowest level of topology"
    ),
    Bad("no label", made("Topology", "bad", levels("not a label")), "should match"),
    Bad(
        "topology without labels",
        made("ResourceFlavor", "bad", {"topologyName": "racks"}),
        "at least one nodeLabel",
    ),
    Bad(
        "a strange effect",
        made("ResourceFlavor", "bad", {"nodeTaints": [{"key": "a", "effect": "No"}]}),
        "supported taint",
    ),
    Bad(
        "a strange operator",
        made("ResourceFlavor", "bad", {"tolerations": [{"key": "a", "operator": "Is"}]}),
        "supported toleration",
    ),
    Bad(
        "borrowing alone",
        _queue(resourceGroups=quota(borrowingLimit=1)),
        "borrowingLimit must be nil when cohort is empty",
    ),
    Bad(
        "borrowing alone, before",
        _queue("v1beta1", resourceGroups=quota(borrowingLimit=1)),
        "borrowingLimit must be nil",
    ),
    Bad("a resource without quota", _queue(resourceGroups=TWO_FOR_ONE), "the same number of resources"),
    Bad("an old word", _queue(flavorFungibility={"whenCanBorrow": "Borrow"}), 'Unsupported value: "Borrow"'),
    Bad(
        "a preference too early", _queue(flavorFungibility=BOTH_WAYS), "preference can only be set when both"
    ),
    Bad(
        "borrowing without reclaim",
        _queue(preemption={"borrowWithinCohort": {"policy": "LowerPriority"}}),
        "reclaimWithinCohort=Never",
    ),
    Bad("seventeen groups", _queue(resourceGroups=quota() * 17), "at most 16 items"),
    Bad("no quantity", _queue(resourceGroups=quota("many")), "nominalQuota"),
    Bad(
        "nineteen pod sets", _workload(podSets=[pod_set(name=f"p{n}") for n in range(19)]), "at most 18 items"
    ),
    Bad("no pod set", _workload(podSets=[]), "at least 1 items"),
    Bad("two of a name", _workload(podSets=[pod_set(), pod_set()]), "Duplicate value"),
    Bad(
        "fewer than the least",
        _workload(podSets=[pod_set(minCount=2)]),
        "minCount should be positive and less or equal to count",
    ),
    Bad(
        "no priority",
        _workload(priorityClassRef=REFERENCE),
        "priority should not be nil when priorityClassRef is set",
    ),
    Bad(
        "the wrong class",
        _workload(priority=1, priorityClassRef={**REFERENCE, "kind": "PriorityClass"}),
        "only the WorkloadPriorityClass kind",
    ),
    Bad(
        "segments of none",
        _workload(podSets=[pod_set(topologyRequest={"podSetSliceSize": 0})]),
        "greater than or equal to 1",
    ),
    Bad("no count, before", _workload("v1beta1", podSets=[pod_set(count=-1)]), "greater than or equal to 0"),
    Bad("no controller", made("AdmissionCheck", "bad", {}), "controllerName"),
    Bad("no value", made("WorkloadPriorityClass", "bad", {}), "value"),
    Bad("no class", made("ProvisioningRequestConfig", "bad", {}), "provisioningClassName"),
]


class Change(NamedTuple):
    """A merge patch to a good object (of v1beta2), and what is said of it; nothing, if it is taken."""

    kind: str
    name: str
    patch: Object
    said: str = ""


CHANGES = [
    Change("LocalQueue", "team", {"spec": {"clusterQueue": "other"}}, "field is immutable"),
    Change("LocalQueue", "team", {"spec": {"stopPolicy": "Hold"}}),
    Change("AdmissionCheck", "prov", {"spec": {"controllerName": "other"}}, "field is immutable"),
    Change(
        "ResourceFlavor", "default-flavor", {"spec": {"topologyName": "other"}}, "topologyName is immutable"
    ),
    Change("ResourceFlavor", "default-flavor", {"spec": {"nodeLabels": {"more": "labels"}}}),
    Change("Topology", "racks", {"spec": levels("block", "rack")}, "field is immutable"),
    Change("Topology", "racks", {"spec": levels("zone", "rack", HOST)}),
]


def contains(found: Any, wanted: Any) -> bool:
    """Whether everything wanted was found; defaults may be there as well."""
    if isinstance(wanted, dict):
        return isinstance(found, dict) and all(contains(found.get(key), wanted[key]) for key in wanted)
    if isinstance(wanted, list):
        return isinstance(found, list) and len(found) == len(wanted) and all(map(contains, found, wanted))
    return bool(found == wanted)
