"""What the scheduler sees in a cluster right now: jobs, pod groups and plain pods."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from bayplan.cli.live.state import Live, Object
from bayplan.cli.render.tables import age, moment
from bayplan.dialects.api import Event, Happened
from bayplan.dialects.errors import Forbidden, NotServed
from bayplan.dialects.jobs.kinds import is_suspended
from bayplan.dialects.kube.decode.wire import NODES, PODS_KIND, OwnerReference, PodWire
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kueue.decode.scheduled_jobs import (
    JOB_SETS,
    JOBS,
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
"""Kinds without which nothing can be said; others that may not be read are left out of account."""
DEFAULT = "default-scheduler"
"""The scheduler of pods that name none."""
FINISHED = ("Complete", "Completed", "Failed")


@dataclass(slots=True)
class Scheduled:
    """The scheduler's own state, and the objects it was read from."""

    role: SchedulerController
    jobs: dict[Ref, Object] = field(default_factory=dict)  # Jobs and JobSets that no other job made
    pods: dict[PodKey, PodWire] = field(default_factory=dict)
    labels: dict[str, Mapping[str, str]] = field(default_factory=dict)  # by node
    unread: list[str] = field(default_factory=list)  # kinds that the user may not list

    def levels(self) -> dict[str, tuple[str, ...]]:
        """The levels of every topology."""
        clusters = self.role.state.store.nodes.clusters
        return {name: one.topology.levels for name, one in sorted(clusters.items()) if name != FLAT.name}

    def where(self, nodes: Iterable[str]) -> str:
        """The smallest domain that holds these nodes, and how many they are: `rack b1/r1, 2 hosts`."""
        found = sorted(set(nodes))
        on = f"host {found[0]}" if len(found) == 1 else counted(len(found), "host")
        for levels in self.levels().values():
            paths = [[self.labels.get(node, {}).get(level) for level in levels] for node in found]
            shared = _shared(paths)
            above = [level for level in levels[: len(shared)] if level != HOSTNAME]
            if above:
                level = short_levels(levels)[above[-1]]
                return f"{level} {'/'.join(shared[: len(above)])}, {on}"
        return on if found else ""

    def owner(self, key: PodKey) -> OwnerReference | None:
        """The controller that made a pod."""
        wire = self.pods.get(key)
        owners = (wire.metadata.owner_references or ()) if wire is not None else ()
        return next((one for one in owners if one.controller), None)


def read_scheduled(live: Live) -> Scheduled:
    """List and fold everything that the scheduler looks at. Kinds that the cluster lacks are left out."""
    found = Scheduled(SchedulerController(profiles=live.settings.profiles, zone_care=live.settings.zone_care))
    found.role.fold(_changes(live, found))  # all at once: many nodes are laid out together
    return found


def _changes(live: Live, found: Scheduled) -> Iterator[Change]:
    role = found.role
    live.ahead.begin(role.kinds)
    for kind in role.kinds:
        try:
            listed = live.listed(kind)
        except NotServed:
            if not kind.optional:
                raise
            continue
        except Forbidden:
            if kind in NEEDED and kind is not TOPOLOGIES:
                raise
            found.unread.append(kind.plural)
            continue
        for one in listed:
            _note(found, kind.kind, one)
            yield from role.decode(Event(Happened.SEEN, kind, one))
    yield from role.gathered()


def since_text(live: Live, at: float) -> str:
    """A moment and how long ago it was."""
    return f"{moment(at)}, {age(live.now - at)} ago" if at else "unknown"


def pods_by_node(pods: Iterable[Pod]) -> dict[str, int]:
    """How many of the pods each node has, by name."""
    found: dict[str, int] = {}
    for pod in pods:
        if pod.node:
            found[pod.node] = found.get(pod.node, 0) + 1
    return dict(sorted(found.items()))


def queued_owners(live: Live) -> set[tuple[str, str, str]]:
    """Kind, namespace and name of everything that a Workload of a queue stands for."""
    return {
        (str(owner.get("kind", "")), ref.namespace, str(owner.get("name", "")))
        for ref, one in live.workloads.items()
        for owner in one.get("metadata", {}).get("ownerReferences") or []
    }


def is_queued(wire: PodWire) -> bool:
    """Whether a pod is admitted by a queue: alone, in a group, or as a part of a job."""
    labels = wire.metadata.labels or {}
    return QUEUE in labels or labels.get(MANAGED) == "true"


def job_ref(job: Object) -> Ref:
    """How the scheduler calls the gang of a Job or JobSet."""
    meta = job["metadata"]
    return Ref("kueue", job["kind"], meta.get("namespace") or "default", meta["name"])


def finished(job: Object) -> Object | None:
    """The condition that says how a job ended; None while it has not."""
    conditions = (job.get("status") or {}).get("conditions") or []
    over = [one for one in conditions if one.get("type") in FINISHED and one.get("status") == "True"]
    return over[0] if over else None


def held_back(job: Object) -> bool:
    """Whether a job is suspended by its own flag."""
    return is_suspended(Field(job))


def queue_of(job: Object) -> str:
    """The LocalQueue that a job names."""
    return str((job["metadata"].get("labels") or {}).get(QUEUE, ""))


def schedulers_of(job: Object) -> list[str]:
    """The schedulers that the pods of a Job or JobSet name."""
    named = {one.at("spec", "schedulerName").text() for one in templates(Field(job))}
    return sorted(name or DEFAULT for name in named)


def names_of(live: Live) -> str:
    """The scheduler names that are ours, for people."""
    return ", ".join(live.settings.profiles) or SCHEDULER


def _note(found: Scheduled, kind: str, one: Any) -> None:
    match kind:
        case "Pod":
            found.pods[PodKey(one.metadata.namespace or "default", one.metadata.name)] = one
        case "Node":
            found.labels[one.metadata.name] = one.metadata.labels or {}
        case JOBS.kind | JOB_SETS.kind:
            owners = Field(one).at("metadata", "ownerReferences").items()
            if not any(owner.at("kind").text() == JOB_SETS.kind for owner in owners):
                found.jobs[job_ref(one)] = one


def _shared(paths: list[list[str | None]]) -> list[str]:
    """What all paths begin with."""
    found: list[str] = []
    for values in zip(*paths, strict=False):
        if None in values or len(set(values)) > 1:
            break
        found.append(str(values[0]))
    return found
