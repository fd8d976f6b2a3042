"""The kinds that are served: built in or defined at run time."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from bayplan.backends.embedded.api import event_conversion
from bayplan.backends.embedded.api.decoding import reader
from bayplan.backends.embedded.api.resource import Object, Resource
from bayplan.backends.embedded.api.status import unknown_resource
from bayplan.dialects.api import Kind


@dataclass(slots=True)
class ResourceRegistry:
    """Everything served."""

    by_place: dict[tuple[str, str, str], Resource] = field(default_factory=dict)
    stored: dict[str, Resource] = field(
        default_factory=dict
    )  # by storage: the version in which objects are kept
    rendered: dict[str, Any] = field(default_factory=dict)  # documents about what is served
    changes: int = 0  # how often kinds were added or removed

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
        self._changed()

    def remove(self, group: str, plural: str) -> None:
        for place in [place for place in self.by_place if (place[0], place[2]) == (group, plural)]:
            del self.by_place[place]
        self._changed()

    def _changed(self) -> None:
        self.changes += 1
        self.rendered.clear()


def version_rank(version: str) -> tuple[int, int, int]:
    """Which of two versions is the better: v2 before v1, v1 before v1beta2, that before v1alpha1."""
    body = version.removeprefix("v")
    for weight, word in ((1, "beta"), (0, "alpha")):
        major, found, minor = body.partition(word)
        if found:
            return weight, int(major or 0), int(minor or 0)
    return 2, int(body) if body.isdecimal() else 0, 0


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
