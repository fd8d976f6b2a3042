"""Serving workloads: LeaderWorkerSet, StatefulSet, Deployment and its ReplicaSets, and plain pods."""

from __future__ import annotations

from bayplan.dialects.jobs.kind import GroupBy, Grouping, JobKind, Serving
from bayplan.dialects.jobs.part import (
    GROUP_POD_INDEX,
    MAIN_POD_SET,
    POD_INDEX,
    WORKER_INDEX,
    Find,
    JobPart,
    required_template,
)
from bayplan.dialects.jobs.serving_rules import (
    GROUPS_MAX,
    check_leader_worker_set,
    check_leader_worker_update,
    check_stateful_set_update,
)
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field

LEADER, WORKER = "leader", "worker"
SET_NAME = "leaderworkerset.sigs.k8s.io/name"
GROUP_INDEX = "leaderworkerset.sigs.k8s.io/group-index"
LEADER_NAME = "leaderworkerset.sigs.k8s.io/leader-name"


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


def _leader_or_worker(pod: Field, job: Field) -> tuple[int, str]:
    group = job.at("spec", "leaderWorkerTemplate")
    role = MAIN_POD_SET
    if group.at("leaderTemplate").present:
        role = WORKER if LEADER_NAME in pod.at("metadata", "annotations").texts() else LEADER
    return group.at("size").integer(default=1), role


def _replica(pod: Field, job: Field) -> tuple[int, str]:
    return job.at("spec", "replicas").integer(default=1), MAIN_POD_SET


LEADER_WORKER_SET = JobKind(
    "LeaderWorkerSet",
    "leaderworkerset.x-k8s.io",
    "v1",
    "leaderworkersets",
    leader_worker_parts,
    copies=group_count,
    index_label=WORKER_INDEX,
    offsets=True,
    grouping=Grouping(GroupBy.LEADERS),
    serving=Serving(
        "leaderworkerset.x-k8s.io/leaderworkerset",
        marked=True,
        ahead=True,
        owner_label=SET_NAME,
        copy_label=GROUP_INDEX,
        group=_leader_or_worker,
    ),
    prebuilt=False,
    check=check_leader_worker_set,
    check_update=check_leader_worker_update,
)
STATEFUL_SET = JobKind(
    "StatefulSet",
    "apps",
    "v1",
    "statefulsets",
    stateful_set_parts,
    grouping=Grouping(one_replica=True),
    creates_pods=True,
    copies_metadata=False,
    serving=Serving("statefulset", queue=False, only_top=True, ahead=True, group=_replica),
    prebuilt=False,
    check_update=check_stateful_set_update,
)
DEPLOYMENT = JobKind(
    "Deployment",
    "apps",
    "v1",
    "deployments",
    deployment_parts,
    copies=replicas,
    grouping=Grouping(GroupBy.POD, "inference"),
    serving=Serving("deployment", managed=True),
    prebuilt=False,
)
REPLICA_SET = JobKind(
    "ReplicaSet",
    "apps",
    "v1",
    "replicasets",
    grouping=Grouping(one_replica=True),
    between=True,
    creates_pods=True,
)
DAEMON_SET = JobKind("DaemonSet", "apps", "v1", "daemonsets", never_queued=True, creates_pods=True)
POD = JobKind(
    "Pod",
    "",
    "v1",
    "pods",
    pod_parts,
    grouping=Grouping(GroupBy.APPLICATION),
    copies_metadata=False,
    is_pod=True,
    between=True,  # the driver pod of a SparkApplication
)

ENTRIES = (LEADER_WORKER_SET, STATEFUL_SET, DEPLOYMENT, REPLICA_SET, DAEMON_SET, POD)
