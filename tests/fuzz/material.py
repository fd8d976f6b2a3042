"""Valid objects of every kind that a role watches: what the mutator starts from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import bayplan.dialects

Object = dict[str, Any]

BLOCK, RACK, HOST = "example.com/block", "example.com/rack", "kubernetes.io/hostname"
POOL, GPU = "example.com/pool", "nvidia.com/gpu"
KUEUE, JOBS_QUEUE = "kueue.x-k8s.io/v1beta2", "kueue.x-k8s.io/queue-name"
READY = {"type": "Ready", "status": "True", "lastTransitionTime": "2027-01-15T07:00:00Z"}


def known_keys() -> tuple[str, ...]:
    """Every key of a label or annotation that a dialect mentions."""
    found: set[str] = set()
    for path in sorted(Path(bayplan.dialects.__path__[0]).rglob("*.py")):
        found |= set(re.findall(r'"([a-z0-9.-]+\.[a-z]+/[a-zA-Z0-9-]+)"', path.read_text(encoding="utf-8")))
    return tuple(sorted(found))


KEYS = known_keys()
NAMES = ("alpha", "beta", "gamma", "n1", "n2", "gpu", "main", "all", "hall", "racks", "high", "workers")
WORDS = (*NAMES, *KEYS, BLOCK, RACK, HOST, POOL, GPU, "cpu", "memory", "pods", "bayplan", "default-scheduler")


def template(cpu: str = "1", **spec: Any) -> Object:
    resources = {"requests": {"cpu": cpu, GPU: "1"}, "limits": {GPU: "1"}}
    container = {"name": "c", "image": "example.invalid/i", "resources": resources}
    meta = {"labels": {"app": "alpha"}, "annotations": {"kueue.x-k8s.io/podset-required-topology": RACK}}
    return {"metadata": meta, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


def _pod_spec(**more: Any) -> Object:
    return template()["spec"] | more  # type: ignore[no-any-return]


TERM = {
    "labelSelector": {
        "matchLabels": {"app": "alpha"},
        "matchExpressions": [{"key": "app", "operator": "In", "values": ["alpha"]}],
    },
    "topologyKey": RACK,
}
NODE_TERMS = {
    "nodeSelectorTerms": [
        {
            "matchExpressions": [
                {"key": POOL, "operator": "In", "values": ["gpu"]},
                {"key": "n", "operator": "Gt", "values": ["1"]},
            ]
        }
    ]
}
RULED = _pod_spec(
    schedulerName="bayplan",
    nodeSelector={POOL: "gpu"},
    priority=5,
    priorityClassName="high",
    tolerations=[{"key": "gpu", "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 5}],
    affinity={
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": NODE_TERMS,
            "preferredDuringSchedulingIgnoredDuringExecution": [
                {"weight": 3, "preference": NODE_TERMS["nodeSelectorTerms"][0]}
            ],
        },
        "podAffinity": {
            "preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 5, "podAffinityTerm": TERM}]
        },
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{**TERM, "topologyKey": HOST}]
        },
    },
    topologySpreadConstraints=[
        {
            "maxSkew": 1,
            "topologyKey": RACK,
            "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": TERM["labelSelector"],
            "minDomains": 1,
        }
    ],
    volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}],
    overhead={"cpu": "100m"},
    initContainers=[
        {
            "name": "i",
            "image": "example.invalid/i",
            "restartPolicy": "Always",
            "resources": {"requests": {"cpu": "100m"}},
        }
    ],
)
BOUND = _pod_spec(schedulerName="bayplan", nodeName="n1")
GATED = _pod_spec(schedulingGates=[{"name": "kueue.x-k8s.io/admission"}, {"name": "kueue.x-k8s.io/topology"}])
QUEUED = {JOBS_QUEUE: "main"}
IN_GROUP = {**QUEUED, "kueue.x-k8s.io/managed": "true", "kueue.x-k8s.io/pod-group-name": "alpha"}
COUNTED = {"kueue.x-k8s.io/pod-group-total-count": "2", "kueue.x-k8s.io/role-hash": "ab12"}
UNGATED_BY = {
    "kueue.x-k8s.io/workload": "alpha",
    "kueue.x-k8s.io/podset-required-topology": RACK,
    "kueue.x-k8s.io/tas": "true",
}
PLACED = {"kueue.x-k8s.io/podset": "main", "kueue.x-k8s.io/tas": "true"}
RANKED = {"batch.kubernetes.io/job-completion-index": "0", **PLACED}


def made(api: str, kind: str, spec: Any = None, name: str = "alpha", **more: Any) -> Object:
    """An object; those without a namespace lose it where they are stored."""
    meta = {
        "name": name,
        "labels": dict(more.pop("labels", {})),
        "annotations": dict(more.pop("annotations", {})),
        "creationTimestamp": "2027-01-15T07:30:00Z",
        **more.pop("metadata", {}),
    }
    body = {} if spec is None else {"spec": spec}
    return {"apiVersion": api, "kind": kind, "metadata": meta, **body, **more}


def _pods() -> list[Object]:
    running = {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}
    kai = {"pod-group-name": "alpha", "kai.scheduler/segment-size": "2"}
    return [
        made("v1", "Pod", RULED, status={"phase": "Pending"}),
        made("v1", "Pod", BOUND, status=running),
        made("v1", "Pod", _pod_spec(schedulerName="bayplan"), annotations=kai, status={"phase": "Pending"}),
        made("v1", "Pod", _pod_spec(schedulerName="bayplan", schedulingGroup={"podGroupName": "alpha"})),
        made(
            "v1",
            "Pod",
            _pod_spec(schedulerName="bayplan", workloadRef={"name": "alpha", "podGroup": "workers"}),
        ),
        made("v1", "Pod", GATED, labels=IN_GROUP, annotations=COUNTED, status={"phase": "Pending"}),
        made("v1", "Pod", GATED, labels=RANKED, annotations=UNGATED_BY, status={"phase": "Pending"}),
        made("v1", "Pod", BOUND, labels=RANKED, annotations=UNGATED_BY, status=running),
    ]


def _nodes() -> list[Object]:
    labels = {BLOCK: "b1", RACK: "r1", HOST: "n1", POOL: "gpu", "n": "5"}
    amounts = {"cpu": "8", "memory": "64Gi", GPU: "4", "pods": "20", "ephemeral-storage": "100Gi"}
    images = [{"names": ["example.invalid/i"], "sizeBytes": 1000}]
    status = {"allocatable": amounts, "capacity": amounts, "conditions": [READY], "images": images}
    taints = [{"key": "gpu", "value": "x", "effect": "PreferNoSchedule"}]
    zone = {
        "name": "node-0",
        "type": "Node",
        "costs": [{"name": "node-0", "value": 10}],
        "attributes": [{"name": "a", "value": "b"}],
        "resources": [{"name": "cpu", "capacity": "4", "allocatable": "4", "available": "4"}],
    }
    policies = {"topologyPolicies": ["SingleNUMANodeContainerLevel"], "zones": [zone]}
    attributes = [{"name": "topologyManagerPolicy", "value": "single-numa-node"}]
    older = {**made("topology.node.k8s.io/v1alpha1", "NodeResourceTopology", name="n1"), **policies}
    newer = {**older, "apiVersion": "topology.node.k8s.io/v1alpha2", "attributes": attributes}
    return [
        made("v1", "Node", {"taints": taints}, "n1", labels=labels, status=status),
        older,
        newer,
    ]


def _storage() -> list[Object]:
    claim = {
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "resources": {"requests": {"storage": "5Gi"}},
        "selector": TERM["labelSelector"],
    }
    volume = {
        "capacity": {"storage": "5Gi"},
        "accessModes": ["ReadWriteOnce"],
        "storageClassName": "fast",
        "claimRef": {"namespace": "default", "name": "claim"},
        "nodeAffinity": {"required": NODE_TERMS},
        "csi": {"driver": "disk.example.com", "volumeHandle": "v1"},
    }
    topologies = [{"matchLabelExpressions": [{"key": RACK, "values": ["r1"]}]}]
    drivers = [{"name": "disk.example.com", "allocatable": {"count": 3}}]
    room = made("storage.k8s.io/v1", "CSIStorageCapacity", capacity="10Gi", maximumVolumeSize="5Gi")
    return [
        made("v1", "PersistentVolumeClaim", claim, "claim", status={"phase": "Pending"}),
        made("v1", "PersistentVolume", volume, status={"phase": "Available"}),
        made(
            "storage.k8s.io/v1",
            "StorageClass",
            None,
            "fast",
            provisioner="disk.example.com",
            volumeBindingMode="WaitForFirstConsumer",
            allowedTopologies=topologies,
        ),
        made("storage.k8s.io/v1", "CSINode", {"drivers": drivers}, "n1"),
        {**room, "storageClassName": "fast", "nodeTopology": TERM["labelSelector"]},
    ]


def _cluster() -> list[Object]:
    selector = {"selector": TERM["labelSelector"], "minAvailable": 1}
    return [
        made("v1", "Namespace", {}, "default", labels={"team": "a"}),
        made("v1", "Service", {"selector": {"app": "alpha"}, "ports": [{"port": 80}]}),
        made("policy/v1", "PodDisruptionBudget", selector, status={"disruptionsAllowed": 1}),
        made("scheduling.k8s.io/v1", "PriorityClass", None, "high", value=1000),
    ]


def _gangs() -> list[Object]:
    policy = {"gang": {"minCount": 2}}
    constraints = {"topology": [{"key": RACK}]}
    group = {"schedulingPolicy": policy, "schedulingConstraints": constraints, "priority": 5}
    source = {"workloadRef": {"workloadName": "alpha", "templateName": "workers"}}
    below = {**group, **source, "parentCompositePodGroupName": "beta", "disruptionMode": {"all": {}}}
    composite = {
        "schedulingPolicy": {"gang": {"minGroupCount": 1}},
        "schedulingConstraints": constraints,
        **source,
    }
    conditions = {"conditions": [{"type": "PodGroupScheduled", "status": "False", "reason": "Unschedulable"}]}
    return [
        made(
            "scheduling.k8s.io/v1alpha1",
            "Workload",
            {"podGroups": [{"name": "workers", "policy": policy}]},
        ),
        made("scheduling.k8s.io/v1alpha2", "PodGroup", {**group, "disruptionMode": "Pod"}, status=conditions),
        made("scheduling.k8s.io/v1beta1", "PodGroup", below, status=conditions),
        made("scheduling.k8s.io/v1beta1", "PodGroup", group),
        made(
            "scheduling.k8s.io/v1alpha3",
            "CompositePodGroup",
            {**composite, "parentCompositePodGroupName": "gamma"},
            "beta",
        ),
    ]


def _groups() -> list[Object]:
    constraint = {"topology": "hall", "requiredTopologyLevel": RACK, "preferredTopologyLevel": HOST}
    parts = [
        {"name": "workers", "minMember": 1, "parent": "all", "topologyConstraint": constraint},
        {"name": "all", "minMember": 1},
    ]
    spec = {
        "minMember": 2,
        "queue": "main",
        "priorityClassName": "high",
        "preemptibility": "preemptible",
        "topologyConstraint": constraint,
        "subGroups": parts,
    }
    amounts = {"quota": 4, "limit": 8, "overQuotaWeight": 1}
    queue = {
        "parentQueue": "all",
        "priority": 3,
        "preemptMinRuntime": "10s",
        "reclaimMinRuntime": "1m",
        "resources": {"cpu": amounts, "memory": amounts, "gpu": amounts},
    }
    status = {"allocated": {"cpu": "1"}, "requested": {"cpu": "1"}, "childQueues": ["main"]}
    fares = {
        "phase": "Pending",
        "schedulingConditions": [{"type": "UnschedulableOnNodePool", "status": "True"}],
    }
    levels = [{"nodeLabel": RACK}, {"nodeLabel": HOST}]
    return [
        made("scheduling.run.ai/v2alpha2", "PodGroup", spec, status=fares),
        made("scheduling.run.ai/v2", "Queue", queue, "main", status=status),
        made("kai.scheduler/v1alpha1", "Topology", {"levels": levels}, "hall"),
    ]


def everything() -> list[Object]:
    """One or more of each kind."""
    from tests.fuzz.job_material import jobs, owners
    from tests.fuzz.queue_material import queues, workloads

    own = (_pods(), _nodes(), _storage(), _cluster(), _gangs(), _groups())
    return [one for some in (*own, queues(), workloads(), jobs(), owners()) for one in some]
