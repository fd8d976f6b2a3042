"""The objects of a cluster in memory, with the guarantees of an API server.

One thread at a time. Clock, uids and random name endings are handed in, so that a simulation repeats exactly.
What goes in is copied; what comes out is shared: never change an object you were given.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded.api.admission_hooks import AdmissionHooks
from bayplan.backends.embedded.api.options import Deletion, Options, WriteTarget
from bayplan.backends.embedded.api.paging import TOO_OLD, parse_version, read_token, write_token
from bayplan.backends.embedded.api.resource import ConvertTo, Resource, key_of, outward
from bayplan.backends.embedded.api.resources import ResourceRegistry
from bayplan.backends.embedded.api.selectors import everything, field_matcher, label_matcher
from bayplan.backends.embedded.api.status import StatusError, expired, not_found
from bayplan.backends.embedded.patching import apply as patches
from bayplan.backends.embedded.storage import delete as deleting
from bayplan.backends.embedded.storage import namespaces, subresources, write
from bayplan.backends.embedded.storage.collection import ObjectCollection
from bayplan.backends.embedded.storage.interface import Reaction
from bayplan.backends.embedded.storage.kind_hooks import KindHookRegistry
from bayplan.backends.embedded.storage.owners import Owners
from bayplan.backends.embedded.storage.watch_log import StoreChange, Watch, with_version
from bayplan.dialects.api import Kind

Object = dict[str, Any]

WINDOW = 20_000  # changes kept per kind for watches to resume from


@dataclass(frozen=True, slots=True)
class ListPage:
    """A list, or a part of one."""

    items: list[Object]
    version: str
    token: str = ""  # to continue with, empty at the end
    remaining: int | None = None


class Store:
    """A cluster's objects."""

    def __init__(
        self,
        now: Callable[[], float],
        uid: Callable[[], str],
        suffix: Callable[[], str],
        *,
        served: Iterable[Resource],
        behaviours: KindHookRegistry,
        reactions: Sequence[Reaction],
        window: int = WINDOW,
    ) -> None:
        self.now, self.uid, self.suffix = now, uid, suffix
        self.window = window
        self.version = 1
        self.resources = ResourceRegistry()
        self.resources.add(served)
        self.admission = AdmissionHooks(self._namespace_labels)
        self.user = ""  # who writes just now, for those who look at writes
        self.behaviours = behaviours
        self.reactions = tuple(reactions)
        self.conversions: dict[tuple[str, str], ConvertTo] = {}  # by group and kind
        self.owners = Owners()
        self.applied: dict[str, dict[tuple[str, str], Object]] = {}  # by uid: what each applier last applied
        self._shelves: dict[str, ObjectCollection] = {}
        self._watches: dict[str, set[Watch]] = {}
        self._listeners: list[Callable[[], None]] = []
        self._queue: deque[tuple[str, StoreChange]] = deque()
        self._settling = False
        self._begun = 1  # nothing older can be asked for
        namespaces.begin(self)
        self._begun = self.version
        self.compact()

    # ── reading ──

    def get(self, kind: Kind | Resource, namespace: str, name: str) -> Object:
        """One object; 404 when there is none."""
        found = self.find(kind, namespace, name)
        if found is None:
            raise not_found(self.resources.of(kind), name)
        return found

    def find(self, kind: Kind | Resource, namespace: str, name: str) -> Object | None:
        """One object, or None."""
        resource = self.resources.of(kind)
        found = self.collection_of(resource).objects.get(key_of(resource, namespace, name))
        return None if found is None else outward(resource, found)

    def list(
        self,
        kind: Kind | Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        limit: int = 0,
        token: str = "",
        version: str = "",
    ) -> ListPage:
        """Objects in the order of their names: all, those selected, or a page; with `version`, as of then."""
        resource = self.resources.of(kind)
        if not (namespace or labels or fields or limit or token or version):
            return ListPage([*self.everything(resource)], str(self.version))
        collection_of = self.collection_of(resource)
        matches = self._matcher(resource, labels, fields)
        at, after = read_token(token) if token else (parse_version(version) if version else self.version, "")
        try:
            objects, keys = (
                collection_of.as_of(at) if at < self.version else (collection_of.objects, collection_of.keys)
            )
        except StatusError:
            raise expired(
                TOO_OLD if token else "The resourceVersion for the provided list is too old."
            ) from None
        prefix = f"{namespace}/" if namespace and resource.namespaced else ""
        items = collection_of.select_from(objects, keys, prefix, after, matches)
        rest = len(items) - limit if limit > 0 else 0  # a limit below 1 is none
        if rest > 0:
            items = items[:limit]
        shown = [outward(resource, item) for item in items] if resource.from_storage else items
        if rest <= 0:
            return ListPage(shown, str(at))
        last = items[-1]["metadata"]
        token = write_token(at, key_of(resource, last.get("namespace", ""), last["name"]))
        return ListPage(shown, str(at), token, rest if matches is None else None)

    def everything(self, kind: Kind | Resource) -> tuple[Object, ...]:
        """All objects of a kind in the order of their names; the same tuple until one of them changes."""
        resource = self.resources.of(kind)
        found = self.collection_of(resource).everything()
        return tuple([outward(resource, item) for item in found]) if resource.from_storage else found

    def watch(
        self,
        kind: Kind | Resource,
        namespace: str = "",
        *,
        labels: str = "",
        fields: str = "",
        since: str = "",
    ) -> Watch:
        """Changes after a version, or from now on with everything that exists first."""
        resource = self.resources.of(kind)
        collection_of = self.collection_of(resource)
        matches = self._matcher(resource, labels, fields)
        prefix = f"{namespace}/" if namespace and resource.namespaced else ""
        initial: list[Object] | None = None
        place = collection_of.log.end
        if since in ("", "0"):
            initial = collection_of.select(prefix, "", matches)
        else:
            place = collection_of.log.place_after(parse_version(since))
        readers = self._watches.setdefault(resource.storage, set())
        watch = Watch(
            collection_of.log,
            place,
            prefix=prefix,
            matches=matches,
            convert=resource.from_storage,
            release=readers.discard,
            initial=initial,
        )
        readers.add(watch)
        return watch

    def listen(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Call a listener after every change; returns a function that removes it."""
        self._listeners.append(listener)
        return lambda: self._listeners.remove(listener) if listener in self._listeners else None

    # ── writing ──

    def create(
        self,
        kind: Kind | Resource,
        body: Mapping[str, Any],
        namespace: str = "",
        options: Options | None = None,
    ) -> Object:
        """Create an object."""
        target = self._target(kind, namespace, "", "", options)
        return self._settled(target, write.create(self, target, body))

    def update(
        self,
        kind: Kind | Resource,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        subresource: str = "",
        options: Options | None = None,
    ) -> Object:
        """Replace an object, or its status. A resourceVersion or uid in the body is a precondition."""
        target = self._target(kind, namespace, name, subresource, options)
        return self._settled(target, write.update(self, target, body))

    def patch(
        self,
        kind: Kind | Resource,
        namespace: str,
        name: str,
        patch: Any,
        form: str = patches.MERGE,
        *,
        subresource: str = "",
        options: Options | None = None,
    ) -> Object:
        """Change parts of an object: a merge, JSON or strategic merge patch."""
        target = self._target(kind, namespace, name, subresource, options)
        return self._settled(target, write.patch(self, target, patch, form))

    def apply(
        self,
        kind: Kind | Resource,
        namespace: str,
        name: str,
        body: Mapping[str, Any],
        subresource: str = "",
        options: Options | None = None,
    ) -> Object:
        """Server-side apply: create an object or merge into it; field ownership is not stored."""
        target = self._target(kind, namespace, name, subresource, options)
        return self._settled(target, write.apply(self, target, body))

    def delete(
        self,
        kind: Kind | Resource,
        namespace: str,
        name: str,
        how: Deletion | None = None,
        options: Options | None = None,
    ) -> Object:
        """Remove an object, or mark it for removal; answers the object or a Status, as upstream does."""
        target = self._target(kind, namespace, name, "", options)
        return self._settled(target, self.delete_target(target, how or Deletion()))

    def connect(
        self,
        kind: Kind | Resource,
        namespace: str,
        name: str,
        subresource: str,
        body: Mapping[str, Any],
        options: Options | None = None,
    ) -> Object:
        """POST to a subresource: binding, eviction. Answers a Status."""
        target = self._target(kind, namespace, name, subresource, options)
        return self._settled(target, subresources.post(self, target, body))

    def compact(self, keep: int = 0) -> None:
        """Forget changes, so that older watches and pages end with 410."""
        for collection_of in self._shelves.values():
            collection_of.log.forget(len(collection_of.log.changes) - keep)
            if not keep:
                collection_of.log.forgotten = self.version

    # ── for the modules beside this one ──

    def collection_of(self, resource: Resource) -> ObjectCollection:
        """The objects of a kind."""
        found = self._shelves.get(resource.storage)
        if found is None:
            begin = self.version if resource.custom else self._begun
            found = self._shelves[resource.storage] = ObjectCollection(resource.storage, self.window, begin)
        return found

    def collection_at(self, storage: str) -> ObjectCollection | None:
        """The objects stored under a name, if there ever were any."""
        return self._shelves.get(storage)

    def forget_collection(self, storage: str) -> None:
        """End the watches of a kind that is no longer served, and drop its log."""
        for watch in list(self._watches.pop(storage, ())):
            watch.close()
        self._shelves.pop(storage, None)

    def put(self, resource: Resource, key: str, item: Object) -> Object:
        """Store a validated object; item and its metadata belong to the store from now on."""
        self.version += 1
        item["metadata"]["resourceVersion"] = str(self.version)
        self._happened(resource, self.collection_of(resource).put(self.version, key, item))
        return item

    def drop(self, resource: Resource, key: str) -> Object:
        """Remove an object now."""
        self.version += 1
        collection_of = self.collection_of(resource)
        last = with_version(collection_of.objects[key], self.version)
        self._happened(resource, collection_of.drop(self.version, key, last))
        self.applied.pop(last["metadata"]["uid"], None)
        return last

    def put_or_drop(self, resource: Resource, key: str, item: Object) -> Object:
        """Store a changed object, or remove it if its deletion is complete."""
        if not deleting.is_due(resource, item):
            return self.put(resource, key, item)
        self.drop(resource, key)
        return item

    def delete_target(self, target: WriteTarget, how: Deletion) -> Object:
        """As `delete`, inside of a write in progress, without running reactions."""
        return deleting.delete(self, target, how)

    def settle(self) -> None:
        """Run the reactions to all changes, including those of reactions."""
        if self._settling or not self._queue:
            return
        self._settling = True
        try:
            while self._queue:
                storage, change = self._queue.popleft()
                for react in self.reactions:
                    react(self, storage, change)
        finally:
            self._settling = False
        for listener in tuple(self._listeners):
            listener()

    def _target(
        self, kind: Kind | Resource, namespace: str, name: str, subresource: str, options: Options | None
    ) -> WriteTarget:
        return WriteTarget(self.resources.of(kind), namespace, name, subresource, options or Options())

    def _settled(self, target: WriteTarget, answer: Object) -> Object:
        self.settle()
        return outward(target.resource, answer) if answer["kind"] == target.resource.kind else answer

    def _happened(self, resource: Resource, change: StoreChange) -> None:
        self.owners.note(resource.storage, change)
        self._queue.append((resource.storage, change))

    def _namespace_labels(self, name: str) -> Mapping[str, str]:
        found = self.collection_of(self.resources.find("", "v1", "namespaces")).objects.get(name)
        return ((found or {}).get("metadata") or {}).get("labels") or {}

    def _matcher(self, resource: Resource, labels: str, fields: str) -> Callable[[Object], bool] | None:
        by_label = label_matcher(labels)
        by_field = field_matcher(fields, resource.selectable(), resource.custom) if fields else everything
        if by_label is everything and by_field is everything:
            return None

        def matches(item: Object) -> bool:
            shown = outward(resource, item)
            return by_field(shown) and by_label(shown["metadata"].get("labels") or {})

        return matches
