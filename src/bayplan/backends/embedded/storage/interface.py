"""The interface of the store for the hooks of kinds, the reactions to changes and the steps of writes.

These take an `ObjectStorage` and never import the store, which imports or receives them.
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
    """The objects of a cluster. Changes made here are part of the write in progress."""

    now: Callable[[], float]
    resources: ResourceRegistry
    admission: AdmissionHooks
    user: str  # of the write that is under way
    conversions: dict[tuple[str, str], ConvertTo]  # by group and kind
    owners: Owners

    def collection_of(self, resource: Resource) -> ObjectCollection:
        """The objects of a kind."""
        ...

    def collection_at(self, storage: str) -> ObjectCollection | None:
        """The objects kept under a name, if there ever were any."""
        ...

    def forget_collection(self, storage: str) -> None:
        """End the watches of a kind that is no longer served, and drop its log."""
        ...

    def put(self, resource: Resource, key: str, item: Object) -> Object:
        """Store a validated object."""
        ...

    def drop(self, resource: Resource, key: str) -> Object:
        """Remove an object now."""
        ...

    def put_or_drop(self, resource: Resource, key: str, item: Object) -> Object:
        """Store a changed object, or remove it if its deletion is complete."""
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
        """Delete an object as a request does: with hooks, finalizers and grace periods."""
        ...


Reaction = Callable[
    [ObjectStorage, str, StoreChange], None
]  # storage name of the kind, and what happened to an object
