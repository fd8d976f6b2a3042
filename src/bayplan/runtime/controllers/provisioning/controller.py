"""The provisioning controller: requests nodes from an autoscaler for Workloads with a provisioning check."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.kueue.names import api_kinds
from bayplan.dialects.kueue.provisioning import check
from bayplan.dialects.kueue.provisioning.requests import (
    OLDER_REQUESTS,
    REQUESTS,
    TEMPLATES,
    NewProvisioningRequest,
)
from bayplan.dialects.kueue.status.events import workload_event_write
from bayplan.dialects.kueue.status.misfit_messages import quoted
from bayplan.model.change import Change
from bayplan.model.whole_numbers import whole_number
from bayplan.runtime.core.controller import StatelessController

Key = tuple[str, str]
Object = dict[str, Any]
NEVER = float("inf")
PATIENCE_SECONDS = 10.0
"""Seconds after the start before the cluster counts as lacking the kind."""
PAUSE_FIRST, PAUSE_MAX = 1.0, 300.0
"""Seconds between attempts of a refused write."""


class ProvisioningController(StatelessController):
    """Makes no plans: its writes follow from the cached objects."""

    name = "provisioning"
    kinds: tuple[Kind, ...] = check.KINDS

    def __init__(self) -> None:
        self.workloads: dict[Key, Object] = {}
        self.checks: dict[str, Object] = {}  # the checks of this controller
        self.configs: dict[str, Object] = {}
        self.flavors: dict[str, Object] = {}
        self.owned: dict[Kind, Owned] = {kind: Owned() for kind in (TEMPLATES, REQUESTS, OLDER_REQUESTS)}
        self.served: set[Kind] = set()
        self.patient_until = NEVER
        self.is_unserved = False  # the cluster does not serve the kind
        self.dirty: dict[Key, None] = {}  # Workloads to reconcile, in order of arrival
        self.in_flight: dict[Key, ProvisioningWrites] = {}
        self.failures: dict[Key, dict[str, str]] = {}  # why requests could not be created, by check
        self.paused: dict[Key, tuple[float, float]] = {}  # until when nothing is created, and the pause

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def decode(self, event: Event) -> Iterator[Change]:
        """Cache the object; nothing here is decided on."""
        if event.kind == api_kinds.WORKLOADS:
            self._workload(event)
        elif event.kind == api_kinds.CHECKS:
            self._named(event, self.checks)
        elif event.kind == api_kinds.CONFIGS:
            self._named(event, self.configs)
        elif event.kind == api_kinds.FLAVORS:
            self._named(event, self.flavors)
        elif event.kind in self.owned:
            self._owned(event)
        return iter(())

    # ── writes ────────────────────────────────────────────────────────────────────────────────────

    def reconcile(self, now: float) -> Iterator[Write]:
        """Create missing requests, delete obsolete ones, and update check states."""
        self._mark_due(now)
        for key in list(self.dirty):
            if key in self.in_flight:
                continue
            del self.dirty[key]
            workload = self.workloads.get(key)
            work = () if workload is None else self._writes(key, workload, now)
            where = ("reconcile", api_kinds.WORKLOADS.kind, "/".join(key))
            writes, done = self.containment.attempt(work, *where)
            if not done:
                self._pause(key, now)
                continue
            if workload is not None and writes:
                writes_in_flight = self.in_flight[key] = ProvisioningWrites(workload, len(writes))
                for write in writes:
                    if isinstance(write.tag, ProvisioningWriteTag) and write.tag.template is not None:
                        name = write.tag.template.name
                        writes_in_flight.templates[name] = writes_in_flight.templates.get(name, 0) + 1
                yield from writes
            else:
                self._unpause(key, now)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """A request is written after its templates, and events after the writes."""
        step = outcome.write.tag
        if not isinstance(step, ProvisioningWriteTag) or step.key not in self.in_flight:
            return
        writes_in_flight = self.in_flight[step.key]
        writes_in_flight.unfinished -= 1
        ended = self._ended(step, writes_in_flight, outcome, now)
        where = ("settle", api_kinds.WORKLOADS.kind, "/".join(step.key))
        found, done = self.containment.attempt(ended, *where)
        writes_in_flight.failed |= not done
        writes_in_flight.unfinished += sum(isinstance(write.tag, ProvisioningWriteTag) for write in found)
        yield from found
        if not writes_in_flight.unfinished:
            self._settled(step.key, writes_in_flight, now)

    def next_due(self, now: float) -> float:
        if any(key not in self.in_flight for key in self.dirty):
            return now
        pauses = [until for until, _ in self.paused.values()]
        awaited = self.checks and not self.served and not self.is_unserved
        return min([*pauses, self.patient_until if awaited else NEVER])

    # ── details ───────────────────────────────────────────────────────────────────────────────────

    def _workload(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            return
        meta = event.object["metadata"]
        key = (meta.get("namespace", "default"), meta["name"])
        if event.happened is Happened.GONE:
            self._forget(key)
            return
        self.workloads[key] = event.object
        checked = self.checks and (event.object.get("status") or {}).get("admissionChecks")
        if checked or any(key in owned.by_owner for owned in self.owned.values()):
            self.dirty[key] = None

    def _forget(self, key: Key) -> None:
        """A Workload was deleted; the garbage collector deletes what it owns."""
        self.workloads.pop(key, None)
        self.dirty.pop(key, None)
        self.failures.pop(key, None)
        self.paused.pop(key, None)

    def _named(self, event: Event, there: dict[str, Object]) -> None:
        """A check, a configuration or a flavor: it may affect all Workloads with checks."""
        if event.happened is Happened.SYNCED:
            return
        name = event.object["metadata"]["name"]
        before = there.pop(name, None)
        theirs = event.kind == api_kinds.CHECKS and not check.is_provisioning_check(event.object)
        if event.happened is Happened.SEEN and not theirs:
            there[name] = event.object
        after = there.get(name)
        if (before or {}).get("spec") != (after or {}).get("spec") or (before is None) != (after is None):
            self._mark_all()

    def _owned(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            self._served(event.kind, event.version)
            return
        key = check.owner_of(event.object)
        if event.happened is Happened.GONE:
            self.owned[event.kind].drop(event.object)
            if key in self.in_flight:
                self.in_flight[key].gone.add(event.object["metadata"].get("uid", ""))
        else:
            self.owned[event.kind].put(key, event.object)
        if key in self.workloads:
            self.dirty[key] = None

    def _served(self, kind: Kind, version: str) -> None:
        """A list without a resourceVersion means that the cluster does not serve the kind."""
        if kind == TEMPLATES:
            return
        before = self._kind()
        if version:
            self.served.add(kind)
            self.is_unserved = False
        else:
            self.served.discard(kind)
        if self._kind() != before:
            self._mark_all()

    def _kind(self) -> Kind | None:
        return next((kind for kind in (REQUESTS, OLDER_REQUESTS) if kind in self.served), None)

    def _mark_all(self) -> None:
        for key, workload in self.workloads.items():
            if (workload.get("status") or {}).get("admissionChecks"):
                self.dirty[key] = None

    def _mark_due(self, now: float) -> None:
        if self.patient_until == NEVER:
            self.patient_until = now + PATIENCE_SECONDS
        if not self.served and not self.is_unserved and self.patient_until <= now:
            self.is_unserved = True
            self._mark_all()
        for key, (until, _) in self.paused.items():
            if until <= now:
                self.dirty[key] = None

    def _writes(self, key: Key, workload: Object, now: float) -> Iterator[Write]:
        kind = self._kind()
        course = check.next_step(
            workload,
            self.owned[kind].of(key) if kind is not None else (),
            self.owned[TEMPLATES].of(key),
            self._context(key, kind, now),
            now,
        )
        if course.status is not None:
            yield status_write(workload, course.status, ProvisioningWriteTag(key, status=course.status))
        for obj in course.obsolete:
            yield delete_write(TEMPLATES if obj.get("kind") == TEMPLATES.kind else kind or REQUESTS, obj, key)
        there = {obj["metadata"]["name"]: obj for obj in self.owned[TEMPLATES].of(key)}
        for asked in course.to_create:
            for body in asked.templates:
                if body["metadata"]["name"] in there:  # of a request that was never created
                    yield delete_write(TEMPLATES, there[body["metadata"]["name"]], key)
                yield create_write(TEMPLATES, body, ProvisioningWriteTag(key, template=asked))

    def _context(self, key: Key, kind: Kind | None, now: float) -> check.ProvisioningContext:
        trouble = self.failures.get(key, {})
        if self.is_unserved:
            trouble = dict.fromkeys(self.checks, check.NOT_SERVED)
        until, _ = self.paused.get(key, (0.0, 0.0))
        return check.ProvisioningContext(
            self.checks, self.configs, self.flavors, kind, trouble, may_create=until <= now
        )

    def _ended(
        self,
        step: ProvisioningWriteTag,
        writes_in_flight: ProvisioningWrites,
        outcome: WriteOutcome,
        now: float,
    ) -> Iterator[Write]:
        done = outcome.ended is Ended.DONE
        if step.status is not None and done:
            notices = check.check_events(writes_in_flight.before, step.status)
            yield from (workload_event_write(notice, now) for notice in notices)
            self._take_answer(step.key, outcome.object)
        elif step.template is not None and (done or outcome.ended is Ended.CONFLICT):
            asked = step.template
            writes_in_flight.templates[asked.name] -= 1
            if not writes_in_flight.templates[asked.name] and asked.request is not None:
                yield create_write(
                    self._kind() or REQUESTS, asked.request, ProvisioningWriteTag(step.key, request=asked)
                )
        elif step.request is not None and done:
            self.failures.get(step.key, {}).pop(step.request.check, None)
            if (
                outcome.object["metadata"].get("uid", "") not in writes_in_flight.gone
            ):  # the watch may be ahead
                self.owned[outcome.write.kind].put(step.key, outcome.object)
            message = f"Created ProvisioningRequest: {quoted(step.request.name)}"
            made = check.workload_event(writes_in_flight.before, "ProvisioningRequestCreated", message)
            yield workload_event_write(made, now)
        elif step.deleted is not None and (done or outcome.ended is Ended.GONE):
            self.owned[outcome.write.kind].drop(step.deleted)
        else:
            writes_in_flight.failed = True
            yield from self._refused(step, writes_in_flight, outcome, now)

    def _refused(
        self,
        step: ProvisioningWriteTag,
        writes_in_flight: ProvisioningWrites,
        outcome: WriteOutcome,
        now: float,
    ) -> Iterator[Write]:
        """Record why an object could not be created; one that exists already will be seen."""
        asked = step.template or step.request
        if asked is None or outcome.ended not in (Ended.REFUSED, Ended.GONE):
            return
        if outcome.status == 404 and step.request is not None:
            self.served.discard(outcome.write.kind)  # until it is listed again
        what = TEMPLATES.kind if step.template is not None else REQUESTS.kind
        message = f"Error creating {what} {quoted(outcome.write.name)}: {outcome.message}"
        self.failures.setdefault(step.key, {})[asked.check] = message
        yield workload_event_write(
            check.workload_event(writes_in_flight.before, "FailedCreate", message, bad=True), now
        )

    def _settled(self, key: Key, writes_in_flight: ProvisioningWrites, now: float) -> None:
        """Reconcile at once after success, after a pause otherwise."""
        del self.in_flight[key]
        if not writes_in_flight.failed:
            self._unpause(key, now)
        else:
            self._pause(key, now)
        if key in self.workloads and (not writes_in_flight.failed or self.failures.get(key)):
            self.dirty[key] = None

    def _pause(self, key: Key, now: float) -> None:
        _, before = self.paused.get(key, (0.0, 0.0))
        pause = min(PAUSE_MAX, before * 2 or PAUSE_FIRST)
        self.paused[key] = (now + pause, pause)

    def _unpause(self, key: Key, now: float) -> None:
        if self.paused.get(key, (NEVER, 0.0))[0] <= now:
            del self.paused[key]

    def _take_answer(self, key: Key, answer: object) -> None:
        """Take the response of a write as the newest object; the watch will repeat it."""
        known = self.workloads.get(key)
        if isinstance(answer, dict) and known is not None and version_of(answer) > version_of(known):
            self.workloads[key] = answer


@dataclass(frozen=True, slots=True)
class ProvisioningWriteTag:
    """The tag of a write for a Workload."""

    key: Key
    status: Object | None = None  # status of the Workload, if that is written
    template: NewProvisioningRequest | None = None  # the request whose template is created
    request: NewProvisioningRequest | None = None  # the request that is created
    deleted: Object | None = None  # the object that is deleted


@dataclass(slots=True)
class ProvisioningWrites:
    """Writes in flight for one Workload; it is reconciled when all have ended."""

    before: Object
    unfinished: int
    templates: dict[str, int] = field(default_factory=dict)  # templates still to be created, by request
    failed: bool = False
    gone: set[str] = field(default_factory=set)  # uids that the watch reported as deleted


class Owned:
    """Objects by the Workload that owns them."""

    def __init__(self) -> None:
        self.by_owner: dict[Key, dict[str, Object]] = {}
        self.owners: dict[Key, Key] = {}  # by namespace and name of the object

    def put(self, key: Key | None, obj: Object) -> None:
        """An object was added or changed; without a key no Workload owns it."""
        self._forget(obj)
        if key is not None:
            self.by_owner.setdefault(key, {})[obj["metadata"]["name"]] = obj
            self.owners[_key_of(obj)] = key

    def drop(self, obj: Object) -> None:
        """An object was deleted; another one of its name may exist."""
        there = self.by_owner.get(self.owners.get(_key_of(obj), ("", "")), {})
        known = there.get(obj["metadata"]["name"])
        if known is not None and known["metadata"].get("uid") == obj["metadata"].get("uid"):
            self._forget(obj)

    def _forget(self, obj: Object) -> None:
        owner = self.owners.pop(_key_of(obj), None)
        if owner is not None:
            del self.by_owner[owner][obj["metadata"]["name"]]
            if not self.by_owner[owner]:
                del self.by_owner[owner]

    def of(self, key: Key) -> list[Object]:
        """The objects of one Workload."""
        return list(self.by_owner.get(key, {}).values())


def _key_of(obj: Object) -> Key:
    return obj["metadata"].get("namespace", ""), obj["metadata"]["name"]


def version_of(workload: Object) -> int:
    """Its resourceVersion as a number, to compare two versions."""
    text = str(workload["metadata"].get("resourceVersion", ""))
    return whole_number(text) or 0


def status_write(workload: Object, status: Object, tag: ProvisioningWriteTag) -> Write:
    """A status update of a Workload, conditional on its resourceVersion."""
    namespace, name = tag.key
    body, version = {**workload, "status": status}, workload["metadata"].get("resourceVersion", "")
    return Write(
        Verb.UPDATE, api_kinds.WORKLOADS, namespace, name, body, "status", version=version, tag=tag
    )  # fmt: skip


def create_write(kind: Kind, body: Object, tag: ProvisioningWriteTag) -> Write:
    """Creation of a template or a request."""
    meta = body["metadata"]
    return Write(Verb.CREATE, kind, meta["namespace"], meta["name"], body, tag=tag)


def delete_write(kind: Kind, obj: Object, key: Key) -> Write:
    """Deletion of a template or a request, conditional on its uid."""
    meta = obj["metadata"]
    return Write(
        Verb.DELETE,
        kind,
        meta["namespace"],
        meta["name"],
        uid=meta["uid"],
        tag=ProvisioningWriteTag(key, deleted=obj),
    )
