"""Jobs and pods that name us as their scheduler: jobs become gangs, their pods its members.

A pod belongs to the JobSet or Job that made it; a pod that nobody made is a gang of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from bayplan.dialects.api import Event, Happened, Kind, Write
from bayplan.dialects.jobs.kinds import COMPLETION_INDEX, JOB_INDEX, ONLY
from bayplan.dialects.kube.binding import bind_write, event_write
from bayplan.dialects.kube.fields import Field
from bayplan.dialects.kube.times import seconds, timestamp
from bayplan.dialects.kube.wire import NODES, PODS_KIND, NodeWire, PodWire, node_of, pod_amounts
from bayplan.dialects.kueue.jobs import job_gang
from bayplan.dialects.kueue.messages import sentence
from bayplan.dialects.kueue.objects import topology
from bayplan.model.change import (
    Change,
    GangLost,
    GangSeen,
    NodeLost,
    NodeSeen,
    PodLost,
    PodSeen,
    TopologyLost,
    TopologySeen,
)  # fmt: skip
from bayplan.model.gang import Gang, Group, PodSet, Ref
from bayplan.model.node import PODS
from bayplan.model.plan import Action, Bind, Refuse
from bayplan.model.pod import Pod, PodKey

DIALECT = "kueue"
SCHEDULER = "bayplan"
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
REPLICATED_JOB = "jobset.sigs.k8s.io/replicatedjob-name"
RANKS_PER_JOB = 1_000_000  # ranks only order pods: those of one job stand together
SUCCEEDED = "Succeeded"
OVER = (SUCCEEDED, "Failed")

JOBS = Kind("batch", "v1", "Job", "jobs")
JOB_SETS = Kind("jobset.x-k8s.io", "v1alpha2", "JobSet", "jobsets", optional=True)
TOPOLOGIES = Kind("kueue.x-k8s.io", "v1beta2", "Topology", "topologies", namespaced=False, optional=True)
KINDS = (NODES, PODS_KIND, JOBS, JOB_SETS, TOPOLOGIES)
API_VERSIONS = {kind.kind: kind.api_version for kind in (PODS_KIND, JOBS, JOB_SETS)}


def decode(event: Event) -> Iterator[Change]:
    """What an event means to us."""
    gone = event.happened is Happened.GONE
    if event.happened is Happened.SYNCED:
        return
    match event.kind.kind:
        case "Node":
            yield from _node(event.object, gone)
        case "Pod":
            yield from _pod(event.object, gone)
        case "Job" | "JobSet":
            yield from _job(Field(event.object), gone)
        case "Topology":
            field = Field(event.object)
            if gone:
                yield TopologyLost(field.at("metadata", "name").text())
            else:
                found = topology(field)
                if found is not None and not field.errors:
                    yield TopologySeen(found)


def encode(action: Action, now: float) -> Iterable[Write]:
    """How an action is carried out."""
    match action:
        case Bind():
            return (bind_write(action),)
        case Refuse(gang, misfit, news, uid):
            if not news:
                return ()
            version = API_VERSIONS[gang.kind]
            about = {"apiVersion": version, "kind": gang.kind, "namespace": gang.namespace, "name": gang.name}
            about |= {"uid": uid} if uid else {}
            return (event_write(about, "FailedScheduling", sentence(misfit), "Warning", timestamp(now)),)
        case _:
            return ()


def _node(node: NodeWire, gone: bool) -> Iterator[Change]:
    yield NodeLost(node.metadata.name) if gone else NodeSeen(node_of(node))


def _job(job: Field, gone: bool) -> Iterator[Change]:
    if any(owner.at("kind").text() == "JobSet" for owner in job.at("metadata", "ownerReferences").items()):
        return
    gang = job_gang(job)
    if gone or not _wants_us(job) or _is_settled(job) or job.errors:
        yield GangLost(gang.source)
    else:
        yield GangSeen(gang, seconds(job.at("metadata", "creationTimestamp").text()))


def _wants_us(job: Field) -> bool:
    templates = [job.at("spec", "template")]
    if job.at("kind").text() == "JobSet":
        replicated = job.at("spec", "replicatedJobs").items()
        templates = [part.at("template", "spec", "template") for part in replicated]
    return any(template.at("spec", "schedulerName").text() == SCHEDULER for template in templates)


def _is_settled(job: Field) -> bool:
    """Nothing to place: suspended, finished, or being deleted."""
    finished = any(
        condition.at("type").text() in ("Complete", "Completed", "Failed")
        and condition.at("status").text() == "True"
        for condition in job.at("status", "conditions").items()
    )
    return finished or job.at("spec", "suspend").flag() or job.at("metadata", "deletionTimestamp").present


def _pod(wire: PodWire, gone: bool) -> Iterator[Change]:
    meta, key = wire.metadata, PodKey(wire.metadata.namespace or "default", wire.metadata.name)
    ours = wire.spec.scheduler_name == SCHEDULER
    ref, pod_set, rank = _membership(wire) if ours else (None, "", 0)
    alone = ref is not None and ref.kind == "Pod"
    if gone:
        yield PodLost(key)
        if alone and ref is not None:
            yield GangLost(ref)
        return
    pod = Pod(
        key=key,
        uid=meta.uid,
        amounts=pod_amounts(wire.spec),
        node=wire.spec.node_name or "",
        over=wire.status.phase in OVER,
        succeeded=wire.status.phase == SUCCEEDED,
        leaving=meta.deletion_timestamp is not None,
        gang=None if wire.spec.scheduling_gates else ref,
        pod_set=pod_set,
        rank=rank,
    )
    yield PodSeen(pod)
    if alone and ref is not None and not pod.over:
        yield GangSeen(_alone(ref, pod), seconds(meta.creation_timestamp or ""))


def _membership(wire: PodWire) -> tuple[Ref, str, int]:
    """The gang, the pod set and the rank of a pod."""
    meta, namespace = wire.metadata, wire.metadata.namespace or "default"
    labels, notes = meta.labels or {}, meta.annotations or {}
    index = _number(labels.get(COMPLETION_INDEX) or notes.get(COMPLETION_INDEX))
    if JOB_SET_NAME in labels:
        rank = _number(labels.get(JOB_INDEX)) * RANKS_PER_JOB + index
        return Ref(DIALECT, "JobSet", namespace, labels[JOB_SET_NAME]), labels.get(REPLICATED_JOB, ""), rank
    for owner in meta.owner_references or ():
        if owner.kind == "Job":
            return Ref(DIALECT, "Job", namespace, owner.name), ONLY, index
    return Ref(DIALECT, "Pod", namespace, meta.name), ONLY, 0


def _alone(ref: Ref, pod: Pod) -> Gang:
    requests = {name: amount for name, amount in pod.amounts.items() if name != PODS}
    return Gang(ref, Group("", (PodSet(ONLY, 1, 1, requests),), 1), uid=pod.uid)


def _number(text: str | None) -> int:
    return int(text) if text and text.isascii() and text.isdigit() else 0
