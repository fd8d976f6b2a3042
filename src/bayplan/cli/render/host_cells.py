"""Draws hosts before and after moves, one character for each device of a host."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from bayplan.cli.render.tables import table

FREE, OTHER, WANTED = ".", "#", "*"
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
WIDTH_MAX = 16
HOSTS_MAX = 48


@dataclass(frozen=True, slots=True)
class HostCells:
    """A host: its domain and devices, and how many of them each mark uses before and after."""

    domain: str
    name: str
    total: int
    before: Mapping[str, int]
    after: Mapping[str, int]


def letter(number: int) -> str:
    """The mark of the gang of a number."""
    return LETTERS[number % len(LETTERS)]


def draw_hosts(hosts: Sequence[HostCells], level: str, *, full: bool = False) -> Iterator[str]:
    """A table of hosts, and what the marks mean."""
    shown = hosts if full else hosts[:HOSTS_MAX]
    rows = (
        (one.domain, one.name, _cells(one.total, one.before), _cells(one.total, one.after)) for one in shown
    )
    yield from table([level.upper() or "DOMAIN", "HOST", "BEFORE", "AFTER"], rows)
    if len(hosts) > len(shown):
        yield f"and {len(hosts) - len(shown)} more hosts; --full draws them"
    yield f"{FREE} free   {OTHER} stays   {WANTED} the gang that asks for room   letters: gangs that move"


def _cells(total: int, used: Mapping[str, int]) -> str:
    """`AAB#..`; where there are many devices, their numbers: `A2 B1 #1 free 124`."""
    marks = sorted(used, key=lambda mark: (mark in (WANTED, OTHER), mark))
    free = total - sum(used.values())
    if total > WIDTH_MAX:
        return " ".join(_numbers(marks, used, free))
    return "".join(mark * used[mark] for mark in marks) + FREE * max(free, 0)


def _numbers(marks: Iterable[str], used: Mapping[str, int], free: int) -> Iterator[str]:
    yield from (f"{mark}{used[mark]}" for mark in marks if used[mark])
    yield f"free {free}"
