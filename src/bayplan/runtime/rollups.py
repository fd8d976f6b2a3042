"""Statuses of queues, cohorts and checks kept true, and what is in use kept from being deleted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bayplan.dialects.api import Event, Happened, Kind, Outcome, Verb, Write
from bayplan.dialects.kueue import admitting, rollup
from bayplan.model.summary import Summaries
from bayplan.state.admissions import AdmissionState
from bayplan.state.census import Census
from bayplan.state.summaries import summaries

EVERY_SECONDS = 1.0
Key = tuple[str, str]
Object = dict[str, Any]
Watcher = Callable[[Summaries], None]

TOLD = (admitting.CLUSTER_QUEUES, admitting.LOCAL_QUEUES, admitting.COHORTS, admitting.CHECKS)
USED = (admitting.CLUSTER_QUEUES, admitting.FLAVORS, admitting.TOPOLOGIES, admitting.CHECKS)
KINDS = tuple(dict.fromkeys((*TOLD, *USED, admitting.CONFIGS)))


class Rolled:
    """The tag of a write that rolls something up."""

    def __init__(self, kind: Kind, key: Key) -> None:
        self.kind, self.key = kind, key


class Rollups:
    """Looks at everything at most once a second, and only if something changed."""

    def __init__(self, *, fair: bool, watch: Watcher | None = None) -> None:
        self.fair = fair
        self.watch = watch or (lambda found: None)
        self.objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in KINDS}
        self.census = Census()
        self.flying: set[tuple[Kind, Key]] = set()
        self.seen = -1
        self.stale = True
        self.due = 0.0

    def note(self, event: Event) -> None:
        """Remember an object as it is now."""
        known = self.objects.get(event.kind)
        if known is None or event.happened is Happened.SYNCED:
            return
        meta = event.object["metadata"]
        key = (meta.get("namespace", ""), meta["name"])
        if event.happened is Happened.GONE:
            known.pop(key, None)
        else:
            if key not in known and event.kind in (admitting.CLUSTER_QUEUES, admitting.LOCAL_QUEUES):
                self.due = 0.0  # a queue is kept from being deleted before it admits the first gang
            known[key] = event.object
        self.stale = True

    def writes(self, state: AdmissionState, now: float) -> Iterator[Write]:
        """What has to be written for every object to tell the truth."""
        if now < self.due or not (self.stale or state.generation != self.seen):
            return
        self.due, self.seen, self.stale = now + EVERY_SECONDS, state.generation, False
        found = summaries(state, self.census, fair=self.fair)
        self.watch(found)
        for kind, key, obj in self._idle(USED):
            names = rollup.finalizers(kind.kind, obj, found)
            if names is not None:
                yield self._write(kind, key, Verb.MERGE_PATCH, {"metadata": {"finalizers": names}}, obj)
        for kind, key, obj in self._idle(TOLD):
            status = self._status(kind, key, obj, found, now)
            if status is not None:
                yield self._write(kind, key, Verb.UPDATE, {**obj, "status": status}, obj, "status")

    def ended(self, outcome: Outcome) -> None:
        """A write of ours has ended. It may have failed, or more may have happened while it was under way."""
        tag = outcome.write.tag
        if isinstance(tag, Rolled):
            self.flying.discard((tag.kind, tag.key))
            self.stale = True

    def next_due(self, state: AdmissionState) -> float:
        return self.due if self.stale or state.generation != self.seen else float("inf")

    def _idle(self, kinds: tuple[Kind, ...]) -> Iterator[tuple[Kind, Key, Object]]:
        for kind in kinds:
            for key, obj in self.objects[kind].items():
                if (kind, key) not in self.flying:
                    yield kind, key, obj

    def _status(self, kind: Kind, key: Key, obj: Object, found: Summaries, now: float) -> Object | None:
        match kind.kind:
            case "ClusterQueue" if key[1] in found.queues:
                return rollup.cluster_queue(obj, found.queues[key[1]], now)
            case "LocalQueue" if key in found.entrances:
                return rollup.local_queue(obj, found.entrances[key], now)
            case "Cohort" if key[1] in found.shared:
                return rollup.cohort(obj, found.shared[key[1]], now)
            case "AdmissionCheck":
                configs = {name for _, name in self.objects[admitting.CONFIGS]}
                return rollup.admission_check(obj, configs, now)
        return None

    def _write(
        self, kind: Kind, key: Key, verb: Verb, body: Object, obj: Object, subresource: str = ""
    ) -> Write:
        self.flying.add((kind, key))
        version = obj["metadata"].get("resourceVersion", "")
        tag = Rolled(kind, key)
        return Write(verb, kind, *key, body, subresource=subresource, version=version, tag=tag)
