"""What the loop does its rounds for: a role reads events, decides on a frozen view, says what to write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

from bayplan.dialects.api import Ended, Event, Kind, Outcome, Write
from bayplan.model.change import Change
from bayplan.model.plan import Action, Plan


@dataclass(frozen=True, slots=True)
class Settled:
    """How the write of an action ended."""

    ended: Ended
    message: str
    action: Action


class Role(Protocol):
    """One job of Bayplan. `look` freezes what `decide` may see; the rest happens around it."""

    name: str
    kinds: tuple[Kind, ...]

    def decode(self, event: Event) -> Iterator[Change]:
        """What an event means to this role."""

    def gathered(self) -> Iterable[Change]:
        """What only all events since the last time mean together."""

    def fold(self, changes: Iterable[Change]) -> None:
        """Believe what happened."""

    def look(self, now: float) -> Any:
        """A frozen view for the gangs whose turn it is, or None if it is nobody's."""

    def decide(self, view: Any, now: float) -> Plan:
        """Pure: what to do, given the view."""

    def assume(self, plan: Plan, now: float) -> None:
        """Believe the plan until the API says otherwise."""

    def encode(self, plan: Plan, now: float) -> Iterable[Write]:
        """How the plan is carried out."""

    def keep(self, now: float) -> Iterable[Write]:
        """Housekeeping that needs no decision."""

    def settle(self, settled: Settled, now: float) -> None:
        """Believe how a write ended."""

    def follow_up(self, outcome: Outcome, now: float) -> Iterable[Write]:
        """What is to be written once a write has ended."""

    def next_due(self, now: float) -> float:
        """When something has to be done even if nothing happens."""


class Keeper:
    """A role that decides nothing: it keeps objects in step with what others decided.

    What it has to know it notes when events are decoded.
    """

    def gathered(self) -> Iterable[Change]:
        return ()

    def fold(self, changes: Iterable[Change]) -> None:
        """Events are decoded while this is read."""
        for _ in changes:
            continue

    def look(self, now: float) -> None:
        return None

    def decide(self, view: Any, now: float) -> Plan:
        return Plan()

    def assume(self, plan: Plan, now: float) -> None:
        """There are no plans."""

    def encode(self, plan: Plan, now: float) -> Iterable[Write]:
        return ()

    def settle(self, settled: Settled, now: float) -> None:
        """There are no actions."""
