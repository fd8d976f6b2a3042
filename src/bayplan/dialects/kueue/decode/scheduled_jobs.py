"""Jobs whose pods name Bayplan as their scheduler: each is a gang, with the topology of its annotations.

A pod belongs to the JobSet or Job that created it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.kind import Ranks
from bayplan.dialects.jobs.kinds import SCHEDULED, is_suspended, parts
from bayplan.dialects.jobs.part import MAIN_POD_SET
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
RANKS_PER_JOB = 1_000_000  # ranks only order pods: those of one job are consecutive

JOB_KINDS = {entry.kind: entry.resource for entry in SCHEDULED}
"""The jobs that are gangs of the scheduler without a queue."""
_LABELLED = tuple((entry.kind, entry.ranks) for entry in SCHEDULED if entry.ranks and entry.ranks.owner)
_REFERRED = {entry.kind: entry.ranks for entry in SCHEDULED if entry.ranks and not entry.ranks.owner}
TOPOLOGIES = Kind("kueue.x-k8s.io", "v1beta2", "Topology", "topologies", namespaced=False, optional=True)
KINDS = (*JOB_KINDS.values(), TOPOLOGIES)


def decode(event: Event, names: Collection[str] = (SCHEDULER,)) -> Iterator[Change]:
    """The changes that an event causes for the schedulers of these names."""
    gone = event.happened is Happened.GONE
    if event.happened is Happened.SYNCED:
        return
    field = Field(event.object)
    if event.kind.kind in JOB_KINDS:
        yield from _job(field, gone, names)
    elif gone:
        yield TopologyLost(field.at("metadata", "name").text())
    else:
        decoded = topology(field)
        if decoded is not None and not field.errors:
            yield TopologySeen(decoded)


def membership(wire: PodWire) -> tuple[Ref, str, int] | None:
    """The gang, the pod set and the rank of a pod that a job created."""
    meta, namespace = wire.metadata, wire.metadata.namespace or "default"
    labels, annotations = meta.labels or {}, meta.annotations or {}

    def rank(source: Ranks) -> int:
        index = _number(labels.get(source.index) or annotations.get(source.index))
        return (_number(labels.get(source.outer)) if source.outer else 0) * RANKS_PER_JOB + index

    for kind, source in _LABELLED:
        if source.owner in labels:
            ref = Ref(DIALECT, kind, namespace, labels[source.owner])
            return ref, labels.get(source.pod_set, ""), rank(source)
    for owner in meta.owner_references or ():
        if owner.kind in _REFERRED:
            return Ref(DIALECT, owner.kind, namespace, owner.name), MAIN_POD_SET, rank(_REFERRED[owner.kind])
    return None


def _job(job: Field, gone: bool, names: Collection[str]) -> Iterator[Change]:
    if _owner_of(job) is not None:
        return  # a part of that job
    gang = job_gang(job)
    if gone or not names_scheduler(job, names) or _is_inactive(job):
        yield GangSpecLost(gang.source)
    else:
        yield GangSpecSeen(_gang_spec(job, gang))


def part_over(event: Event) -> tuple[Ref, str, int] | None:
    """Of a job that another job owns: the owner's gang, the name, and how many of its pods are over.

    None if it is the job of a gang itself, or no job. What is complete counts in the status of the owner.
    """
    if event.happened is Happened.SYNCED or event.kind.kind not in JOB_KINDS:
        return None
    job = Field(event.object)
    owner, reader = _owner_of(job), status_reader(job.at("kind").text() or event.kind.kind)
    if owner is None:
        return None
    metadata = job.at("metadata")
    ref = Ref(DIALECT, owner.at("kind").text(), metadata.at("namespace").text(), owner.at("name").text())
    is_counted = event.happened is not Happened.GONE and reader.ended(job) is None
    over = sum(reader.reclaimable(job, parts(job)).values()) if is_counted else 0
    return ref, metadata.at("name").text(), over


def _owner_of(job: Field) -> Field | None:
    """The reference to the job that owns this one."""
    owners = job.at("metadata", "ownerReferences").items()
    return next((owner for owner in owners if owner.at("kind").text() in JOB_KINDS), None)


def is_placed(spec: GangSpec) -> bool:
    """Whether admission has placed the gang of a job already."""
    return spec.tree is None


def _gang_spec(job: Field, gang: Gang) -> GangSpec:
    """The gang of a job: all its pods at once, with the topology of its tree.

    If admission has placed it already, each pod has its node selector, and no tree is needed. Then pods that
    are over are not waited for: they may have been deleted with their node, and the job creates no others.
    """
    annotations = [template.at("metadata", "annotations") for template in templates(job)]
    placed = any(annotation.at(WORKLOAD_NAME).present for annotation in annotations)
    minimum = sum(pod_set.count for pod_set in gang.root.pod_sets())
    if placed:
        over = status_reader(job.at("kind").text()).reclaimable(job, parts(job))
        minimum = max(1, minimum - sum(over.values()))
    return GangSpec(
        source=gang.source,
        minimum=minimum,
        disrupt_together=True,
        tree=None if placed else gang.root,
        created=seconds(job.at("metadata", "creationTimestamp").text()),
        uid=gang.uid,
        flaw="; ".join(str(error) for error in job.errors),
    )


def templates(job: Field) -> list[Field]:
    """The pod templates of a job; errors are not recorded."""
    return [part.template for part in parts(Field(job.value))]


def names_scheduler(job: Field, names: Collection[str]) -> bool:
    """Whether pods of a job name one of these schedulers and no gang of their own."""
    return any(_names_scheduler(template.at("spec"), names) for template in templates(job))


def _names_scheduler(spec: Field, names: Collection[str]) -> bool:
    """Whether pods name one of these schedulers; pods that name a gang belong to that gang."""
    joins = spec.at("workloadRef").present or spec.at("schedulingGroup").present
    return spec.at("schedulerName").text() in names and not joins


def _is_inactive(job: Field) -> bool:
    """Whether a job has no pods to place: suspended, finished or terminating."""
    finished = status_reader(job.at("kind").text()).ended(job) is not None
    return finished or is_suspended(job) or job.at("metadata", "deletionTimestamp").present


def _number(text: str | None) -> int:
    return whole_number(text) or 0
