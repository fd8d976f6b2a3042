"""The jobs controller: jobs that name a queue get Workloads, start when admitted, and stop when evicted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.api import Ended, Event, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.jobs.kinds import AHEAD, SUSPENDED
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.fields.pod_rules import group_name
from bayplan.dialects.kueue.jobs.events import (
    JobEvent,
    invalid_job_event,
    pending_checks_event,
    pod_group_event,
)
from bayplan.dialects.kueue.jobs.reconcile_job import (
    JobContext,
    next_deadline,
    reconcile_child,
    reconcile_job,
    reconcile_orphan,
)
from bayplan.dialects.kueue.jobs.reconcile_pods import (
    PODS,
    QueuedPodGroup,
    reconcile_pods,
    reconcile_without_pods,
)
from bayplan.dialects.kueue.jobs.reconcile_serving import join_workload, reconcile_serving
from bayplan.dialects.kueue.jobs.status import NEVER, PodsReadyPolicy
from bayplan.dialects.kueue.jobs.writes import WriteWithEvents, controller, is_terminating, owners
from bayplan.dialects.kueue.names.annotations import QUEUE
from bayplan.dialects.kueue.names.api_kinds import WORKLOADS
from bayplan.dialects.kueue.names.feature_switches import RULES, FeatureSwitches
from bayplan.dialects.kueue.status.conditions import ADMITTED, FINISHED, is_true
from bayplan.dialects.kueue.status.default_reasons import write_with_default_reasons
from bayplan.model.change import Change
from bayplan.runtime.controllers.jobs.cache import (
    GROUP,
    JOINING,
    WATCHED,
    JobsCache,
    named_workload,
    owner_units,
)
from bayplan.runtime.controllers.jobs.memory import JobKey
from bayplan.runtime.core.controller import StatelessController
from bayplan.runtime.core.object_cache import Object
from bayplan.runtime.core.reconciler import Reconciler

RETRY_SECONDS = 5.0  # after a failed write, unless an event arrives before


@dataclass(frozen=True, slots=True)
class JobWriteTag:
    """The tag of a write: its unit, and the events to publish about it."""

    unit: JobKey
    events: tuple[Write, ...]


class JobsController(StatelessController):
    """Reconciles each unit by itself, one batch of writes at a time."""

    name = "jobs"
    kinds: tuple[Kind, ...] = WATCHED

    def __init__(self, patience: PodsReadyPolicy | None = None, rules: FeatureSwitches = RULES) -> None:
        self.cache = JobsCache()
        self.context = JobContext(
            self.cache.find, self.cache.flavors, rules, patience,
            has_bound_pods=self.cache.has_bound_pods, recall=self.cache.memory.recall,
        )  # fmt: skip
        self.reconciler: Reconciler[JobKey, None] = Reconciler(lambda unit: (unit[0], "/".join(unit[1:])))
        self.announced = Announcements()

    def decode(self, event: Event) -> Iterator[Change]:
        self.reconciler.queue.put_all(self.cache.note(event))
        return iter(())

    def reconcile(self, now: float) -> Iterator[Write]:
        """The next writes of all units that are due."""
        return self.reconciler.run(self._reconcile, now, self.containment)

    def _reconcile(self, unit: JobKey, now: float) -> Iterator[Write]:
        if self._is_unread(unit):  # reconciled once it is decoded, or later if it is deleted undecoded
            self.reconciler.queue.put(unit, now + RETRY_SECONDS)
            return
        writes, detailed = self._writes(unit, now), self.context.rules.detailed_reasons
        for one in writes:
            self.reconciler.begin(unit, None, unit)
            write = one.write if detailed else write_with_default_reasons(one.write)
            yield replace(write, tag=JobWriteTag(unit, one.events))
        if writes:
            return
        yield from self.announced.due(unit, self._notice(unit), now)
        if (when := self._next_look(unit)) < NEVER:
            self.reconciler.queue.put(unit, max(when, now + 1.0))

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """Publish the events of a write; reconcile again when no write is in flight."""
        tag = outcome.write.tag
        if not isinstance(tag, JobWriteTag) or tag.unit not in self.reconciler.in_flight:
            return
        failed = outcome.ended not in (Ended.DONE, Ended.GONE)
        if outcome.ended is Ended.DONE:
            with self.containment.unit("settle", *self.reconciler.describe(tag.unit)):
                self._take_answer(outcome, now)
            failed = _changed_nothing(outcome)  # repeating it at once would not help
            yield from tag.events
        refused = outcome.ended is Ended.REFUSED
        self.reconciler.ended(tag.unit, now, RETRY_SECONDS if failed else 0.0, refused=refused)

    def next_due(self, now: float) -> float:
        return self.reconciler.next_due()

    def _take_answer(self, outcome: WriteOutcome, now: float) -> None:
        write = outcome.write
        if write.verb is Verb.DELETE:
            self.cache.mark_terminating(write.kind, (write.namespace, write.name), timestamp(now))
        else:
            created = write.verb is Verb.CREATE
            self.reconciler.queue.put_all(self.cache.take_answer(write.kind, outcome.object, created=created))

    def _is_unread(self, unit: JobKey) -> bool:
        """Whether the job, its Workload, a pod of the group, or its owner exists and could not be decoded.

        A Workload must not count as missing: the job would be stopped, and its template not restored.
        """
        if unit in self.unread or any(_is_owned(one, unit) for one in self._unread(WORKLOADS, unit[1])):
            return True
        if unit[0] == GROUP:
            return any(_group(pod, self.context.rules) == unit[2] for pod in self._unread(PODS, unit[1]))
        refs = owners(self.cache.jobs[unit]) if unit in self.cache.jobs else ()
        return any((ref.get("kind"), unit[1], ref.get("name")) in self.unread for ref in refs)

    def _unread(self, kind: Kind, namespace: str) -> Iterator[Object]:
        return (one for one in self.unread.objects(kind, namespace) if isinstance(one, dict))

    def _writes(self, unit: JobKey, now: float) -> list[WriteWithEvents]:
        match unit[0]:
            case kind if kind in SUSPENDED:
                return self._of_job(unit, now)
            case kind if kind in AHEAD:
                return self._of_serving(unit, now)
            case "Pod":
                return self._of_pod(unit, now)
            case kind if kind == GROUP:
                return self._of_group(unit, now)
            case kind if kind == JOINING:
                pod = self.cache.joining.get(unit[1:])
                parent = self.cache.parent(pod) if pod is not None else None
                return (
                    join_workload(pod, parent, self.context.rules)
                    if pod is not None and parent is not None
                    else []
                )
        return []

    def _of_job(self, unit: JobKey, now: float) -> list[WriteWithEvents]:
        job = self.cache.jobs.get(unit)
        mine, others = self._workloads(unit, job)
        lost = [write_with_events for one in others for write_with_events in reconcile_orphan(one, now)]
        if job is None or is_terminating(job):
            return [
                *lost,
                *(write_with_events for one in mine for write_with_events in reconcile_orphan(one, now)),
            ]
        if lost:
            return lost
        top = self.cache.top(job)
        if top is not None:
            above = self.cache.workloads_of((top["kind"], unit[1], top["metadata"]["name"]))
            current = [one for one in above if not is_true(one, FINISHED)]
            current.sort(key=lambda one: is_true(one, ADMITTED))  # a pending one may replace an admitted one
            return reconcile_child(job, current[-1] if current else None, now)
        if not _queue(job) and not self.context.rules.jobs_without_queue:
            return []
        if name := named_workload(job):
            found = self.cache.workloads.get((unit[1], name))
            mine = [found] if found is not None else []
        return reconcile_job(job, mine, self.context, now)

    def _of_serving(self, unit: JobKey, now: float) -> list[WriteWithEvents]:
        job = self.cache.jobs.get(unit)
        if job is None or not _queue(job) or self.cache.top(job) is not None:
            return []
        mine, _ = self._workloads(unit, job)  # those of an earlier job of the same name are deleted with it
        return reconcile_serving(job, mine, self.context, now)

    def _workloads(self, unit: JobKey, job: Object | None) -> tuple[list[Object], list[Object]]:
        """The Workloads of this very job, and those of an earlier job of the same name."""
        if unit[0] not in self.cache.known_kinds:
            return [], []  # it is unknown whether the job exists
        uid = job["metadata"].get("uid") if job is not None else None
        mine: list[Object] = []
        others: list[Object] = []
        for one in self.cache.workloads_of(unit):
            (mine if any(ref.get("uid") == uid for ref in owners(one)) else others).append(one)
        return mine, others

    def _of_pod(self, unit: JobKey, now: float) -> list[WriteWithEvents]:
        pod = self.cache.pods.get(unit[1:])
        mine, others = self._workloads(unit, pod)
        if writes := [
            write_with_events
            for one in others
            if controller(one)
            for write_with_events in reconcile_orphan(one, now)
        ]:
            return writes
        if pod is None or _group(pod, self.context.rules):
            return []  # the remaining pods belong to groups
        alone = [one for one in mine if controller(one)]
        return reconcile_pods(QueuedPodGroup("", (pod,)), alone[0] if alone else None, self.context, now)

    def _of_group(self, unit: JobKey, now: float) -> list[WriteWithEvents]:
        key = unit[1:]
        pods = tuple(self.cache.pods[one] for one in sorted(self.cache.groups.get(key, ())))
        workload = self.cache.workloads.get(key)
        if pods:
            return reconcile_pods(QueuedPodGroup(unit[2], pods), workload, self.context, now)
        if workload is None or "Pod" not in self.cache.known_kinds:
            return []
        return reconcile_without_pods(workload, self._has_living_owner(workload))

    def _has_living_owner(self, workload: Object) -> bool:
        namespace = workload["metadata"].get("namespace", "default")
        return any(
            ref.get("kind") not in self.cache.known_kinds
            or (ref["kind"], namespace, ref.get("name", "")) in self.cache.jobs
            for ref in owners(workload)
            if ref.get("kind") in AHEAD
        )

    def _next_look(self, unit: JobKey) -> float:
        if unit[0] == GROUP:
            found = [self.cache.workloads[unit[1:]]] if unit[1:] in self.cache.workloads else []
        else:
            found = self.cache.workloads_of(unit)
        due = min((next_deadline(one, self.context) for one in found), default=NEVER)
        return min(due, self.announced.next_due(unit))

    def _notice(self, unit: JobKey) -> JobEvent | None:
        """The event about a unit that cannot be reconciled."""
        if unit[0] == GROUP:
            pods = tuple(self.cache.pods[one] for one in sorted(self.cache.groups.get(unit[1:], ())))
            workload = self.cache.workloads.get(unit[1:])
            if not pods:
                return None
            conflict = pod_group_event(QueuedPodGroup(unit[2], pods), workload, self.context)
            return conflict or pending_checks_event(workload, pods)
        job = self.cache.pods.get(unit[1:]) if unit[0] == "Pod" else self.cache.jobs.get(unit)
        if job is not None and unit[0] in (*SUSPENDED, *AHEAD) and _queue(job):
            conflict = invalid_job_event(job, self.context)
            if conflict is not None:
                return conflict
        if job is None or unit[0] in AHEAD:
            return None
        if unit[0] == "Pod" and _group(job, self.context.rules):
            return None  # its group has the event
        found = (pending_checks_event(one, (job,)) for one in self._workloads(unit, job)[0])
        return next((one for one in found if one is not None), None)


def _is_owned(workload: Object, unit: JobKey) -> bool:
    """Whether a Workload that could not be decoded belongs to a job; anything may be wrong with it."""
    try:
        return unit in owner_units(workload)
    except (AttributeError, KeyError, TypeError):
        return False


def _changed_nothing(outcome: WriteOutcome) -> bool:
    answer, version = outcome.object, outcome.write.version
    if not version or outcome.write.verb is Verb.DELETE or not isinstance(answer, dict):
        return False
    return bool((answer.get("metadata") or {}).get("resourceVersion") == version)


def _group(pod: Object, rules: FeatureSwitches) -> str:
    return group_name(Field(pod), rules).text()


def _queue(job: Object) -> str:
    return str((job["metadata"].get("labels") or {}).get(QUEUE, ""))


class Announcements:
    """The last notice about each unit: published once while it holds, after it has lasted for a while.

    After a restart each notice is published once more.
    """

    def __init__(self) -> None:
        self._published: dict[JobKey, tuple[str, str]] = {}  # reason and message
        self._next: dict[JobKey, float] = {}  # when an unpublished notice is due

    def due(self, key: JobKey, notice: JobEvent | None, now: float) -> Iterable[Write]:
        """Set the current notice; returns the events to write."""
        if notice is None:
            self._published.pop(key, None)
            self._next.pop(key, None)
            return ()
        words = (notice.reason, notice.message)
        if self._published.get(key) != words:
            self._published[key], self._next[key] = words, now + notice.after_seconds
        if now < self._next.get(key, NEVER):
            return ()
        del self._next[key]
        return notice.events(now)

    def next_due(self, key: JobKey) -> float:
        """When an unpublished notice is due."""
        return self._next.get(key, NEVER)
