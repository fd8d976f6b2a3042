"""How well a pod would sit in the zones of each node, in hundredths."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayplan.model.numa import Amounts, NumaRequest, QosClass, TopologyManagerScope, ZoneRules, ZoneScore
from bayplan.placement.cluster.resource_fit import BEST, EXACT
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.numa.columns import NO_ZONE, NumaColumns
from bayplan.placement.numa.resources import CPU, portions
from bayplan.placement.numa.smallest_set import fewest_zones

MILLI = 1000
USUAL = ZoneRules()


def zone_scores(columns: NumaColumns, wants: NumaRequest, rules: ZoneRules = USUAL) -> Ints:
    """By node, 0 to 100. A pod to which nothing is promised sits well anywhere."""
    if wants.service is not QosClass.GUARANTEED:
        return np.full(columns.rows, BEST, dtype=np.int64)
    scores = np.zeros(columns.rows, dtype=np.int64)
    fewest = rules.score is ZoneScore.FEWEST_ZONES
    heard = columns.reported & columns.fresh & (columns.single | fewest)
    for scope, nodes in (
        (TopologyManagerScope.CONTAINER, heard & ~columns.whole),
        (TopologyManagerScope.POD, heard & columns.whole),
    ):
        rows = np.flatnonzero(nodes)
        if len(rows):
            parts = tuple(container.requests for container in portions(wants, scope, rules))
            scores[rows] = (
                fewest_zones(columns, rows, parts) if fewest else _mean(columns, rows, parts, rules)
            )
    return scores


def _mean(columns: NumaColumns, rows: Ints, parts: tuple[Amounts, ...], rules: ZoneRules) -> Ints:
    """The mean over containers, rounded down. One that asks for nothing has no say."""
    total = np.zeros(len(rows), dtype=np.int64)
    telling = [part for part in parts if part]
    for part in telling:
        total += _worst(columns, rows, part, rules)
    return total // max(len(telling), 1)


def _worst(columns: NumaColumns, rows: Ints, part: Amounts, rules: ZoneRules) -> Ints:
    """The least of the zones' scores: nobody knows which one the node will take. Zeros are no candidates."""
    if rules.score is ZoneScore.BALANCED:
        scores = _balanced(columns, rows, part)
    else:
        scores = _allocated(columns, rows, part, rules)
    numbers = columns.numbers if len(rows) == columns.rows else columns.numbers[:, rows]
    scores[(numbers == NO_ZONE) | (scores == 0)] = BEST + 1
    least = scores.min(axis=0)
    return np.where(least > BEST, 0, least)


def _room(columns: NumaColumns, rows: Ints, resource: str) -> Ints:
    """What zones have; nothing where it is not listed."""
    room = columns.room(resource)
    if room is None:
        return np.zeros((columns.places, len(rows)), dtype=np.int64)
    return np.maximum(room if len(rows) == columns.rows else room[:, rows], 0)


def _units(resource: str, amounts: Ints) -> Ints:
    """In whole CPUs rounded up, bytes or pieces."""
    return -(-amounts // MILLI) if resource == CPU else amounts


def _asked(resource: str, amount: int) -> int:
    return -(-amount // MILLI) if resource == CPU else amount


def _allocated(columns: NumaColumns, rows: Ints, part: Amounts, rules: ZoneRules) -> Ints:
    """The share that would be left, or used, weighted. Whether there is room at all is compared exactly."""
    total = np.zeros((columns.places, len(rows)), dtype=np.int64)
    weights = 0
    for resource, amount in part:
        room = _room(columns, rows, resource)
        have, asked = _units(resource, room), _asked(resource, amount)
        counted = have - asked if rules.score is ZoneScore.LEAST_ALLOCATED else np.int64(asked)
        share = _hundredths(counted, have)
        share[(room < amount) | (room == 0)] = 0
        weight = rules.weight(resource)
        total += share * weight
        weights += weight
    return total // weights


def _hundredths(part: Ints | np.int64, whole: Ints) -> Ints:
    """The share in whole hundredths, rounded down, where the part is between nothing and the whole.

    Floats divide much faster, and below this limit they cannot round up across a whole number.
    """
    divisor = np.maximum(whole, 1)
    if int(whole.max(initial=0)) < EXACT:
        return (part * float(BEST) / divisor).astype(np.int64)
    return part * BEST // divisor


def _balanced(columns: NumaColumns, rows: Ints, part: Amounts) -> Ints:
    """How alike the shares are that would be used: one minus their variance."""
    shares = []
    beyond = np.zeros((columns.places, len(rows)), dtype=bool)
    for resource, amount in part:
        have, asked = _units(resource, _room(columns, rows, resource)), _asked(resource, amount)
        share = np.where(have > 0, asked / np.maximum(have, 1), 1.0)
        beyond |= share > 1
        shares.append(share)
    scores = ((1 - _variance(shares)) * BEST).astype(np.int64)
    scores[beyond] = 0
    return scores


def _variance(shares: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sample variance, with what rounding lost in the mean given back."""
    count = len(shares)
    if count < 2:
        return np.zeros_like(shares[0])
    mean = sum(shares[1:], start=shares[0]) / count
    squares = np.zeros_like(mean)
    lost = np.zeros_like(mean)
    for share in shares:
        apart = share - mean
        squares += apart * apart
        lost += apart
    return (squares - lost * lost / count) / (count - 1)
