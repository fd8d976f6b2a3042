"""The last reported state of each object, so that no event is repeated, out of order or lost."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from bayplan.backends.remote.decoding import Identity
from bayplan.dialects.api import Event, Happened, Kind

REMEMBERED_GONE_MAX = 10_000


class WatchCache:
    """Turns lists and watch events into the events of one kind. No I/O."""

    def __init__(self, kind: Kind, identify: Callable[[Any], Identity]) -> None:
        self._kind, self._identify = kind, identify
        self._objects: dict[tuple[str, str], tuple[str, str, Any]] = {}  # uid, version, object
        self._gone: dict[tuple[str, str], str] = {}  # the version at which an object went
        self._listed: set[tuple[str, str]] | None = None  # seen in the list that is under way

    def __len__(self) -> int:
        return len(self._objects)

    @property
    def listing(self) -> bool:
        """Whether a list is under way."""
        return self._listed is not None

    def begin_list(self) -> None:
        """From here on until `finish_list`, what is not seen does not exist."""
        self._listed = set()

    def seen(self, found: Any, out: list[Event]) -> str:
        """An object exists, in this state. Returns its version."""
        namespace, name, uid, version = self._identify(found)
        key = namespace, name
        if self._listed is not None:
            self._listed.add(key)
        before = self._objects.get(key)
        if before is None:
            went = self._gone.get(key)
            if went is not None:
                if not newer(version, went):
                    return version  # an echo from before it went
                del self._gone[key]
        else:
            if not newer(version, before[1]):
                return version
            if uid != before[0]:  # its end was missed
                out.append(Event(Happened.GONE, self._kind, before[2], before[1]))
        self._objects[key] = uid, version, found
        out.append(Event(Happened.SEEN, self._kind, found, version))
        return version

    def unreadable(self, key: tuple[str, str]) -> None:
        """An object exists but cannot be decoded: its last reported state remains."""
        if self._listed is not None:
            self._listed.add(key)

    def gone(self, found: Any, out: list[Event]) -> str:
        """An object no longer exists (or no longer matches the selector). Returns the version of that."""
        namespace, name, _, version = self._identify(found)
        key = namespace, name
        before = self._objects.get(key)
        if before is None or (before[1] != version and not newer(version, before[1])):
            return version  # known already, or the end of an earlier object of that name
        self._forget(key, version)
        out.append(Event(Happened.GONE, self._kind, found, version))
        return version

    def gone_unread(self, key: tuple[str, str], version: str, out: list[Event]) -> None:
        """An object was deleted and its last state cannot be decoded: the reported one is used."""
        before = self._objects.get(key)
        if before is not None and (before[1] == version or newer(version, before[1])):
            self._forget(key, version)
            out.append(Event(Happened.GONE, self._kind, before[2], version))

    def finish_list(self, version: str, out: list[Event]) -> None:
        """The list is complete: what it did not have is gone."""
        listed, self._listed = self._listed or set(), None
        for key in [key for key in self._objects if key not in listed]:
            before = self._objects[key]
            self._forget(key, version)
            out.append(Event(Happened.GONE, self._kind, before[2], before[1]))
        out.append(Event(Happened.SYNCED, self._kind, version=version))

    def all_gone(self, out: list[Event]) -> None:
        """The kind itself is gone, and every object with it."""
        self.begin_list()
        self.finish_list("", out)
        self._gone.clear()

    def forget_versions(self) -> None:
        """The history of the server was reset (a restored backup): known versions are meaningless."""
        self._gone.clear()
        self._objects = {key: (uid, "", found) for key, (uid, _, found) in self._objects.items()}

    def _forget(self, key: tuple[str, str], version: str) -> None:
        del self._objects[key]
        self._gone.pop(key, None)
        self._gone[key] = version
        if len(self._gone) > REMEMBERED_GONE_MAX:
            del self._gone[next(iter(self._gone))]


def newer(version: str, than: str) -> bool:
    """Whether a resourceVersion comes after another; those that are no numbers can only differ."""
    if version.isdecimal() and than.isdecimal():
        return int(version) > int(than)
    return version != than
