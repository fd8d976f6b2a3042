"""Where the pods of a gang go, one party of equal pods after the other. What is found is seated on the floor.

A caller that does not like the answer takes it back: `mark = floor.mark(); …; floor.undo(mark)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from bayplan.model.filter_failure import FilterFailure
from bayplan.model.pod import PodKey
from bayplan.model.pod_spec import PodSignature
from bayplan.model.profile import NodeChoice, Profile
from bayplan.placement.cluster.node_index import NodeSnapshot
from bayplan.placement.cluster.node_index import domains as values_of
from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.filters.pipeline import first_unaligned
from bayplan.placement.numa.snapshot import minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import NodeAssignment, PodBatch
from bayplan.placement.pods.counting import (
    follows,
    is_free,
    is_plain,
    most_of,
    needs_its_own,
    repels_itself,
    room_for,
)
from bayplan.placement.pods.exact_assign import seats_by_search
from bayplan.placement.pods.node_choice import choose, packed_order, ranked_order
from bayplan.placement.pods.spread import best_rows

PASSES_MAX = 8
DOMAINS_TRIED_MAX = 8


@dataclass(frozen=True, slots=True, eq=False)
class AssignmentTask:
    """What is asked of the floor."""

    floor: NodeOverlay
    parties: tuple[PodBatch, ...]  # in the order in which they are tried
    need: int
    profile: Profile
    within: Bools | None
    lone: bool

    @property
    def asked(self) -> int:
        return sum(len(party.keys) for party in self.parties)

    @property
    def packs(self) -> bool:
        return not self.lone and self.profile.gang_nodes is NodeChoice.PACK


def seat_all(
    floor: NodeOverlay, parties: Sequence[PodBatch], *, need: int, profile: Profile, within: Bools | None = None,
    lone: bool = False,
) -> NodeAssignment:  # fmt: skip
    """Seat as many as possible, on nodes `within`; try harder as long as it is fewer than `need`.

    `lone`: nodes are chosen as for pods by themselves, whatever the profile says of gangs.
    """
    task = AssignmentTask(floor, _largest_first(floor.scene.ground, parties), need, profile, within, lone)
    mark = floor.mark()
    seats = _seat(task, task.parties, within)
    unsure = False
    if len(seats) < min(need, task.asked):
        seats, unsure = _try_harder(task, mark, seats)
    found = {key: seats[key] for party in parties for key in party.keys if key in seats}
    return NodeAssignment(found, left_over(floor, parties, found, within), unsure)


def left_over(
    floor: NodeOverlay, parties: Sequence[PodBatch], seats: Mapping[PodKey, int], within: Bools | None
) -> dict[PodKey, FilterFailure]:
    """Who has no seat, and why not one more of them fits."""
    left: dict[PodKey, FilterFailure] = {}
    for party in parties:
        without = [key for key in party.keys if key not in seats]
        if without:
            left |= dict.fromkeys(without, _why(floor, party.shape, within))
    return left


def _why(floor: NodeOverlay, shape: PodSignature, within: Bools | None) -> FilterFailure:
    """Why one more pod does not fit, as things are now; only the nodes it may use are told of."""
    verdict = floor.judge(shape)
    if within is None:
        return verdict.why
    counts = {lack: int((where & within).sum()) for lack, where in verdict.refusals.items()}
    told = {lack: count for lack, count in counts.items() if count}
    curable = int((verdict.curable & within).sum())
    first = first_unaligned(floor.scene, shape, verdict.refusals, within)
    return FilterFailure(int(within.sum()), told, verdict.why.bar, verdict.why.about, first, curable)


def _largest_first(ground: NodeSnapshot, parties: Sequence[PodBatch]) -> tuple[PodBatch, ...]:
    """By the largest share of all that there is of any resource; else in the order given."""
    if len(parties) < 2:
        return tuple(parties)
    totals = dict(zip(ground.resources, ground.allocatable.sum(axis=1).tolist(), strict=True))

    def share(party: PodBatch) -> float:
        return max((amount / max(totals.get(name, 0), 1) for name, amount in party.shape.amounts), default=0)

    return tuple(sorted(parties, key=share, reverse=True))


# ── one after the other ────────────────────────────────────────────────────────────────────────────


def _seat(task: AssignmentTask, parties: Sequence[PodBatch], within: Bools | None) -> dict[PodKey, int]:
    """Each party in turn; those left over again, as long as others who came may have helped them."""
    seats: dict[PodKey, int] = {}
    waiting = [party for party in parties if party.keys]
    for _ in range(PASSES_MAX):
        before = len(seats)
        for party in waiting:
            seats |= _seat_party(task, party, within)
        waiting = [
            rest for party in waiting if (rest := _rest(party, seats)).keys and not is_free(party.shape)
        ]
        if not waiting or len(seats) == before:
            break
    return seats


def _rest(party: PodBatch, seats: Mapping[PodKey, int]) -> PodBatch:
    left = [at for at, key in enumerate(party.keys) if key not in seats]
    own = tuple(party.own[at] for at in left) if party.own else ()
    return PodBatch(party.shape, tuple(party.keys[at] for at in left), own)


def _seat_party(task: AssignmentTask, party: PodBatch, within: Bools | None) -> dict[PodKey, int]:
    shape = party.shape
    rows: Ints | None = None
    if task.packs and is_plain(shape):
        rows = _packed(task.floor, party, within)
    elif task.packs and len(party.keys) > 1 and follows(task.floor.scene, shape):
        first = _one_by_one(task.floor, party.part(0, 1), within)
        return first | _seat_rows(task.floor, rest := party.part(1), _packed(task.floor, rest, within))
    elif len(party.keys) > 1 and not is_free(shape):
        rows = _scattered(task.floor, party, within)
    elif len(party.keys) > 1:
        rows = best_rows(task.floor, shape, within, len(party.keys))
    if rows is None:
        return _one_by_one(task.floor, party, within)
    return _seat_rows(task.floor, party, rows)


def _seat_rows(floor: NodeOverlay, party: PodBatch, rows: Ints) -> dict[PodKey, int]:
    seated = party.part(0, len(rows))
    floor.seat_many(party.shape, seated.keys, rows, seated.own)
    return dict(zip(seated.keys, rows.tolist(), strict=True))


def _packed(floor: NodeOverlay, party: PodBatch, within: Bools | None) -> Ints:
    """A row per pod, as far as they go: nobody gets in anybody's way but by the room they take."""
    fits = floor.judge(party.shape).fits
    fitting = fits if within is None else fits & within
    rows, counts = room_for(floor.scene, party.shape, fitting, len(party.keys))
    order = packed_order(floor, party.shape, rows)
    by_row = np.zeros(len(floor), dtype=np.int64)
    by_row[rows] = counts
    sorted_counts = by_row[order]
    enough = int(np.searchsorted(np.cumsum(sorted_counts), len(party.keys))) + 1
    return np.repeat(order[:enough], sorted_counts[:enough])[: len(party.keys)]


