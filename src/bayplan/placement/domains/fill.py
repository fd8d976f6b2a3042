"""Fills domains with units in order of preference, with the tightest domain for the last units."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from bayplan.model.profile import Strategy
from bayplan.placement.cluster.topology_tree import Bools, Ints

NOWHERE = -1
RADIX_MAX = 2**16  # numpy sorts 16-bit keys by radix, several times faster
FAR = np.int64(2**62)


@dataclass(frozen=True, slots=True, eq=False)
class Shared:
    """The chosen domains in order, the units of each, and the domain of the leader or last segment."""

    domains: Ints
    units: Ints
    leader: int = NOWHERE  # a domain


def order(*keys: Ints) -> Ints:
    """Stable ascending order by several keys, the most important first."""
    packed = np.zeros(len(keys[0]), np.int64) if keys else np.zeros(0, np.int64)
    if len(packed) < 2:
        return np.arange(len(packed))
    width = 1
    for key in reversed(keys):
        low, high = int(key.min()), int(key.max())
        if low == high:
            continue
        if width * (high - low + 1) >= 2**62:
            return np.lexsort(tuple(reversed(keys)))
        packed = packed + (key - low) * width
        width *= high - low + 1
    if width == 1:
        return np.arange(len(packed))
    if width <= RADIX_MAX:
        return np.argsort(packed.astype(np.uint16), kind="stable")
    return np.argsort(packed, kind="stable")


def ranked(
    domains: Ints, first: Ints, second: Ints, strategy: Strategy, affinity: Ints | None, *before: Ints
) -> Ints:
    """Sort domains (given in topology order) by `before`, affinity, capacity, tightness, path."""
    room = first[domains]
    keys = [*before]
    if affinity is not None:
        keys.append(-affinity[domains])
    keys.append(room if strategy is Strategy.LEAST_FREE else -room)
    if second is not first:
        keys.append(second[domains])
    return domains[order(*keys)]


def fill(
    domains: Ints, owner: Ints, units: Ints, need: Ints, tight: bool, affinity: Ints | None,
    keep_empty: bool = False,
) -> Shared:  # fmt: skip
    """Distribute the need of each owner over its domains, in the order given; owners ascend from 0.

    Every domain is filled before the next, until one can hold the rest. If `tight`, the rest goes to the
    tightest of the remaining domains instead; a domain of lower affinity than the next one is never taken.
    With `keep_empty`, domains without capacity before the last one are returned as well.
    """
    room = units[domains]
    first = np.searchsorted(owner, np.arange(len(need)))
    total = np.cumsum(room)
    total = total - (total[first] - room[first])[owner]
    short = total < need[owner]
    last = first + np.add.reduceat(short.astype(np.int64), first)
    assert (last < np.append(first[1:], len(domains))).all(), "counted capacity must suffice"
    left = need - (total[last] - room[last])
    filled = np.where(short, room, 0)
    if tight:
        here = np.arange(len(domains))
        able = (here >= last[owner]) & (room >= left[owner])
        if affinity is not None:
            tier = affinity[domains]
            able &= tier == tier[last][owner]
        value = np.where(able, room, FAR)
        best = np.minimum.reduceat(value, first)
        candidates = np.flatnonzero(value == best[owner])
        last = candidates[np.searchsorted(owner[candidates], np.arange(len(need)))]
    filled[last] = left
    used = filled > 0
    if keep_empty:
        used |= short
    return Shared(domains[used], filled[used])


def prefer_leader(domains: Ints, units: Ints, units_led: Ints, leads: Bools, need: int) -> Ints:
    """Move the first domain that can take the leader without losing needed units to the front."""
    if len(domains) < 2:
        return domains
    spare = units[domains].sum() - (units[domains] - units_led[domains])
    good = np.flatnonzero(leads[domains] & (spare >= need))
    if not len(good) or good[0] == 0:
        return domains
    chosen = good[0]
    return np.concatenate((domains[chosen : chosen + 1], domains[:chosen], domains[chosen + 1 :]))


def fill_led(
    domains: Ints, units: Ints, units_led: Ints, leads: Bools, need: int, tight: bool, affinity: Ints | None
) -> Shared:
    """As `fill` for one owner, with the leader or last segment placed first.

    Every domain considered is returned, with 0 units if it has no capacity for workers: on the descent the
    leader may go to any of them.
    """
    domains = prefer_leader(domains, units, units_led, leads, need)
    shares: list[tuple[int, int]] = []
    for turn, domain in enumerate(domains.tolist()):
        if tight and units_led[domain] >= need and leads[domain]:
            domain = _tightest_led(domains[turn:], units_led, leads, need, affinity)
        if units_led[domain] >= need and leads[domain]:
            return _shared([*shares, (domain, need)], domain)
        take = min(int(units_led[domain]), need)
        shares.append((domain, take))
        need -= take
        if leads[domain]:
            rest = domains[turn + 1 :]
            if not need:
                return _shared(shares, domain)
            alone, left = np.zeros(len(rest), np.int64), np.array([need])
            more = fill(rest, alone, units, left, tight, affinity, keep_empty=True)
            shares += zip(more.domains.tolist(), more.units.tolist(), strict=True)
            return _shared(shares, domain)
    raise AssertionError("counted capacity must hold the leader or last segment")


def _tightest_led(domains: Ints, units_led: Ints, leads: Bools, need: int, affinity: Ints | None) -> int:
    able = leads[domains] & (units_led[domains] >= need)
    if affinity is not None:
        tier = affinity[domains]
        same = tier == tier[0]
        able &= np.logical_and.accumulate(same)
    return int(domains[np.argmin(np.where(able, units_led[domains], FAR))])


def _shared(shares: list[tuple[int, int]], leader: int) -> Shared:
    domains, units = np.array(shares, np.int64).reshape(-1, 2).T
    return Shared(domains, units, leader)
