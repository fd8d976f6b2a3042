"""RayCluster, RayJob and RayService: a head and worker groups, for a RayJob also a submitter."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from bayplan.dialects.jobs import status
from bayplan.dialects.jobs.change_rules import (
    NEW,
    OLD,
    WHERE,
    all_of,
    either,
    every,
    listed,
    spec_but,
    template,
    within,
)
from bayplan.dialects.jobs.injection import Injected, InjectionConflict, add, restore
from bayplan.dialects.jobs.kind import SUSPEND, GroupBy, Grouping, JobKind, QueuedJob, Resizing
from bayplan.dialects.jobs.part import ELASTIC, ELASTIC_GATE, HEAD, SUBMITTER, Find, JobPart, find_nothing
from bayplan.dialects.kube.fields.reader import INT32_MAX, Field, FieldErrorType

SUBMIT_BY_JOB = "K8sJobMode"
PARTS_MAX = 18
CLUSTER = "RayCluster"

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
    cluster = find(CLUSTER, job.at("metadata", "namespace").text(), name) if name else None
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
    parts = ray_job_parts(Field(job), find_nothing)
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


# ── rules of queued jobs ───────────────────────────────────────────────────────────────────────────


def _check_cluster(cluster: Field, job: QueuedJob) -> None:
    if not job.queued:
        return
    spec = cluster.at("spec")
    if job.elastic:
        for group in (*spec.at("workerGroupSpecs").items(), spec.at("headGroupSpec")):
            _check_elastic_gate(group.at("template", "spec", "schedulingGates"))
    elif spec.at("enableInTreeAutoscaling").flag():
        why = (
            "a kueue-managed RayCluster can use autoscaling only as an elastic job: enable the "
            f'ElasticJobsViaWorkloadSlices feature gate and set the "{ELASTIC}": "true" annotation'
        )
        spec.at("enableInTreeAutoscaling").error(why, FieldErrorType.INVALID)
    _check_groups(spec)


def _check_elastic_gate(gates: Field) -> None:
    if all(gate.at("name").text() != ELASTIC_GATE for gate in gates.items()):
        gates.error("an elastic job must have the ElasticJobSchedulingGate", FieldErrorType.INVALID)


def _check_job(field: Field, job: QueuedJob) -> None:
    if not job.queued:
        return
    spec = field.at("spec")
    selector, cluster = spec.at("clusterSelector"), spec.at("rayClusterSpec")
    if selector.value and cluster.present:
        selector.error("a kueue managed job should not use an existing cluster", FieldErrorType.INVALID)
    elif not selector.value and not cluster.present:
        why = "rayClusterSpec is required for Kueue-managed jobs that don't use clusterSelector"
        cluster.error(why, FieldErrorType.REQUIRED)
    if selector.value or not cluster.present:
        return
    finish = spec.at("shutdownAfterJobFinishes")
    if not finish.flag():
        finish.error(
            "a kueue managed job should delete the cluster after finishing", FieldErrorType.INVALID, False
        )
    _check_wrapped_cluster(cluster, job)


def _check_service(service: Field, job: QueuedJob) -> None:
    if job.queued:
        _check_wrapped_cluster(service.at("spec", "rayClusterConfig"), job)


def _check_wrapped_cluster(cluster: Field, job: QueuedJob) -> None:
    scaling = cluster.at("enableInTreeAutoscaling")
    if scaling.flag() and not job.asks_elastic:
        why = "a kueue managed job should only use autoscaling when workload slicing is enabled"
        scaling.error(why, FieldErrorType.INVALID)
    _check_groups(cluster)


def _check_groups(spec: Field) -> None:
    groups = spec.at("workerGroupSpecs")
    count = len(groups.items()) + 1
    if count > PARTS_MAX:
        groups.error(f"must have at most {PARTS_MAX} items", FieldErrorType.TOO_MANY, count)
    for group in groups.items():
        if group.at("groupName").text() == "head":
            group.at("groupName").error('"head" is reserved for the head group', FieldErrorType.FORBIDDEN)


# ── what our account may change ────────────────────────────────────────────────────────────────────


def _cluster_changes(path: str) -> tuple[str, ...]:
    head = within("template", f"{NEW}.{path}.headGroupSpec", f"{OLD}.{path}.headGroupSpec")
    return (
        spec_but("suspend", "headGroupSpec", "workerGroupSpecs", path=path),
        either("headGroupSpec", head, f"{NEW}.{path}", f"{OLD}.{path}"),
        listed(f"{path}.workerGroupSpecs", "groupName", within("template", "now", "before")),
    )


def _submitter_changes() -> str:
    """CEL: the submitter pod of a RayJob is the user's, or one of ours with the image of the head."""
    new, old = f"{NEW}.spec.submitterPodTemplate", f"{OLD}.spec.submitterPodTemplate"
    return (
        f"has({new}) && has({old}) ? ({template(new, old)}) : "
        f"((!has({new}) || ({_own_submitter(new)})) && (!has({old}) || ({_own_submitter(old)})))"
    )


