"""Objects as last seen, in watch events and in the answers of writes: the newest version counts."""

from __future__ import annotations

from collections import deque
from typing import Any, TypeGuard

from bayplan.dialects.api import Event, Happened, Kind
from bayplan.model.whole_numbers import whole_number

Object = dict[str, Any]
Key = tuple[str, str]
"""Namespace and name; the namespace of a cluster-scoped object is empty."""
DELETED_MAX = 1000


class AnswerFilter:
    """Tells which answers of writes are newer than what the watch has shown.

    The answer of a create may arrive after the watch has shown the object's deletion; the uids of deleted
    objects are kept for that.
    """

    def __init__(self) -> None:
        self._deleted: deque[str] = deque(maxlen=DELETED_MAX)

    def deleted(self, uid: str) -> None:
        """The watch has shown that an object was deleted."""
        self._deleted.append(uid)

    def is_newer(self, answer: object, known: Object | None, *, created: bool = False) -> bool:
        """Whether the answer of a write shows an object as it is now; `known` is what the watch has shown."""
        if known is None:
            return created and _is_object(answer) and not self.was_deleted(uid_of(answer))
        return is_newer(answer, known)

    def was_deleted(self, uid: str) -> bool:
        """Whether the watch has shown the deletion of this object."""
        return uid in self._deleted


class ObjectCache:
    """The objects of some kinds. Events always count; an answer counts if it is newer."""

    def __init__(self, *kinds: Kind) -> None:
        self._objects: dict[Kind, dict[Key, Object]] = {kind: {} for kind in kinds}
        self._answers = AnswerFilter()

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
        self._answers.deleted(uid_of(event.object))
        return key, before, None

    def take_answer(self, kind: Kind, answer: object, *, created: bool = False) -> bool:
        """Apply the answer of a write, before the watch repeats it; returns whether it was newer."""
        if not _is_object(answer):
            return False
        key, objects = key_of(kind, answer), self._objects[kind]
        newer = self._answers.is_newer(answer, objects.get(key), created=created)
        if newer:
            objects[key] = answer
        return newer


def is_newer(answer: object, known: Object | None) -> TypeGuard[Object]:
    """Whether the answer of a write is a newer version of an object that is known."""
    if known is None or not _is_object(answer):
        return False
    return uid_of(answer) == uid_of(known) and version_of(answer) > version_of(known)


def _is_object(answer: object) -> TypeGuard[Object]:
    return isinstance(answer, dict) and "metadata" in answer


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
