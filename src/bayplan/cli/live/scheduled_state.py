"""The scheduler's state of a live cluster: jobs, pod groups and plain pods, listed once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.cli.live.state import Live, Object
from bayplan.cli.render.tables import age, moment
from bayplan.dialects.errors import Forbidden, NotServed
from bayplan.dialects.jobs.kinds import is_suspended
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, OwnerReference, PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.scheduled_jobs import (
    JOB_KINDS,
    KINDS,
    SCHEDULER,
    TOPOLOGIES,
    templates,
)
from bayplan.dialects.kueue.names.annotations import MANAGED, QUEUE
from bayplan.explanation.text import counted, short_levels
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.node import HOSTNAME
from bayplan.model.pod import Pod, PodKey
from bayplan.runtime.controllers.scheduler.controller import SchedulerController
from bayplan.state.cluster.node_state import FLAT

NEEDED = (NODES, PODS_KIND, *KINDS)
"""Kinds that must be readable; other kinds that the user may not list are skipped."""
DEFAULT = "default-scheduler"
"""The scheduler of pods whose schedulerName is empty."""
FINISHED = ("Complete", "Completed", "Failed")


@dataclass(slots=True)
class Scheduled:
    """The scheduler controller with the state of a cluster, and the objects it was read from."""

    controller: SchedulerController
    jobs: dict[Ref, Object] = field(default_factory=dict)  # Jobs and JobSets that no other job owns
    pods: dict[PodKey, PodWire] = field(default_factory=dict)
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # by node
    unread: list[str] = field(default_factory=list)  # kinds that the user may not list

    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of every topology."""
        clusters = self.controller.state.store.nodes.topologies
        return {name: one.topology.levels for name, one in sorted(clusters.items()) if name != FLAT.name}

    def where(self, nodes: Iterable[str]) -> str:
        """The smallest domain that holds these nodes, and how many they are: `rack b1/r1, 2 hosts`."""
        names = sorted(set(nodes))
        on = f"host {names[0]}" if len(names) == 1 else counted(len(names), "host")
        for levels in self.levels().values():
            paths = [[self.labels.get(node, {}).get(level) for level in levels] for node in names]
            shared = _shared(paths)
            above = [level for level in levels[: len(shared)] if level != HOSTNAME]
            if above:
                level = short_levels(levels)[above[-1]]
                return f"{level} {'/'.join(shared[: len(above)])}, {on}"
        return on if names else ""

    def owner(self, key: PodKey) -> OwnerReference | None:
        """The controller that owns a pod."""
        wire = self.pods.get(key)
        owners = (wire.metadata.owner_references or ()) if wire is not None else ()
        return next((one for one in owners if one.controller), None)


def read_scheduled(live: Live) -> Scheduled:
    """List everything that the scheduler watches and apply it. Kinds that the cluster lacks are skipped."""
    scheduled = Scheduled(
        SchedulerController(profiles=live.settings.profiles, numa_policy=live.settings.numa_staleness)
    )
    scheduled.controller.apply(_changes(live, scheduled))  # in one batch: nodes are indexed together
    return scheduled


def _changes(live: Live, scheduled: Scheduled) -> Iterator[Change]:
    controller = scheduled.controller
    live.ahead.begin(kind for kind in controller.kinds if kind not in live.lists)
    for kind in controller.kinds:
        try:
            seen = live.seen(kind)
        except NotServed:
            if not kind.optional:
                raise
            continue
        except Forbidden:
            if kind in NEEDED and kind is not TOPOLOGIES:
                raise
            scheduled.unread.append(kind.plural)
            continue
        for event in seen:
            note_object(scheduled, kind.kind, event.object)
            yield from controller.decode(event)
    yield from controller.flush()


def since_text(live: Live, at: float) -> str:
    """A moment and how long ago it was."""
    return f"{moment(at)}, {age(live.now - at)} ago" if at else "unknown"


def pods_by_node(pods: Iterable[Pod]) -> dict[str, int]:
    """The number of pods on each node, by node name."""
    counts: dict[str, int] = {}
    for pod in pods:
        if pod.node:
            counts[pod.node] = counts.get(pod.node, 0) + 1
    return dict(sorted(counts.items()))


def queued_owners(live: Live) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of every owner of a Workload."""
    return {
        (str(owner.get("kind", "")), ref.namespace, str(owner.get("name", "")))
        for ref, one in live.workloads.items()
        for owner in one.get("metadata", {}).get("ownerReferences") or []
    }


def is_queued(wire: PodWire) -> bool:
    """Whether a pod is admitted by a queue: on its own, in a group, or as part of a job."""
    labels = wire.metadata.labels or {}
    return QUEUE in labels or labels.get(MANAGED) == "true"


def job_ref(job: Object) -> Ref:
    """The reference of the gang of a job."""
    meta = job["metadata"]
    return Ref("kueue", job["kind"], meta.get("namespace") or "default", meta["name"])


def finished(job: Object) -> Object | None:
    """The condition that says how a job finished; None if it has not."""
    conditions = (job.get("status") or {}).get("conditions") or []
    ended = [one for one in conditions if one.get("type") in FINISHED and one.get("status") == "True"]
    return ended[0] if ended else None


def is_suspended_job(job: Object) -> bool:
    """Whether a job is suspended by its own flag."""
    return is_suspended(Field(job))


def queue_of(job: Object) -> str:
    """The LocalQueue that a job names."""
    return str((job["metadata"].get("labels") or {}).get(QUEUE, ""))


def schedulers_of(job: Object) -> list[str]:
    """The schedulers that the pods of a job name."""
    named = {one.at("spec", "schedulerName").text() for one in templates(Field(job))}
    return sorted(name or DEFAULT for name in named)


def names_of(live: Live) -> str:
    """The scheduler names of Bayplan's profiles, as text."""
    return ", ".join(live.settings.profiles) or SCHEDULER


def note_object(scheduled: Scheduled, kind: str, one: Any) -> None:
    """Note an object that the scheduler does not keep as it is, if it is of such a kind."""
    match kind:
        case "Pod":
            scheduled.pods[PodKey(one.metadata.namespace or "default", one.metadata.name)] = one
        case "Node":
            scheduled.labels[one.metadata.name] = one.metadata.labels or {}
        case _ if kind in JOB_KINDS:
            owners = Field(one).at("metadata", "ownerReferences").items()
            if not any(owner.at("kind").text() in JOB_KINDS for owner in owners):
                scheduled.jobs[job_ref(one)] = one


def _shared(paths: list[list[str | None]]) -> list[str]:
    """The common prefix of all paths."""
    prefix: list[str] = []
    for values in zip(*paths, strict=False):
        if None in values or len(set(values)) > 1:
            break
        prefix.append(str(values[0]))
    return prefix
