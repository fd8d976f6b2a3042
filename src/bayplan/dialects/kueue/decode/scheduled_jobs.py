"""Jobs whose pods name Bayplan as their scheduler: each is a gang, with the topology of its annotations.

A pod belongs to the JobSet or Job that created it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.kinds import COMPLETION_INDEX, JOB_INDEX, MAIN_POD_SET, parts
from bayplan.dialects.jobs.start_stop import status_reader
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import seconds
from bayplan.dialects.kueue.fields.job_gang import job_gang
from bayplan.dialects.kueue.fields.topology_and_flavor import topology
from bayplan.dialects.kueue.names.annotations import WORKLOAD_NAME
from bayplan.model.change import Change, GangSpecLost, GangSpecSeen, TopologyLost, TopologySeen
from bayplan.model.gang import Gang, GangSpec, Ref
from bayplan.model.whole_numbers import whole_number

DIALECT = "kueue"
SCHEDULER = "bayplan"
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
RANKS_PER_JOB = 1_000_000  # ranks only order pods: those of one job are consecutive

JOBS = Kind("batch", "v1", "Job", "jobs")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", optional=True)
TOPOLOGIES = Kind("kueue.x-k8s.io", "v1beta2", "Topology", "topologies", namespaced=False, optional=True)
KINDS = (JOBS, JOB_SETS, TOPOLOGIES)
API_VERSIONS = {kind.kind: kind.api_version for kind in (JOBS, JOB_SETS)}


def decode(event: Event, names: Collection[str] = (SCHEDULER,)) -> Iterator[Change]:
    """The changes that an event causes for the schedulers of these names."""
    gone = event.happened is Happened.GONE
    if event.happened is Happened.SYNCED:
        return
    match event.kind.kind:
        case "Job" | "JobSet":
            yield from _job(Field(event.object), gone, names)
        case "Topology":
            field = Field(event.object)
            if gone:
                yield TopologyLost(field.at("metadata", "name").text())
            else:
                decoded = topology(field)
                if decoded is not None and not field.errors:
                    yield TopologySeen(decoded)


def membership(wire: PodWire) -> tuple[Ref, str, int] | None:
    """The gang, the pod set and the rank of a pod that a job created."""
    meta, namespace = wire.metadata, wire.metadata.namespace or "default"
    labels, annotations = meta.labels or {}, meta.annotations or {}
    index = _number(labels.get(COMPLETION_INDEX) or annotations.get(COMPLETION_INDEX))
    if JOB_SET_NAME in labels:
        rank = _number(labels.get(JOB_INDEX)) * RANKS_PER_JOB + index
        return Ref(DIALECT, "JobSet", namespace, labels[JOB_SET_NAME]), labels.get(REPLICATED_JOB, ""), rank
    for owner in meta.owner_references or ():
        if owner.kind == "Job":
            return Ref(DIALECT, "Job", namespace, owner.name), MAIN_POD_SET, index
    return None


def _job(job: Field, gone: bool, names: Collection[str]) -> Iterator[Change]:
    if any(owner.at("kind").text() == "JobSet" for owner in job.at("metadata", "ownerReferences").items()):
        return
    gang = job_gang(job)
    if gone or not names_scheduler(job, names) or _is_inactive(job):
        yield GangSpecLost(gang.source)
    else:
        yield GangSpecSeen(_gang_spec(job, gang))


def _gang_spec(job: Field, gang: Gang) -> GangSpec:
    """The gang of a job: all its pods at once, with the topology of its tree.

    If admission has placed it already, each pod has its node selector, and no tree is needed. Then pods that
    are over are not waited for: they may have been deleted with their node, and the job creates no others.
    """
    annotations = [template.at("metadata", "annotations") for template in templates(job)]
    is_placed = any(annotation.at(WORKLOAD_NAME).present for annotation in annotations)
    minimum = sum(pod_set.count for pod_set in gang.root.pod_sets())
    if is_placed:
        over = status_reader(job.at("kind").text()).reclaimable(job, parts(job))
        minimum = max(1, minimum - sum(over.values()))
    return GangSpec(
        source=gang.source,
        minimum=minimum,
        disrupt_together=True,
        tree=None if is_placed else gang.root,
        created=seconds(job.at("metadata", "creationTimestamp").text()),
        uid=gang.uid,
        flaw="; ".join(str(error) for error in job.errors),
    )


def templates(job: Field) -> list[Field]:
    """The pod templates of a Job or JobSet."""
    if job.at("kind").text() == "JobSet":
        replicated = job.at("spec", "replicatedJobs").items()
        return [part.at("template", "spec", "template") for part in replicated]
    return [job.at("spec", "template")]


def names_scheduler(job: Field, names: Collection[str]) -> bool:
    """Whether pods of a Job or JobSet name one of these schedulers and no gang of their own."""
    return any(_names_scheduler(template.at("spec"), names) for template in templates(job))


def _names_scheduler(spec: Field, names: Collection[str]) -> bool:
    """Whether pods name one of these schedulers; pods that name a gang belong to that gang."""
    joins = spec.at("workloadRef").present or spec.at("schedulingGroup").present
    return spec.at("schedulerName").text() in names and not joins


def _is_inactive(job: Field) -> bool:
    """Whether a job has no pods to place: suspended, finished or terminating."""
    finished = any(
        condition.at("type").text() in ("Complete", "Completed", "Failed")
        and condition.at("status").text() == "True"
        for condition in job.at("status", "conditions").items()
    )
    return finished or job.at("spec", "suspend").flag() or job.at("metadata", "deletionTimestamp").present


def _number(text: str | None) -> int:
    return whole_number(text) or 0
