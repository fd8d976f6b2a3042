"""Room for a gang of a queue: others move, queues give back what is beyond their share, or lesser ones go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction

from bayplan.model.gang import Ref
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Means
from bayplan.placement.tree import Bools
from bayplan.scheduling.attempt import Asked, asked_of, attempt
from bayplan.scheduling.displacing import Rooms
from bayplan.scheduling.displacing_trial import Trial
from bayplan.scheduling.fair_accounts import Accounts, Use
from bayplan.scheduling.fair_order import Turn
from bayplan.scheduling.fair_victims import Piece, Victims, pieces_by_queue, rests_until
from bayplan.scheduling.promises import priority_of
from bayplan.state.look import Candidate

MOVED_MAX = 256  # pieces that are looked at for moving
TRIES_MAX = 64  # attempts to seat everybody again


@dataclass(frozen=True, slots=True)
class FairRoom:
    """Who goes, who only moves and where to, and where the gang will be then."""

    seats: Mapping[PodKey, int]
    victims: tuple[Piece, ...] = ()
    moves: Mapping[PodKey, int] = field(default_factory=dict)

    @property
    def pods(self) -> list[tuple[Pod, bool]]:
        """Everybody who has to leave, and whether it is with the whole gang."""
        return [(pod, piece.core) for piece in self.victims for pod in piece.unit.pods]


class FairRooms:
    """Everybody of queues who could go, during one decision. Whoever was chosen is gone for the others."""

    def __init__(self, rooms: Rooms, accounts: Accounts, now: float) -> None:
        self.rooms, self.accounts, self.now = rooms, accounts, now
        self.floor, self.look = rooms.floor, rooms.look
        self._pieces: dict[str, list[Piece]] | None = None

    def find(self, means: Means, turn: Turn, asked: Asked, within: Bools | None) -> FairRoom | None:
        """Room by one means; whoever leaves for it counts as gone from now on."""
        by_means: Mapping[Means, Callable[[Turn, Asked, Bools | None], FairRoom | None]] = {
            Means.CONSOLIDATE: self._consolidate,
            Means.RECLAIM: self._reclaim,
            Means.PREEMPT: self._preempt,
        }
        room = by_means[means](turn, asked, within)
        if room is not None:
            self._commit(turn, asked, room)
        return room

    def pieces(self) -> dict[str, list[Piece]]:
        """All that could go, by queue."""
        if self._pieces is None:
            self._pieces = pieces_by_queue(self.look, self.rooms.gone.keys, self.accounts)
        return self._pieces

    def _commit(self, turn: Turn, asked: Asked, room: FairRoom) -> None:
        charter = turn.candidate.charter
        self.rooms.gone.add(pod.key for pod, _ in room.pods)
        self.rooms.budgets.spend(pod for pod, _ in room.pods)
        for piece in room.victims:
            if not any(pod.key in room.moves for pod in piece.unit.pods):
                self.accounts.take(piece.queue, piece.amounts, sign=-1)
            for pod in piece.unit.pods:
                if pod.key in room.moves:  # whatever takes its place is not known yet: hold it open
                    stand_in = PodKey(pod.key.namespace, f"{pod.key.name} (moved)")
                    self.floor.seat(stand_in, pod.wants.shape, room.moves[pod.key])
        seated = [pod for pod in asked.waiting if pod.key in room.seats]
        for pod in seated:
            self.accounts.take(charter.queue, pod.amounts, lasting=charter.lasting)
        self._pieces = None

    # ── who may be taken from ──────────────────────────────────────────────────────────────────────

    def _preempt(self, turn: Turn, asked: Asked, within: Bools | None) -> FairRoom | None:
        """Less important gangs of its own queue go."""
        accounts, charter = self.accounts, turn.candidate.charter
        if charter.lasting and accounts.beyond_quota(turn.queue, turn.amounts) is not None:
            return None
        priority = priority_of(turn.candidate)
        pool = [
            piece
            for piece in self.pieces().get(turn.queue, ())
            if piece.unit.priority < priority and piece.gang != charter.source
            and not (piece.core and rests_until(accounts, piece, reclaim=False) > self.now)
        ]  # fmt: skip
        return self._room(turn, asked, pool, within, lambda _: True)

    def _reclaim(self, turn: Turn, asked: Asked, within: Bools | None) -> FairRoom | None:
        """Queues that have more than is theirs give it back."""
        accounts, charter = self.accounts, turn.candidate.charter
        if not accounts.within_share(turn.queue, turn.amounts):
            return None
        if charter.lasting and accounts.beyond_quota(turn.queue, turn.amounts) is not None:
            return None
        others = {name: some for name, some in self.pieces().items() if name != turn.queue}
        pool: list[Piece] = []
        left: dict[str, Use] = {}
        for piece in Victims(accounts, others):
            rests = piece.core and rests_until(accounts, piece, reclaim=True) > self.now
            if not rests and self._may_be_taken(turn, piece, left):
                self._subtract(left, piece)
                pool.append(piece)
        return self._room(turn, asked, pool, within, lambda pieces: self._stays_fair(turn, pieces))

    def _may_be_taken(self, turn: Turn, piece: Piece, left: Mapping[str, Use]) -> bool:
        """Whether its queue has more than its share, or more than its quota while the other lacks quota."""
        accounts = self.accounts
        mine, theirs = accounts.part_ways(turn.queue, piece.queue)
        has = left.get(theirs, accounts.use[theirs])
        if not accounts.within_allowed(theirs, has):
            return True
        return accounts.within_quota(mine, turn.amounts) and not accounts.within_quota(theirs, {}, has)

    def _subtract(self, left: dict[str, Use], piece: Piece) -> None:
        for name in self.accounts.up(piece.queue):
            use = left.setdefault(name, dict(self.accounts.use[name]))
            for resource in self.accounts.resources:
                use[resource] = use.get(resource, 0) - piece.amounts.get(resource, 0)

    def _stays_fair(self, turn: Turn, pieces: Iterable[Piece]) -> bool:
        """Whether nobody who takes ends up with more of its share than those who gave."""
        accounts = self.accounts
        left: dict[str, Use] = {}
        involved: dict[str, set[str]] = {}
        for piece in pieces:
            self._subtract(left, piece)
            for name in accounts.up(piece.queue):
                involved.setdefault(name, set()).update(r for r, amount in piece.amounts.items() if amount)
        asks = {resource for resource, amount in turn.amounts.items() if amount}
        for name in accounts.up(turn.queue):
            use = left.get(name, accounts.use[name])
            then = {r: use.get(r, 0) + turn.amounts.get(r, 0) for r in accounts.resources}
            siblings = accounts.below[accounts.queues[name].parent]
            for other in siblings:
                if other == name or other not in left:
                    continue
                for resource in (involved[other] | asks) & set(accounts.resources):
                    theirs = accounts.shares[other].get(resource, 0)
                    ratio = _ratio(then[resource], accounts.shares[name].get(resource, 0))
                    if ratio > 1 and theirs > 0 and ratio >= _ratio(left[other][resource], theirs):
                        return False
        return True

    # ── who has to go ──────────────────────────────────────────────────────────────────────────────

    def _room(
        self, turn: Turn, asked: Asked, pool: Sequence[Piece], within: Bools | None,
        fair: Callable[[Sequence[Piece]], bool],
    ) -> FairRoom | None:  # fmt: skip
        """All of the pool go, and come back, most important first, as long as the gang keeps its seats."""
        forced = self._forced(turn, pool)
        if forced is None or not pool:
            return None
        may_stay = [piece for piece in reversed(pool) if piece not in forced]
        mark = self.floor.mark()
        self.floor.lift_many(pod.key for piece in forced for pod in piece.unit.pods)
        trial = Trial(self.rooms, asked, [piece.unit for piece in may_stay], within)
        with trial:
            seats = trial.let_stay()
            leaving = {id(unit) for unit in trial.who_goes()} if seats is not None else set()
        self.floor.undo(mark)
        if seats is None:
            return None
        broken = {piece.gang for piece in may_stay if id(piece.unit) in leaving and piece.core}
        broken |= {piece.gang for piece in forced if piece.core}
        go = [p for p in pool if p in forced or id(p.unit) in leaving or p.gang in broken]
        over = {piece.gang for piece in forced}  # its queue has no room for them, wherever they are
        moves = self._moves(go, seats, asked, over)
        if not fair([piece for piece in go if piece.unit.pods[0].key not in moves]):
            return None
        return FairRoom(seats, tuple(go), moves)

    def _forced(self, turn: Turn, pool: Sequence[Piece]) -> list[Piece] | None:
        """Those who go in any case, so that no queue has more than its limit; None if that does not help."""
        accounts, forced = self.accounts, list[Piece]()
        try:
            while (excess := accounts.beyond_limit(turn.queue, turn.amounts)) is not None:
                helps = (
                    piece
                    for piece in pool
                    if piece not in forced and excess.queue in accounts.up(piece.queue)
                    and piece.amounts.get(excess.resource)
                )  # fmt: skip
                found = next(helps, None)
                if found is None:
                    return None
                for piece in pool:
                    same = piece is found or (found.core and piece.gang == found.gang)
                    if same and piece not in forced:
                        forced.append(piece)
                        accounts.take(piece.queue, piece.amounts, sign=-1)
        finally:
            for piece in forced:
                accounts.take(piece.queue, piece.amounts)
        return forced

    # ── who only moves ─────────────────────────────────────────────────────────────────────────────

    def _moves(
        self, go: Sequence[Piece], seats: Mapping[PodKey, int], asked: Asked, over: Collection[Ref]
    ) -> dict[PodKey, int]:
        """Of those who have to go, the gangs that have room elsewhere, with their new places."""
        mark = self.floor.mark()
        self._make_way(go, seats, asked)
        found: dict[PodKey, int] = {}
        by_gang: dict[Ref, list[Pod]] = {}
        for piece in reversed(go):
            if piece.gang not in over:
                by_gang.setdefault(piece.gang, []).extend(piece.unit.pods)
        for gang, pods in by_gang.items():
            found |= self._elsewhere(gang, pods) or {}
        self.floor.undo(mark)
        return found

    def _make_way(self, go: Sequence[Piece], seats: Mapping[PodKey, int], asked: Asked) -> None:
        """The floor without those who go, and with the gang in its seats."""
        self.floor.lift_many(self.rooms.gone.keys)
        self.floor.lift_many(pod.key for piece in go for pod in piece.unit.pods)
        for pod in asked.waiting:
            if pod.key in seats:
                self.floor.seat(pod.key, pod.wants.shape, seats[pod.key])

    def _elsewhere(self, gang: Ref, pods: Sequence[Pod]) -> dict[PodKey, int] | None:
        """Seats for these pods of a gang, all of them, beside those of it that stay."""
        keys = {pod.key for pod in pods}
        stays = [self.look.pods[key] for key in self.look.members.get(gang, ()) if key in self.look.pods]
        standing = tuple(
            pod
            for pod in stays
            if pod.key not in keys and not pod.leaving and pod.key not in self.rooms.gone.keys
        )
        waiting = tuple(
            replace(pod, node="") for pod in sorted(pods, key=lambda pod: (pod.pod_set, pod.rank))
        )
        candidate = Candidate(self.look.charters[gang], waiting, standing)
        mark = self.floor.mark()
        asked = replace(asked_of(candidate), need=len(waiting))
        found = attempt(self.look, self.floor, asked, self.rooms.profile)
        if len(found.seats) == len(waiting):
            return dict(found.seats)
        self.floor.undo(mark)
        return None

    def _consolidate(self, turn: Turn, asked: Asked, within: Bools | None) -> FairRoom | None:
        """Others move closer together: everybody has a new place, nobody has to wait."""
        charter = turn.candidate.charter
        if charter.lasting or self.accounts.beyond_limit(turn.queue, turn.amounts) is not None:
            return None
        others = {
            name: [piece for piece in some if piece.gang != charter.source]
            for name, some in self.pieces().items()
        }
        pool: list[Piece] = []
        tries = 0
        for piece in Victims(self.accounts, others):
            pool.append(piece)
            for some in self._beside(pool):
                tries += 1
                room = self._all_move(some, asked, within)
                if room is not None:
                    return room
            if len(pool) >= MOVED_MAX or tries >= TRIES_MAX:
                return None
        return None

    @staticmethod
    def _beside(pool: Sequence[Piece]) -> list[list[Piece]]:
        """Those on each node of the last one, then everybody so far."""
        last = dict.fromkeys(pod.node for pod in pool[-1].unit.pods)
        found = [[p for p in pool if any(pod.node == node for pod in p.unit.pods)] for node in last]
        return [*found, list(pool)] if len(pool) > 1 and list(pool) not in found else found

    def _all_move(self, pool: Sequence[Piece], asked: Asked, within: Bools | None) -> FairRoom | None:
        """The gang first; then whoever can stays where it is, and the others have to find room elsewhere."""
        mark = self.floor.mark()
        try:
            self.floor.lift_many(self.rooms.gone.keys)
            self.floor.lift_many(pod.key for piece in pool for pod in piece.unit.pods)
            found = attempt(self.look, self.floor, asked, self.rooms.profile, within)
            if len(found.seats) < asked.need:
                return None
            go = [piece for piece in reversed(pool) if not self._stays(piece)]
            broken = {piece.gang for piece in go if piece.core}
            go = [piece for piece in reversed(pool) if piece in go or piece.gang in broken]
            self.floor.lift_many(pod.key for piece in go for pod in piece.unit.pods)
            by_gang: dict[Ref, list[Pod]] = {}
            for piece in go:
                by_gang.setdefault(piece.gang, []).extend(piece.unit.pods)
            moves: dict[PodKey, int] = {}
            for gang, pods in by_gang.items():
                new = self._elsewhere(gang, pods)
                if new is None:
                    return None
                moves |= new
            return FairRoom(found.seats, tuple(go), moves)
        finally:
            self.floor.undo(mark)

    def _stays(self, piece: Piece) -> bool:
        """Put a piece back where it was, if there is room for all of it."""
        mark = self.floor.mark()
        for pod in piece.unit.pods:
            row = self.floor.row(pod.node)
            if row < 0 or not self.floor.judge(pod.wants.shape).fits[row]:
                self.floor.undo(mark)
                return False
            self.floor.seat(pod.key, pod.wants.shape, row)
        return True


def _ratio(has: int, share: Fraction | int) -> float:
    of = float(share)
    if of == 0:
        return float("inf") if has > 0 else 0.0
    return has / of
