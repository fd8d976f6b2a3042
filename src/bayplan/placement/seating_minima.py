"""Seats for a gang whose pod sets have minima: every minimum or nobody, then more where there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Group
from bayplan.model.pod import Pod, PodKey
from bayplan.model.profile import Profile
from bayplan.model.unfit import Cause
from bayplan.placement.fit_nodes import Land
from bayplan.placement.floor import Floor
from bayplan.placement.growth import Grower, Growth, Path, neediest
from bayplan.placement.knots import Bond, Knot, Roll, knots_of, lacking
from bayplan.placement.nodes import ABSENT
from bayplan.placement.packing import Steps
from bayplan.placement.seating_parties import Seated, parties_of
from bayplan.placement.seating_tree import cap_beside, rows_in, take_seats
from bayplan.placement.shortage import Shortage, shortage
from bayplan.placement.siblings import Found, Search
from bayplan.placement.supply import Supply
from bayplan.placement.terrain import COUNT_MAX, Terrain
from bayplan.placement.tree import Bools, Ints

STEPS_PER_SECOND = 2000  # of a search, since no clock is read here
FEW = 500  # steps, besides one for each pod, that are spent on what is merely nice to have


@dataclass(frozen=True, slots=True)
class Wanted:
    """A gang with minima, and who of it is there."""

    tree: Group
    waiting: Sequence[Pod]  # in the order of pod sets and ranks
    standing: Sequence[Pod] = ()
    extra: int | None = None  # how many more than it lacks of its minima; None: as many as fit


def minima_seats(
    floor: Floor, supply: Supply, wanted: Wanted, *, profile: Profile, within: Bools | None = None
) -> Seated | Shortage:
    """Seat what every pod set lacks of its minimum, or nobody; then more.

    Those who stand say where those who come belong. If there are domains for all who wait, those are taken,
    even if not everybody may come yet.
    """
    tree, waiting, extra = wanted.tree, wanted.waiting, wanted.extra
    land = floor.scene.ground.land
    places = land.remember(("places of", supply.tree), lambda: _layout(supply, land))
    terrain, kinds = _terrain(floor, supply, places, waiting, within)
    roll = _roll(floor, places, waiting, wanted.standing, kinds)
    beyond = len(waiting) - sum(_lacks(tree, roll).values())
    few, many = FEW + 4 * len(waiting), int(profile.exact_seconds * STEPS_PER_SECOND)
    if beyond:
        whole = _found(terrain, supply, tree, replace(roll, whole=True), profile, (few, 0))
        if isinstance(whole, Search):
            if extra is None or extra >= beyond:
                return _seated(floor, places, waiting, whole.seats, tried=True)
            coming = _who_comes(tree, supply, roll, extra)
            seats = [(pod, row) for pod, row in whole.seats if pod.key in coming]
            return _seated(floor, places, waiting, seats, tried=False)
    found = _found(terrain, supply, tree, roll, profile, (few, max(many, few)))
    if not isinstance(found, Search):
        return found
    growth = Growth(terrain, dict(found.places), kinds, profile)
    growth.grow(_growers(tree, roll, found.root), extra)
    tried = extra is None or len(growth.seats) < extra
    if not found.seats and not growth.seats:
        return shortage(terrain, supply, tree, found, among_extras=True)
    return _seated(floor, places, waiting, [*found.seats, *growth.seats], tried=tried)


def _who_comes(tree: Group, supply: Supply, roll: Roll, extra: int) -> set[PodKey]:
    """Those whom it cannot do without, and so many more."""
    root = knots_of(tree, supply.tree.topology, roll)
    assert isinstance(root, Knot), "the same tree was searched"
    coming = neediest(_growers(tree, roll, root), extra)
    return coming | {pod.key for pod in _needed(root)}


def _needed(knot: Knot) -> list[Pod]:
    return knot.pods + [pod for child in knot.children for pod in _needed(child)]


def lacking_in(tree: Group, waiting: Sequence[Pod], standing: Sequence[Pod]) -> int:
    """How many of those who wait have to have a place."""
    by_set: dict[str, list[Pod]] = {}
    for pod in waiting:
        by_set.setdefault(pod.pod_set, []).append(pod)
    stands: dict[str, list[int]] = {}
    for pod in standing:
        stands.setdefault(pod.pod_set, []).append(pod.rank)
    return sum(lacking(one, by_set.get(one.name, ()), stands.get(one.name, ())) for one in tree.pod_sets())


def _found(
    terrain: Terrain, supply: Supply, tree: Group, roll: Roll, profile: Profile, steps: tuple[int, int]
) -> Search | Shortage:
    """A search that found something. Wishes are given up if it takes too many steps to grant them."""
    root = knots_of(tree, supply.tree.topology, roll)
    if isinstance(root, Misfit):
        return Shortage(root)
    few, many = steps
    wishes = any(_wishes(root))
    budgets = ((True, few), (False, many)) if wishes else ((True, max(few, many)),)
    for granted, left in budgets:
        if not left:
            continue
        search = Search(terrain, root, profile, Steps(left), wishes=granted)
        found = search.run()
        if found is Found.YES:
            return search
        if found is Found.NO:
            return shortage(terrain, supply, tree, search)
    return shortage(terrain, supply, tree, search, unsure=True)


def _wishes(knot: Knot) -> list[Knot]:
    mine = [knot] if knot.bond is Bond.WISH else []
    return mine + [wish for child in knot.children for wish in _wishes(child)]


def _seated(
    floor: Floor, places: Places, waiting: Sequence[Pod], seats: Sequence[tuple[Pod, int]], *, tried: bool
) -> Seated:
    wanted = [(pod, int(places.at[row])) for pod, row in seats]
    seated = take_seats(floor, [pod for pod, _ in wanted], wanted)
    if seated.unsure or not tried:
        return seated
    there = seated.seats
    rest = parties_of(floor, (pod for pod in waiting if pod.key not in there))
    left = {key: floor.judge(party.shape).why for party in rest for key in party.keys}
    return Seated(there, left)


# ── the ground ─────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Rows of a topology, then all others, as rows of the floor; and the other way round."""

    at: Ints
    back: Ints