def _scattered(floor: NodeOverlay, party: PodBatch, within: Bools | None) -> Ints | None:
    """A row per pod where no two may share a node, or another domain; None if it is not that simple."""
    keys = repels_itself(floor.scene, party.shape)
    if keys is None or len(keys) != 1:
        return None
    land, shape = floor.scene.ground.land, party.shape
    fits = floor.judge(shape).fits
    fitting = fits if within is None else fits & within
    order = ranked_order(floor, shape, fitting, np.flatnonzero(fitting))
    if keys[0]:
        value = values_of(land, keys[0])[0][order]
        if (value == ABSENT).any():
            return None  # those without the label do not keep each other away
        order = order[np.sort(np.unique(value, return_index=True)[1])]
    return order[: len(party.keys)]


def _one_by_one(floor: NodeOverlay, party: PodBatch, within: Bools | None) -> dict[PodKey, int]:
    seats: dict[PodKey, int] = {}
    for at, key in enumerate(party.keys):
        row = choose(floor, party.shape, within)
        if row == ABSENT:
            break
        floor.seat(key, party.own[at] if party.own else party.shape, row)
        seats[key] = row
    return seats


# ── when that is not enough ────────────────────────────────────────────────────────────────────────


def _try_harder(task: AssignmentTask, mark: int, seats: dict[PodKey, int]) -> tuple[dict[PodKey, int], bool]:
    """Other ways to seat them, until one seats as many as needed; and whether more might be possible."""
    floor, goal = task.floor, min(task.need, task.asked)
    if len(task.parties) == 1 and is_free(task.parties[0].shape):
        return seats, False
    floor.undo(mark)
    best, best_way = seats, (task.parties, task.within)
    sure = _is_hopeless(task)
    if not sure and all(is_free(party.shape) for party in task.parties):
        found, sure = seats_by_search(floor, task.parties, task.within, task.profile)
        if found is not None:
            searched = _seat_found(task, found, mark)
            if searched is not None:
                return searched, False
        sure = sure and found is None and goal == task.asked
    ways = _other_ways(task)
    if sure:  # only so that the count of those who fit is not told too low
        ways = islice(ways, int(len(task.parties) == 1))
    for parties, within in ways:
        found_now = _seat(task, parties, within)
        if len(found_now) >= goal:
            return found_now, False
        if len(found_now) > len(best):
            best, best_way = found_now, (parties, within)
        floor.undo(mark)
    if len(task.parties) > 1 and any(minds(floor.scene.zones, party.shape) for party in task.parties):
        with floor.in_order():
            for parties, within in ((task.parties, task.within), *_other_ways(task)):
                found_now = _seat(task, parties, within)
                if len(found_now) >= goal:
                    return found_now, False
                floor.undo(mark)
        sure = False
    return _seat(task, *best_way), not sure


