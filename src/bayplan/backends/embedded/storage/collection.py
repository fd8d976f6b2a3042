"""The objects of one kind, sorted as an API server lists them, with the log of their changes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable
from typing import Any

from bayplan.backends.embedded.storage.watch_log import ADDED, DELETED, MODIFIED, Log, StoreChange

Object = dict[str, Any]


class ObjectCollection:
    """Objects by key: `namespace/name`, or the name alone."""

    __slots__ = ("_everything", "keys", "log", "objects", "storage")

    def __init__(self, storage: str, window: int, version: int) -> None:
        self.storage = storage
        self.objects: dict[str, Object] = {}
        self.keys: list[str] = []
        self.log = Log(window, version)
        self._everything: tuple[Object, ...] | None = None  # until the next change

    def everything(self) -> tuple[Object, ...]:
        """All objects in order; the same tuple until one of them changes."""
        if self._everything is None:
            self._everything = tuple([self.objects[key] for key in self.keys])
        return self._everything

    def put(self, version: int, key: str, item: Object) -> StoreChange:
        """Store an object, new or changed."""
        old = self.objects.get(key)
        if old is None:
            insort(self.keys, key)
        self.objects[key] = item
        return self._logged(StoreChange(version, ADDED if old is None else MODIFIED, key, item, old))

    def drop(self, version: int, key: str, last: Object) -> StoreChange:
        """Remove an object."""
        old = self.objects.pop(key)
        del self.keys[bisect_left(self.keys, key)]
        return self._logged(StoreChange(version, DELETED, key, last, old))

    def select(
        self, prefix: str, after: str = "", matches: Callable[[Object], bool] | None = None
    ) -> list[Object]:
        """The objects whose keys start with the prefix and come after a key, in order."""
        return self.select_from(self.objects, self.keys, prefix, after, matches)

    @staticmethod
    def select_from(
        objects: dict[str, Object],
        keys: list[str],
        prefix: str,
        after: str,
        matches: Callable[[Object], bool] | None,
    ) -> list[Object]:
        """As `select`, in a given set of objects."""
        start = bisect_left(keys, max(prefix, after))
        end = bisect_left(keys, _beyond(prefix)) if prefix else len(keys)
        if start < end and keys[start] == after:
            start += 1
        found = [objects[key] for key in keys[start:end]]
        return found if matches is None else [item for item in found if matches(item)]

    def as_of(self, version: int) -> tuple[dict[str, Object], list[str]]:
        """The objects as they were at a version, from the log; 410 when that is no longer kept."""
        place = self.log.place_after(version) - self.log.dropped
        if place == len(self.log.changes):
            return self.objects, self.keys
        objects = dict(self.objects)
        for change in reversed(self.log.changes[place:]):
            if change.previous is None:
                objects.pop(change.key, None)
            else:
                objects[change.key] = change.previous
        return objects, sorted(objects)

    def _logged(self, change: StoreChange) -> StoreChange:
        self._everything = None
        self.log.append(change)
        return change


def _beyond(prefix: str) -> str:
    """The first key after all that start with the prefix."""
    return prefix[:-1] + chr(ord(prefix[-1]) + 1)
