"""The interface of an API family: what controllers and webhooks read of it, and what it writes to its API.

A family is read (kinds, decode, membership), explained (the sentence for a rejection), written (the start of
a gang, its admission, why it is pending) and validated (reviews). `dialects/registry.py` lists the families.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from bayplan.dialects.api import Event, Kind, Write
from bayplan.dialects.kube.decode.wire import PodWire
from bayplan.dialects.reviews import LookUps, Reviewed
from bayplan.model.change import Change
from bayplan.model.gang import GangSpec, Ref
from bayplan.model.plan import Admit, EvictGang, MarkStarted, ReportNotAdmitted, ReportUnschedulable
from bayplan.model.pod import Pod
from bayplan.model.quota import NamespaceQueue, Queue
from bayplan.model.rejection import Rejection, RejectionReason
from bayplan.model.summary import Summaries

Object = dict[str, Any]
Key = tuple[str, str]
AdmissionAction = Admit | EvictGang | ReportNotAdmitted
"""What admission decides on a gang, and shows on its object."""

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

    @staticmethod
    def reviews(look_ups: LookUps) -> Iterator[Reviewed]:
        """The webhook functions of the family."""
        return iter(())

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

    def explain(self, why: Rejection, gang: Ref, spec: GangSpec | None) -> str:
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


class StatusSource(Protocol):
    """Statuses that are computed as a whole, of objects that concern each other."""

    def set_pending(self, ref: Ref, shown: StatusReason, message: str, now: float) -> bool:
        """Set why a gang is pending; whether that is news."""

    def is_pending(self, ref: Ref) -> bool:
        """Whether a reason is set."""

    def has_changed(self) -> bool:
        """Whether `changed` has anything."""

    def changed(self) -> Iterator[Ref]:
        """The objects whose status may be another one since the last call."""

    def write(self, ref: Ref, now: float) -> Write | None:
        """The write of a status; None if the object has it, or does not exist."""

    def is_known(self, ref: Ref) -> bool:
        """Whether the object exists."""


class SlotReader(Protocol):
    """Reads admitted gangs as slots that the scheduler keeps for their pods."""

    kinds: tuple[Kind, ...]
    templates: Kind  # of claims for devices, which the pods of slots are going to have

    def note(self, event: Event) -> None:
        """Note an object of devices that slots may depend on."""

    def flush(self) -> Iterator[Change]:
        """The slots that depend on objects which changed since the last call."""

    def decode(self, event: Event) -> Iterator[Change]:
        """The slots of an admitted gang."""

    def ref_of(self, obj: Object) -> Ref:
        """The gang of an object."""

    def version_of(self, obj: Object) -> int:
        """The version of an object as a number."""


class QueueDialect(Protocol):
    """A family with queues: quota and placement are decided for its gangs, and shown on their objects."""

    kinds: tuple[Kind, ...]
    gangs: Kind  # the objects of queued gangs
    with_status: tuple[Kind, ...]  # queues and the like whose status is written
    with_finalizer: tuple[Kind, ...]  # objects that must not vanish while they are in use
    referred: tuple[Kind, ...]  # objects that statuses depend on
    urgent: tuple[Kind, ...]  # gangs wait until a new object has its finalizer

    @staticmethod
    def reviews(look_ups: LookUps) -> Iterator[Reviewed]:
        """The webhook functions of the family."""

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means."""

    def decode_usage(self, event: Event) -> Iterator[Change]:
        """What an admitted gang holds, if nothing else of its object can be decoded."""

    def assumed_pod(self, pod: Pod, node: str) -> Change:
        """A pod as it will be on a node."""

    def ref_of(self, obj: Object) -> Ref:
        """The gang of an object."""

    def concerned(self, event: Event, objects: Mapping[Key, Object]) -> Iterable[Key]:
        """The objects of gangs to reconcile because of an event about a queue."""

    def status_after(
        self, action: AdmissionAction, obj: Object, now: float,
        holders: Callable[[], Collection[str]], levels: Callable[[], Collection[str]],
    ) -> Object | None:  # fmt: skip
        """The status that shows a decision; None if it is shown already."""

    def status_write(self, obj: Object, status: Object, tag: object) -> Write:
        """The write of a status."""

    def action_events(
        self, action: AdmissionAction, before: Object, now: float, status: Object | None = None
    ) -> Iterator[Write]:
        """The events that announce a decision."""

    def is_reworded(self, obj: Object, status: Object) -> bool:
        """Whether a gang is pending for the same reason as before, in other words."""

    def is_undecided(self, obj: Object, code: RejectionReason) -> bool:
        """Whether the status shows no decision yet, or another one than this."""

    def status_due(
        self, obj: Object, queues: Mapping[str, Queue], local: Mapping[Key, NamespaceQueue], now: float
    ) -> Object | None:
        """The status that a gang should have between decisions; None if it has that."""

    def status_events(self, before: Object, status: Object, now: float) -> Iterator[Write]:
        """The events that announce such a status."""

    def requeue_at(self, obj: Object) -> float:
        """When a gang may be decided on again."""

    def deactivation(self, obj: Object, tag: object) -> Write | None:
        """The write that deactivates a gang, if that is due."""

    def queue_status(
        self, kind: Kind, key: Key, obj: Object, summary: Summaries, refused: str,
        names: Callable[[Kind], Collection[str]], now: float,
    ) -> Object | None:  # fmt: skip
        """The status of a queue or the like; None if it has that."""

    def finalizers(self, kind: Kind, obj: Object, summary: Summaries) -> list[str] | None:
        """The finalizers of an object; None if it has these."""
