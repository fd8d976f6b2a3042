"""The kinds that are served: how each is addressed, read, and kept; built in or defined at run time."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from bayplan.backends.embedded import event_conversion
from bayplan.backends.embedded.reading import reader
from bayplan.backends.embedded.status import unknown_resource
from bayplan.dialects.api import Kind

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
        """As messages name it: jobs.batch."""
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


@dataclass(slots=True)
class Resources:
    """Everything served."""

    by_place: dict[tuple[str, str, str], Resource] = field(default_factory=dict)
    stored: dict[str, Resource] = field(
        default_factory=dict
    )  # by storage: the version in which objects are kept
    rendered: dict[str, Any] = field(default_factory=dict)  # documents about what is served

    def find(self, group: str, version: str, plural: str) -> Resource:
        """The kind served at a place of the API; 404 when there is none."""
        found = self.by_place.get((group, version, plural))
        if found is None:
            raise unknown_resource()
        return found

    def of(self, kind: Kind | Resource) -> Resource:
        """What is served of a dialect's kind."""
        return self.find(kind.group, kind.version, kind.plural)

    def storage_of(self, storage: str) -> Resource:
        """The version in which the objects of a kind are kept."""
        return self.stored[storage]

    def serves(self, kind: Kind) -> bool:
        """Whether a dialect's kind is served."""
        return (kind.group, kind.version, kind.plural) in self.by_place

    def add(self, found: Iterable[Resource]) -> None:
        for resource in found:
            self.by_place[resource.group, resource.version, resource.plural] = resource
            if resource.to_storage is None:
                self.stored.setdefault(resource.storage, resource)
        self.rendered.clear()

    def remove(self, group: str, plural: str) -> None:
        for place in [place for place in self.by_place if (place[0], place[2]) == (group, plural)]:
            del self.by_place[place]
        self.rendered.clear()


def key_of(resource: Resource, namespace: str, name: str) -> str:
    """Where an object is kept."""
    return f"{namespace}/{name}" if resource.namespaced else name


def version_rank(version: str) -> tuple[int, int, int]:
    """Which of two versions is the better: v2 before v1, v1 before v1beta2, that before v1alpha1."""
    body = version.removeprefix("v")
    for weight, word in ((1, "beta"), (0, "alpha")):
        major, found, minor = body.partition(word)
        if found:
            return weight, int(major or 0), int(minor or 0)
    return 2, int(body) if body.isdecimal() else 0, 0


def inward(resource: Resource, item: Object) -> Object:
    """An object in the version in which it is kept."""
    return item if resource.to_storage is None else resource.to_storage(item)


def outward(resource: Resource, item: Object) -> Object:
    """A kept object in the version that was asked for."""
    return item if resource.from_storage is None else resource.from_storage(item)


def builtin() -> list[Resource]:
    """The kinds of data/kinds.json."""
    text = (resources.files("bayplan.backends.embedded") / "data" / "kinds.json").read_text(encoding="utf-8")
    return [_builtin(entry) for entry in json.loads(text)]


def _builtin(entry: Mapping[str, Any]) -> Resource:
    group, kind, plural = entry.get("group", ""), entry["kind"], entry["plural"]
    type_ = entry.get("type", kind)
    inner = reader(type_)
    api_version = "/".join(part for part in (group, entry.get("version", "v1")) if part)

    def read(body: Any, unknown: list[str]) -> Object:
        kept = {key: item for key, item in body.items() if key not in ("apiVersion", "kind")}
        return {"kind": kind, "apiVersion": api_version, **inner(kept, (), unknown)}

    return Resource(
        group,
        entry.get("version", "v1"),
        kind,
        plural,
        entry.get("singular", kind.lower()),
        not entry.get("cluster", False),
        entry.get("storage", f"{plural}.{group}" if group else plural),
        read,
        frozenset(entry.get("subresources", ())) | ({"status"} if entry.get("status") else set()),
        tuple(entry.get("short", ())),
        tuple(entry.get("categories", ())),
        tuple(entry.get("fields", ())),
        entry.get("generation", False),
        entry.get("returns", False),
        not entry.get("no_collection_delete", False),
        type_,
        to_storage=event_conversion.to_core if type_ == "events.Event" else None,
        from_storage=event_conversion.from_core if type_ == "events.Event" else None,
        conditional=entry.get("conditional", False),
    )
