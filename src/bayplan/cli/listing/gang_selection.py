"""Which gangs `bayplan list gangs` shows, and in which order: filters and sort keys."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

import click

Item = TypeVar("Item")
LAST = 1 << 62
"""The position of a gang that is in no queue: after all others."""


@dataclass(frozen=True, slots=True)
class GangTraits:
    """What gangs of every table are filtered and sorted by."""

    namespace: str
    name: str
    state: str
    queues: tuple[str, ...] = ()  # the queue that it names, and the ClusterQueue behind it
    user: str = ""
    reason: str = ""  # as tools know it
    message: str = ""  # as people read it
    created: float = 0.0
    priority: int = 0
    pods: int = 0
    position: int = LAST


SORT_KEYS: dict[str, Callable[[GangTraits], str | float]] = {
    "age": lambda one: -one.created,
    "name": lambda one: one.name,
    "namespace": lambda one: one.namespace,
    "pods": lambda one: one.pods,
    "position": lambda one: one.position,
    "priority": lambda one: one.priority,
    "queue": lambda one: one.queues[0] if one.queues else "",
    "reason": lambda one: one.reason or one.message,
    "state": lambda one: one.state,
    "user": lambda one: one.user,
}


@dataclass(frozen=True, slots=True)
class GangSelection:
    """Filters and sort keys. An empty filter lets all gangs pass; values of one filter are alternatives."""

    queues: frozenset[str] = frozenset()
    users: frozenset[str] = frozenset()
    states: frozenset[str] = frozenset()
    reasons: frozenset[str] = frozenset()
    sort: tuple[str, ...] = ()  # a key that begins with "-" sorts in descending order

    @property
    def filters(self) -> bool:
        return bool(self.queues or self.users or self.states or self.reasons)

    def chosen(self, items: Iterable[Item], traits: Callable[[Item], GangTraits]) -> list[Item]:
        """The items that pass every filter, sorted by the first key, then by the next."""
        kept = [(one, item) for item in items if self._passes(one := traits(item))]
        for key in reversed(self.sort):  # sorting is stable: the first key decides last
            value = SORT_KEYS[key.removeprefix("-")]
            kept.sort(key=lambda pair: value(pair[0]), reverse=key.startswith("-"))
        return [item for _, item in kept]

    def _passes(self, one: GangTraits) -> bool:
        reason = f"{one.reason}\n{one.message}".casefold()
        return (
            (not self.queues or not self.queues.isdisjoint(one.queues))
            and (not self.users or one.user in self.users)
            and (not self.states or one.state.casefold() in self.states)
            and (not self.reasons or any(text in reason for text in self.reasons))
        )

    def unmatched(self, traits: Iterable[GangTraits]) -> str:
        """What to say if no gang passes: the filters, and the values that gangs have."""
        seen = list(traits)
        have = {
            "--queue": (self.queues, {name for one in seen for name in one.queues if name}),
            "--user": (self.users, {one.user for one in seen if one.user}),
            "--state": (self.states, {one.state for one in seen}),
            "--reason": (self.reasons, {one.reason for one in seen if one.reason}),
        }
        parts = [
            f"{option} {','.join(sorted(asked))} (there are: {', '.join(sorted(found)) or 'none'})"
            for option, (asked, found) in have.items()
            if asked
        ]
        return f"no gang matches {' and '.join(parts)}"


EVERYTHING = GangSelection()


def words(values: Iterable[str], *, fold: bool = False) -> frozenset[str]:
    """The values of a filter; each option may hold several, separated by commas."""
    found = (part.strip() for value in values for part in value.split(","))
    return frozenset(part.casefold() if fold else part for part in found if part)


def sort_keys(text: str) -> tuple[str, ...]:
    """The sort keys of the option; an error that lists the known keys if one is unknown."""
    keys = tuple(part.strip() for part in text.split(",") if part.strip())
    unknown = [key for key in keys if key.removeprefix("-") not in SORT_KEYS]
    if unknown:
        raise click.BadParameter(
            f"{', '.join(unknown)} is not a key to sort by; the keys are {', '.join(SORT_KEYS)}"
        )
    return keys
