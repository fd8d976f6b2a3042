"""The backend of a store in the same process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from bayplan.backends.embedded.api.options import Deletion, Options
from bayplan.backends.embedded.api.status import StatusError
from bayplan.backends.embedded.patching.apply import STRATEGIC
from bayplan.backends.embedded.storage.store import Store
from bayplan.backends.embedded.storage.watch_log import DELETED, Watch
from bayplan.dialects.api import Ended, Event, Happened, Kind, Verb, Write, WriteOutcome
from bayplan.dialects.errors import NotServed

Object = dict[str, Any]

MANAGER = "bayplan"
_OTHER_OBJECT = ("UID in precondition", "UID in the precondition", "metadata.uid: Invalid value")


class EmbeddedBackend:
    """A Backend on a store. A store that other threads use needs their common lock."""

    def __init__(self, store: Store, lock: threading.RLock | None = None, user: str = "") -> None:
        self.store, self.user = store, user  # the user is shown to webhooks
        self._lock = lock or threading.RLock()
        self._watches: dict[Kind, Watch] = {}
        self._awaited: list[Kind] = []  # optional, and not served yet
        self._known: dict[Kind, dict[str, Object]] = {}  # what was reported and not gone, by uid
        self._pending: list[Event] = []
        self._outcomes: list[WriteOutcome] = []
        self._stirred = threading.Event()
        self._read = (0, 0)  # the state of the store at the last look
        self._quiet: Callable[[], None] = store.listen(self._stir)

    def watch(self, kinds: Sequence[Kind]) -> None:
        """Begin to report on these kinds; NotServed when one that is not optional does not exist."""
        with self._lock:
            for kind in kinds:
                if kind in self._watches or kind in self._awaited:
                    continue
                if self.store.resources.serves(kind):
                    self._begin(kind)
                elif kind.optional:
                    self._awaited.append(kind)
                    self._pending.append(Event(Happened.SYNCED, kind, None))
                else:
                    raise NotServed(
                        f"{kind.plural} of {kind.api_version} were asked for and are not served here. "
                        "Create their CustomResourceDefinition first."
                    )

    def events(self) -> Iterable[Event]:
        """Everything that happened since the last call, in the order it happened."""
        self._stirred.clear()
        with self._lock:
            now = (self.store.version, self.store.resources.changes)
            if now == self._read:
                found, self._pending = self._pending, []
                return found
            before, self._read = self._read, now
            return self._news(look_for_kinds=now[1] != before[1])

    def submit(self, writes: Sequence[Write]) -> None:
        """Make these writes, one after the other."""
        with self._lock:
            before, self.store.user = self.store.user, self.user
            try:
                self._outcomes += [self._written(write) for write in writes]
            finally:
                self.store.user = before
        self._stirred.set()

    def outcomes(self) -> Iterable[WriteOutcome]:
        """The outcome of each write."""
        with self._lock:
            ended, self._outcomes = self._outcomes, []
        return ended

    def wait(self, seconds: float) -> None:
        """Sleep until something happened or the time is up."""
        self._stirred.wait(seconds)

    def close(self, grace_seconds: float = 10.0) -> None:
        """End the watches; writes never outlive `submit` here."""
        with self._lock:
            self._quiet()
            for watch in self._watches.values():
                watch.close()
            self._watches.clear()

    def _stir(self) -> None:
        """End `wait`. To tell it again costs more than to look whether it was told."""
        if not self._stirred.is_set():
            self._stirred.set()

    def _news(self, *, look_for_kinds: bool) -> list[Event]:
        served = self.store.resources.serves
        for kind in [kind for kind in self._awaited if served(kind)] if look_for_kinds else ():
            self._awaited.remove(kind)
            self._begin(kind)
        found, self._pending = self._pending, []
        fresh = []
        for kind, watch in list(self._watches.items()):
            if watch.closed:
                found += self._ended(kind)
            elif watch.waiting():
                fresh += self._taken(kind, watch)
        fresh.sort(key=_version)
        return found + fresh

    def _begin(self, kind: Kind) -> None:
        """Report everything that exists, then that this was everything; 410 comes here again."""
        page = self.store.list(
            kind, kind.only_namespace, labels=kind.label_selector, fields=kind.field_selector
        )
        before, now = self._known.get(kind, {}), {item["metadata"]["uid"]: item for item in page.items}
        gone = [item for uid, item in before.items() if uid not in now]
        self._pending += [_event(Happened.GONE, kind, item) for item in gone]
        self._pending += [
            _event(Happened.SEEN, kind, item)
            for uid, item in now.items()
            if uid not in before or before[uid] is not item
        ]
        self._pending.append(Event(Happened.SYNCED, kind, None, page.version))
        self._known[kind] = now
        self._watches[kind] = self.store.watch(
            kind,
            kind.only_namespace,
            labels=kind.label_selector,
            fields=kind.field_selector,
            since=page.version,
        )

    def _taken(self, kind: Kind, watch: Watch) -> list[Event]:
        try:
            changes = watch.take()
        except StatusError:
            watch.close()
            self._begin(kind)
            found, self._pending = self._pending, []
            return found
        known = self._known[kind]
        events = []
        for type_, item in changes:
            if type_ == DELETED:
                known.pop(item["metadata"]["uid"], None)
                events.append(_event(Happened.GONE, kind, item))
            else:
                known[item["metadata"]["uid"]] = item
                events.append(_event(Happened.SEEN, kind, item))
        return events

    def _ended(self, kind: Kind) -> list[Event]:
        """A kind that is no longer served: everything of it is gone; wait for it to come back."""
        del self._watches[kind]
        self._awaited.append(kind)
        gone = [_event(Happened.GONE, kind, item) for item in self._known.pop(kind, {}).values()]
        return [*gone, Event(Happened.SYNCED, kind, None)]

    def _written(self, write: Write) -> WriteOutcome:
        try:
            answer = _do(self.store, write)
        except StatusError as refusal:
            served = self.store.resources.serves(write.kind)
            ended = _ended(write, refusal) if served else Ended.REFUSED
            return WriteOutcome(write, ended, refusal.code, refusal.message)
        status = 201 if write.verb is Verb.CREATE else 200
        shown = None if answer["kind"] == "Status" else _decoded(write.kind, answer)
        return WriteOutcome(write, Ended.DONE, status, "", shown)


def _do(store: Store, write: Write) -> Object:
    kind, place = write.kind, (write.namespace, write.name)
    body = dict(write.body)
    match write.verb:
        case Verb.CREATE if write.subresource == "eviction":
            options = {**_delete_options(write), **(body.get("deleteOptions") or {})}
            return store.connect(kind, *place, write.subresource, {**body, "deleteOptions": options})
        case Verb.CREATE if write.subresource:
            return store.connect(kind, *place, write.subresource, _with_precondition(body, write))
        case Verb.CREATE:
            metadata = {"name": write.name, **(body.get("metadata") or {})}
            return store.create(kind, {**body, "metadata": metadata}, write.namespace)
        case Verb.UPDATE:
            return store.update(kind, *place, _with_precondition(body, write), write.subresource)
        case Verb.MERGE_PATCH:
            patch = _with_precondition(body, write)
            return store.patch(kind, *place, patch, subresource=write.subresource)
        case Verb.STRATEGIC_PATCH:
            patch = _with_precondition(body, write)
            return store.patch(kind, *place, patch, STRATEGIC, subresource=write.subresource)
        case Verb.APPLY:
            _check_precondition(store, write)
            return store.apply(kind, *place, body, write.subresource, Options(manager=MANAGER))
        case Verb.DELETE:
            asked = {**body, **_delete_options(write)}
            return store.delete(kind, *place, Deletion.from_body(asked))


def _delete_options(write: Write) -> Object:
    options: Object = {}
    if write.grace_seconds is not None:
        options["gracePeriodSeconds"] = write.grace_seconds
    same = {"uid": write.uid, "resourceVersion": write.version}
    if conditions := {key: value for key, value in same.items() if value}:
        options["preconditions"] = conditions
    return options


def _with_precondition(body: Object, write: Write) -> Object:
    wanted = {"uid": write.uid, "resourceVersion": write.version}
    given = {key: value for key, value in wanted.items() if value}
    return {**body, "metadata": {**(body.get("metadata") or {}), **given}} if given else body


def _check_precondition(store: Store, write: Write) -> None:
    """For an apply, which carries no resourceVersion of its own."""
    found = store.find(write.kind, write.namespace, write.name)
    if found is None:
        return
    metadata = found["metadata"]
    for key, wanted in (("uid", write.uid), ("resourceVersion", write.version)):
        if wanted and wanted != metadata[key]:
            message = "UID in precondition" if key == "uid" else "resourceVersion"
            raise StatusError(
                409, f"{write.kind.plural} {write.name}: {message} is {wanted}, found {metadata[key]}"
            )


def _ended(write: Write, refusal: StatusError) -> Ended:
    """The outcome of a failed write, classified as in the remote backend."""
    match refusal.code:
        case 404 | 410:
            return Ended.GONE
        case 409 | 422 if write.uid and any(words in refusal.message for words in _OTHER_OBJECT):
            return Ended.GONE
        case 409:
            return Ended.CONFLICT
    return Ended.REFUSED


def _event(happened: Happened, kind: Kind, item: Object) -> Event:
    return Event(happened, kind, _decoded(kind, item), item["metadata"]["resourceVersion"])


def _decoded(kind: Kind, item: Object) -> Any:
    if kind.wire is None:
        return item
    return msgspec.convert(item, kind.wire, strict=False)


def _version(event: Event) -> int:
    return int(event.version)
