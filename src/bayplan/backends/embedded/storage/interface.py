"""What a store offers to the modules that act on its objects: kinds, reactions to changes, parts of writes.

They take a `ObjectStorage` and never import the store, which imports some of them and is handed the others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from bayplan.backends.embedded.api.admission_hooks import AdmissionHooks
from bayplan.backends.embedded.api.options import Deletion, Options, WriteTarget
from bayplan.backends.embedded.api.resource import ConvertTo, Object, Resource
from bayplan.backends.embedded.api.resources import ResourceRegistry
from bayplan.backends.embedded.storage.collection import ObjectCollection
from bayplan.backends.embedded.storage.owners import Owners
from bayplan.backends.embedded.storage.watch_log import StoreChange
from bayplan.dialects.api import Kind


class ObjectStorage(Protocol):
    """The objects of a cluster. What is put or deleted here settles with the write that is under way."""

    now: Callable[[], float]
    resources: ResourceRegistry
    admission: AdmissionHooks
    user: str  # of the write that is under way
    conversions: dict[tuple[str, str], ConvertTo]  # by group and kind
    owners: Owners

    def shelf(self, resource: Resource) -> ObjectCollection:
        """The objects of a kind."""
        ...

    def shelf_at(self, storage: str) -> ObjectCollection | None:
        """The objects kept under a name, if there ever were any."""
        ...

    def forget_shelf(self, storage: str) -> None:
        """End the watches of a kind that is no longer served, and drop its log."""
        ...

    def put(self, resource: Resource, key: str, item: Object) -> Object:
        """Keep an object that was checked."""
        ...

    def drop(self, resource: Resource, key: str) -> Object:
        """Remove an object now."""
        ...

    def put_or_drop(self, resource: Resource, key: str, item: Object) -> Object:
        """Keep a changed object, or remove it if its deletion waits for nothing any more."""
        ...

    def create(
        self,
        kind: Kind | Resource,
        body: Mapping[str, Any],
        namespace: str = "",
        options: Options | None = None,
    ) -> Object:
        """Create an object as a request does."""
        ...

    def delete_target(self, target: WriteTarget, how: Deletion) -> Object:
        """Delete an object as a request does: hooks are asked, finalizers and grace periods hold it back."""
        ...


Reaction = Callable[
    [ObjectStorage, str, StoreChange], None
]  # storage name of the kind, and what happened to an object