def _own_submitter(pod: str) -> str:
    """CEL: a template has only the fields that we write if the user gave none."""
    images = f"{NEW}.spec.rayClusterSpec.headGroupSpec.template.spec.containers"
    runs = f"(!has(one.image) || {images}.exists(it, has(it.image) && it.image == one.image))"
    return (
        f"dyn({pod}).all(key, key in {every(('metadata', 'spec'))}) && "
        f"dyn({pod}.spec).all(key, key in {every(('containers', 'restartPolicy', *WHERE))}) && "
        f"{pod}.spec.containers.size() == 1 && {pod}.spec.containers.all(one, {runs} && "
        f"dyn(one).all(key, key in {every(('name', 'image', 'resources'))}))"
    )


_JOB_CHANGES = (
    spec_but("suspend", "rayClusterSpec", "submitterPodTemplate"),
    all_of(
        f"has({NEW}.spec.rayClusterSpec) == has({OLD}.spec.rayClusterSpec)",
        f"!has({NEW}.spec.rayClusterSpec) || ("
        + all_of(*_cluster_changes("spec.rayClusterSpec"), _submitter_changes())
        + ")",
    ),
)

RAY_CLUSTER = JobKind(
    CLUSTER,
    "ray.io",
    "v1",
    "rayclusters",
    ray_cluster_parts,
    ("v1alpha1",),
    grouping=Grouping(GroupBy.CLUSTER, cluster=("spec",)),
    looked_up=True,
    suspend=SUSPEND,
    status_reader=status.RAY_CLUSTER,
    resizing=Resizing(),
    check=_check_cluster,
    changes=_cluster_changes("spec"),
)
RAY_JOB = JobKind(
    "RayJob",
    "ray.io",
    "v1",
    "rayjobs",
    ray_job_parts,
    ("v1alpha1",),
    grouping=Grouping(
        GroupBy.CLUSTER, cluster=("spec", "rayClusterSpec"), cluster_names=(("status", "rayClusterName"),)
    ),
    suspend=SUSPEND,
    status_reader=status.RAY_JOB,
    inject=inject_ray_job,
    restore=restore_ray_job,
    resizing=Resizing(gated_at_start=True, child=CLUSTER, find_child=own_cluster),
    check=_check_job,
    changes=_JOB_CHANGES,
)
RAY_SERVICE = JobKind(
    "RayService",
    "ray.io",
    "v1",
    "rayservices",
    ray_service_parts,
    ("v1alpha1",),
    grouping=Grouping(
        GroupBy.CLUSTER,
        cluster=("spec", "rayClusterConfig"),
        cluster_names=(
            ("status", "activeServiceStatus", "rayClusterName"),
            ("status", "pendingServiceStatus", "rayClusterName"),
        ),
        of_pod=True,
    ),
    suspend=("spec", "rayClusterConfig", "suspend"),
    status_reader=status.RAY_SERVICE,
    resizing=Resizing(in_place=False),
    check=_check_service,
    changes=(spec_but("rayClusterConfig"), *_cluster_changes("spec.rayClusterConfig")),
)

ENTRIES = (RAY_CLUSTER, RAY_JOB, RAY_SERVICE)
