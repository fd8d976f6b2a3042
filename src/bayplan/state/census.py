"""Running counts of gangs: only what changed since the last count is counted again."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from bayplan.model.demand import CheckState, Delayed, Demand
from bayplan.model.gang import Ref
from bayplan.model.quota import Cell, Stop
from bayplan.model.refusal import Token
from bayplan.state.admissions import AdmissionState
from bayplan.state.holdings import Holding
from bayplan.state.lines import Place, Standing

K = TypeVar("K", bound=Hashable)


@dataclass(slots=True)
class Stock:
    """The sums of one queue or entrance."""

    ready: int = 0
    parked: int = 0
    reserving: int = 0
    admitted: int = 0
    unchecked: int = 0
    unplaced: int = 0
    refused: dict[Token, int] = field(default_factory=dict)
    reserved: dict[Cell, int] = field(default_factory=dict)
    used: dict[Cell, int] = field(default_factory=dict)
    wanted: dict[str, int] = field(default_factory=dict)
    shapes: dict[tuple[bool, Hashable], int] = field(default_factory=dict)  # parked or not, and which


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """How one gang was counted: by what it holds, or as one in line."""

    queue: str
    demand: Demand
    holding: Holding | None = None
    parked: bool = False
    told: Hashable = None
    shape: Hashable = None


class Census:
    """The sums of all queues and entrances. Looks at every gang, and adds up only those that changed.

    What gangs hold and ask for are values that are replaced, never altered: the same object means the same
    numbers.
    """

    def __init__(self) -> None:
        self.queues: dict[str, Stock] = {}
        self.entrances: dict[tuple[str, str], Stock] = {}
        self._entries: dict[Ref, _Entry] = {}

    def count(self, state: AdmissionState) -> None:
        """Bring the sums up to date."""
        entries, standings = self._entries, state.lines.standings
        for ref in entries.keys() - standings.keys():
            self._strike(ref)
        closed = {key for key, way in state.rules.entrances.items() if way.stop is not Stop.OPEN}
        refused = {name: line.refused for name, line in state.lines.lines.items() if not line.strict}
        by_gang = state.holdings.by_gang
        for ref, standing in standings.items():
            holding, before = by_gang.get(ref), entries.get(ref)
            if holding is not None:
                if before is None or before.holding is not holding:
                    self._enter(ref, _Entry(holding.queue, holding.demand, holding))
            elif standing.place in _IN_LINE and standing.demand.entrance not in closed:
                parked = standing.place is Place.BACKOFF or standing.shape in refused.get(standing.queue, ())
                if before is None or not _is_same(before, standing, parked):
                    entry = _Entry(
                        standing.queue, standing.demand, None, parked, standing.told, standing.shape
                    )
                    self._enter(ref, entry)
            elif before is not None:
                self._strike(ref)

    def _enter(self, ref: Ref, entry: _Entry) -> None:
        self._strike(ref)
        self._entries[ref] = entry
        self._add(entry, 1)

    def _strike(self, ref: Ref) -> None:
        before = self._entries.pop(ref, None)
        if before is not None:
            self._add(before, -1)

    def _add(self, entry: _Entry, sign: int) -> None:
        for stock in (
            self.queues.setdefault(entry.queue, Stock()),
            self.entrances.setdefault(entry.demand.entrance, Stock()),
        ):
            if entry.holding is not None:
                _add_holder(stock, entry.demand, entry.holding.quota, sign)
            else:
                _add_waiting(stock, entry, sign)


_IN_LINE = (Place.WAITING, Place.BACKOFF)


def _is_same(before: _Entry, standing: Standing, parked: bool) -> bool:
    return (
        before.holding is None
        and before.demand is standing.demand
        and before.parked == parked
        and before.told is standing.told
        and before.shape is standing.shape
        and before.queue == standing.queue
    )


def _add_holder(stock: Stock, demand: Demand, quota: Mapping[Cell, int], sign: int) -> None:
    stock.reserving += sign
    _sum(stock.reserved, quota.items(), sign)
    if demand.admitted:
        stock.admitted += sign
        _sum(stock.used, quota.items(), sign)
    elif any(verdict.state is not CheckState.READY for verdict in demand.verdicts):
        stock.unchecked += sign
    elif demand.admission is not None and any(
        given.delayed is Delayed.PENDING and given.place is None for given in demand.admission.given
    ):
        stock.unplaced += sign


def _add_waiting(stock: Stock, entry: _Entry, sign: int) -> None:
    if entry.parked:
        stock.parked += sign
    else:
        stock.ready += sign
    told = entry.told if isinstance(entry.told, Token) else Token.TO_BE_EVALUATED
    _sum(stock.refused, ((told, 1),), sign)
    _sum(stock.shapes, (((entry.parked, entry.shape), 1),), sign)
    for ask in entry.demand.asks:
        _sum(stock.wanted, ((name, each * ask.count) for name, each in ask.each.items()), sign)


def _sum(total: dict[K, int], amounts: Iterable[tuple[K, int]], sign: int) -> None:
    """Add, and forget what came to nothing."""
    for key, amount in amounts:
        left = total.get(key, 0) + sign * amount
        if left:
            total[key] = left
        else:
            total.pop(key, None)
