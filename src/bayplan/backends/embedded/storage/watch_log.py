"""The log of recent changes of one kind, and the watches that read it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from bayplan.backends.embedded.api.status import expired

Object = dict[str, Any]

ADDED, MODIFIED, DELETED = "ADDED", "MODIFIED", "DELETED"


@dataclass(frozen=True, slots=True)
class StoreChange:
    """One write: the object after it (when deleted: its last state), and before it."""

    version: int
    type: str
    key: str
    object: Object
    previous: Object | None


class Log:
    """The last `window` changes of one kind. Reading from before them is answered with 410."""

    __slots__ = ("changes", "dropped", "forgotten", "window")

    def __init__(self, window: int, forgotten: int) -> None:
        self.window = window
        self.changes: list[StoreChange] = []
        self.dropped = 0  # how many changes went before changes[0]
        self.forgotten = forgotten  # the newest version that is no longer kept

    def append(self, change: StoreChange) -> None:
        self.changes.append(change)
        if len(self.changes) >= 2 * self.window:  # in large steps: each change is moved once
            self.forget(len(self.changes) - self.window)

    def forget(self, count: int) -> None:
        """Drop the oldest changes."""
        if count > 0:
            self.forgotten = self.changes[count - 1].version
            self.dropped += count
            del self.changes[:count]

    @property
    def end(self) -> int:
        return self.dropped + len(self.changes)

    def place_after(self, version: int) -> int:
        """The position in the log after `version`."""
        if version < self.forgotten:
            raise expired(f"too old resource version: {version} ({self.forgotten})")
        low, high = 0, len(self.changes)
        while low < high:
            middle = (low + high) // 2
            if self.changes[middle].version <= version:
                low = middle + 1
            else:
                high = middle
        return self.dropped + low


class Watch:
    """A reader of a log: `take` gives what happened since the last time, as seen through the selectors."""

    __slots__ = ("_convert", "_initial", "_log", "_matches", "_place", "_prefix", "_release", "closed")

    def __init__(
        self,
        log: Log,
        place: int,
        *,
        prefix: str,
        matches: Callable[[Object], bool] | None,
        convert: Callable[[Object], Object] | None,
        release: Callable[[Watch], None],
        initial: list[Object] | None = None,
    ) -> None:
        self._log = log
        self._place = place
        self._prefix = prefix
        self._matches = matches
        self._convert = convert
        self._release = release
        self._initial = initial or []
        self.closed = False

    def take(self) -> list[tuple[str, Object]]:
        """(type, object) of every change since the last call; StatusError 410 if the log has expired."""
        taken = [(ADDED, item) for item in self._initial]
        self._initial = []
        log = self._log
        start = self._place - log.dropped
        if start < 0:
            raise expired(f"too old resource version: this watch fell behind ({log.forgotten})")
        if start < len(log.changes):
            for change in log.changes[start:]:
                if change.key.startswith(self._prefix):
                    seen = self._seen(change)
                    if seen is not None:
                        taken.append(seen)
            self._place = log.end
        if self._convert is not None:
            return [(kind, self._convert(item)) for kind, item in taken]
        return taken

    def waiting(self) -> bool:
        """Whether `take` may have something to give."""
        return self._place < self._log.end or bool(self._initial)

    def close(self) -> None:
        """Read no more."""
        if not self.closed:
            self.closed = True
            self._release(self)

    def _seen(self, change: StoreChange) -> tuple[str, Object] | None:
        matches = self._matches
        if matches is None:
            return change.type, change.object
        now = change.type != DELETED and matches(change.object)
        before = change.previous is not None and matches(change.previous)
        if now:
            return (MODIFIED if before else ADDED), change.object
        if not before:
            return None
        if change.type == DELETED:
            return DELETED, change.object
        assert change.previous is not None
        return DELETED, with_version(change.previous, change.version)


def with_version(item: Mapping[str, Any], version: int) -> Object:
    """The same object with another resourceVersion; everything but its metadata is shared."""
    return {**item, "metadata": {**item["metadata"], "resourceVersion": str(version)}}
