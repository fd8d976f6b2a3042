"""Jobs of the training operator: a map of replica types, each with a template and a replica count."""

from __future__ import annotations

from dataclasses import replace

from bayplan.dialects.jobs import status
from bayplan.dialects.jobs.change_rules import NEW, OLD, either, or_empty, same_but, spec_but, within
from bayplan.dialects.jobs.kind import GroupBy, Grouping, JobKind, Parts
from bayplan.dialects.jobs.part import REPLICA_INDEX, Find, JobPart, required_template
from bayplan.dialects.kube.fields.reader import Field

RUN_POLICY = ("spec", "runPolicy", "suspend")
LAUNCHER, WORKER = "Launcher", "Worker"
MPI_SPECS = "mpiReplicaSpecs"


def replica_parts(specs: str, *types: str) -> Parts:
    """A reader of the pod sets in spec.<specs>, in the order of the types."""

    def read(job: Field, find: Find) -> list[JobPart]:
        replicas = job.at("spec", specs)
        return [_replica(replicas.key(name), name) for name in types if replicas.key(name).present]

    return read


def mpi_parts(job: Field, find: Find) -> list[JobPart]:
    """The pod sets of an MPIJob. A launcher that runs as a worker has index 0, and workers start at 1."""
    replicas = job.at("spec", MPI_SPECS)
    follows = job.at("spec", "runLauncherAsWorker").flag() and replicas.key(LAUNCHER).present
    offsets = {LAUNCHER: 0, WORKER: int(follows)}
    return [
        _replica(replicas.key(name), name, offset)
        for name, offset in offsets.items()
        if replicas.key(name).present
    ]


def _replica(field: Field, name: str, offset: int = 0) -> JobPart:
    return JobPart(
        name=name.lower(),
        count=field.at("replicas").integer(default=1),
        template=required_template(field),
        name_field=field,
        index_label=REPLICA_INDEX,
        index_offset=offset,
    )


def _changes(specs: str) -> tuple[str, ...]:
    new, old = f"{NEW}.spec.{specs}", f"{OLD}.spec.{specs}"
    each = within("template", f"dyn({new})[role]", f"dyn({old})[role]")
    roles = f"{new}.size() == {old}.size() && dyn({new}).all(role, role in dyn({old}) && {each})"
    policies = [or_empty(f"{one}.spec.runPolicy") for one in (NEW, OLD)]
    return (
        spec_but("runPolicy", specs),
        same_but(*policies, "suspend"),
        either(specs, roles, f"{NEW}.spec", f"{OLD}.spec"),
    )


def _entry(
    kind: str, plural: str, specs: str, parts: Parts, grouping: Grouping | None, version: str = "v1",
    older: tuple[str, ...] = (),
) -> JobKind:  # fmt: skip
    return JobKind(
        kind,
        "kubeflow.org",
        version,
        plural,
        parts,
        older,
        index_label=REPLICA_INDEX if grouping is not None else "",
        grouping=None if grouping is None else replace(grouping, specs=specs),
        offsets=parts is mpi_parts,
        replica_specs=specs,
        suspend=RUN_POLICY,
        status_reader=status.TRAINING,
        changes=_changes(specs),
    )


def _training(kind: str, plural: str, specs: str, *types: str, grouping: Grouping | None) -> JobKind:
    return _entry(kind, plural, specs, replica_parts(specs, *types), grouping)


_BY_TYPE = GroupBy.REPLICA_TYPES
PYTORCH_JOB = _training(
    *("PyTorchJob", "pytorchjobs", "pytorchReplicaSpecs", "Master", "Worker"),
    grouping=Grouping(_BY_TYPE, always=True, elastic=True),
)
TF_JOB = _training(
    *("TFJob", "tfjobs", "tfReplicaSpecs", "Chief", "Master", "PS", "Worker", "Evaluator"),
    grouping=Grouping(_BY_TYPE),
)
MPI_JOB = _entry(
    *("MPIJob", "mpijobs", MPI_SPECS, mpi_parts),
    grouping=Grouping(_BY_TYPE, mandatory=(LAUNCHER, WORKER), waits=True),
    version="v2beta1",
    older=("v1",),
)
JAX_JOB = _training(
    *("JAXJob", "jaxjobs", "jaxReplicaSpecs", "Worker"), grouping=Grouping(_BY_TYPE, mandatory=(WORKER,))
)
XGBOOST_JOB = _training(
    *("XGBoostJob", "xgboostjobs", "xgbReplicaSpecs", "Master", "Worker"),
    grouping=Grouping(_BY_TYPE, mandatory=("Master", WORKER)),
)
PADDLE_JOB = _training(*("PaddleJob", "paddlejobs", "paddleReplicaSpecs", "Master", "Worker"), grouping=None)

ENTRIES = (PYTORCH_JOB, TF_JOB, MPI_JOB, JAX_JOB, XGBOOST_JOB, PADDLE_JOB)
