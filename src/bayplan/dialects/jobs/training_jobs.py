"""Pod sets of training operator jobs: a map of replica types, each with a template and a replica count."""

from __future__ import annotations

from collections.abc import Callable

from bayplan.dialects.jobs.part import REPLICA_INDEX, Find, JobPart, required_template
from bayplan.dialects.kube.fields.reader import Field

Parts = Callable[[Field, Find], list[JobPart]]

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
