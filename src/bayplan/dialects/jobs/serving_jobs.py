"""Pod sets of serving workloads: LeaderWorkerSet, StatefulSet, Deployment, and plain pods."""

from __future__ import annotations

from bayplan.dialects.jobs.part import (
    GROUP_POD_INDEX,
    MAIN_POD_SET,
    POD_INDEX,
    WORKER_INDEX,
    Find,
    JobPart,
    required_template,
)
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

LEADER, WORKER = "leader", "worker"
GROUPS_MAX = 10_000
"""The most replicas of a queued LeaderWorkerSet: each is a gang with a Workload of its own."""


def leader_worker_parts(job: Field, find: Find) -> list[JobPart]:
    """The pod sets of one group of a LeaderWorkerSet; a leader with its own template is one of them."""
    group = job.at("spec", "leaderWorkerTemplate")
    size = group.at("size").integer(default=1, minimum=0)
    leader, workers = group.at("leaderTemplate"), group.at("workerTemplate")
    if not leader.present:
        return [JobPart(MAIN_POD_SET, size, workers, job.at("metadata", "name"), WORKER_INDEX)]
    return [
        JobPart(LEADER, 1, leader, leader),
        JobPart(WORKER, max(size - 1, 0), workers, workers, WORKER_INDEX, index_offset=1),
    ]


def stateful_set_parts(job: Field, find: Find) -> list[JobPart]:
    """The pod set of a StatefulSet: all its pods are one gang."""
    spec = job.at("spec")
    count = spec.at("replicas").integer(default=1)
    return [JobPart(MAIN_POD_SET, count, required_template(spec), job.at("metadata", "name"), POD_INDEX)]


def deployment_parts(job: Field, find: Find) -> list[JobPart]:
    """The pod set of a Deployment: each of its pods is a gang of its own."""
    return [
        JobPart(
            MAIN_POD_SET, 1, required_template(job.at("spec")), job.at("metadata", "name"), GROUP_POD_INDEX
        )
    ]


def pod_parts(pod: Field, find: Find) -> list[JobPart]:
    """The pod set of a plain pod, which is its own template."""
    return [JobPart(MAIN_POD_SET, 1, pod, pod.at("metadata", "name"), GROUP_POD_INDEX)]


def replicas(job: Field) -> int:
    """The number of gangs of a job each replica of which is a gang."""
    return job.at("spec", "replicas").integer(default=1, maximum=INT32_MAX)


def group_count(job: Field) -> int:
    """The number of groups of a LeaderWorkerSet; more than GROUPS_MAX is an error."""
    return job.at("spec", "replicas").integer(default=1, maximum=GROUPS_MAX)
