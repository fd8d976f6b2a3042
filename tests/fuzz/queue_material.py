"""Valid objects of the queueing family."""

from __future__ import annotations

from typing import Any

from tests.fuzz.material import BLOCK, GPU, HOST, KUEUE, POOL, RACK, made, template

Object = dict[str, Any]

ADMITTED_AT = "2027-01-15T08:00:00Z"


def _quota(flavor: str = "gpu") -> list[Object]:
    amounts = [
        {"name": "cpu", "nominalQuota": "16", "borrowingLimit": "2", "lendingLimit": "1"},
        {"name": GPU, "nominalQuota": 8},
    ]
    return [{"coveredResources": ["cpu", GPU], "flavors": [{"name": flavor, "resources": amounts}]}]


def _admission() -> Object:
    usage: list[Object] = [{"name": "main", "count": 2, "flavors": {"cpu": "gpu", GPU: "gpu"}}]
    counts = {"domainCount": 1, "podCounts": {"universal": 2}, "valuesPerLevel": [{"universal": "n1"}]}
    assigned = {"levels": [HOST], "slices": [counts]}
    usage[0] |= {"resourceUsage": {"cpu": "2", GPU: "2"}, "topologyAssignment": assigned}
    return {"clusterQueue": "all", "podSetAssignments": usage}


def _condition(type_: str, status: str = "True") -> Object:
    return {
        "type": type_,
        "status": status,
        "reason": "Because",
        "message": "so it is",
        "lastTransitionTime": ADMITTED_AT,
        "observedGeneration": 1,
    }


def queues() -> list[Object]:
    """Queues, quota and what they are made of."""
    preemption = {
        "withinClusterQueue": "LowerPriority",
        "reclaimWithinCohort": "Any",
        "borrowWithinCohort": {"policy": "LowerPriority", "maxPriorityThreshold": 100},
    }
    queue = {
        "cohortName": "team",
        "namespaceSelector": {"matchExpressions": [{"key": "team", "operator": "In", "values": ["a"]}]},
        "resourceGroups": _quota(),
        "queueingStrategy": "BestEffortFIFO",
        "flavorFungibility": {"whenCanBorrow": "MayStopSearch", "whenCanPreempt": "TryNextFlavor"},
        "preemption": preemption,
        "fairSharing": {"weight": "2"},
        "admissionChecksStrategy": {"admissionChecks": [{"name": "prov", "onFlavors": ["gpu"]}]},
        "stopPolicy": "None",
    }
    parameters = {"apiGroup": "kueue.x-k8s.io", "kind": "ProvisioningRequestConfig", "name": "prov"}
    provisioning = {
        "provisioningClassName": "queued.example.com",
        "managedResources": [GPU],
        "parameters": {"a": "b"},
        "retryStrategy": {"backoffLimitCount": 2, "backoffBaseSeconds": 5, "backoffMaxSeconds": 10},
        "podSetUpdates": {"nodeSelector": [{"key": "pool", "valueFromProvisioningClassDetail": "Pool"}]},
        "podSetMergePolicy": "IdenticalPodTemplates",
    }
    flavor = {
        "nodeLabels": {POOL: "gpu"},
        "topologyName": "racks",
        "nodeTaints": [{"key": "gpu", "value": "x", "effect": "NoSchedule"}],
        "tolerations": [{"key": "gpu", "operator": "Exists", "effect": "NoSchedule"}],
    }
    check = {"controllerName": "kueue.x-k8s.io/provisioning-request", "parameters": parameters}
    active = {"conditions": [_condition("Active")]}
    levels = {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}, {"nodeLabel": HOST}]}
    local = {"clusterQueue": "all", "stopPolicy": "None", "fairSharing": {"weight": "1"}}
    return [
        made(KUEUE, "Topology", levels, "racks"),
        made(KUEUE, "ResourceFlavor", flavor, "gpu"),
        made(KUEUE, "Cohort", {"parentName": "root", "resourceGroups": _quota()}, "team"),
        made(KUEUE, "ClusterQueue", queue, "all", status=active),
        made(KUEUE, "LocalQueue", local, "main", status=active),
        made(KUEUE, "AdmissionCheck", check, "prov", status=active),
        made(KUEUE, "ProvisioningRequestConfig", provisioning, "prov"),
        made(KUEUE, "WorkloadPriorityClass", None, "high", value=10, description="d"),
    ]


def workloads() -> list[Object]:
    """Workloads in several states, and what is asked of an autoscaler for them."""
    request = {
        "required": RACK,
        "podIndexLabel": "batch.kubernetes.io/job-completion-index",
        "podSetSliceRequiredTopology": HOST,
        "podSetSliceSize": 1,
        "subGroupCount": 1,
        "subGroupIndexLabel": "jobset.sigs.k8s.io/job-index",
    }
    pod_set = {"name": "main", "count": 2, "template": template(), "topologyRequest": request}
    spec = {
        "queueName": "main",
        "priority": 5,
        "active": True,
        "podSets": [pod_set],
        "maximumExecutionTimeSeconds": 100,
        "priorityClassRef": {"group": "kueue.x-k8s.io", "kind": "WorkloadPriorityClass", "name": "high"},
    }
    checks = [
        {
            "name": "prov",
            "state": "Pending",
            "message": "",
            "lastTransitionTime": ADMITTED_AT,
            "podSetUpdates": [{"name": "main", "nodeSelector": {POOL: "gpu"}, "labels": {"a": "b"}}],
        }
    ]
    usage = {"reclaimablePods": [{"name": "main", "count": 1}], "requeueState": {"count": 1}}
    admitted = {
        "conditions": [_condition("QuotaReserved"), _condition("Admitted"), _condition("PodsReady", "False")],
        "admission": _admission(),
        "admissionChecks": checks,
        "unhealthyNodes": [{"name": "n1"}],
        **usage,
    }
    evicted = {
        "conditions": [_condition("Evicted"), _condition("QuotaReserved", "False"), _condition("Requeued")],
        "requeueState": {"count": 3, "requeueAt": ADMITTED_AT},
    }
    bare = {**spec, "podSets": [{"name": "main", "count": 3, "minCount": 1, "template": template()}]}
    return [
        made(KUEUE, "Workload", spec),
        made(KUEUE, "Workload", spec, status=admitted),
        made(KUEUE, "Workload", bare, status=evicted),
        *_asked_for(),
    ]


def _asked_for() -> list[Object]:
    """What an autoscaler is asked for."""
    request_spec = {
        "provisioningClassName": "queued.example.com",
        "podSets": [{"podTemplateRef": {"name": "ppt-alpha"}, "count": 2}],
        "parameters": {"a": "b"},
    }
    asked = {"conditions": [_condition("Provisioned")], "provisioningClassDetails": {"Pool": "gpu"}}
    managed = {"kueue.x-k8s.io/managed": "true"}
    return [
        made(
            "autoscaling.x-k8s.io/v1",
            "ProvisioningRequest",
            request_spec,
            "alpha-prov-1",
            labels=managed,
            status=asked,
        ),
        made(
            "autoscaling.x-k8s.io/v1beta1", "ProvisioningRequest", request_spec, "alpha-prov-1", status=asked
        ),
        made("v1", "PodTemplate", None, "ppt-alpha", labels=managed, template=template()),
    ]
