"""What a tenant with the right to edit one namespace may try: objects that broke something, or nearly did."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from bayplan.backends.fake_controllers.crds import schemaless_crd
from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.start_stop import resource
from tests.end_to_end.objects import Object, namespace
from tests.support.api_objects import container, job, pod
from tools.controlplane.plan import Trouble

if TYPE_CHECKING:
    from tools.controlplane.cluster import Cluster

HOME = "mallory"
QUEUE = "kueue.x-k8s.io/queue-name"
GROUP, COUNT = "kueue.x-k8s.io/pod-group-name", "kueue.x-k8s.io/pod-group-total-count"
GPU, RACK = "nvidia.com/gpu", "example.com/rack"
FOREIGN = ("RayCluster", "RayJob", "PyTorchJob", "SparkApplication", "LeaderWorkerSet", "AppWrapper")
LEVELS = 2000  # of an object nested deeply; an API server takes up to 10,000
DIGITS = "9" * 5000


class Tenant:
    """Somebody with a ServiceAccount, the ClusterRole `edit` and the right to make jobs of all kinds."""

    def __init__(self, cluster: Cluster, name: str) -> None:
        self.cluster, self.name = cluster, name
        self.account = f"system:serviceaccount:{name}:{name}"

    def settle(self) -> None:
        """The namespace, the account and its rights."""
        subject = {"kind": "ServiceAccount", "name": self.name, "namespace": self.name}
        everyday = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "Role",
            "metadata": {"name": "jobs", "namespace": self.name},
            "rules": [
                {
                    "apiGroups": ["kueue.x-k8s.io", "jobset.x-k8s.io", "scheduling.k8s.io", *_groups()],
                    "resources": ["workloads", "localqueues", "jobsets", "podgroups", *_plurals()],
                    "verbs": ["*"],
                }
            ],
        }
        self.cluster.apply(namespace(self.name))
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _named(self.name, self.name)}
        self.cluster.apply(
            account,
            everyday,
            self._bound("ClusterRole", "edit", subject),
            self._bound("Role", "jobs", subject),
        )

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return self.cluster.kubectl(f"--as={self.account}", "-n", self.name, *arguments, stdin=stdin)

    def create(self, *objects: Object | str) -> None:
        for one in objects:
            self.kubectl("create", "-f", "-", stdin=one if isinstance(one, str) else json.dumps(one))

    def tries(self, *arguments: str, stdin: str | None = None) -> str:
        """What the tenant is told: nothing, if it was allowed."""
        try:
            self.kubectl(*arguments, stdin=stdin)
        except Trouble as refused:
            return str(refused)
        return ""

    def tries_to_create(self, one: Object) -> str:
        return self.tries("create", "-f", "-", stdin=json.dumps(one))

    def _bound(self, kind: str, name: str, subject: Object) -> Object:
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": name, "namespace": self.name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": name},
            "subjects": [subject],
        }


def definitions() -> list[Object]:
    """Kinds of jobs whose schemas keep unknown fields, as those of many operators do."""
    found = [schemaless_crd(_kind(name)) for name in FOREIGN]
    for one in found:  # some groups have a name that the API server protects
        one["metadata"]["annotations"] = {"api-approved.kubernetes.io": "unapproved, for a test"}
    return found


def _kind(name: str) -> Kind:
    return resource(name)


def _groups() -> list[str]:
    return sorted({_kind(name).group for name in FOREIGN})


def _plurals() -> list[str]:
    return sorted({_kind(name).plural for name in FOREIGN})


def _named(name: str, home: str = HOME, **more: Any) -> Object:
    return {"name": name, "namespace": home, **more}


# ── what is tried ──────────────────────────────────────────────────────────────────────────────────


def tenant_pod(name: str, requests: Object | None = None, *, queued: bool = False, **meta: Any) -> Object:
    """A pod of our scheduler; or one in the tenant's queue."""
    labels = {**({QUEUE: HOME} if queued else {}), **meta.pop("labels", {})}
    spec: Object = {"restartPolicy": "Never", "schedulerName": "bayplan"}
    return pod(name, requests or {"cpu": "1"}, namespace=HOME, labels=labels, metadata=meta, **spec)


def absurd_amounts() -> list[Object]:
    """Pods and claims larger than any number of 64 bits."""
    three = tenant_pod("three", {"memory": "7Ei"})
    one = three["spec"]["containers"][0]
    three["spec"]["containers"] = [{**one, "name": name} for name in ("a", "b", "c")]
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": _named("claim"),
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1e308"}}},
    }
    claimant = tenant_pod("claimant")
    claimant["spec"]["volumes"] = [{"name": "v", "persistentVolumeClaim": {"claimName": "claim"}}]
    return [
        tenant_pod("large", {"cpu": "10P"}),
        tenant_pod("large-queued", {"cpu": "10P"}, queued=True),
        tenant_pod("larger", {"cpu": "9E"}),
        three,
        claim,
        claimant,
    ]


def odd_numbers() -> list[Object]:
    """Ranks and sizes that are no numbers, or too long ones."""
    notes = {
        "batch.kubernetes.io/job-completion-index": DIGITS,
        "kueue.x-k8s.io/podset-slice-size": DIGITS,
        "kai.scheduler/segment-size": "²",
    }
    labels = {"batch.kubernetes.io/job-completion-index": "9" * 63}
    count = {COUNT: "99999999999999999999"}
    return [
        tenant_pod("digits", annotations=notes, labels=labels),
        tenant_pod("counted", queued=True, labels={GROUP: "counted"}, annotations=count),
    ]


