"""Objects as last seen, in watch events and in the answers of writes: the newest version counts."""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeGuard

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.model.whole_numbers import whole_number

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""
DELETED_MAX = 1000  # uids of deleted objects that a controller remembers


class ObjectCache:
    """The objects of some kinds. Events always count; an answer counts if it is newer."""

    def __init__(self, *kinds: Kind) -> None:
        self._objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in kinds}

    def __contains__(self, kind: Kind) -> bool:
        return kind in self._objects

    def of(self, kind: Kind) -> dict[Key, Object]:
        """The objects of a kind."""
        return self._objects[kind]

    def note(self, event: Event) -> tuple[Key, Object | None, Object | None]:
        """Apply an event; returns the key of its object, and the object before and after it."""
        key, objects = key_of(event.kind, event.object), self._objects[event.kind]
        before = objects.get(key)
        if event.happened is not Happened.GONE:
            objects[key] = event.object
            return key, before, event.object
        objects.pop(key, None)
        return key, before, None

    def take_answer(self, kind: Kind, answer: object) -> None:
        """Apply the answer of an update, if it is newer; the watch will repeat it."""
        if isinstance(answer, dict) and "metadata" in answer:
            key, objects = key_of(kind, answer), self._objects[kind]
            if is_newer(answer, objects.get(key)):
                objects[key] = answer


def is_newer(
    answer: object, known: Object | None, deleted: Container[str] | None = None
) -> TypeGuard[Object]:
    """Whether the answer of a write is newer than the object that is known.

    If none is known, the answer of a create is, unless the watch has shown since that the object was deleted;
    `deleted` has the uids of such objects.
    """
    if not isinstance(answer, dict) or "metadata" not in answer:
        return False
    if known is None:
        return deleted is not None and uid_of(answer) not in deleted
    return uid_of(answer) == uid_of(known) and version_of(answer) > version_of(known)


def key_of(kind: Kind, obj: Object) -> Key:
    """The namespace and name of an object."""
    meta = obj["metadata"]
    return (meta.get("namespace") or "default" if kind.namespaced else "", meta["name"])


def uid_of(obj: Object) -> str:
    """The uid of an object; empty if it has none."""
    return str(obj["metadata"].get("uid", ""))


def version_of(obj: Object) -> int:
    """The resourceVersion of an object as a number, to compare two versions."""
    return whole_number(str(obj["metadata"].get("resourceVersion", ""))) or 0
