"""Things that serve rather than finish: LeaderWorkerSet, StatefulSet, Deployment, and plain pods."""

from __future__ import annotations

from bayplan.dialects.jobs.part import (
    GROUP_POD_INDEX,
    ONLY,
    POD_INDEX,
    WORKER_INDEX,
    Find,
    JobPart,
    required_template,
)
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

LEADER, WORKER = "leader", "worker"
GROUPS_MAX = 10_000
"""Replicas of a LeaderWorkerSet that is queued: each of them is a gang, and has an object of its own."""


def leader_worker_parts(job: Field, find: Find) -> list[JobPart]:
    """One group of a LeaderWorkerSet; a leader with a template of its own is counted apart."""
    group = job.at("spec", "leaderWorkerTemplate")
    size = group.at("size").integer(default=1, minimum=0)
    leader, workers = group.at("leaderTemplate"), group.at("workerTemplate")
    if not leader.present:
        return [JobPart(ONLY, size, workers, job.at("metadata", "name"), WORKER_INDEX)]
    return [
        JobPart(LEADER, 1, leader, leader),
        JobPart(WORKER, max(size - 1, 0), workers, workers, WORKER_INDEX, index_offset=1),
    ]


def stateful_set_parts(job: Field, find: Find) -> list[JobPart]:
    """A StatefulSet: all its pods are one gang."""
    spec = job.at("spec")
    count = spec.at("replicas").integer(default=1)
    return [JobPart(ONLY, count, required_template(spec), job.at("metadata", "name"), POD_INDEX)]


def deployment_parts(job: Field, find: Find) -> list[JobPart]:
    """A Deployment: each of its pods is on its own."""
    return [JobPart(ONLY, 1, required_template(job.at("spec")), job.at("metadata", "name"), GROUP_POD_INDEX)]


def pod_parts(pod: Field, find: Find) -> list[JobPart]:
    """A pod on its own; it is its own template."""
    return [JobPart(ONLY, 1, pod, pod.at("metadata", "name"), GROUP_POD_INDEX)]


def replicas(job: Field) -> int:
    """How many gangs there are, where each replica is one."""
    return job.at("spec", "replicas").integer(default=1, maximum=INT32_MAX)


def group_count(job: Field) -> int:
    """How many gangs a LeaderWorkerSet is; too many of them are none."""
    return job.at("spec", "replicas").integer(default=1, maximum=GROUPS_MAX)
