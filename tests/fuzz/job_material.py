"""Valid jobs of every kind, and valid objects of every other kind that makes pods."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.kai.grouper.owner_kinds import OWNER_KINDS
from tests.fuzz.material import JOBS_QUEUE, RACK, made, template

Object = dict[str, Any]

QUEUED = {JOBS_QUEUE: "main", "kueue.x-k8s.io/priority-class": "high", "kai.scheduler/queue": "main"}
NOTES = {"kai.scheduler/topology": "hall", "kai.scheduler/topology-required-placement": RACK}


def _job(api: str, kind: str, spec: Any, **status: Any) -> Object:
    return made(api, kind, spec, labels=QUEUED, annotations=NOTES, status=status)


def _replicas(count: int = 2) -> Object:
    return {"replicas": count, "restartPolicy": "Never", "template": template()}


def _training(kind: str, field: str, *types: str) -> Object:
    spec = {"runPolicy": {"suspend": True, "schedulingPolicy": {"minAvailable": 2}}}
    parts = {type_: _replicas() for type_ in types}
    conditions = [{"type": "Running", "status": "True"}]
    counts = {type_: {"active": 1, "succeeded": 1} for type_ in types}
    return _job(
        "kubeflow.org/v1", kind, {**spec, field: parts}, conditions=conditions, replicaStatuses=counts
    )


def _ray() -> Object:
    group = {"groupName": "big", "replicas": 2, "minReplicas": 1, "maxReplicas": 4, "numOfHosts": 2}
    return {
        "suspend": True,
        "enableInTreeAutoscaling": False,
        "headGroupSpec": {"rayStartParams": {"a": "b"}, "template": template()},
        "workerGroupSpecs": [{**group, "template": template()}],
    }


def _leader_workers() -> Object:
    group = {
        "size": 2,
        "leaderTemplate": template(),
        "workerTemplate": template(),
        "subGroupPolicy": {"subGroupSize": 1},
    }
    return {"replicas": 2, "startupPolicy": "LeaderCreated", "leaderWorkerTemplate": group}


def _trainer() -> list[Object]:
    inner = {"metadata": {"labels": {"a": "b"}}, "spec": {"template": template(), "completions": 2}}
    parts = [{"name": "node", "replicas": 1, "template": inner}]
    runtime = {"mlPolicy": {"numNodes": 2}, "template": {"spec": {"replicatedJobs": parts}}}
    job = {
        "suspend": True,
        "runtimeRef": {"apiGroup": "trainer.kubeflow.org", "kind": "ClusterTrainingRuntime", "name": "alpha"},
        "trainer": {"numNodes": 2, "resourcesPerNode": {"requests": {"cpu": "1"}}},
        "podTemplateOverrides": [{"targetJobs": [{"name": "node"}], "spec": {"nodeSelector": {"a": "b"}}}],
    }
    api = "trainer.kubeflow.org/v1alpha1"
    return [
        _job(api, "TrainJob", job, conditions=[{"type": "Suspended", "status": "True"}], jobsStatus=[]),
        made(api, "ClusterTrainingRuntime", runtime),
        made(api, "TrainingRuntime", runtime),
    ]


def _trained() -> list[Object]:
    mpi = {
        "runPolicy": {"suspend": True},
        "runLauncherAsWorker": True,
        "slotsPerWorker": 1,
        "mpiReplicaSpecs": {"Launcher": _replicas(1), "Worker": _replicas()},
    }
    ray_job = {"suspend": True, "rayClusterSpec": _ray(), "submissionMode": "K8sJobMode", "entrypoint": "x"}
    ray_job["submitterPodTemplate"] = template()
    service = {"rayClusterConfig": _ray(), "serveConfigV2": "a: b"}
    return [
        _job("kubeflow.org/v2beta1", "MPIJob", mpi, replicaStatuses={"Worker": {"active": 1}}),
        _training("PyTorchJob", "pytorchReplicaSpecs", "Master", "Worker"),
        _training("TFJob", "tfReplicaSpecs", "Chief", "PS", "Worker"),
        _training("XGBoostJob", "xgbReplicaSpecs", "Master", "Worker"),
        _training("PaddleJob", "paddleReplicaSpecs", "Master", "Worker"),
        _training("JAXJob", "jaxReplicaSpecs", "Worker"),
        _training("MPIJob", "mpiReplicaSpecs", "Launcher", "Worker"),
        _job("ray.io/v1", "RayJob", ray_job, jobDeploymentStatus="Suspended", jobStatus=""),
        _job("ray.io/v1", "RayCluster", _ray(), state="ready", conditions=[], readyWorkerReplicas=1),
        _job("ray.io/v1", "RayService", service, serviceStatus="Running", numServeEndpoints=1),
    ]


def jobs() -> list[Object]:
    """Jobs of every kind that may stand in a queue."""
    batch = {
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "suspend": True,
        "backoffLimit": 3,
        "template": template(),
    }
    inner = {"parallelism": 2, "completions": 2, "template": template()}
    sets = {
        "suspend": True,
        "replicatedJobs": [{"name": "workers", "replicas": 2, "template": {"spec": inner}}],
        "startupPolicy": {"startupPolicyOrder": "InOrder"},
    }
    component = {
        "template": {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "in"}, "spec": batch},
        "podSets": [{"path": "template.spec.template", "replicas": 2}],
    }
    spark = {
        "suspend": True,
        "driver": {"cores": 1, "memory": "512m", "template": template()},
        "executor": {"instances": 2, "cores": 1, "memory": "1g", "template": template()},
        "dynamicAllocation": {"enabled": False},
    }
    lasting = template(restartPolicy="Always")
    selector = {"selector": {"matchLabels": {"app": "alpha"}}}
    stateful = {"replicas": 2, "serviceName": "s", "template": lasting, **selector}
    return [
        _job(
            "batch/v1",
            "Job",
            batch,
            active=1,
            ready=1,
            succeeded=0,
            conditions=[],
            uncountedTerminatedPods={},
        ),
        _job("batch/v1", "Job", {**batch, "suspend": False}, startTime="2027-01-15T07:30:00Z"),
        _job(
            "jobset.x-k8s.io/v1alpha2", "JobSet", sets, replicatedJobsStatus=[{"name": "workers", "ready": 1}]
        ),
        *_trainer(),
        *_trained(),
        _job(
            "workload.codeflare.dev/v1beta2",
            "AppWrapper",
            {"suspend": True, "components": [component]},
            phase="Suspended",
        ),
        _job(
            "sparkoperator.k8s.io/v1beta2", "SparkApplication", spark, applicationState={"state": "RUNNING"}
        ),
        _job("apps/v1", "StatefulSet", stateful, readyReplicas=1, replicas=2),
        _job("leaderworkerset.x-k8s.io/v1", "LeaderWorkerSet", _leader_workers(), readyReplicas=1),
    ]


def owners() -> list[Object]:
    """Objects of every kind that pods are grouped by; each says all that any of them is asked for."""
    clique = {"name": "c", "spec": {"replicas": 2, "minAvailable": 1, "podSpec": template()["spec"]}}
    scaled = {"name": "s", "cliqueNames": ["c"], "replicas": 1, "minAvailable": 1}
    everything = {
        "replicas": 2,
        "minReplicas": 1,
        "parallelism": 2,
        "minAvailable": 1,
        "priorityClassName": "high",
        "template": {
            **template(),
            "cliques": [clique],
            "podCliqueScalingGroups": [scaled],
            "priorityClassName": "x",
        },
        "podgroups": [
            {"name": "c", "minReplicas": 1, "podReferences": [{"namespace": "default", "name": "alpha"}]}
        ],
        "jobTemplate": {"spec": {"template": template(), "parallelism": 2}},
        "services": {"web": {"replicas": 1, "multinode": {"nodeCount": 2}}},
        "predictors": [{"replicas": 1, "componentSpecs": [{"spec": template()["spec"]}]}],
        "headGroupSpec": _ray()["headGroupSpec"],
        "workerGroupSpecs": _ray()["workerGroupSpecs"],
        "rayClusterSpec": _ray(),
        "topologyConstraint": {"packDomain": "rack"},
    }
    status = {"rayClusterName": "alpha", "replicas": 2, "activeServiceStatus": {"rayClusterName": "alpha"}}
    selector = {"selector": {"matchLabels": {"app": "alpha"}}, "template": template(restartPolicy="Always")}
    found = [
        _job(kind.api_version, kind.kind, everything | (selector if kind.group == "apps" else {}), **status)
        for kind in OWNER_KINDS
    ]
    knative = {"serving.knative.dev/revision": "alpha", "serving.knative.dev/minScale": "1"}
    found.append(made("serving.knative.dev/v1", "Revision", everything, labels=knative, annotations=knative))
    return found