def _seat_found(task: AssignmentTask, found: list[Ints], mark: int) -> dict[PodKey, int] | None:
    """Seats as a search found them; None if zones object, in whatever order the pods come.

    The search knows how many pods of each party a node can align, and not how many of all together.
    """
    seats = _seat_if_aligned(task, found)
    if seats is None:
        task.floor.undo(mark)
        with task.floor.in_order():
            seats = _seat_if_aligned(task, found)
            if seats is None:
                task.floor.undo(mark)
    return seats


def _seat_if_aligned(task: AssignmentTask, found: list[Ints]) -> dict[PodKey, int] | None:
    floor = task.floor
    seats: dict[PodKey, int] = {}
    for party, rows in zip(task.parties, found, strict=True):
        if seats and minds(floor.scene.zones, party.shape) is not None:
            asked = np.bincount(rows, minlength=len(floor))
            at, room = room_for(floor.scene, party.shape, asked > 0, len(rows))
            asked[at] -= room
            if (asked > 0).any():
                return None
        seats |= _seat_rows(floor, party, rows)
    return seats


def _is_hopeless(task: AssignmentTask) -> bool:
    """Whether a plain count shows that there is no room for as many as needed."""
    ground, possible = task.floor.scene.ground, 0
    useful = np.zeros(len(task.floor), dtype=bool)
    total: dict[str, int] = {}
    for party in task.parties:
        rows, counts = most_of(task.floor, party.shape, task.within, len(party.keys))
        possible += min(len(party.keys), int(counts.sum()), _together_at_most(task, party))
        useful[rows] = True
        for name, amount in party.shape.amounts:
            total[name] = total.get(name, 0) + amount * len(party.keys)
    if possible < task.need:
        return True
    if task.need < task.asked:
        return False
    return any(
        amount > int(np.maximum(ground.free[ground.resources[name]][useful], 0).sum())
        for name, amount in total.items()
        if name in ground.resources
    )


def _together_at_most(task: AssignmentTask, party: PodBatch) -> int:
    """If its pods can only be near each other: how many the best place holds."""
    if len(task.parties) > 1 or not needs_its_own(task.floor, party.shape):
        return len(party.keys)
    rooms = [_room_by_value(task, (party,), term.key)[1] for term in party.shape.neighbours.near]
    return min(int(room.max(initial=0)) for room in rooms)


def _other_ways(task: AssignmentTask) -> Iterator[tuple[tuple[PodBatch, ...], Bools | None]]:
    """Parties in another order; then, if some must be near each other, one domain after the other."""
    tied = tuple(sorted(task.parties, key=lambda party: is_free(party.shape)))
    for way in dict.fromkeys((tied, task.parties[::-1])):
        if way != task.parties:
            yield way, task.within
    for key in dict.fromkeys(term.key for party in task.parties for term in party.shape.neighbours.near):
        value, room = _room_by_value(task, task.parties, key)
        for domain in np.argsort(-room, kind="stable")[:DOMAINS_TRIED_MAX].tolist():
            if room[domain]:
                here = value == domain
                yield task.parties, here if task.within is None else here & task.within


def _room_by_value(task: AssignmentTask, parties: Sequence[PodBatch], key: str) -> tuple[Ints, Ints]:
    """The number of each node's value of a label, and by number how many pods could sit there at best."""
    value, size = values_of(task.floor.scene.ground.land, key)
    room = np.zeros(size, dtype=np.int64)
    for party in parties:
        rows, counts = most_of(task.floor, party.shape, task.within, len(party.keys))
        labelled = value[rows] != ABSENT
        there = np.bincount(value[rows][labelled], weights=counts[labelled], minlength=size).astype(np.int64)
        room += np.minimum(there, len(party.keys))
    return value, room
