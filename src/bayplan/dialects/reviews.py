"""The interface of webhook functions: what a family reviews, and what its functions look up.

The API server asks for a review of each write; functions validate an object, add defaults, or give advice.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from bayplan.dialects.api import Event, Kind
from bayplan.dialects.jobs.part import Find, find_nothing
from bayplan.dialects.kube.fields.reader import FieldError

Object = dict[str, Any]
Validate = Callable[[Object | None, Object | None], Sequence[FieldError]]
"""The errors of a new object; the old one is None on creation, the new one None on deletion."""
Mutate = Callable[[Object, Object | None], Object]
"""The new object with defaults."""
Advise = Callable[[Object], Sequence[str]]
"""Warnings about an object that is accepted."""


@dataclass(frozen=True, slots=True)
class Reviewed:
    """The functions that review writes of one resource."""

    group: str
    resource: str  # with a subresource after a slash
    operations: tuple[str, ...] = ("CREATE", "UPDATE")
    mutate: tuple[Mutate, ...] = ()
    validate: tuple[Validate, ...] = ()
    advise: tuple[Advise, ...] = ()
    fail_open: bool = False  # an exception lets the write pass, instead of refusing it


class OwnerUnknown(Exception):
    """It is not known whether an owner exists."""


FindOwner = Callable[[str, str, str, str], Object | None]
"""Looks up an owner by group, kind, namespace and name; None if absent. OwnerUnknown if not known."""
HasClass = Callable[[str, str], bool]
"""Whether a priority class of a kind and name exists."""


def no_owner(group: str, kind: str, namespace: str, name: str) -> Object | None:
    """A `FindOwner` for which no owner exists."""
    return None


def unknown_owner(group: str, kind: str, namespace: str, name: str) -> Object | None:
    """A `FindOwner` that does not know which owners exist."""
    raise OwnerUnknown


def any_class(kind: str, name: str) -> bool:
    """A `HasClass` for which every class exists."""
    return True


@dataclass(frozen=True, slots=True)
class LookUps:
    """How webhook functions look up other objects."""

    queue: Find = find_nothing  # the default queue of a namespace
    owner: FindOwner = no_owner  # the owner of a pod
    levels: Callable[[], Collection[str]] = tuple  # of all topologies; empty: unknown
    controller: FindOwner = unknown_owner  # the controller that a job or pod names
    has_class: HasClass = any_class


NO_LOOK_UPS = LookUps()


class WatchedFacts(Protocol):
    """What look-ups need of watched objects."""

    kinds: tuple[Kind, ...]
    awaited: tuple[Kind, ...]  # reviews begin when the objects of these kinds are known

    def take(self, event: Event) -> None:
        """Take an event of one of the kinds."""

    def queue(self, kind: str, namespace: str, name: str) -> object:
        """The default queue of a namespace, reduced to its name."""

    def levels(self) -> Collection[str]:
        """The levels of all topologies."""
