"""The pod grouper: puts every pod with one of our scheduler names into the group of its owner."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.kai.api.names import POD_GROUP
from bayplan.dialects.kai.api.pod_group import read_pod_group
from bayplan.dialects.kai.api.wire import POD_GROUPS, pod_group
from bayplan.dialects.kai.grouper.defaults import GrouperSettings
from bayplan.dialects.kai.grouper.dispatch import Grouped, group_pod
from bayplan.dialects.kai.grouper.join import (
    as_object,
    desired_group,
    flaw_write,
    group_named,
    group_write,
    join_write,
    segment_size_message,
    with_segments_of,
)
from bayplan.dialects.kai.status.pod_group import about_group
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.kube.encode.binding import event_once
from bayplan.dialects.kube.fields.reader import Field
from bayplan.dialects.kube.fields.times import timestamp
from bayplan.dialects.kueue.decode.scheduled_jobs import SCHEDULER
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.pod import PodKey
from bayplan.runtime.controllers.pod_grouper.cache import WATCHED, PodGrouperCache
from bayplan.runtime.controllers.pod_grouper.defaults import WatchedDefaults
from bayplan.runtime.core.controller import StatelessController
from bayplan.runtime.core.object_cache import Object
from bayplan.runtime.core.reconciler import Reconciler

OWNER_SECONDS = 10.0  # how long the owner of a pod may be unknown before the pod is grouped without it
CHECK_SECONDS = 0.5  # between checks meanwhile
RETRY_SECONDS = 5.0  # after a failed write
REFUSED_SECONDS = 60.0  # after a refused write: it only helps once RBAC or the object has changed
PROBLEM_MAX = 1000
IGNORED, ADJUSTED = "SegmentsIgnored", "SegmentsAdjusted"


@dataclass(frozen=True, slots=True)
class GroupWriteTag:
    """The tag of a write of a group."""

    ref: Ref
    pod: PodKey


@dataclass(frozen=True, slots=True)
class PodWriteTag:
    """The tag of a write to a pod."""

    pod: PodKey


class PodGrouperController(StatelessController):
    """Reconciles each pod by itself: first its group is created or updated, then the pod is joined."""

    name = "grouper"
    kinds: tuple[Kind, ...] = WATCHED  # and one ConfigMap if the settings name one

    def __init__(
        self, names: Iterable[str] = (SCHEDULER,), settings: GrouperSettings | None = None,
        note: Callable[[str], None] = lambda sentence: None,
    ) -> None:  # fmt: skip
        self.cache = PodGrouperCache(names)
        self.settings = settings or GrouperSettings()
        self.defaults = WatchedDefaults(self.settings.defaults, note)
        self.kinds = (*WATCHED, *self.defaults.kinds)
        # pods; a pod waits for the writes to itself and to its group
        self.reconciler: Reconciler[PodKey, None] = Reconciler(lambda key: ("Pod", str(key)))
        self.problems: dict[Ref, dict[PodKey, str]] = {}  # problems by group and pod
        self.problem_group: dict[PodKey, Ref] = {}  # pod → group with a problem of it
        self.unknown_owners: dict[PodKey, float] = {}  # pods whose owners are not known, since when
        self.warned: dict[Ref, set[str]] = {}

    def decode(self, event: Event) -> Iterator[Change]:
        if event.kind in self.defaults.kinds:
            self.defaults.take(event)  # for pods that are grouped from now on
        else:
            self.reconciler.queue.put_all(self.cache.note(event))
        if event.kind == POD_GROUPS and event.happened is Happened.GONE:
            self.warned.pop(pod_group(event.object).ref, None)
        return iter(())

    def reconcile(self, now: float) -> Iterator[Write]:
        """The next writes of all pods that are due. All pods are evaluated before the first write."""
        yield from self.containment.attempt(self.defaults.warnings(now), "reconcile", "ConfigMap")[0]
        found: dict[PodKey, tuple[PodWire, Grouped]] = {}
        attempt, containment = self.reconciler.attempt, self.containment
        for key in self.reconciler.take(now):
            for pod, grouped in attempt(key, self._evaluate(key, now), now, containment):
                found[key] = pod, grouped
        for key, (pod, grouped) in found.items():
            yield from attempt(key, self._write(key, pod, grouped, now), now, containment)

    def _evaluate(self, key: PodKey, now: float) -> Iterator[tuple[PodWire, Grouped]]:
        pod = self.cache.pods.get(key)
        if pod is None:
            self._forget(key)
        elif (owners := self._owners(key, pod, now)) is not None:
            yield pod, self._group(key, pod, owners)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """Continue with the pods that waited; publish if a group could not be created."""
        tag = outcome.write.tag
        match tag:
            case GroupWriteTag(ref, key):
                work = self._group_written(outcome, ref, key, now)
                yield from self.reconciler.attempt(key, work, now, self.containment)
                self.reconciler.ended(ref, now, 0.0 if outcome.ended is Ended.DONE else _pause(outcome))
            case PodWriteTag(key):
                self.reconciler.ended(key, now)
                if outcome.ended not in (Ended.DONE, Ended.GONE):
                    self.reconciler.queue.put_early(key, now + _pause(outcome))

    def next_due(self, now: float) -> float:
        return self.reconciler.next_due()

    def _owners(self, key: PodKey, pod: PodWire, now: float) -> list[Object] | None:
        """The owners of a pod; None while they are not all known: they may arrive after the pod."""
        owners, complete = self.cache.chain(key, pod)
        if not complete and now < self.unknown_owners.setdefault(key, now) + OWNER_SECONDS:
            self.reconciler.queue.put(key, now + CHECK_SECONDS)
            return None
        if complete:
            self.unknown_owners.pop(key, None)  # do not wait for them a second time
        return owners

    def _group(self, key: PodKey, pod: PodWire, owners: list[Object]) -> Grouped:
        found = self._grouped(key, owners, as_object(pod))
        elder = self.cache.oldest_with_other_segments(found)
        if elder is not None and (text := segment_size_message(pod, elder)):
            found = self._grouped(key, owners, with_segments_of(pod, elder))
            found = replace(found, warnings=(*found.warnings, text))
        self.cache.belongs(key, found)
        if found.group is not None and group_named(pod) in ("", found.group.name):
            self._note_problem(found.group.ref, key, found.error)
        return found

    def _grouped(self, key: PodKey, owners: list[Object], obj: Object) -> Grouped:
        def find(kind: str, namespace: str, name: str) -> object:
            return self.defaults.find(kind, namespace, name) or self.cache.find(key, kind, namespace, name)

        try:
            return group_pod(
                obj, owners, find=find, pods=self.cache.pods_with, siblings=self.cache.alike,
                settings=self.settings,
            )  # fmt: skip
        except Exception as bug:  # an unexpected job must not keep other jobs from being grouped
            self.containment.failed(bug, "reconcile", "Pod", str(key))
            return Grouped(error=f"bayplan could not group it: {type(bug).__name__}: {bug}"[:PROBLEM_MAX])

    def _write(self, key: PodKey, pod: PodWire, found: Grouped, now: float) -> Iterator[Write]:
        made = found.group
        if made is None:
            yield from self._written(key, flaw_write(pod, found.error))
            return
        if group_named(pod) not in ("", made.name):
            return  # a user has chosen a group for it
        ref, known = made.ref, self.cache.groups.get(made.ref)
        if self.reconciler.wait_for(ref, key):
            return
        wanted = desired_group(known, made, next(iter(self.problems.get(ref, {}).values()), ""))
        write = group_write(known, wanted)
        if write is not None:
            self.reconciler.begin(ref, None, key)
            yield replace(write, tag=GroupWriteTag(ref, key))
            return
        for text in found.warnings:
            if known is not None and text not in self.warned.setdefault(ref, set()):
                self.warned[ref].add(text)
                reason = IGNORED if ": ignored" in text else ADJUSTED
                yield event_once(about_group(ref, known.uid), reason, text, "Warning", timestamp(now))
        yield from self._written(key, join_write(pod, found))

    def _written(self, key: PodKey, write: Write | None) -> Iterator[Write]:
        if write is not None:
            self.reconciler.begin(key, None)
            yield replace(write, tag=PodWriteTag(key))

    def _group_written(self, outcome: WriteOutcome, ref: Ref, key: PodKey, now: float) -> Iterator[Write]:
        """Take the response of a group write as the newest object."""
        exists = outcome.write.verb is Verb.CREATE and outcome.ended is Ended.CONFLICT
        if outcome.ended is Ended.DONE and isinstance(outcome.object, dict):
            self.reconciler.queue.put_all(self.cache.take_answer(read_pod_group(Field(outcome.object))))
        elif outcome.ended is Ended.GONE and outcome.write.verb is not Verb.CREATE:
            known = self.cache.groups.get(ref)
            if known is not None and known.uid == outcome.write.uid:  # else another group has replaced it
                del self.cache.groups[ref]  # it is created again
        elif outcome.ended is not Ended.TIMED_OUT and not exists and (pod := self.cache.pods.get(key)):
            why = f"{POD_GROUP.kind} {ref.name} cannot be written: {outcome.message}"
            yield from self._written(key, flaw_write(pod, why[:PROBLEM_MAX]))

    def _note_problem(self, ref: Ref, key: PodKey, problem: str) -> None:
        before = self.problem_group.pop(key, ref)
        for known in {before, ref}:
            if known != ref or not problem:
                self.problems.get(known, {}).pop(key, None)
            if known in self.problems and not self.problems[known]:
                del self.problems[known]
        if problem:
            self.problems.setdefault(ref, {})[key] = problem
            self.problem_group[key] = ref

    def _forget(self, key: PodKey) -> None:
        self.unknown_owners.pop(key, None)
        if (ref := self.problem_group.get(key)) is not None:
            self._note_problem(ref, key, "")


def _pause(outcome: WriteOutcome) -> float:
    return REFUSED_SECONDS if outcome.ended is Ended.REFUSED else RETRY_SECONDS
