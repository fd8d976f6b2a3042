"""The interface of an API family: what the scheduler reads of it, and how it answers in its objects.

A family is read (kinds, decode, membership), explained (the sentence for a rejection) and written (the start
of a gang, and why it is pending). `dialects/registry.py` lists the families.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bayplan.dialects.api import Event, Kind, Write
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.model.change import Change
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import MarkStarted, ReportUnschedulable
from bayplan.model.scheduling_rejection import SchedulingRejection

Membership = tuple[Ref, str, int]
"""The gang of a pod, its pod set and its rank."""


@dataclass(frozen=True, slots=True)
class BoundGang:
    """What the scheduler knows of a gang."""

    spec: GangSpec | None
    bound: Callable[[], Mapping[str, int]]  # bound pods by pod set, also those being bound
    confirmed: Callable[[], Mapping[str, int]]  # without those being bound


@dataclass(frozen=True, slots=True)
class PendingReport:
    """Why a gang is pending: the reason and the message on its pods. `starts`: it starts without them."""

    action: ReportUnschedulable
    reason: str
    message: str
    starts: bool


@dataclass(frozen=True, slots=True)
class StatusReason:
    """Why a gang is pending, as the status of its object shows it; `details` for other controllers."""

    reason: str
    details: Mapping[str, Any] = field(default_factory=dict)


class Reader(Protocol):
    """Reads the objects of a family. A family without gangs, such as reports of nodes, is only this."""

    kinds: tuple[Kind, ...]

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""

    def flush(self) -> Iterator[Change]:
        """The changes that follow from all events since the last call together."""
        return iter(())

    def membership(self, pod: PodWire) -> Membership | None:
        """The gang that a pod belongs to, if it is one of this family."""
        return None

    def reconcile(self, now: float) -> Iterator[Write]:
        """Writes that need no decision."""
        return iter(())


class Dialect(Reader, Protocol):
    """A family with gangs: `names` are the values of `Ref.dialect` of its gangs."""

    names: tuple[str, ...]

    def explain(self, why: SchedulingRejection, gang: Ref, spec: GangSpec | None) -> str:
        """Why a gang is pending, in the words of the family."""

    def pending_writes(self, report: PendingReport, facts: BoundGang, now: float) -> Iterator[Write]:
        """The writes that show on the object of a gang why it is pending."""

    def status_reason(self, report: PendingReport) -> StatusReason | None:
        """The reason for the status of a gang's object, if that status is reconciled as a whole."""
        return None

    def starts_in_parts(self, gang: Ref) -> bool:
        """Whether the start of each part of a gang is recorded by itself."""
        return False

    def start_writes(self, start: MarkStarted, facts: BoundGang, now: float) -> Iterator[Write]:
        """The writes that record on the object of a gang that it has started."""
        return iter(())
