"""Pod sets of RayCluster, RayJob and RayService: a head and worker groups, for a RayJob also a submitter."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs.injection import Injected, InjectionConflict, add, restore
from bayplan.dialects.jobs.part import HEAD, SUBMITTER, Find, JobPart
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

SUBMIT_BY_JOB = "K8sJobMode"

_SUBMITTER_TEMPLATE: dict[str, Any] = {
    "spec": {
        "containers": [
            {
                "name": "ray-job-submitter",
                "resources": {
                    "limits": {"cpu": "1", "memory": "1Gi"},
                    "requests": {"cpu": "500m", "memory": "200Mi"},
                },
            }
        ],
        "restartPolicy": "Never",
    }
}


def ray_cluster_parts(cluster: Field, find: Find) -> list[JobPart]:
    """The pod sets of a RayCluster."""
    return _cluster(cluster.at("spec"))


def ray_service_parts(service: Field, find: Find) -> list[JobPart]:
    """The pod sets of a RayService."""
    return _cluster(service.at("spec", "rayClusterConfig"))


def ray_job_parts(job: Field, find: Find) -> list[JobPart]:
    """The pod sets of a RayJob; none if it uses an existing cluster."""
    spec = job.at("spec")
    if not spec.at("rayClusterSpec").present:
        return []
    parts = _cluster(spec.at("rayClusterSpec"))
    cluster = own_cluster(job, find) if spec.at("rayClusterSpec", "enableInTreeAutoscaling").flag() else None
    if cluster is not None:
        counts = {part.name: part.count for part in _cluster(Field(cluster).at("spec"))}
        parts = [replace(part, count=counts.get(part.name, part.count)) for part in parts]
    if spec.at("submissionMode").text() == SUBMIT_BY_JOB:
        submitter = spec.at("submitterPodTemplate")
        template = submitter if submitter.present else submitter.derived(_submitter(spec), submitter.path)
        parts.append(JobPart(SUBMITTER, 1, template, submitter))
    return parts


def own_cluster(job: Field, find: Find) -> dict[str, Any] | None:
    """The RayCluster that a RayJob created. With autoscaling, it has the current number of workers."""
    name = job.at("status", "rayClusterName").text()
    cluster = find("RayCluster", job.at("metadata", "namespace").text(), name) if name else None
    return cluster if isinstance(cluster, dict) else None


def inject_ray_job(job: dict[str, Any], infos: Sequence[Injected], find: Find) -> None:
    """Inject pod set infos into the templates. A missing submitter template is added."""
    parts = ray_job_parts(Field(job), find)
    if len(parts) != len(infos):
        raise InjectionConflict(f"invalid podset infos: expecting {len(parts)} podset, got {len(infos)}")
    for part, info in zip(parts, infos, strict=True):
        if not isinstance(part.template.value, dict):
            raise InjectionConflict(f"{part.template.path}: a pod set without a template cannot be started")
        add(part.template.value, info)
        if part.name == SUBMITTER:
            job["spec"]["submitterPodTemplate"] = part.template.value


def restore_ray_job(job: dict[str, Any], originals: Sequence[dict[str, Any]]) -> None:
    """Restore the templates. A submitter template equal to the default was added by us and is removed."""
    parts = ray_job_parts(Field(job), lambda *_: None)
    if len(parts) != len(originals):
        return
    for part, original in zip(parts, originals, strict=True):
        if isinstance(part.template.value, dict):
            restore(part.template.value, original)
    spec = job["spec"]
    if spec.get("submitterPodTemplate") == _submitter(Field(spec)):
        del spec["submitterPodTemplate"]


def _submitter(spec: Field) -> dict[str, Any]:
    """The default template of the submitter pod, with the image of the head."""
    template = copy.deepcopy(_SUBMITTER_TEMPLATE)
    containers = spec.at("rayClusterSpec", "headGroupSpec", "template", "spec", "containers").items()
    if containers and (image := containers[0].at("image").text()):
        template["spec"]["containers"][0]["image"] = image
    return template


def _cluster(spec: Field) -> list[JobPart]:
    head = spec.at("headGroupSpec")
    return [
        JobPart(HEAD, 1, head.at("template"), head),
        *(_workers(group) for group in spec.at("workerGroupSpecs").items()),
    ]


def _workers(group: Field) -> JobPart:
    name = group.at("groupName")
    count = group.at("replicas").integer(default=1) * max(group.at("numOfHosts").integer(default=1), 1)
    if count > INT32_MAX:
        group.at("replicas").error(f"makes more than {INT32_MAX} pods")
        count = 1
    return JobPart(name.text().lower(), count, group.at("template"), name)
