"""One version of one kind: its path, decoding and storage."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
Convert = Callable[[Object], Object]
ConvertTo = Callable[[Object, str], Object]  # given the apiVersion wanted


@dataclass(frozen=True, slots=True, eq=False)
class Resource:
    """One version of one kind."""

    group: str
    version: str
    kind: str
    plural: str
    singular: str
    namespaced: bool
    storage: str  # objects are kept once, under this name, whatever version asks for them
    read: Callable[[Any, list[str]], Object]  # body → fresh object; unknown fields are noted
    subresources: frozenset[str] = frozenset()
    short_names: tuple[str, ...] = ()
    categories: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()  # that a field selector may name, besides metadata.name and .namespace
    generation: bool = False  # counts changes of what is wanted
    returns_deleted: bool = False  # a delete answers with the object, not with a Status
    deletes_collection: bool = True
    type: str = ""  # the built-in type; empty for a custom resource
    to_storage: Convert | None = None
    from_storage: Convert | None = None
    definition: Any = None  # what a CustomResourceDefinition says of this version
    conditional: bool = False  # an update must say which state of the object it is about

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def qualified(self) -> str:
        """The name in messages, such as jobs.batch."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    @property
    def custom(self) -> bool:
        return self.definition is not None

    def selectable(self) -> tuple[str, ...]:
        """Every field that a field selector may name."""
        scope = (
            ("metadata.name", "metadata.namespace") if self.namespaced or self.custom else ("metadata.name",)
        )
        return scope + self.fields


def key_of(resource: Resource, namespace: str, name: str) -> str:
    """Where an object is kept."""
    return f"{namespace}/{name}" if resource.namespaced else name


def inward(resource: Resource, item: Object) -> Object:
    """An object in the version in which it is kept."""
    return item if resource.to_storage is None else resource.to_storage(item)


def outward(resource: Resource, item: Object) -> Object:
    """A kept object in the version that was asked for."""
    return item if resource.from_storage is None else resource.from_storage(item)
