"""Over how few zones, and how near to each other, each node could spread a pod."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from bayplan.model.numa import Amounts
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.columns import FAR, NO_ZONE, Distances, NumaColumns

BEST = 100
NEVER = 2**62
SETS_MAX = 20_000  # beyond that many sets of zones of one size, the first that do are taken
CELLS_MAX = 1 << 22  # entries of a working array; more nodes are taken in turns


def fewest_zones(columns: NumaColumns, rows: Ints, parts: tuple[Amounts, ...]) -> Ints:
    """The score of some nodes: the fewer zones the widest container needs the better, and the nearer."""
    turn = max(CELLS_MAX // (columns.places * min(SETS_MAX, 1 << min(columns.places, 14))), 64)
    found = [_fewest(columns, rows[at : at + turn], parts) for at in range(0, len(rows), turn)]
    return np.concatenate(found) if found else np.zeros(0, dtype=np.int64)


def _fewest(columns: NumaColumns, rows: Ints, parts: tuple[Amounts, ...]) -> Ints:
    names = {name for part in parts for name, _ in part}
    rooms = {name: room[:, rows] for name in names if (room := columns.room(name)) is not None}
    widest = np.zeros(len(rows), dtype=np.int64)
    near = np.ones(len(rows), dtype=bool)
    fits = np.ones(len(rows), dtype=bool)
    for index, part in enumerate(parts):
        concerned = fits & lists_any(rooms, part, len(rows))
        sets, nearest = needed(columns, rows, rooms, part, concerned)
        count = sets.sum(axis=0)
        fits &= ~concerned | (count > 0)
        near &= ~concerned | nearest
        widest = np.maximum(widest, np.where(concerned, count, 0))
        if index < len(parts) - 1:
            spread(columns.numbers[:, rows], rooms, part, sets)
    scores = score_of(widest, near, columns.zones_max[rows])
    scores[widest == 0] = BEST
    scores[~fits] = 0
    return scores


def score_of(count: Ints, near: Bools, zones_max: Ints) -> Ints:
    """A step less for every zone, and half a step more if no set of as many zones lies nearer."""
    step = BEST // zones_max
    scores: Ints = np.maximum(BEST - count * step + np.where(near, step // 2, 0), 0)
    return scores


def lists_any(rooms: dict[str, Ints], part: Amounts, rows: int) -> Bools:
    """The nodes that list something of it in some zone."""
    found = np.zeros(rows, dtype=bool)
    for name, _ in part:
        if name in rooms:
            found |= (rooms[name] >= 0).any(axis=0)
    return found


def needed(
    columns: NumaColumns, rows: Ints, rooms: dict[str, Ints], part: Amounts, concerned: Bools
) -> tuple[Bools, Bools]:
    """Zone by node, the smallest set that holds the part, the nearest of those; and whether none is nearer.

    All zones of a set must list all that is asked for. No zone at all: it does not fit.
    """
    valid = columns.numbers[:, rows] != NO_ZONE
    for name, _ in part:
        valid &= rooms[name] >= 0 if name in rooms else np.zeros(valid.shape, dtype=bool)
    chosen = np.zeros(valid.shape, dtype=bool)
    nearest = np.zeros(len(rows), dtype=bool)
    open_rows = np.flatnonzero(concerned & _ever(rooms, part, valid))
    for size in range(1, columns.places + 1):
        if not len(open_rows):
            break
        if comb(columns.places, size) > SETS_MAX:
            _first_that_do(rooms, part, valid, chosen, open_rows)
            break
        sets = zone_sets(columns.places, size)
        fits = _sets_that_fit(rooms, part, valid, sets, open_rows)
        lengths, best = lengths_of(columns.layouts, columns.places, size)
        layout = columns.layout[rows[open_rows]]
        length = lengths[:, layout]
        length[~fits] = NEVER
        pick = length.argmin(axis=0)
        shortest = length[pick, np.arange(len(open_rows))]
        done = shortest < (FAR + 1) * size * size
        nearest[open_rows[done]] = shortest[done] == best[layout[done]]
        chosen[sets[pick[done]].T, open_rows[done]] = True
        open_rows = open_rows[~done]
    return chosen, nearest


def _sets_that_fit(rooms: dict[str, Ints], part: Amounts, valid: Bools, sets: Ints, rows: Ints) -> Bools:
    """Set by node. Sets of one are the zones themselves."""
    every = len(rows) == valid.shape[1]
    alone = sets.shape[1] == 1
    good = valid if every else valid[:, rows]
    fits: Bools = good.copy() if alone else np.logical_and.reduce(good[sets], axis=1)
    for name, amount in part:
        if amount > 0:
            room = rooms[name] if every else rooms[name][:, rows]
            fits &= (room if alone else room[sets].sum(axis=1)) >= amount
    return fits


def _ever(rooms: dict[str, Ints], part: Amounts, valid: Bools) -> Bools:
    """The nodes whose zones hold it all together: no others need be tried."""
    enough: Bools = np.logical_or.reduce(valid, axis=0)
    for name, amount in part:
        if amount > 0 and name in rooms:
            enough &= np.where(valid, rooms[name], 0).sum(axis=0) >= amount
    return enough


def _first_that_do(rooms: dict[str, Ints], part: Amounts, valid: Bools, chosen: Bools, rows: Ints) -> None:
    """Too many sets to look at: zones are added as they are listed until they hold the part."""
    missing = {name: np.full(len(rows), amount, dtype=np.int64) for name, amount in part if amount > 0}
    short = np.ones(len(rows), dtype=bool)
    for place in range(len(valid)):
        used = short & valid[place, rows]
        chosen[place, rows] = used
        for name, left in missing.items():
            left -= np.where(used, rooms[name][place, rows], 0)
        short &= ~used
        for left in missing.values():
            short |= left > 0
    chosen[:, rows[short]] = False


def spread(numbers: Ints, rooms: dict[str, Ints], part: Amounts, sets: Bools) -> None:
    """Take a part out of its zones, from the lowest number on."""
    order = np.argsort(numbers, axis=0, kind="stable")
    nodes = np.arange(numbers.shape[1])
    for name, amount in part:
        if amount <= 0 or name not in rooms:
            continue
        left = np.full(len(nodes), amount, dtype=np.int64)
        for places in order:
            room = rooms[name][places, nodes]
            used = np.where(sets[places, nodes], np.minimum(np.maximum(room, 0), left), 0)
            rooms[name][places, nodes] = room - used
            left -= used


@lru_cache(maxsize=256)
def zone_sets(places: int, size: int) -> Ints:
    """Every set of so many places, in the order of the first that differs."""
    return np.asarray(list(combinations(range(places), size)), dtype=np.int64)


@lru_cache(maxsize=64)
def lengths_of(layouts: tuple[Distances, ...], places: int, size: int) -> tuple[Ints, Ints]:
    """Set by layout, all distances within the set summed; and by layout, the least of them.

    No mean is above the largest distance there is, even if the zones say so.
    """
    sets = zone_sets(places, size)
    lengths = np.full((len(sets), len(layouts)), NEVER, dtype=np.int64)
    for at, layout in enumerate(layouts):
        inside = sets[:, -1] < len(layout)
        if inside.any():
            table = np.asarray(layout, dtype=np.int64)
            within = sets[inside]
            lengths[inside, at] = table[within[:, :, None], within[:, None, :]].sum(axis=(1, 2))
    return lengths, np.minimum(lengths.min(axis=0), FAR * size * size)
