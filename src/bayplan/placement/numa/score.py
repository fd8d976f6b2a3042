"""NUMA scores: how well each node's zones suit a pod, 0 to 100."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bayplan.model.numa import Amounts, NumaRequest, QosClass, TopologyManagerScope, ZoneRules, ZoneScore
from bayplan.placement.cluster.resource_fit import BEST, EXACT
from bayplan.placement.cluster.topology_tree import Ints
from bayplan.placement.numa.columns import NO_ZONE, NumaColumns
from bayplan.placement.numa.resources import CPU, aligned_requests
from bayplan.placement.numa.smallest_set import fewest_zones

MILLI = 1000
USUAL = ZoneRules()


def zone_scores(columns: NumaColumns, request: NumaRequest, rules: ZoneRules = USUAL) -> Ints:
    """The score by node, 0 to 100. A pod that is not Guaranteed scores 100 everywhere."""
    if request.qos is not QosClass.GUARANTEED:
        return np.full(columns.rows, BEST, dtype=np.int64)
    scores = np.zeros(columns.rows, dtype=np.int64)
    fewest = rules.score is ZoneScore.FEWEST_ZONES
    scored = columns.reported & columns.fresh & (columns.single | fewest)
    for scope, nodes in (
        (TopologyManagerScope.CONTAINER, scored & ~columns.whole),
        (TopologyManagerScope.POD, scored & columns.whole),
    ):
        rows = np.flatnonzero(nodes)
        if len(rows):
            parts = tuple(container.requests for container in aligned_requests(request, scope, rules))
            scores[rows] = (
                fewest_zones(columns, rows, parts) if fewest else _mean(columns, rows, parts, rules)
            )
    return scores


def _mean(columns: NumaColumns, rows: Ints, parts: tuple[Amounts, ...], rules: ZoneRules) -> Ints:
    """The mean over containers, rounded down. A container without requests is left out."""
    total = np.zeros(len(rows), dtype=np.int64)
    requesting = [part for part in parts if part]
    for part in requesting:
        total += _lowest(columns, rows, part, rules)
    return total // max(len(requesting), 1)


def _lowest(columns: NumaColumns, rows: Ints, part: Amounts, rules: ZoneRules) -> Ints:
    """The lowest score of the zones, since the kubelet may choose any of them. Zero means no candidate."""
    if rules.score is ZoneScore.BALANCED:
        scores = _balanced(columns, rows, part)
    else:
        scores = _allocated(columns, rows, part, rules)
    numbers = columns.numbers if len(rows) == columns.rows else columns.numbers[:, rows]
    scores[(numbers == NO_ZONE) | (scores == 0)] = BEST + 1
    least = scores.min(axis=0)
    return np.where(least > BEST, 0, least)


def _available(columns: NumaColumns, rows: Ints, resource: str) -> Ints:
    """The available amount, zone by node; zero where it is not listed."""
    available = columns.room(resource)
    if available is None:
        return np.zeros((columns.places, len(rows)), dtype=np.int64)
    return np.maximum(available if len(rows) == columns.rows else available[:, rows], 0)


def _in_units(resource: str, amounts: Ints) -> Ints:
    """Amounts in whole CPUs rounded up, bytes or devices."""
    return -(-amounts // MILLI) if resource == CPU else amounts


def _requested(resource: str, amount: int) -> int:
    return -(-amount // MILLI) if resource == CPU else amount


def _allocated(columns: NumaColumns, rows: Ints, part: Amounts, rules: ZoneRules) -> Ints:
    """The weighted share that would be left or used. Whether the request fits is compared exactly."""
    total = np.zeros((columns.places, len(rows)), dtype=np.int64)
    weights = 0
    for resource, amount in part:
        available = _available(columns, rows, resource)
        have, requested = _in_units(resource, available), _requested(resource, amount)
        counted = have - requested if rules.score is ZoneScore.LEAST_ALLOCATED else np.int64(requested)
        share = _percent(counted, have)
        share[(available < amount) | (available == 0)] = 0
        weight = rules.weight(resource)
        total += share * weight
        weights += weight
    return total // weights


def _percent(part: Ints | np.int64, whole: Ints) -> Ints:
    """The share in whole percent, rounded down, where the part is between zero and the whole.

    Float division is much faster, and below EXACT it never rounds up to the next integer.
    """
    divisor = np.maximum(whole, 1)
    if int(whole.max(initial=0)) < EXACT:
        return (part * float(BEST) / divisor).astype(np.int64)
    return part * BEST // divisor


def _balanced(columns: NumaColumns, rows: Ints, part: Amounts) -> Ints:
    """How close the used shares would be: one minus their variance."""
    shares = []
    exceeded = np.zeros((columns.places, len(rows)), dtype=bool)
    for resource, amount in part:
        have, requested = (
            _in_units(resource, _available(columns, rows, resource)),
            _requested(resource, amount),
        )
        share = np.where(have > 0, requested / np.maximum(have, 1), 1.0)
        exceeded |= share > 1
        shares.append(share)
    scores = ((1 - _variance(shares)) * BEST).astype(np.int64)
    scores[exceeded] = 0
    return scores


def _variance(shares: list[NDArray[np.float64]]) -> NDArray[np.float64]:
    """The sample variance, corrected for the rounding of the mean."""
    count = len(shares)
    if count < 2:
        return np.zeros_like(shares[0])
    mean = sum(shares[1:], start=shares[0]) / count
    squares = np.zeros_like(mean)
    rounding = np.zeros_like(mean)
    for share in shares:
        deviation = share - mean
        squares += deviation * deviation
        rounding += deviation
    return (squares - rounding * rounding / count) / (count - 1)
