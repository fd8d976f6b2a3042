"""The provisioning controller: requests nodes from an autoscaler for Workloads with a provisioning check."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from dataclasses import dataclass, field

from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.kueue.jobs.writes import status_write
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
from bayplan.runtime.core.backoff import Backoff
from bayplan.runtime.core.controller import StatelessController
from bayplan.runtime.core.object_cache import DELETED_MAX, Key, Object, ObjectCache, key_of, uid_of
from bayplan.runtime.core.reconciler import Reconciler

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
        self.cache = ObjectCache(api_kinds.WORKLOADS)
        self.workloads = self.cache.of(api_kinds.WORKLOADS)
        self.checks: dict[str, Object] = {}  # the checks of this controller
        self.configs: dict[str, Object] = {}
        self.flavors: dict[str, Object] = {}
        self.named = {
            api_kinds.CHECKS: self.checks,
            api_kinds.CONFIGS: self.configs,
            api_kinds.FLAVORS: self.flavors,
        }
        self.owned: dict[Kind, Owned] = {kind: Owned() for kind in (TEMPLATES, REQUESTS, OLDER_REQUESTS)}
        self.deleted: deque[str] = deque(maxlen=DELETED_MAX)  # uids of those that were deleted
        self.served: set[Kind] = set()
        self.patient_until = NEVER
        self.is_unserved = False  # the cluster does not serve the kind
        self.reconciler: Reconciler[Key, ProvisioningWrites] = Reconciler(
            lambda key: (api_kinds.WORKLOADS.kind, "/".join(key))
        )
        self.failures: dict[Key, dict[str, str]] = {}  # why requests could not be created, by check
        self.paused: dict[Key, float] = {}  # until when nothing is created, after refused writes
        self.backoff: Backoff[Key] = Backoff(PAUSE_FIRST, PAUSE_MAX)

    # ── events ────────────────────────────────────────────────────────────────────────────────────

    def decode(self, event: Event) -> Iterator[Change]:
        """Cache the object; nothing here is decided on."""
        if event.kind == api_kinds.WORKLOADS:
            self._workload(event)
        elif event.kind in self.named:
            self._named(event, self.named[event.kind])
        elif event.kind in self.owned:
            self._owned(event)
        return iter(())

    # ── writes ────────────────────────────────────────────────────────────────────────────────────

    def reconcile(self, now: float) -> Iterator[Write]:
        """Create missing requests, delete obsolete ones, and update check states."""
        if self.patient_until == NEVER:
            self.patient_until = now + PATIENCE_SECONDS
        if not self.served and not self.is_unserved and self.patient_until <= now:
            self.is_unserved = True
            self._mark_all()
        yield from self.reconciler.run(self._reconcile, now, self.containment)

    def _reconcile(self, key: Key, now: float) -> Iterator[Write]:
        workload = self.workloads.get(key, {})
        writes = list(self._writes(key, workload, now)) if workload else []
        for write in writes:
            sent = self.reconciler.begin(key, ProvisioningWrites(workload)).note
            if isinstance(write.tag, ProvisioningWriteTag) and write.tag.template is not None:
                sent.templates[write.tag.template.name] += 1
            yield write
        if not writes:
            self._unpause(key, now)
        if (until := self.paused.get(key, now)) > now:
            self.reconciler.queue.put_early(key, until)

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterator[Write]:
        """A request is written after its templates, and events after the writes."""
        step = outcome.write.tag
        if not isinstance(step, ProvisioningWriteTag) or step.key not in self.reconciler.in_flight:
            return
        sent = self.reconciler.in_flight[step.key].note
        where = ("settle", *self.reconciler.describe(step.key))
        found, done = self.containment.attempt(self._ended(step, sent, outcome, now), *where)
        sent.failed |= not done
        for write in found:
            if isinstance(write.tag, ProvisioningWriteTag):
                self.reconciler.begin(step.key, sent)
            yield write
        self.reconciler.ended(step.key, now)
        if step.key not in self.reconciler.in_flight:
            self._settled(step.key, sent, now)

    def next_due(self, now: float) -> float:
        awaited = self.checks and not self.served and not self.is_unserved
        return min(self.reconciler.next_due(), self.patient_until if awaited else NEVER)

    # ── details ───────────────────────────────────────────────────────────────────────────────────

    def _workload(self, event: Event) -> None:
        if event.happened is Happened.SYNCED:
            return
        key, _, workload = self.cache.note(event)
        if workload is None:  # the garbage collector deletes what it owns
            self.reconciler.queue.drop(key)
            self.failures.pop(key, None)
            self.paused.pop(key, None)
            self.backoff.succeeded(key)
            return
        checked = self.checks and (workload.get("status") or {}).get("admissionChecks")
        if checked or any(key in owned.by_owner for owned in self.owned.values()):
            self._mark(key)

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
            self.deleted.append(uid_of(event.object))
        else:
            self.owned[event.kind].put(key, event.object)
        if key in self.workloads:
            self._mark(key)

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

    def _mark(self, key: Key) -> None:
        self.reconciler.queue.put_early(key, 0.0)

    def _mark_all(self) -> None:
        for key, workload in self.workloads.items():
            if (workload.get("status") or {}).get("admissionChecks"):
                self._mark(key)

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
        until = self.paused.get(key, now)
        return check.ProvisioningContext(
            self.checks, self.configs, self.flavors, kind, trouble, may_create=until <= now
        )

    def _ended(
        self,
        step: ProvisioningWriteTag,
        sent: ProvisioningWrites,
        outcome: WriteOutcome,
        now: float,
    ) -> Iterator[Write]:
        done = outcome.ended is Ended.DONE
        if step.status is not None and done:
            notices = check.check_events(sent.before, step.status)
            yield from (workload_event_write(notice, now) for notice in notices)
            self.cache.take_answer(api_kinds.WORKLOADS, outcome.object)
        elif step.template is not None and (done or outcome.ended is Ended.CONFLICT):
            asked = step.template
            sent.templates[asked.name] -= 1
            if not sent.templates[asked.name] and asked.request is not None:
                yield create_write(
                    self._kind() or REQUESTS, asked.request, ProvisioningWriteTag(step.key, request=asked)
                )
        elif step.request is not None and done:
            self.failures.get(step.key, {}).pop(step.request.check, None)
            if uid_of(outcome.object) not in self.deleted:  # the watch may be ahead
                self.owned[outcome.write.kind].put(step.key, outcome.object)
            message = f"Created ProvisioningRequest: {quoted(step.request.name)}"
            made = check.workload_event(sent.before, "ProvisioningRequestCreated", message)
            yield workload_event_write(made, now)
        elif step.deleted is not None and (done or outcome.ended is Ended.GONE):
            self.owned[outcome.write.kind].drop(step.deleted)
        else:
            sent.failed = True
            yield from self._refused(step, sent, outcome, now)

    def _refused(
        self,
        step: ProvisioningWriteTag,
        sent: ProvisioningWrites,
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
        yield workload_event_write(check.workload_event(sent.before, "FailedCreate", message, bad=True), now)

    def _settled(self, key: Key, sent: ProvisioningWrites, now: float) -> None:
        """Reconcile at once after success, after a pause otherwise."""
        if sent.failed:
            until = self.paused[key] = self.backoff.failed(key, now)
            self.reconciler.queue.put_early(key, until)
        else:
            self._unpause(key, now)
        if key in self.workloads and (not sent.failed or self.failures.get(key)):
            self._mark(key)

    def _unpause(self, key: Key, now: float) -> None:
        if self.paused.get(key, NEVER) <= now:
            del self.paused[key]
            self.backoff.succeeded(key)


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
    templates: Counter[str] = field(default_factory=Counter)  # templates still to be created, by request
    failed: bool = False


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
            self.owners[key_of(TEMPLATES, obj)] = key

    def drop(self, obj: Object) -> None:
        """An object was deleted; another one of its name may exist."""
        there = self.by_owner.get(self.owners.get(key_of(TEMPLATES, obj), ("", "")), {})
        known = there.get(obj["metadata"]["name"])
        if known is not None and known["metadata"].get("uid") == obj["metadata"].get("uid"):
            self._forget(obj)

    def _forget(self, obj: Object) -> None:
        owner = self.owners.pop(key_of(TEMPLATES, obj), None)
        if owner is not None:
            del self.by_owner[owner][obj["metadata"]["name"]]
            if not self.by_owner[owner]:
                del self.by_owner[owner]

    def of(self, key: Key) -> list[Object]:
        """The objects of one Workload."""
        return list(self.by_owner.get(key, {}).values())


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
