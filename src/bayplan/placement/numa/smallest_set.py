"""The smallest and closest set of NUMA zones that fits a pod on each node, and its score."""

from __future__ import annotations

from functools import lru_cache
from itertools import combinations
from math import comb

import numpy as np

from bayplan.model.numa import Amounts
from bayplan.placement.cluster.topology_tree import Bools, Ints
from bayplan.placement.numa.columns import FAR, NO_ZONE, Distances, NumaColumns

BEST = 100
UNREACHABLE = 2**62
SETS_MAX = 20_000  # with more zone sets of one size, zones are taken in order instead of searching
CELLS_MAX = 1 << 22  # entries of a working array; more nodes are processed in chunks


def fewest_zones(columns: NumaColumns, rows: Ints, parts: tuple[Amounts, ...]) -> Ints:
    """The score of some nodes: higher for fewer and closer zones of the widest container."""
    chunk = max(CELLS_MAX // (columns.places * min(SETS_MAX, 1 << min(columns.places, 14))), 64)
    scores = [_fewest(columns, rows[at : at + chunk], parts) for at in range(0, len(rows), chunk)]
    return np.concatenate(scores) if scores else np.zeros(0, dtype=np.int64)


def _fewest(columns: NumaColumns, rows: Ints, parts: tuple[Amounts, ...]) -> Ints:
    names = {name for part in parts for name, _ in part}
    available = {name: room[:, rows] for name in names if (room := columns.room(name)) is not None}
    widest = np.zeros(len(rows), dtype=np.int64)
    near = np.ones(len(rows), dtype=bool)
    fits = np.ones(len(rows), dtype=bool)
    for index, part in enumerate(parts):
        concerned = fits & nodes_listing_any(available, part, len(rows))
        sets, nearest = smallest_zone_sets(columns, rows, available, part, concerned)
        count = sets.sum(axis=0)
        fits &= ~concerned | (count > 0)
        near &= ~concerned | nearest
        widest = np.maximum(widest, np.where(concerned, count, 0))
        if index < len(parts) - 1:
            subtract_from_zones(columns.numbers[:, rows], available, part, sets)
    scores = score_of(widest, near, columns.zones_max[rows])
    scores[widest == 0] = BEST
    scores[~fits] = 0
    return scores


def score_of(count: Ints, near: Bools, zones_max: Ints) -> Ints:
    """One step less for every zone, half a step more if no set of the same size is closer."""
    step = BEST // zones_max
    scores: Ints = np.maximum(BEST - count * step + np.where(near, step // 2, 0), 0)
    return scores


def nodes_listing_any(available: dict[str, Ints], part: Amounts, rows: int) -> Bools:
    """The nodes on which some zone lists one of the requested resources."""
    nodes = np.zeros(rows, dtype=bool)
    for name, _ in part:
        if name in available:
            nodes |= (available[name] >= 0).any(axis=0)
    return nodes


def smallest_zone_sets(
    columns: NumaColumns, rows: Ints, available: dict[str, Ints], part: Amounts, concerned: Bools
) -> tuple[Bools, Bools]:
    """Zone by node, the smallest set that fits the part, closest first; and whether no set is closer.

    All zones of a set must list all requested resources. An empty set: it does not fit.
    """
    valid = columns.numbers[:, rows] != NO_ZONE
    for name, _ in part:
        valid &= available[name] >= 0 if name in available else np.zeros(valid.shape, dtype=bool)
    chosen = np.zeros(valid.shape, dtype=bool)
    nearest = np.zeros(len(rows), dtype=bool)
    open_rows = np.flatnonzero(concerned & _fits_in_all_zones(available, part, valid))
    for size in range(1, columns.places + 1):
        if not len(open_rows):
            break
        if comb(columns.places, size) > SETS_MAX:
            _first_sufficient(available, part, valid, chosen, open_rows)
            break
        sets = zone_sets(columns.places, size)
        fits = _sets_that_fit(available, part, valid, sets, open_rows)
        lengths, best = set_distances(columns.layouts, columns.places, size)
        layout = columns.layout[rows[open_rows]]
        length = lengths[:, layout]
        length[~fits] = UNREACHABLE
        pick = length.argmin(axis=0)
        shortest = length[pick, np.arange(len(open_rows))]
        done = shortest < (FAR + 1) * size * size
        nearest[open_rows[done]] = shortest[done] == best[layout[done]]
        chosen[sets[pick[done]].T, open_rows[done]] = True
        open_rows = open_rows[~done]
    return chosen, nearest


def _sets_that_fit(available: dict[str, Ints], part: Amounts, valid: Bools, sets: Ints, rows: Ints) -> Bools:
    """Set by node: which sets fit the part. Sets of size one are the zones themselves."""
    all_rows = len(rows) == valid.shape[1]
    single = sets.shape[1] == 1
    valid_rows = valid if all_rows else valid[:, rows]
    fits: Bools = valid_rows.copy() if single else np.logical_and.reduce(valid_rows[sets], axis=1)
    for name, amount in part:
        if amount > 0:
            free = available[name] if all_rows else available[name][:, rows]
            fits &= (free if single else free[sets].sum(axis=1)) >= amount
    return fits


def _fits_in_all_zones(available: dict[str, Ints], part: Amounts, valid: Bools) -> Bools:
    """The nodes whose zones together fit the part; the others need not be searched."""
    enough: Bools = np.logical_or.reduce(valid, axis=0)
    for name, amount in part:
        if amount > 0 and name in available:
            enough &= np.where(valid, available[name], 0).sum(axis=0) >= amount
    return enough


def _first_sufficient(
    available: dict[str, Ints], part: Amounts, valid: Bools, chosen: Bools, rows: Ints
) -> None:
    """With too many sets to search, add zones in listed order until they fit the part."""
    missing = {name: np.full(len(rows), amount, dtype=np.int64) for name, amount in part if amount > 0}
    insufficient = np.ones(len(rows), dtype=bool)
    for place in range(len(valid)):
        used = insufficient & valid[place, rows]
        chosen[place, rows] = used
        for name, remaining in missing.items():
            remaining -= np.where(used, available[name][place, rows], 0)
        insufficient &= ~used
        for remaining in missing.values():
            insufficient |= remaining > 0
    chosen[:, rows[insufficient]] = False


def subtract_from_zones(numbers: Ints, available: dict[str, Ints], part: Amounts, sets: Bools) -> None:
    """Subtract a part from its zones, lowest number first."""
    order = np.argsort(numbers, axis=0, kind="stable")
    nodes = np.arange(numbers.shape[1])
    for name, amount in part:
        if amount <= 0 or name not in available:
            continue
        left = np.full(len(nodes), amount, dtype=np.int64)
        for places in order:
            free = available[name][places, nodes]
            used = np.where(sets[places, nodes], np.minimum(np.maximum(free, 0), left), 0)
            available[name][places, nodes] = free - used
            left -= used


@lru_cache(maxsize=256)
def zone_sets(places: int, size: int) -> Ints:
    """All sets of `size` places, in lexicographic order."""
    return np.asarray(list(combinations(range(places), size)), dtype=np.int64)


@lru_cache(maxsize=64)
def set_distances(layouts: tuple[Distances, ...], places: int, size: int) -> tuple[Ints, Ints]:
    """Set by layout, the sum of all distances within the set; and by layout, the smallest sum.

    The mean distance is capped at FAR, even if a report has larger ones.
    """
    sets = zone_sets(places, size)
    lengths = np.full((len(sets), len(layouts)), UNREACHABLE, dtype=np.int64)
    for column, layout in enumerate(layouts):
        inside = sets[:, -1] < len(layout)
        if inside.any():
            table = np.asarray(layout, dtype=np.int64)
            members = sets[inside]
            lengths[inside, column] = table[members[:, :, None], members[:, None, :]].sum(axis=(1, 2))
    return lengths, np.minimum(lengths.min(axis=0), FAR * size * size)
