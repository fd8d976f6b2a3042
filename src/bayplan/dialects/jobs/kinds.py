"""The table of job kinds: pod sets, suspend flag, status and injection of each. A new kind is one entry."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.dialects.jobs import status as job_status
from bayplan.dialects.jobs.batch_jobs import job_parts, job_set_parts, train_job_parts
from bayplan.dialects.jobs.injection import Injected
from bayplan.dialects.jobs.part import COMPLETION_INDEX, JOB_INDEX, MAIN_POD_SET, Find, JobPart, find_nothing
from bayplan.dialects.jobs.ray_jobs import (
    inject_ray_job,
    ray_cluster_parts,
    ray_job_parts,
    ray_service_parts,
    restore_ray_job,
)
from bayplan.dialects.jobs.serving_jobs import (
    deployment_parts,
    group_count,
    leader_worker_parts,
    pod_parts,
    replicas,
    stateful_set_parts,
)
from bayplan.dialects.jobs.spark_jobs import inject_spark, restore_spark, spark_parts
from bayplan.dialects.jobs.train_runtime import inject_train_job, restore_train_job
from bayplan.dialects.jobs.training_jobs import MPI_SPECS, mpi_parts, replica_parts
from bayplan.dialects.jobs.wrapped_jobs import parts_by_component, set_pod_set_infos, wrapped_parts
from bayplan.dialects.kube.fields.reader import Field

__all__ = [
    "COMPLETION_INDEX",
    "JOB_INDEX",
    "KINDS",
    "MAIN_POD_SET",
    "Find",
    "JobKind",
    "JobPart",
    "copies",
    "is_known",
    "parts",
]

Object = dict[str, Any]
Inject = Callable[[Object, Sequence[Injected], Find], None]
Restore = Callable[[Object, Sequence[Object]], None]

SUSPEND = ("spec", "suspend")
RUN_POLICY = ("spec", "runPolicy", "suspend")


@dataclass(frozen=True, slots=True)
class JobKind:
    """The API resource of a job kind and how to read, suspend and start its jobs."""

    group: str  # "" for the core group
    version: str
    plural: str
    parts: Callable[[Field, Find], list[JobPart]]
    suspend: tuple[str, ...] = ()  # path of the suspend flag; empty: its pods are gated instead
    copies: Callable[[Field], int] | None = None  # how many gangs the job consists of; None: one
    replica_specs: str = ""  # the field with the map of replica types, if the kind has one
    elastic: bool = False  # the job may be scaled while it runs
    prebuilt: bool = True  # the job may name a prebuilt Workload
    status_reader: job_status.JobStatusReader | None = None  # None for kinds without a suspend flag
    inject: Inject | None = None  # injects pod set infos elsewhere than into the pod templates
    restore: Restore | None = None  # undoes `inject`
    controller_labels: tuple[str, ...] = ()  # pod template labels written by the kind's own controller

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version


def parts(job: Field, find: Find = find_nothing) -> list[JobPart]:
    """The pod sets of a job; its kind must be in the table."""
    return KINDS[job.at("kind").text()].parts(job, find)


def copies(job: Field) -> int:
    """The number of gangs with these pod sets that a job consists of; its kind must be in the table."""
    count = KINDS[job.at("kind").text()].copies
    return 1 if count is None else count(job)


def is_known(job: Field) -> bool:
    """Whether the table has the kind of an object. Without apiVersion, only the kind is compared."""
    kind = KINDS.get(job.at("kind").text())
    version = job.at("apiVersion").text()
    group = version.partition("/")[0] if "/" in version else ""
    return kind is not None and (not version or group == kind.group)


def is_suspended(job: Field) -> bool:
    """Whether the suspend flag of a job is set; its kind must be in the table."""
    path = KINDS[job.at("kind").text()].suspend
    return bool(path) and job.at(*path).value is True


def _app_wrapper(wrapper: Field, find: Find) -> list[JobPart]:
    return wrapped_parts(wrapper, lambda inner: parts(inner, find) if is_known(inner) else [])


def _inject_app_wrapper(wrapper: Object, infos: Sequence[Injected], find: Find) -> None:
    components = parts_by_component(
        Field(wrapper), lambda component: parts(component, find) if is_known(component) else []
    )
    set_pod_set_infos(wrapper, [len(pod_sets) for pod_sets in components], infos)


def _restore_app_wrapper(wrapper: Object, originals: Sequence[Object]) -> None:
    for component in wrapper["spec"].get("components") or ():
        if component is not None:
            component.pop("podSetInfos", None)


def _training(specs: str, plural: str, *types: str) -> JobKind:
    read = replica_parts(specs, *types)
    reader = job_status.TRAINING
    return JobKind(
        "kubeflow.org", "v1", plural, read, suspend=RUN_POLICY, replica_specs=specs, status_reader=reader
    )


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
        status_reader=job_status.JOB,
        controller_labels=_JOB_LABELS,
    ),
    "JobSet": JobKind(
        "jobset.x-k8s.io",
        "v1alpha2",
        "jobsets",
        job_set_parts,
        suspend=SUSPEND,
        status_reader=job_status.JOB_SET,
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
        status_reader=job_status.TRAINING,
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
        status_reader=job_status.TRAIN_JOB,
        inject=inject_train_job,
        restore=restore_train_job,
    ),
    "RayJob": JobKind(
        "ray.io",
        "v1",
        "rayjobs",
        ray_job_parts,
        suspend=SUSPEND,
        elastic=True,
        status_reader=job_status.RAY_JOB,
        inject=inject_ray_job,
        restore=restore_ray_job,
    ),
    "RayCluster": JobKind(
        "ray.io",
        "v1",
        "rayclusters",
        ray_cluster_parts,
        suspend=SUSPEND,
        elastic=True,
        status_reader=job_status.RAY_CLUSTER,
    ),
    "RayService": JobKind(
        "ray.io",
        "v1",
        "rayservices",
        ray_service_parts,
        suspend=("spec", "rayClusterConfig", "suspend"),
        elastic=True,
        status_reader=job_status.RAY_SERVICE,
    ),
    "AppWrapper": JobKind(
        "workload.codeflare.dev",
        "v1beta2",
        "appwrappers",
        _app_wrapper,
        suspend=SUSPEND,
        status_reader=job_status.APP_WRAPPER,
        inject=_inject_app_wrapper,
        restore=_restore_app_wrapper,
    ),
    "SparkApplication": JobKind(
        "sparkoperator.k8s.io",
        "v1beta2",
        "sparkapplications",
        spark_parts,
        suspend=SUSPEND,
        prebuilt=False,
        status_reader=job_status.SPARK,
        inject=inject_spark,
        restore=restore_spark,
    ),
    "StatefulSet": JobKind("apps", "v1", "statefulsets", stateful_set_parts, prebuilt=False),
    "Deployment": JobKind("apps", "v1", "deployments", deployment_parts, copies=replicas, prebuilt=False),
    "Pod": JobKind("", "v1", "pods", pod_parts),
}
