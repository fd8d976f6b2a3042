"""Objects of other schedulers, some of which Bayplan treats as they do, and others not."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.api import Kind
from bayplan.dialects.jobs.batch_jobs import JOBS
from bayplan.dialects.kueue.names import api_kinds
from tests.support.api_objects import api_object, container, job

Object = dict[str, Any]
VOLCANO_QUEUES = Kind("scheduling.volcano.sh", "v1beta1", "Queue", "queues", namespaced=False)
CONFIG_MAPS = Kind("", "v1", "ConfigMap", "configmaps")
MANAGER = """
apiVersion: config.kueue.x-k8s.io/v1beta2
kind: Configuration
manageJobsWithoutQueueName: true
fairSharing: {preemptionStrategies: [LessThanInitialShare]}
"""
SCHEDULER = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles: [{schedulerName: default-scheduler, plugins: {score: {disabled: [{name: ImageLocality}]}}}]
extenders: [{urlPrefix: "http://127.0.0.1:1"}]
"""


def volcano_definition() -> Object:
    """The definition of Volcano's queues, without a schema."""
    kind = VOLCANO_QUEUES
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    spec = {
        "group": kind.group,
        "scope": "Cluster",
        "names": {"kind": kind.kind, "plural": kind.plural, "singular": "queue", "listKind": "QueueList"},
        "versions": [{"name": kind.version, "served": True, "storage": True, "schema": schema}],
    }
    return api_object(
        "apiextensions.k8s.io/v1", "CustomResourceDefinition", f"{kind.plural}.{kind.group}", spec=spec
    )


def _job(name: str, scheduler: str = "", queue: str = "", **notes: str) -> tuple[Kind, Object]:
    labels = {"kueue.x-k8s.io/queue-name": queue} if queue else {}
    pod_spec: Object = {"restartPolicy": "Never", "containers": [container({"cpu": "1"})]}
    if scheduler:
        pod_spec["schedulerName"] = scheduler
    template = {"metadata": {"annotations": notes}, "spec": pod_spec}
    return JOBS, job(name, template, 2, namespace="ml", labels=labels, suspend=True)


def _named(kind: Kind, name: str, namespace: str = "", **fields: Any) -> tuple[Kind, Object]:
    made = api_object(kind.api_version, kind.kind, name, **fields)
    if namespace:
        made["metadata"]["namespace"] = namespace
    return kind, made


def foreign_objects() -> list[tuple[Kind, Object]]:
    """Objects of Kueue, KAI, Volcano and kube-scheduler; the namespaces ml and kueue-system must exist."""
    usage = {"admissionMode": "UsageBasedAdmissionFairSharing"}
    return [
        _named(api_kinds.CLUSTER_QUEUES, "fair", spec={"namespaceSelector": {}, "admissionScope": usage}),
        _named(api_kinds.CLUSTER_QUEUES, "plain", spec={"namespaceSelector": {}}),
        _named(api_kinds.CHECKS, "elsewhere", spec={"controllerName": "kueue.x-k8s.io/multikueue"}),
        _job("queued", queue="left"),
        _job("stays", "default-scheduler"),
        _job("ours", "bayplan"),
        _job("kai", "kai-scheduler", **{"gpu-fraction": "0.5"}),
        _job("old", "volcano"),
        _named(VOLCANO_QUEUES, "gold", spec={"weight": 4}),
        _named(CONFIG_MAPS, "kueue-manager-config", "kueue-system", data={"manager.yaml": MANAGER}),
        _named(CONFIG_MAPS, "kube-scheduler", "kube-system", data={"config.yaml": SCHEDULER}),
    ]


EXPECTED = {
    ("ClusterQueue", "fair"): ("Kueue", "different"),
    ("ClusterQueue", "plain"): ("Kueue", "same"),
    ("AdmissionCheck", "elsewhere"): ("Kueue", "not"),
    ("Job", "queued"): ("Kueue", "same"),
    ("Job", "stays"): ("kube-scheduler", "same"),
    ("Job", "ours"): ("Bayplan", "same"),
    ("Job", "kai"): ("KAI", "not"),
    ("Job", "old"): ("Volcano", "not"),
    ("Queue", "gold"): ("Volcano", "not"),
    ("ConfigMap", "kueue-manager-config"): ("Kueue", "different"),
    ("ConfigMap", "kube-scheduler"): ("kube-scheduler", "not"),
}
"""Kind and name → whose it is, and whether it carries over."""
