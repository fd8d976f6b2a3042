"""The interface of a backend: watch events, writes, and the outcome of each write."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Kind:
    """An API resource: group, version and plural, selectors, and the fields to decode."""

    group: str  # "" for the core group
    version: str
    kind: str
    plural: str
    namespaced: bool = True
    wire: type[Any] | None = None  # a msgspec Struct with the fields to decode; None: plain dicts
    # it may not be served by the cluster, or only later; it is the same kind for all that
    optional: bool = field(default=False, compare=False)
    # writes of these objects wait while others are in flight; it is the same kind for all that
    low_priority: bool = field(default=False, compare=False)
    field_selector: str = ""
    label_selector: str = ""
    only_namespace: str = ""  # restricts the watch to one namespace; empty: all namespaces

    def __hash__(self) -> int:
        """Of the fields that tell most kinds apart: kinds are looked up for every event."""
        return hash((self.group, self.plural))

    @property
    def api_version(self) -> str:
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def root(self) -> str:
        """The URL path of the group version."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """The URL path of the collection, of one object, or of one of its subresources."""
        parts = [self.root]
        namespace = namespace or self.only_namespace
        if self.namespaced and namespace:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/".join(parts)


class Happened(StrEnum):
    """The type of a watch event."""

    SEEN = "seen"  # created or changed, or still present after a relist
    GONE = "gone"  # deleted
    # Every object that existed at the start (or at a relist) has been reported; without a version: the kind
    # cannot be read, because it is not served or not allowed, and counts as empty.
    SYNCED = "synced"


@dataclass(frozen=True, slots=True)
class Event:
    """A watch event of one object. The events of one object arrive in order."""

    happened: Happened
    kind: Kind
    object: Any = None  # the Struct named by the kind, or a dict; the last known state when gone
    version: str = ""  # resourceVersion
    _decoded: dict[Callable[[Any], Any], Any] | None = field(
        default=None, init=False, compare=False, repr=False
    )

    def once(self, decode: Callable[[Any], T]) -> T:
        """What this function makes of the object: the same value for every controller of the process.

        An error is raised to each of them.
        """
        if self._decoded is None:
            object.__setattr__(self, "_decoded", {})
            assert self._decoded is not None
        if decode not in self._decoded:
            self._decoded[decode] = decode(self.object)
        found: T = self._decoded[decode]
        return found


class InvalidInUse(ValueError):
    """An invalid object holds quota or capacity. It must not count as absent: what it holds counts."""


class Verb(StrEnum):
    """The HTTP operation of a write."""

    CREATE = "create"
    UPDATE = "update"
    MERGE_PATCH = "merge_patch"
    STRATEGIC_PATCH = "strategic_patch"  # lists with merge keys, such as conditions, are merged by key
    APPLY = "apply"  # server-side apply
    DELETE = "delete"


@dataclass(frozen=True, slots=True)
class Write:
    """A change of one object, with its preconditions.

    Writes to one object, or with the same `order_key`, are made in the order submitted; others concurrently.
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
    order_key: str = ""  # ordering key: writes with the same key are made one after the other
    tag: object = None  # handed back with the outcome; never sent


class Ended(StrEnum):
    """The result of a write."""

    DONE = "done"
    CONFLICT = "conflict"  # the object was changed since it was read
    GONE = "gone"  # the object does not exist, or another one has its name (uid)
    REFUSED = "refused"  # invalid or forbidden: the same write would be refused again
    TIMED_OUT = "timed_out"  # no answer: the write may or may not have been made


@dataclass(frozen=True, slots=True)
class WriteOutcome:
    """How one write ended."""

    write: Write
    ended: Ended
    status: int = 0  # HTTP status, 0 if there was no answer
    message: str = ""
    object: Any = None  # the object in the server's response, if there is one


class Backend(Protocol):
    """The API client of the control loop. Only `wait` blocks."""

    def watch(self, kinds: Sequence[Kind]) -> None:
        """Start watching these kinds."""

    def events(self) -> Iterable[Event]:
        """The events received since the last call."""

    def submit(self, writes: Sequence[Write]) -> None:
        """Start these writes."""

    def outcomes(self) -> Iterable[WriteOutcome]:
        """The writes that ended since the last call."""

    def wait(self, seconds: float) -> None:
        """Sleep until there is an event or outcome, or the time is up."""

    def close(self, grace_seconds: float = 10.0) -> None:
        """Finish the writes in flight, then close all connections."""