def _layout(supply: Supply, land: Land) -> Places:
    inside = rows_in(supply, land)
    others = np.ones(len(land), bool)
    others[inside[inside != ABSENT]] = False
    at = np.concatenate((inside, np.flatnonzero(others)))
    back = np.full(len(land) + 1, ABSENT, np.int64)  # the last is for rows that are not there
    back[at] = np.arange(len(at))
    back[ABSENT] = ABSENT
    return Places(at, back)


def _terrain(
    floor: Floor, supply: Supply, places: Places, waiting: Sequence[Pod], within: Bools | None
) -> tuple[Terrain, dict[PodKey, int]]:
    """The room on each row for each kind of pod: those that ask for the same and are refused by the same."""
    ground = floor.scene.ground
    kinds: dict[object, int] = {}
    of_pod: dict[PodKey, int] = {}
    caps: list[Ints | None] = []
    amounts: list[Mapping[str, int]] = []
    for party in parties_of(floor, waiting):
        cap = cap_beside(floor, (party.shape,), (Cause.LACKING,))
        asked = dict(party.shape.amounts)
        key = (party.shape.amounts, None if cap is None else cap.tobytes())
        if key not in kinds:
            kinds[key] = len(kinds)
            caps.append(cap)
            amounts.append(asked)
        of_pod |= dict.fromkeys(party.keys, kinds[key])
    names = sorted({name for one in amounts for name, amount in one.items() if amount})
    free = np.zeros((len(names) + len(caps), len(places.at)), np.int64)
    needs = np.zeros((len(caps), len(free)), np.int64)
    for row, name in enumerate(names):
        if name in ground.resources:
            free[row] = ground.free[ground.resources[name]][places.at]
        needs[:, row] = [one.get(name, 0) for one in amounts]
    allowed = np.zeros((len(caps), len(places.at)), bool)
    usable = places.at != ABSENT if within is None else (places.at != ABSENT) & within[places.at]
    for kind, cap in enumerate(caps):
        room = np.full(len(places.at), COUNT_MAX) if cap is None else cap[places.at]
        allowed[kind] = usable & (room > 0)
        if cap is not None and (room[allowed[kind]] < COUNT_MAX).any():
            free[len(names) + kind], needs[kind, len(names) + kind] = room, 1
    return Terrain(supply.tree, free, needs, allowed, tuple(names)), of_pod


# ── the pods ───────────────────────────────────────────────────────────────────────────────────────


def _roll(
    floor: Floor, places: Places, waiting: Sequence[Pod], standing: Sequence[Pod], kinds: dict[PodKey, int]
) -> Roll:
    by_set: dict[str, list[Pod]] = {}
    for pod in waiting:
        by_set.setdefault(pod.pod_set, []).append(pod)
    stands: dict[str, list[tuple[int, int]]] = {}
    for pod in standing:
        row = int(places.back[floor.row(pod.node)]) if pod.node else ABSENT
        stands.setdefault(pod.pod_set, []).append((pod.rank, row))
    return Roll(by_set, stands, kinds)


def _lacks(tree: Group, roll: Roll) -> dict[str, int]:
    return {
        one.name: lacking(
            one, roll.waiting.get(one.name, ()), [rank for rank, _ in roll.standing.get(one.name, ())]
        )
        for one in tree.pod_sets()
    }


def _growers(tree: Group, roll: Roll, root: Knot) -> list[Grower]:
    lacks = _lacks(tree, roll)
    leaves: dict[str, list[tuple[Path, list[Pod]]]] = {}
    _leaves(root, (), leaves)
    found = []
    for one in tree.pod_sets():
        placed = len(roll.standing.get(one.name, ())) + lacks[one.name]
        found.append(Grower(one.minimum, placed, leaves.get(one.name, [])[::-1]))
    return found


def _leaves(knot: Knot, above: Path, found: dict[str, list[tuple[Path, list[Pod]]]]) -> None:
    path = (*above, knot)
    if knot.extras:
        found.setdefault(knot.part, []).append((path, list(knot.extras)))
    for child in knot.children:
        _leaves(child, path, found)
