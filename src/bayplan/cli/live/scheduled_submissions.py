"""What would be submitted without a queue: jobs, pod groups and pods, in the scheduler's state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from bayplan.backends.remote.decoding import Wire
from bayplan.cli.live.planned_pods import PODS_MAX, born, job_pods, pod_count
from bayplan.cli.live.scheduled_state import DEFAULT, Scheduled, names_of, read_scheduled
from bayplan.cli.live.state import Live
from bayplan.dialects.api import Event, Happened, Kind
from bayplan.dialects.jobs.kinds import Find, is_suspended
from bayplan.dialects.kai.api import wire as kai
from bayplan.dialects.kai.api.names import DIALECT as KAI
from bayplan.dialects.kube.decode.wire import PODS_KIND
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.gang.objects import DIALECT as GANG
from bayplan.dialects.kube.gang.objects import GANG_KINDS, POD_GROUPS
from bayplan.dialects.kube.gang_api.gates import GROUP as GANG_API
from bayplan.dialects.kube.gang_api.gates import THIRD
from bayplan.dialects.kueue.decode.scheduled_jobs import JOB_SETS, JOBS
from bayplan.explanation.text import shown_name
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.state.scheduling.single_pod import lone_ref

Object = dict[str, Any]
KNOWN = {(kind.group, kind.version, kind.kind): kind for kind in (*GANG_KINDS, kai.POD_GROUPS)}
FOLDED = {"Job": JOBS, "JobSet": JOB_SETS}
SUSPENDED = "it is suspended: nothing starts before its suspend flag is taken away"


@dataclass(frozen=True, slots=True)
class ScheduledSubmission:
    """A gang to try, or pods of one controller of which each stands for itself."""

    title: str
    refs: tuple[Ref, ...]
    order: int  # of the document that brings it first
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class DraftObjects:
    """Everything of the files that the scheduler would see, in its order."""

    live: Live
    find: Find
    scheduled: Scheduled | None = None
    orders: dict[str, int] = field(default_factory=dict)  # of documents by title
    notes: dict[str, list[str]] = field(default_factory=dict)  # by title
    members: dict[str, list[PodKey]] = field(default_factory=dict)  # the pods of each document, by its title
    groups: dict[str, Ref] = field(default_factory=dict)  # by title
    number: int = 0

    def state(self) -> Scheduled:
        """The scheduler's state, read when it is needed first."""
        if self.scheduled is None:
            self.scheduled = read_scheduled(self.live)
        return self.scheduled

    def add_group(self, kind: Kind, obj: Object, title: str, order: int) -> None:
        """A PodGroup, a CompositePodGroup or a Workload of the gang API."""
        self.orders.setdefault(title, order)
        self._fold(kind, born(obj, self._next(), self.live.now))
        meta, dialect = obj["metadata"], KAI if kind.group == kai.POD_GROUPS.group else GANG
        self.groups[title] = Ref(dialect, kind.kind, meta["namespace"], meta["name"])

    def add_job(self, obj: Object, title: str, order: int, notes: Iterable[str] = ()) -> None:
        """A job, or a pod, of which our scheduler places the pods. ValueError if they are too many."""
        self.orders.setdefault(title, order)
        for words in notes:
            self._note(title, words)
        count = pod_count(Field(obj), self.find)
        if count > PODS_MAX:
            raise ValueError(
                f"{title} has {count:,} pods; without a queue, a plan takes at most {PODS_MAX:,}"
            )
        job = born(obj, self._next(), self.live.now)
        if obj["kind"] in FOLDED:
            started = {**job, "spec": {**self._ours(job["spec"], title, obj["kind"]), "suspend": False}}
            self._fold(FOLDED[obj["kind"]], started)
        if is_suspended(Field(obj)):
            self._note(title, SUSPENDED)
        for pod in job_pods(job, self.find, self.live.now):
            self._add_pod(pod, title)

    def gangs(self) -> Iterator[ScheduledSubmission]:
        """Every gang once, in the order in which the files bring it."""
        if self.scheduled is None:
            return
        role = self.scheduled.role
        role.fold(role.gathered())
        seen: dict[Ref, list[str]] = {}
        for title, keys in self.members.items():
            pods = [role.state.store.pods[key] for key in keys if key in role.state.store.pods]
            for pod in pods:
                if pod.gang is not None:
                    seen.setdefault(pod.gang, []).append(title)
            if lone := tuple(lone_ref(pod.key) for pod in pods if pod.gang is None):
                yield ScheduledSubmission(title, lone, self.orders[title], tuple(self.notes.get(title, ())))
        for title, ref in self.groups.items():
            if ref.kind != "Workload":  # of those, what pods name are gangs
                root = role.reading.forest.root_of(ref) if ref.dialect == GANG else ref
                seen.setdefault(root, []).append(title)
        for ref, titles in seen.items():
            notes = dict.fromkeys(note for title in titles for note in self.notes.get(title, ()))
            order = min(self.orders[title] for title in titles)
            title = f"{ref.kind} {ref.namespace}/{shown_name(ref)}"
            yield ScheduledSubmission(title, (ref,), order, tuple(notes))

    def _add_pod(self, pod: Object, title: str) -> None:
        spec = self._named(pod["spec"], title)
        name = spec.get("priorityClassName")
        if name and spec.get("priority") is None:
            known: Any = self.find("PriorityClass", "", name)
            spec = {**spec, "priority": int((known or {}).get("value") or 0)}
        made = born({**pod, "spec": spec}, self._next(), self.live.now)
        key = PodKey(made["metadata"].get("namespace") or "default", made["metadata"]["name"])
        self.members.setdefault(title, []).append(key)
        self._fold(PODS_KIND, made)

    def _ours(self, spec: Object, title: str, kind: str) -> Object:
        """The spec of a Job or JobSet whose pods name us."""
        if kind == "Job":
            template = spec["template"]
            return {**spec, "template": {**template, "spec": self._named(template["spec"], title)}}
        parts = []
        for part in spec.get("replicatedJobs") or []:
            inner = part["template"]["spec"]
            parts.append({**part, "template": {**part["template"], "spec": self._ours(inner, title, "Job")}})
        return {**spec, "replicatedJobs": parts}

    def _named(self, spec: Object, title: str) -> Object:
        """Pods that name another scheduler are tried as if they named ours, and that is told."""
        named = spec.get("schedulerName") or DEFAULT
        if named in self.live.settings.profiles:
            return spec
        ours = next(iter(self.live.settings.profiles))
        self._note(
            title,
            f"as it is written, its pods go to the scheduler {named}; this is what would happen with"
            f" schedulerName: {names_of(self.live)} in the pod template",
        )
        return {**spec, "schedulerName": ours}

    def _note(self, title: str, words: str) -> None:
        notes = self.notes.setdefault(title, [])
        if words not in notes:
            notes.append(words)

    def _fold(self, kind: Kind, obj: Object) -> None:
        state = self.state()
        found: Any = Wire(kind).object(msgspec.json.encode(obj)) if kind.wire is not None else obj
        if kind is PODS_KIND:
            state.pods[PodKey(found.metadata.namespace or "default", found.metadata.name)] = found
        state.role.fold(state.role.decode(Event(Happened.SEEN, kind, found)))

    def _next(self) -> int:
        self.number += 1
        return self.number


def kind_of_group(obj: Object) -> Kind | None:
    """The kind of a group as far as the scheduler reads it; None for anything else."""
    group, _, version = str(obj.get("apiVersion", "")).partition("/")
    kind = str(obj.get("kind", ""))
    if (group, kind) == (GANG_API, "PodGroup") and version not in POD_GROUPS:
        version = THIRD
    return KNOWN.get((group, version, kind))
