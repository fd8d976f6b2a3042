"""What every backend offers: events that happened, writes to make, and how each write ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Kind:
    """A resource of the API: how it is addressed, and which of its fields are wanted."""

    group: str  # "" for the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    wire: type[Any] | None = None  # a msgspec Struct with the fields to decode; None: plain dicts
    optional: bool = False  # the cluster may lack it, and may gain it later
    field_selector: str = ""
    label_selector: str = ""
    within: str = ""  # the one namespace that is looked at; all if empty

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The URL path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of a part of it."""
        parts = [self.root]
        namespace = namespace or self.within
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Happened(StrEnum):
    """What an event says about its object."""

    SEEN = "seen"  # new or changed, or still there after a relist
    GONE = "gone"
    SYNCED = "synced"  # everything that existed at the start (or at a relist) has been reported


@dataclass(frozen=True, slots=True)
class Event:
    """One thing that happened to one object; for one object in the order it happened."""

    happened: Happened
    kind: Kind
    object: Any = None  # the Struct named by the kind, or a dict; the last known state when gone
    version: str = ""  # resourceVersion


class Verb(StrEnum):
    """How a write is made."""

    CREATE = "create"
    UPDATE = "update"
    MERGE_PATCH = "merge_patch"
    STRATEGIC_PATCH = "strategic_patch"  # lists that have keys, such as conditions, are merged by them
    APPLY = "apply"  # server-side apply
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Write:
    """A wish to change one object, with the precondition under which it may happen.

    Writes to one object, or of one line, are made in the order submitted; all others concurrently.
    """

    verb: Verb
    kind: Kind
    namespace: str
    name: str
    body: Mapping[str, Any] = field(default_factory=dict)
    subresource: str = ""  # status, binding, eviction, …
    uid: str = ""  # precondition: still the same object
    version: str = ""  # precondition: not changed since
    grace_seconds: int | None = None  # for delete
    line: str = ""  # for objects that should come into being one after the other: any name for the row
    tag: object = None  # handed back with the outcome; never sent


class Ended(StrEnum):
    """How a write ended."""

    DONE = "done"
    CONFLICT = "conflict"  # someone else changed the object first
    GONE = "gone"  # the object, or the very one that was meant, is no more
    REFUSED = "refused"  # invalid or forbidden: trying again as it is cannot help
    TIMED_OUT = "timed_out"  # nobody knows whether it happened


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """The end of one write."""

    write: Write
    ended: Ended
    status: int = 0  # HTTP status, 0 if there was no answer
    message: str = ""
    object: Any = None  # what the server answered, if an object


class Backend(Protocol):
    """What the loop needs. Nothing here blocks except `wait`."""

    def watch(self, kinds: Sequence[Kind]) -> None:
        """Begin to report on these kinds."""

    def events(self) -> Iterable[Event]:
        """Everything that happened since the last call."""

    def submit(self, writes: Sequence[Write]) -> None:
        """Begin these writes."""

    def outcomes(self) -> Iterable[WriteOutcome]:
        """Every write that ended since the last call."""

    def wait(self, seconds: float) -> None:
        """Sleep until something happened or the time is up."""

    def close(self, grace_seconds: float = 10.0) -> None:
        """Finish writes in flight, then let go of everything."""
