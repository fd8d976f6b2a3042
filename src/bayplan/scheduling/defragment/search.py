"""The search for the cheapest moves: which gangs leave a domain, and where each of them goes.

Gangs are placed by the scheduler's own attempt, in an overlay. A gang that moves gets its new place while it
still runs, so moves can be made in the order of the plan, and every gang has a place at every moment.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from bayplan.model.profile import Profile
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools
from bayplan.placement.overlay.node_overlay import ClaimShift, NodeOverlay
from bayplan.placement.pods.room_counts import RoomCounts
from bayplan.scheduling.attempt.gang import attempt, request_for
from bayplan.scheduling.defragment.clearing import (
    ClearingSet,
    DomainClearing,
    GangNumbers,
    Usage,
)
from bayplan.scheduling.defragment.problem import DefragmentPlan, MovableGang, Move, NoPlan, RoomRequest
from bayplan.state.scheduling.snapshot import SchedulingCandidate, SchedulingSnapshot

Rows = tuple[int, ...]
"""The row of each pod of a request, in their order."""

NO_LIMIT = 1 << 62


@dataclass(frozen=True, slots=True)
class SearchLimits:
    """How long the search goes on. Numbers, not seconds: the same input gives the same plan."""

    tries: int = 1500  # placements of gangs
    steps: int = 40_000  # sets of gangs that are looked at
    places: int = 12  # domains that are tried for one gang that moves
    depth: int = 2  # gangs that move for a gang that moves, and so on
    greedy: int = 12  # domains that are first tried with a set that is found quickly

    @staticmethod
    def for_nodes(nodes: int) -> SearchLimits:
        """Everything for small clusters; a bounded time for large ones."""
        if nodes <= 256:
            return SearchLimits()
        return SearchLimits(
            tries=max(60, 400_000 // nodes),
            steps=max(2_000, 10_000_000 // nodes),
            places=3,
            depth=1,
            greedy=6,
        )


@dataclass(frozen=True, slots=True)
class _Moved:
    """Gangs that moved, in order, with the rows of their pods; and where the request is after that."""

    cost: int
    moves: tuple[tuple[int, Rows], ...]
    rows: Rows = ()


class _OutOfTriesError(Exception):
    """The limit of tries is reached."""


def find_plan(
    snapshot: SchedulingSnapshot,
    profile: Profile,
    request: RoomRequest,
    movers: Sequence[MovableGang],
    limits: SearchLimits | None = None,
    cost_below: int = NO_LIMIT,
) -> DefragmentPlan | NoPlan:
    """The cheapest moves below a cost after which the request fits; an empty plan if it fits now."""
    filter_input = snapshot.filter_input
    if filter_input.zones is not None:
        filter_input = replace(filter_input, zones=replace(filter_input.zones, rules=profile.zones))
    with NodeOverlay(filter_input) as overlay:
        hold_nominations(snapshot, overlay, request)
        search = MoveSearch(
            snapshot, profile, overlay, movers, limits or SearchLimits.for_nodes(len(overlay))
        )
        return search.plan(request, cost_below)


def hold_nominations(snapshot: SchedulingSnapshot, overlay: NodeOverlay, request: RoomRequest) -> None:
    """Count pods that are nominated to a node, or have a slot there, as if they were bound."""
    own = {pod.key for pod in request.pods}
    for key, (pod, node) in {**snapshot.nominations, **snapshot.claims}.items():
        row = overlay.row(node)
        if row != ABSENT and key not in own and key not in overlay.filter_input.index.pods:
            overlay.add_pod(key, pod.spec.signature, row)


class MoveSearch:
    """The search in one overlay. Every method leaves the overlay as it found it, unless it says otherwise."""

    def __init__(
        self,
        snapshot: SchedulingSnapshot,
        profile: Profile,
        overlay: NodeOverlay,
        movers: Sequence[MovableGang],
        limits: SearchLimits,
    ) -> None:
        self.snapshot, self.profile, self.overlay, self.limits = snapshot, profile, overlay, limits
        self.movers = dict(enumerate(sorted(movers, key=lambda one: (one.cost, str(one.ref)))))
        self.usages = {number: self._usage(gang) for number, gang in self.movers.items()}
        self.tries, self.tries_end, self.cut = 0, limits.tries, False

    def plan(self, request: RoomRequest, cost_below: int = NO_LIMIT) -> DefragmentPlan | NoPlan:
        """The answer for a request."""
        try:
            found = self._make_room(request, frozenset(self.movers), self.limits.depth, cost_below)
        except _OutOfTriesError:
            found, self.cut = None, True
        if found is None:
            return self._nearest(request)
        moves = tuple(Move(self.movers[number], self._names(rows)) for number, rows in found.moves)
        return DefragmentPlan(moves, self._names(found.rows), not self.cut, self.tries)

    def _nearest(self, request: RoomRequest) -> NoPlan:
        counts = RoomCounts(self.overlay, request.pods, request.levels)
        best: tuple[int, tuple[str, ...]] = (0, ())
        for clearing in self._clearings(request, counts, frozenset(self.movers)):
            if clearing.most > best[0]:
                row = counts.row_in(clearing.number)
                labels = self.overlay.filter_input.node_snapshot.node_index.table.nodes[row].labels
                best = clearing.most, tuple(labels.get(level, "") for level in request.levels)
        return NoPlan(not self.cut, self.tries, best[1], best[0])

    # ── room for a request ─────────────────────────────────────────────────────────────────────────

    def _make_room(
        self, request: RoomRequest, movable: frozenset[int], depth: int, limit: int
    ) -> _Moved | None:
        """The cheapest moves below `limit` after which the request fits, and its rows then."""
        counts = RoomCounts(self.overlay, request.pods, request.levels)
        for number in counts.fullest_first():
            rows = self._placed(request, counts.mask(number))
            if rows is not None:
                return _Moved(0, (), rows)
        clearings = [one for one in self._clearings(request, counts, movable) if one.possible]
        best: _Moved | None = None

        def bound() -> int:
            return best.cost if best is not None else limit

        try:
            for clearing, chosen in self._sets_in_order(request, clearings, bound):
                found = self._clear(request, clearing, chosen, movable, depth, bound())
                if found is not None:
                    best = found
        except _OutOfTriesError:
            self.cut = True
            if best is None:
                raise
        return best

    def _clearings(
        self, request: RoomRequest, counts: RoomCounts, movable: frozenset[int]
    ) -> list[DomainClearing]:
        """Every domain, with the gangs that may leave it."""
        inside: dict[int, dict[int, dict[int, Mapping[str, int]]]] = {}
        for gang in sorted(movable):
            for row, amounts in self.usages[gang].items():
                number = int(counts.domain[row])
                if number != ABSENT and counts.rows[row]:
                    inside.setdefault(number, {}).setdefault(gang, {})[row] = amounts
        costs = {gang: self.movers[gang].cost for gang in movable}
        return [
            DomainClearing(counts, number, inside.get(number, {}), costs) for number in range(counts.size)
        ]

    def _sets_in_order(
        self, request: RoomRequest, clearings: Sequence[DomainClearing], bound: Callable[[], int]
    ) -> Iterator[tuple[DomainClearing, ClearingSet]]:
        """Sets that are found quickly first, which gives a bound; then all sets below the bound by cost."""
        quick = ((one.greedy(), one) for one in clearings)
        known = sorted(
            ((chosen, one) for chosen, one in quick if chosen is not None),
            key=lambda pair: (pair[0].cost, pair[1].number),
        )
        given: set[tuple[int, GangNumbers]] = set()
        for chosen, clearing in known[: self.limits.greedy]:
            if chosen.cost < bound() and self._accepts(request, clearing, chosen.gangs):
                given.add((clearing.number, chosen.gangs))
                yield clearing, chosen
        heap = [(one.bound(), at, ClearingSet(0, ())) for at, one in enumerate(clearings)]
        heapq.heapify(heap)
        each = max(self.limits.steps // max(len(clearings), 1), 50)
        series = [one.sets(each, partial(self._accepts, request, one)) for one in clearings]
        while heap and heap[0][0] < bound():
            _, at, chosen = heapq.heappop(heap)
            if chosen.gangs and (clearings[at].number, chosen.gangs) not in given:
                yield clearings[at], chosen
            following = next(series[at], None)
            if following is not None:
                heapq.heappush(heap, (following.cost, at, following))
            else:
                self.cut |= clearings[at].cut

    def _accepts(self, request: RoomRequest, clearing: DomainClearing, gangs: GangNumbers) -> bool:
        """Whether the request fits in the domain once these gangs have left it."""
        return self._rows_without(request, clearing, gangs) is not None

    def _rows_without(
        self, request: RoomRequest, clearing: DomainClearing, gangs: GangNumbers
    ) -> Rows | None:
        with self.overlay.tentative():
            self.overlay.remove_pods(pod.key for gang in gangs for pod in self.movers[gang].pods)
            return self._placed(request, clearing.counts.mask(clearing.number))

    def _clear(
        self,
        request: RoomRequest,
        clearing: DomainClearing,
        chosen: ClearingSet,
        movable: frozenset[int],
        depth: int,
        limit: int,
    ) -> _Moved | None:
        """The request gets rows in a domain, and the chosen gangs go elsewhere; None from `limit` on."""
        rows = self._rows_without(request, clearing, chosen.gangs)
        if rows is None or chosen.cost >= limit:
            return None
        with self.overlay.tentative():
            self._claim(request, rows)
            others = movable - frozenset(chosen.gangs)
            found = self._relocate(chosen.gangs, others, depth, limit - chosen.cost)
        return None if found is None else _Moved(chosen.cost + found.cost, found.moves, rows)

    # ── new places for gangs that leave ────────────────────────────────────────────────────────────

    def _relocate(self, gangs: GangNumbers, others: frozenset[int], depth: int, limit: int) -> _Moved | None:
        """New places for all of these gangs, in an order in which each place is free at its turn.

        `others` may move as well, at a cost below `limit`. Changes the overlay if it succeeds.
        """
        if not gangs:
            return _Moved(0, ())
        seen: set[object] = set()
        for gang in self._hardest_first(gangs):
            alike = self._shape(gang)
            if alike in seen:
                continue
            seen.add(alike)
            left = tuple(one for one in gangs if one != gang)
            for rows in self._places(gang):
                mark = self.overlay.checkpoint()
                self._move(gang, rows)
                rest = self._relocate(left, others, depth, limit)
                if rest is not None:
                    return _Moved(rest.cost, ((gang, rows), *rest.moves))
                self.overlay.rollback(mark)
        return self._relocate_by_chain(gangs, others, depth, limit) if depth else None

    def _relocate_by_chain(
        self, gangs: GangNumbers, others: frozenset[int], depth: int, limit: int
    ) -> _Moved | None:
        """Other gangs move first, so that one of these has a place."""
        for gang in self._hardest_first(gangs):
            with self._at_most(self.limits.tries // 8):
                try:
                    room = self._make_room(self.movers[gang].request, others, depth - 1, limit)
                except _OutOfTriesError:
                    room = None
            if room is None or not room.moves:
                continue
            mark = self.overlay.checkpoint()
            for number, rows in room.moves:
                self._move(number, rows)
            self._move(gang, room.rows)
            left = tuple(one for one in gangs if one != gang)
            stay = others - {number for number, _ in room.moves}
            rest = self._relocate(left, stay, depth, limit - room.cost)
            if rest is not None:
                return _Moved(room.cost + rest.cost, (*room.moves, (gang, room.rows), *rest.moves))
            self.overlay.rollback(mark)
        return None

    def _places(self, gang: int) -> Iterator[Rows]:
        """New places of a gang that are free now: the one the scheduler would choose, then other domains."""
        request = self.movers[gang].request
        first = self._placed(request, None)
        if first is None:
            return
        yield first
        counts = RoomCounts(self.overlay, request.pods, request.levels)
        used = {int(counts.domain[row]) for row in first}
        others = [number for number in counts.fullest_first() if number not in used]
        for number in others[: self.limits.places - 1]:
            rows = self._placed(request, counts.mask(number))
            if rows is not None:
                yield rows

    def _hardest_first(self, gangs: Iterable[int]) -> list[int]:
        """Gangs that need one domain first, then large pods, then many pods."""

        def difficulty(gang: int) -> tuple[object, ...]:
            one = self.movers[gang]
            largest = max(sum(pod.amounts.values()) for pod in one.pods)
            return (not one.levels, -len(one.pods) * largest, gang)

        return sorted(gangs, key=difficulty)

    def _shape(self, gang: int) -> object:
        """Equal for gangs that may take each other's place."""
        one = self.movers[gang]
        if one.spec.tree is not None:
            return gang
        return tuple(sorted((pod.node, pod.spec.signature.code) for pod in one.pods)), one.levels, one.cost

    # ── the overlay ────────────────────────────────────────────────────────────────────────────────

    def _placed(self, request: RoomRequest, allowed: Bools | None) -> Rows | None:
        """The rows that the scheduler would choose for all pods now; None if they do not fit."""
        if self.tries >= self.tries_end:
            raise _OutOfTriesError
        self.tries += 1
        spec = request.spec
        candidate = SchedulingCandidate(spec, request.pods, topology=spec.topology)
        wanted = replace(request_for(candidate), need=len(request.pods), without_reason=True)
        with self.overlay.tentative():
            found = attempt(self.snapshot, self.overlay, wanted, self.profile, allowed)
        if len(found.rows) < len(request.pods):
            return None
        return tuple(found.rows[pod.key] for pod in request.pods)

    def _move(self, gang: int, rows: Rows) -> None:
        """A gang runs in its new place, and has left its old one. Changes the overlay."""
        mover = self.movers[gang]
        for pod, row in zip(mover.fresh, rows, strict=True):
            self.overlay.add_pod(pod.key, pod.spec.signature, row)
        self.overlay.remove_pods(pod.key for pod in mover.pods)

    def _claim(self, request: RoomRequest, rows: Rows) -> None:
        """Hold capacity for the request where others still run: less than nothing may be free there."""
        self.overlay.shift_claims(
            ClaimShift(request.spec.source, row, 1, pod.amounts)
            for pod, row in zip(request.pods, rows, strict=True)
        )

    def _usage(self, gang: MovableGang) -> Usage:
        """What its pods use, by row."""
        found: dict[int, dict[str, int]] = {}
        for pod in gang.pods:
            amounts = found.setdefault(self.overlay.row(pod.node), {})
            for name, amount in pod.amounts.items():
                amounts[name] = amounts.get(name, 0) + amount
        return {row: amounts for row, amounts in found.items() if row != ABSENT}

    def _names(self, rows: Iterable[int]) -> tuple[str, ...]:
        return tuple(self.overlay.node(row) for row in rows)

    @contextmanager
    def _at_most(self, tries: int) -> Iterator[None]:
        """Fewer tries for what happens inside."""
        before = self.tries_end
        self.tries_end = min(before, self.tries + tries)
        try:
            yield
        finally:
            self.tries_end = before
