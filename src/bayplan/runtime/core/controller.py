"""The controller interface: decode events, decide on a snapshot, and encode the writes."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from bayplan.dialects.api import Ended, Event, Kind, Write, WriteOutcome
from bayplan.model.change import Change
from bayplan.model.gang import Ref
from bayplan.model.plan import Action, Plan
from bayplan.model.watchdog import Watchdog
from bayplan.runtime.core.containment import UNCONTAINED, Containment


class Recorder(Protocol):
    """Records every change, plan, failure and outcome."""

    def record(self, now: float, what: str, body: object, role: str = "") -> None: ...


@dataclass(frozen=True, slots=True)
class Settled:
    """How the write of an action ended."""

    ended: Ended
    message: str
    action: Action


class UnreadObjects(Protocol):
    """Objects that exist and could not be decoded; they must not count as deleted."""

    def __contains__(self, what: object) -> bool:
        """Whether the object of this kind, namespace and name is one of them."""

    def objects(self, kind: Kind, namespace: str) -> Iterator[Any]:
        """Those of a kind in a namespace."""


class _NothingUnread:
    """Every object was decoded."""

    def __contains__(self, what: object) -> bool:
        return False

    def objects(self, kind: Kind, namespace: str) -> Iterator[Any]:
        return iter(())


NOTHING_UNREAD: UnreadObjects = _NothingUnread()


@dataclass(frozen=True, slots=True)
class DecisionFault:
    """Why no decision was made on a gang: an error with an id, or the time budget ran out."""

    id: str = ""
    seconds: float = 0.0  # the time budget that ran out
    so_far: object = None  # the result so far


class Look(StrEnum):
    """What a state was asked for at a time; it works out then what changes mean for gangs."""

    HEADS = "heads"  # the gangs to decide on; there were none
    DUE = "due"  # when something is due


class Controller(Protocol):
    """One controller of Bayplan. `decide` reads what `snapshot` took; the rest surrounds it."""

    name: str
    kinds: tuple[Kind, ...]
    has_state: bool  # applies changes to a state; otherwise it only caches objects
    containment: Containment  # set by the loop; every object, action or key is a unit of work of its own
    unread: UnreadObjects  # set by the loop; objects that exist and could not be decoded

    def decode(self, event: Event) -> Iterator[Change]:
        """The changes that an event means for this controller."""

    def decode_usage(self, event: Event) -> Iterable[Change]:
        """What an object uses in any case, if it could not be decoded as a whole."""

    def flush(self) -> Iterable[Change]:
        """Changes that follow from all events since the last call together."""

    def apply(self, changes: Iterable[Change]) -> None:
        """Apply changes to the state."""

    def prepare(self) -> None:
        """Build what decisions need and takes long in a large cluster; called while another replica leads."""

    def snapshot(self, now: float) -> Any:
        """A snapshot for the gangs to decide on now, or None if there are none."""

    def decide(self, view: Any, now: float, watchdog: Watchdog | None = None) -> Plan:
        """The plan for a snapshot. A pure function."""

    def budget(self, view: Any) -> float:
        """Time budget in seconds for the decision on one gang."""

    def candidates(self, view: Any) -> tuple[Ref, ...]:
        """The gangs to decide on, in order."""

    def restricted_to(self, view: Any, gangs: Collection[Ref]) -> Any:
        """The same snapshot with only these gangs to decide on."""

    def rejection(self, view: Any, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
        """The actions for a gang on which no decision could be made."""

    def is_intact(self) -> bool:
        """Whether a failed decision left the state unchanged."""

    def assume(self, plan: Plan, now: float) -> None:
        """Assume the plan until the API server confirms or denies it."""

    def encode(self, plan: Plan, now: float) -> Iterable[Write]:
        """The writes that carry out the plan."""

    def take_unwritten(self) -> list[Action]:
        """Actions that could not be encoded since the last call; the loop settles them as refused."""

    def reconcile(self, now: float) -> Iterable[Write]:
        """Reconcile: writes that need no decision."""

    def settle(self, settled: Settled, now: float) -> None:
        """Apply the outcome of an action's write to the state."""

    def peer_changes(self, plan: Plan) -> Iterable[Change]:
        """What a plan of another controller of this process changes here, until the API shows it."""

    def peer_outcome(self, settled: Settled) -> Iterable[Change]:
        """What the outcome of another controller's write changes here."""

    def on_outcome(self, outcome: WriteOutcome, now: float) -> Iterable[Write]:
        """Writes that follow from the outcome of a write."""

    def plan_in_flight(self) -> Plan:
        """Decided actions whose outcome is not known yet."""

    def next_due(self, now: float) -> float:
        """When the controller has work even if no event arrives."""


class StatelessController:
    """The defaults of a controller without decisions: it carries out what other controllers decided.

    It caches what it needs when events are decoded.
    """

    has_state = False
    containment: Containment = UNCONTAINED
    unread: UnreadObjects = NOTHING_UNREAD

    def decode_usage(self, event: Event) -> Iterable[Change]:
        return ()

    def peer_changes(self, plan: Plan) -> Iterable[Change]:
        return ()

    def peer_outcome(self, settled: Settled) -> Iterable[Change]:
        return ()

    def flush(self) -> Iterable[Change]:
        return ()

    def apply(self, changes: Iterable[Change]) -> None:
        """Events are decoded while the changes are consumed."""
        for _ in changes:
            continue

    def prepare(self) -> None:
        """It makes no decisions."""

    def snapshot(self, now: float) -> None:
        return None

    def decide(self, view: Any, now: float, watchdog: Watchdog | None = None) -> Plan:
        return Plan()

    def budget(self, view: Any) -> float:
        return float("inf")

    def candidates(self, view: Any) -> tuple[Ref, ...]:
        return ()

    def restricted_to(self, view: Any, gangs: Collection[Ref]) -> Any:
        return view

    def rejection(self, view: Any, gang: Ref, fault: DecisionFault) -> tuple[Action, ...]:
        raise AssertionError(f"{gang} is not decided on by a controller without decisions")

    def is_intact(self) -> bool:
        return True

    def plan_in_flight(self) -> Plan:
        return Plan()

    def assume(self, plan: Plan, now: float) -> None:
        """It makes no plans."""

    def encode(self, plan: Plan, now: float) -> Iterable[Write]:
        return ()

    def take_unwritten(self) -> list[Action]:
        return []

    def settle(self, settled: Settled, now: float) -> None:
        """It has no actions."""
