"""Ray: a head and groups of workers, as a cluster, under a job (with a submitter) or under a service."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs.part import HEAD, SUBMITTER, Find, JobPart
from bayplan.dialects.jobs.starting import Injected, InjectionConflict, add, restore
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
    """A RayCluster."""
    return _cluster(cluster.at("spec"))


def ray_service_parts(service: Field, find: Find) -> list[JobPart]:
    """A RayService."""
    return _cluster(service.at("spec", "rayClusterConfig"))


def ray_job_parts(job: Field, find: Find) -> list[JobPart]:
    """A RayJob with a cluster of its own. One that uses a cluster of somebody else has no pods of its own."""
    spec = job.at("spec")
    if not spec.at("rayClusterSpec").present:
        return []
    found = _cluster(spec.at("rayClusterSpec"))
    scaled = own_cluster(job, find) if spec.at("rayClusterSpec", "enableInTreeAutoscaling").flag() else None
    if scaled is not None:
        today = {part.name: part.count for part in _cluster(Field(scaled).at("spec"))}
        found = [replace(part, count=today.get(part.name, part.count)) for part in found]
    if spec.at("submissionMode").text() == SUBMIT_BY_JOB:
        written = spec.at("submitterPodTemplate")
        template = written if written.present else written.derived(_submitter(spec), written.path)
        found.append(JobPart(SUBMITTER, 1, template, written))
    return found


def own_cluster(job: Field, find: Find) -> dict[str, Any] | None:
    """The cluster that a RayJob made, where an autoscaler writes how many workers it wants."""
    name = job.at("status", "rayClusterName").text()
    found = find("RayCluster", job.at("metadata", "namespace").text(), name) if name else None
    return found if isinstance(found, dict) else None


def begin_ray_job(job: dict[str, Any], extras: Sequence[Injected], find: Find) -> None:
    """Additions go into the templates; a submitter that the user left out is written for them."""
    found = ray_job_parts(Field(job), find)
    if len(found) != len(extras):
        raise InjectionConflict(f"invalid podset infos: expecting {len(found)} podset, got {len(extras)}")
    for part, extra in zip(found, extras, strict=True):
        if not isinstance(part.template.value, dict):
            raise InjectionConflict(f"{part.template.path}: a pod set without a template cannot be started")
        add(part.template.value, extra)
        if part.name == SUBMITTER:
            job["spec"]["submitterPodTemplate"] = part.template.value


def take_back_ray_job(job: dict[str, Any], originals: Sequence[dict[str, Any]]) -> None:
    """The templates as they were; a submitter that says nothing of its own was not the user's."""
    found = ray_job_parts(Field(job), lambda *_: None)
    if len(found) != len(originals):
        return
    for part, original in zip(found, originals, strict=True):
        if isinstance(part.template.value, dict):
            restore(part.template.value, original)
    spec = job["spec"]
    if spec.get("submitterPodTemplate") == _submitter(Field(spec)):
        del spec["submitterPodTemplate"]


def _submitter(spec: Field) -> dict[str, Any]:
    """The pod that hands in the job, where the user wrote none; it runs what the head runs."""
    made = copy.deepcopy(_SUBMITTER_TEMPLATE)
    containers = spec.at("rayClusterSpec", "headGroupSpec", "template", "spec", "containers").items()
    if containers and (image := containers[0].at("image").text()):
        made["spec"]["containers"][0]["image"] = image
    return made


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