def templateless(kind: str, spec: Any, name: str) -> Object:
    where = _kind(kind) if kind != "JobSet" else Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets")
    meta = _named(name, labels={QUEUE: HOME})
    return {"apiVersion": where.api_version, "kind": kind, "metadata": meta, "spec": spec}


def jobs_without_templates() -> list[Object]:
    """Jobs of kinds without a schema: no template, or text in its place."""
    text = {"template": "text"}
    ray = {"headGroupSpec": "text", "workerGroupSpecs": [text]}
    found = [
        templateless("RayCluster", ray, "ray-text"),
        templateless(
            "RayCluster", {"headGroupSpec": {}, "workerGroupSpecs": [{"replicas": "x"}]}, "ray-none"
        ),
        templateless("RayJob", {"rayClusterSpec": ray}, "rayjob-text"),
        templateless("RayJob", {"rayClusterSpec": 5}, "rayjob-five"),
        templateless("PyTorchJob", {"pytorchReplicaSpecs": {"Master": text, "Worker": {}}}, "torch-text"),
        templateless("PyTorchJob", {"pytorchReplicaSpecs": "text"}, "torch-none"),
        templateless("SparkApplication", {"driver": "text", "executor": text}, "spark-text"),
        templateless("SparkApplication", {"executor": {"instances": -5}}, "spark-none"),
        templateless("AppWrapper", {"components": [{"template": "text"}, 5]}, "wrapper-text"),
        templateless("LeaderWorkerSet", {"replicas": 2, "leaderWorkerTemplate": "text"}, "lws-text"),
    ]
    return [*found, templateless("JobSet", {"replicatedJobs": []}, "set-none")]


def deep() -> list[str]:
    """Objects that hold an object that holds an object; as text, for no encoder writes them."""
    kinds = ("RayCluster", "PyTorchJob", "AppWrapper")
    return [
        json.dumps(templateless(kind, {"x": "DEEP"}, f"deep-{kind.lower()}")).replace(
            '"DEEP"', '{"a":' * LEVELS + "1" + "}" * LEVELS
        )
        for kind in kinds
    ]


def huge_set() -> Object:
    """A LeaderWorkerSet of 50,000 groups."""
    inner = {"spec": {"containers": [{"name": "c", "image": "none"}]}}
    group = {"size": 2, "workerTemplate": inner}
    return templateless("LeaderWorkerSet", {"replicas": 50_000, "leaderWorkerTemplate": group}, "huge")


def composites(count: int) -> list[Object]:
    """A chain of groups, each below the next."""
    return [
        {
            "apiVersion": "scheduling.k8s.io/v1alpha3",
            "kind": "CompositePodGroup",
            "metadata": _named(f"chain-{number}"),
            "spec": {
                "parentCompositePodGroupName": f"chain-{number + 1}",
                "workloadRef": {"workloadName": "chain", "templateName": "link"},
                "schedulingPolicy": {"gang": {"minGroupCount": 1}},
            },
        }
        for number in range(count)
    ]


def constrained(version: str) -> list[Object]:
    """A group that must be in one domain of a level which no node has, and its pods."""
    group = {
        "apiVersion": f"scheduling.k8s.io/{version}",
        "kind": "PodGroup",
        "metadata": _named("constrained"),
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": 2}},
            "schedulingConstraints": {"topology": [{"key": "example.com/no-such-level"}]},
        },
    }
    pods = [tenant_pod(f"constrained-{number}") for number in range(2)]
    for one in pods:
        one["spec"]["schedulingGroup"] = {"podGroupName": "constrained"}
    return [group, *pods]


def admitted_by_annotation() -> Object:
    """A Workload of 100 CPU whose annotation claims that it was admitted."""
    admission = {
        "clusterQueue": HOME,
        "podSetAssignments": [
            {"name": "main", "count": 1, "flavors": {"cpu": HOME}, "resourceUsage": {"cpu": "100"}}
        ],
    }
    when = "2026-01-01T00:00:00Z"
    conditions = [
        {"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": when}
        for kind in ("QuotaReserved", "Admitted")
    ]
    kept = [
        {"path": ["status", "admission"], "original": admission},
        {"path": ["status", "conditions"], "original": conditions},
        {"path": ["spec", "preemptionGates"], "original": 7},
        {"path": ["spec", "podSets"], "original": "text"},
    ]
    container = {"name": "c", "image": "none", "resources": {"requests": {"cpu": "100"}}}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta1",
        "kind": "Workload",
        "metadata": _named("claimed", annotations={"bayplan.dev/v1beta2": json.dumps(kept)}),
        "spec": {"queueName": HOME, "podSets": [{"name": "main", "count": 1, "template": template}]},
    }


def rack_job(name: str, home: str, *, queue: str = "", **meta: Any) -> Object:
    """A Job of two pods with a GPU each, in one rack, that run for a moment."""
    limits = {GPU: "1"}
    notes = {"bayplan.dev/run-seconds": "1", "kueue.x-k8s.io/podset-required-topology": RACK}
    spec = {"restartPolicy": "Never", "schedulerName": "bayplan", "containers": [container(limits, limits)]}
    template = {"metadata": {"annotations": notes}, "spec": spec}
    labels = {**({QUEUE: queue} if queue else {}), **meta.pop("labels", {})}
    return job(
        name,
        template,
        2,
        namespace=home,
        labels=labels,
        metadata=meta,
        completionMode="Indexed",
        backoffLimit=0,
    )
