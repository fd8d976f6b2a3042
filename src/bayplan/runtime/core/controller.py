"""What the loop does its rounds for: a role reads events, decides on a frozen view, says what to write."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from bayplan.dialects.api import Ended, Event, Kind, Write, WriteOutcome
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Plan
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.core.containment import UNCONTAINED, Containment


class Recorder(Protocol):
    """Where every change, plan, failure and outcome is noted."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Settled:
    """How the write of an action ended."""

    ended: Ended
    message: str
    action: Action


class UnreadObjects(Protocol):
    """Objects that are there and could not be read; those unknown before must not be taken for gone."""

    def __contains__(self, what: object) -> bool:
        """Whether it is one of them: kind, namespace and name."""

    def has_any(self, kind: str, namespace: str) -> bool:
        """Whether any of a kind is one of them."""


class _NothingUnread:
    """All is read."""

    def __contains__(self, what: object) -> bool:
        return False

    def has_any(self, kind: str, namespace: str) -> bool:
        return False


NOTHING_UNREAD: UnreadObjects = _NothingUnread()


@dataclass(frozen=True, slots=True)
class DecisionFault:
    """Why a gang could not be decided on: an error with an id, or it took longer than it may."""

    id: str = ""
    seconds: float = 0.0  # the budget that ran out
    so_far: object = None  # what had been found then


class Controller(Protocol):
    """One job of Bayplan. `look` freezes what `decide` may see; the rest happens around it."""

    name: str
    kinds: tuple[Kind, ...]
    believes: bool  # changes are folded into a state; else it only keeps objects
    containment: Containment  # set by the loop; every object, action or key is a unit of work of its own
    unread: UnreadObjects  # set by the loop; objects that are there and could not be read

    def decode(self, event: Event) -> Iterator[Change]:
        """What an event means to this role."""

    def gathered(self) -> Iterable[Change]:
        """What only all events since the last time mean together."""

    def fold(self, changes: Iterable[Change]) -> None:
        """Believe what happened."""

    def look(self, now: float) -> Any:
        """A frozen view for the gangs whose turn it is, or None if it is nobody's."""

    def decide(self, view: Any, now: float, watchdog: Watchdog | None = None) -> Plan:
        """Pure: what to do, given the view."""

    def budget(self, view: Any) -> float:
        """For how many seconds a decision may go on about one gang."""

    def asking(self, view: Any) -> tuple[Ref, ...]:
        """The gangs that are decided on, in the order of their turns."""

    def only(self, view: Any, gangs: Collection[Ref]) -> Any:
        """The same view, in which nobody but these gangs is decided on."""

    def refusal(self, view: Any, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
        """What is done about a gang that could not be decided on."""

    def is_intact(self) -> bool:
        """Whether a decision that failed has left nothing behind."""

    def assume(self, plan: Plan, now: float) -> None:
        """Believe the plan until the API says otherwise."""

    def encode(self, plan: Plan, now: float) -> Iterable[Write]:
        """How the plan is carried out."""

    def take_unwritten(self) -> list[Action]:
        """Actions that could not be encoded since the last time; the loop settles them as refused."""

    def keep(self, now: float) -> Iterable[Write]:
        """Housekeeping that needs no decision."""

    def settle(self, settled: Settled, now: float) -> None:
        """Believe how a write ended."""

    def follow_up(self, outcome: WriteOutcome, now: float) -> Iterable[Write]:
        """What is to be written once a write has ended."""

    def under_way(self) -> Plan:
        """What was decided and is not known to have happened."""

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""


class Reconciler:
    """A role that decides nothing: it keeps objects in step with what others decided.

    What it has to know it notes when events are decoded.
    """

    believes = False
    containment: Containment = UNCONTAINED
    unread: UnreadObjects = NOTHING_UNREAD

    def gathered(self) -> Iterable[Change]:
        return ()

    def fold(self, changes: Iterable[Change]) -> None:
        """Events are decoded while this is read."""
        for _ in changes:
            continue

    def look(self, now: float) -> None:
        return None

    def decide(self, view: Any, now: float, watchdog: Watchdog | None = None) -> Plan:
        return Plan()

    def budget(self, view: Any) -> float:
        return float("inf")

    def asking(self, view: Any) -> tuple[Ref, ...]:
        return ()

    def only(self, view: Any, gangs: Collection[Ref]) -> Any:
        return view

    def refusal(self, view: Any, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
        raise AssertionError(f"{gang} is decided on by nobody here")

    def is_intact(self) -> bool:
        return True

    def under_way(self) -> Plan:
        return Plan()

    def assume(self, plan: Plan, now: float) -> None:
        """There are no plans."""

    def encode(self, plan: Plan, now: float) -> Iterable[Write]:
        return ()

    def take_unwritten(self) -> list[Action]:
        return []

    def settle(self, settled: Settled, now: float) -> None:
        """There are no actions."""
