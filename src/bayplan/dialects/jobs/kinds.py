"""Job kinds as a table: which pod sets each stands for, where it is held back. A new kind is one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.jobs import status as faring
from bayplan.dialects.jobs.batch_jobs import job_parts, job_set_parts, train_job_parts
from bayplan.dialects.jobs.part import COMPLETION_INDEX, JOB_INDEX, ONLY, Find, JobPart, nothing
from bayplan.dialects.jobs.ray_jobs import (
    begin_ray_job,
    ray_cluster_parts,
    ray_job_parts,
    ray_service_parts,
    take_back_ray_job,
)
from bayplan.dialects.jobs.serving_jobs import (
    deployment_parts,
    group_count,
    leader_worker_parts,
    pod_parts,
    replicas,
    stateful_set_parts,
)
from bayplan.dialects.jobs.spark_jobs import begin_spark, spark_parts, take_back_spark
from bayplan.dialects.jobs.starting import Injected
from bayplan.dialects.jobs.train_runtime import begin_train_job, take_back_train_job
from bayplan.dialects.jobs.training_jobs import MPI_SPECS, mpi_parts, replica_parts
from bayplan.dialects.jobs.wrapped_jobs import parts_by_component, set_pod_set_infos, wrapped_parts
from bayplan.dialects.kube.fields.reader import Field

__all__ = [
    "COMPLETION_INDEX",
    "JOB_INDEX",
    "KINDS",
    "ONLY",
    "Find",
    "JobKind",
    "JobPart",
    "copies",
    "is_known",
    "parts",
]

Object = dict[str, Any]
Begin = Callable[[Object, Sequence[Injected], Find], None]
TakeBack = Callable[[Object, Sequence[Object]], None]

SUSPEND = ("spec", "suspend")
RUN_POLICY = ("spec", "runPolicy", "suspend")


@dataclass(frozen=True, slots=True)
class JobKind:
    """How to read one kind of job."""

    group: str  # "" for the core group
    version: str
    plural: str
    parts: Callable[[Field, Find], list[JobPart]]
    suspend: tuple[str, ...] = ()  # the flag that holds the job back; none: its pods are gated instead
    copies: Callable[[Field], int] | None = None  # how many gangs it is; none: one
    replica_specs: str = ""  # the map of replica types, where the kind has one
    elastic: bool = False  # may change its size while it runs
    prebuilt: bool = True  # may name a Workload that somebody else made
    faring: faring.JobStatusReader | None = None  # how to read its status, if it has a flag
    begin: Begin | None = None  # puts additions into it, if they do not go into its pod templates
    take_back: TakeBack | None = None  # the reverse
    kept_labels: tuple[str, ...] = ()  # of its pod templates, written by its own controller

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def parts(job: Field, find: Find = nothing) -> list[JobPart]:
    """The pod sets of a job of a known kind."""
    return KINDS[job.at("kind").text()].parts(job, find)


def copies(job: Field) -> int:
    """How many gangs of these pod sets a job of a known kind stands for."""
    count = KINDS[job.at("kind").text()].copies
    return 1 if count is None else count(job)


def is_known(job: Field) -> bool:
    """Whether the table has the kind. An object without apiVersion is judged by its kind alone."""
    kind = KINDS.get(job.at("kind").text())
    version = job.at("apiVersion").text()
    group = version.partition("/")[0] if "/" in version else ""
    return kind is not None and (not version or group == kind.group)


def is_suspended(job: Field) -> bool:
    """Whether a job of a known kind is held back by its own flag."""
    path = KINDS[job.at("kind").text()].suspend
    return bool(path) and job.at(*path).value is True


def _app_wrapper(wrapper: Field, find: Find) -> list[JobPart]:
    return wrapped_parts(wrapper, lambda inner: parts(inner, find) if is_known(inner) else [])


def _begin_app_wrapper(wrapper: Object, extras: Sequence[Injected], find: Find) -> None:
    inner = parts_by_component(Field(wrapper), lambda one: parts(one, find) if is_known(one) else [])
    set_pod_set_infos(wrapper, [len(found) for found in inner], extras)


def _take_back_app_wrapper(wrapper: Object, originals: Sequence[Object]) -> None:
    for component in wrapper["spec"].get("components") or ():
        component.pop("podSetInfos", None)


def _training(specs: str, plural: str, *types: str) -> JobKind:
    read = replica_parts(specs, *types)
    told = faring.TRAINING
    return JobKind("kubeflow.org", "v1", plural, read, suspend=RUN_POLICY, replica_specs=specs, faring=told)


_JOB_LABELS = (
    *("job-name", "controller-uid"),
    *("batch.kubernetes.io/job-name", "batch.kubernetes.io/controller-uid"),
)

KINDS: Mapping[str, JobKind] = {
    "Job": JobKind(
        "batch",
        "v1",
        "jobs",
        job_parts,
        suspend=SUSPEND,
        elastic=True,
        faring=faring.JOB,
        kept_labels=_JOB_LABELS,
    ),
    "JobSet": JobKind(
        "jobset.x-k8s.io", "v1alpha2", "jobsets", job_set_parts, suspend=SUSPEND, faring=faring.JOB_SET
    ),
    "LeaderWorkerSet": JobKind(
        "leaderworkerset.x-k8s.io",
        "v1",
        "leaderworkersets",
        leader_worker_parts,
        copies=group_count,
        prebuilt=False,
    ),
    "MPIJob": JobKind(
        "kubeflow.org",
        "v2beta1",
        "mpijobs",
        mpi_parts,
        suspend=RUN_POLICY,
        replica_specs=MPI_SPECS,
        faring=faring.TRAINING,
    ),
    "PyTorchJob": _training("pytorchReplicaSpecs", "pytorchjobs", "Master", "Worker"),
    "TFJob": _training("tfReplicaSpecs", "tfjobs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    "XGBoostJob": _training("xgbReplicaSpecs", "xgboostjobs", "Master", "Worker"),
    "PaddleJob": _training("paddleReplicaSpecs", "paddlejobs", "Master", "Worker"),
    "JAXJob": _training("jaxReplicaSpecs", "jaxjobs", "Worker"),
    "TrainJob": JobKind(
        "trainer.kubeflow.org",
        "v1alpha1",
        "trainjobs",
        train_job_parts,
        suspend=SUSPEND,
        faring=faring.TRAIN_JOB,
        begin=begin_train_job,
        take_back=take_back_train_job,
    ),
    "RayJob": JobKind(
        "ray.io",
        "v1",
        "rayjobs",
        ray_job_parts,
        suspend=SUSPEND,
        elastic=True,
        faring=faring.RAY_JOB,
        begin=begin_ray_job,
        take_back=take_back_ray_job,
    ),
    "RayCluster": JobKind(
        "ray.io",
        "v1",
        "rayclusters",
        ray_cluster_parts,
        suspend=SUSPEND,
        elastic=True,
        faring=faring.RAY_CLUSTER,
    ),
    "RayService": JobKind(
        "ray.io",
        "v1",
        "rayservices",
        ray_service_parts,
        suspend=("spec", "rayClusterConfig", "suspend"),
        elastic=True,
        faring=faring.RAY_SERVICE,
    ),
    "AppWrapper": JobKind(
        "workload.codeflare.dev",
        "v1beta2",
        "appwrappers",
        _app_wrapper,
        suspend=SUSPEND,
        faring=faring.APP_WRAPPER,
        begin=_begin_app_wrapper,
        take_back=_take_back_app_wrapper,
    ),
    "SparkApplication": JobKind(
        "sparkoperator.k8s.io",
        "v1beta2",
        "sparkapplications",
        spark_parts,
        suspend=SUSPEND,
        prebuilt=False,
        faring=faring.SPARK,
        begin=begin_spark,
        take_back=take_back_spark,
    ),
    "StatefulSet": JobKind("apps", "v1", "statefulsets", stateful_set_parts, prebuilt=False),
    "Deployment": JobKind("apps", "v1", "deployments", deployment_parts, copies=replicas, prebuilt=False),
    "Pod": JobKind("", "v1", "pods", pod_parts),
}
