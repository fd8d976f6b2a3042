"""Submissions without a queue: jobs, pod groups and pods, applied to a copy of the scheduler's state."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bayplan.backends.remote.decoding import Wire
from bayplan.cli.live.scheduled_state import DEFAULT, Scheduled, names_of, read_scheduled
from bayplan.cli.live.state import Live
from bayplan.cli.planning.planned_pods import (
    PODS_MAX,
    PlannedClaims,
    as_created,
    job_pods,
    pod_count,
    started,
)
from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.kinds import is_suspended, parts
from bayplan.dialects.jobs.part import Find
from bayplan.dialects.kai.api import wire as kai
from bayplan.dialects.kai.api.names import DIALECT as KAI
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.devices.wire import CLAIMS
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.gang.objects import DIALECT as GANG
from bayplan.dialects.kube.gang.objects import GANG_KINDS, POD_GROUPS
from bayplan.dialects.kube.gang_api.gates import GROUP as GANG_API
from bayplan.dialects.kube.gang_api.gates import V1BETA1
from bayplan.dialects.kueue.decode.scheduled_jobs import JOB_KINDS
from bayplan.explanation.text import shown_name
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.state.scheduling.single_pod import single_pod_ref

Object = dict[str, Any]
KNOWN = {(kind.group, kind.version, kind.kind): kind for kind in (*GANG_KINDS, kai.POD_GROUPS)}
SUSPENDED = "it is suspended: nothing starts until its suspend flag is removed"


@dataclass(frozen=True, slots=True)
class ScheduledSubmission:
    """A gang to plan, or the pods of one owner that are scheduled each on its own."""

    title: str
    refs: tuple[Ref, ...]
    order: int  # of the document that contains it first
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class DraftObjects:
    """The objects in the files that the scheduler would see."""

    live: Live
    find: Find
    scheduled: Scheduled | None = None
    orders: dict[str, int] = field(default_factory=dict)  # of documents by title
    notes: dict[str, list[str]] = field(default_factory=dict)  # by title
    members: dict[str, list[PodKey]] = field(default_factory=dict)  # the pods of each document, by its title
    groups: dict[str, Ref] = field(default_factory=dict)  # by title
    number: int = 0
    claims: PlannedClaims = field(init=False)

    def __post_init__(self) -> None:
        self.claims = PlannedClaims(self.live.get)

    def add_device_object(self, kind: Kind, obj: Object) -> None:
        """Add a claim for devices that pods name, or a template of claims."""
        if kind.kind == CLAIMS.kind:
            self._apply(CLAIMS, as_created(obj, self._next(), self.live.now))
        else:
            self.claims.add_template(obj)

    def state(self) -> Scheduled:
        """The scheduler's state, read at the first use."""
        if self.scheduled is None:
            self.scheduled = read_scheduled(self.live)
        return self.scheduled

    def add_group(self, kind: Kind, obj: Object, title: str, order: int) -> None:
        """Add a PodGroup, a CompositePodGroup or a Workload of the gang API."""
        self.orders.setdefault(title, order)
        self._apply(kind, as_created(obj, self._next(), self.live.now))
        meta, dialect = obj["metadata"], KAI if kind.group == kai.POD_GROUPS.group else GANG
        self.groups[title] = Ref(dialect, kind.kind, meta["namespace"], meta["name"])

    def add_job(self, obj: Object, title: str, order: int, notes: Iterable[str] = ()) -> None:
        """Add a job or pod that Bayplan schedules. Raises ValueError if it has too many pods."""
        self.orders.setdefault(title, order)
        for note in notes:
            self._note(title, note)
        count = pod_count(Field(obj), self.find)
        if count > PODS_MAX:
            raise ValueError(
                f"{title} has {count:,} pods; without a queue, a plan accepts at most {PODS_MAX:,}"
            )
        job = as_created(obj, self._next(), self.live.now)
        if obj["kind"] in JOB_KINDS:
            self._apply(JOB_KINDS[obj["kind"]], self._with_our_scheduler(started(job), title))
        if is_suspended(Field(obj)):
            self._note(title, SUSPENDED)
        for pod in job_pods(job, self.find, self.live.now):
            self._add_pod(pod, title)

    def gangs(self) -> Iterator[ScheduledSubmission]:
        """Every gang once, in the order of the files."""
        if self.scheduled is None:
            return
        controller = self.scheduled.controller
        controller.apply(controller.flush())
        seen: dict[Ref, list[str]] = {}
        for title, keys in self.members.items():
            pods = [controller.state.store.pods[key] for key in keys if key in controller.state.store.pods]
            for pod in pods:
                if pod.gang is not None:
                    seen.setdefault(pod.gang, []).append(title)
            if lone := tuple(single_pod_ref(pod.key) for pod in pods if pod.gang is None):
                yield ScheduledSubmission(title, lone, self.orders[title], tuple(self.notes.get(title, ())))
        for title, ref in self.groups.items():
            if ref.kind != "Workload":  # its gangs are those that pods name
                root = controller.decoder.composites.root_of(ref) if ref.dialect == GANG else ref
                seen.setdefault(root, []).append(title)
        for ref, titles in seen.items():
            notes = dict.fromkeys(note for title in titles for note in self.notes.get(title, ()))
            order = min(self.orders[title] for title in titles)
            title = f"{ref.kind} {ref.namespace}/{shown_name(ref)}"
            yield ScheduledSubmission(title, (ref,), order, tuple(notes))

    def _add_pod(self, pod: Object, title: str) -> None:
        spec = self._named_by_us(pod["spec"], title)
        name = spec.get("priorityClassName")
        if name and spec.get("priority") is None:
            known: Any = self.find("PriorityClass", "", name)
            spec = {**spec, "priority": int((known or {}).get("value") or 0)}
        created = as_created({**pod, "spec": spec}, self._next(), self.live.now)
        key = PodKey(created["metadata"].get("namespace") or "default", created["metadata"]["name"])
        self.members.setdefault(title, []).append(key)
        created, claims = self.claims.made_for(
            created, lambda claim: as_created(claim, self._next(), self.live.now)
        )
        for claim in claims:
            self._apply(CLAIMS, claim)
        self._apply(PODS_KIND, created)

    def _with_our_scheduler(self, job: Object, title: str) -> Object:
        """The job with Bayplan as the scheduler of its pods."""
        changed: Object = copy.deepcopy(job)
        for part in parts(Field(changed), self.find):
            template: Any = part.template.value
            template["spec"] = self._named_by_us(template["spec"], title)
        return changed

    def _named_by_us(self, spec: Object, title: str) -> Object:
        """The pod spec with Bayplan as its scheduler; a note says so if it names another one."""
        named = spec.get("schedulerName") or DEFAULT
        if named in self.live.settings.profiles:
            return spec
        ours = next(iter(self.live.settings.profiles))
        self._note(
            title,
            f"as written, its pods are for the scheduler {named}; this is what would happen with"
            f" schedulerName: {names_of(self.live)} in the pod template",
        )
        return {**spec, "schedulerName": ours}

    def _note(self, title: str, note: str) -> None:
        notes = self.notes.setdefault(title, [])
        if note not in notes:
            notes.append(note)

    def _apply(self, kind: Kind, obj: Object) -> None:
        state = self.state()
        decoded: Any = Wire(kind).object(msgspec.json.encode(obj)) if kind.wire is not None else obj
        if kind is PODS_KIND:
            state.pods[PodKey(decoded.metadata.namespace or "default", decoded.metadata.name)] = decoded
        state.controller.apply(state.controller.decode(Event(Happened.SEEN, kind, decoded)))

    def _next(self) -> int:
        self.number += 1
        return self.number


def kind_of_group(obj: Object) -> Kind | None:
    """The kind of a pod group that the scheduler reads; None for any other object."""
    group, _, version = str(obj.get("apiVersion", "")).partition("/")
    kind = str(obj.get("kind", ""))
    if (group, kind) == (GANG_API, "PodGroup") and version not in POD_GROUPS:
        version = V1BETA1
    return KNOWN.get((group, version, kind))
