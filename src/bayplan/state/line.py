"""Gangs that want something: each in exactly one place, ordered, and woken by what could help it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bayplan.model.gang import Ref

NEVER = float("inf")


class Place(StrEnum):
    """Where a gang stands."""

    INCOMPLETE = "incomplete"  # its charter or some of its pods are not there yet, or are held back
    READY = "ready"  # to be tried now
    BACKOFF = "backoff"  # something went wrong; to be tried at a certain time
    PARKED = "parked"  # does not fit; to be tried when something happens that may help
    MAKING_ROOM = "making_room"  # others are on their way out for it
    COMMITTED = "committed"  # decided; the writes are on their way
    RUNNING = "running"  # every pod has a node


@dataclass(slots=True)
class Entry:
    """One gang's standing. Higher priority first, then who waits longer, then by name."""

    ref: Ref
    priority: int = 0
    since: float = 0.0
    place: Place = Place.INCOMPLETE
    due: float = NEVER
    tries: int = 0
