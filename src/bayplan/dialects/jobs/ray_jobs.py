"""Ray: a head and groups of workers, as a cluster, under a job (with a submitter) or under a service."""

from __future__ import annotations

from typing import Any

from bayplan.dialects.jobs.part import Find, Part
from bayplan.dialects.kube.fields import INT32_MAX, Field

HEAD, SUBMITTER = "head", "submitter"
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
"""The pod that hands in the job, where the user wrote none."""


def ray_cluster_parts(cluster: Field, find: Find) -> list[Part]:
    """A RayCluster."""
    return _cluster(cluster.at("spec"))


def ray_service_parts(service: Field, find: Find) -> list[Part]:
    """A RayService."""
    return _cluster(service.at("spec", "rayClusterConfig"))


def ray_job_parts(job: Field, find: Find) -> list[Part]:
    """A RayJob with a cluster of its own. One that uses a cluster of somebody else has no pods of its own."""
    spec = job.at("spec")
    if not spec.at("rayClusterSpec").present:
        return []
    found = _cluster(spec.at("rayClusterSpec"))
    if spec.at("submissionMode").text() == SUBMIT_BY_JOB:
        written = spec.at("submitterPodTemplate")
        template = written if written.present else written.derived(_SUBMITTER_TEMPLATE, written.path)
        found.append(Part(SUBMITTER, 1, template, written))
    return found


def _cluster(spec: Field) -> list[Part]:
    head = spec.at("headGroupSpec")
    return [
        Part(HEAD, 1, head.at("template"), head),
        *(_workers(group) for group in spec.at("workerGroupSpecs").items()),
    ]


def _workers(group: Field) -> Part:
    name = group.at("groupName")
    count = group.at("replicas").integer(default=1) * max(group.at("numOfHosts").integer(default=1), 1)
    if count > INT32_MAX:
        group.at("replicas").error(f"makes more than {INT32_MAX} pods")
        count = 1
    return Part(name.text().lower(), count, group.at("template"), name)
