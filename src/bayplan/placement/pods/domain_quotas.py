"""How many pods of a pod set the domains of a label may get, and caps per node that keep to it."""

from __future__ import annotations

import numpy as np

from bayplan.placement.cluster.node_table import ABSENT
from bayplan.placement.cluster.topology_tree import Ints

UNLIMITED = np.int64(2**31 - 1)


def spread_quotas(present: Ints, room: Ints, pods: int, max_skew: int) -> Ints:
    """The pods that each domain may get, so that no domain exceeds the least by more than the maximum skew.

    `present` are the matching pods of each domain now, `room` the pods that it can hold. If the domains can
    hold all pods without a change of the least, these are upper bounds; else they are exact, and add up to
    `pods`. Too small a sum means that no distribution satisfies the constraint.
    """
    least = int(present.min()) if len(present) else 0
    quotas = _bounded(least + max_skew - present, room)
    if int(quotas.sum()) >= pods:
        return np.maximum(least + max_skew - present, 0)
    low, high = least, int((present + room).min()) if len(present) else least
    while low < high:  # the smallest level of the least domain at which all pods fit
        middle = (low + high) // 2
        if int(_bounded(middle + max_skew - present, room).sum()) >= pods:
            high = middle
        else:
            low = middle + 1
    upper, lower = _bounded(low + max_skew - present, room), _bounded(low - present, room)
    rest = pods - int(lower.sum())
    if rest < 0 or int(upper.sum()) < pods:
        return upper
    more = upper - lower
    before = np.cumsum(more) - more
    exact: Ints = lower + np.clip(rest - before, 0, more)
    return exact


def _bounded(wanted: Ints, room: Ints) -> Ints:
    bounded: Ints = np.clip(wanted, 0, room)
    return bounded


def caps_within(quotas: Ints, domain: Ints, room: Ints, preferred: Ints) -> Ints:
    """Caps per row whose sum in each domain is at most its quota; `preferred` rows get theirs first.

    `domain` is the code of each row's domain (ABSENT: in none, and without a cap), `room` the pods that the
    row can hold, `preferred` the pods that it should hold.
    """
    caps = np.full(len(domain), UNLIMITED, dtype=np.int64)
    inside = np.flatnonzero(domain != ABSENT)
    order = inside[np.lexsort((-room[inside], -preferred[inside], domain[inside]))]
    codes = domain[order]
    wanted = np.where(preferred[order] > 0, np.minimum(preferred[order], room[order]), room[order])
    caps[order] = _shared(quotas, codes, wanted)
    left = quotas - np.bincount(codes, weights=caps[order], minlength=len(quotas)).astype(np.int64)
    caps[order] += _shared(left, codes, room[order] - caps[order])
    return caps


def _shared(quotas: Ints, codes: Ints, wanted: Ints) -> Ints:
    """What each row gets of the quota of its domain; rows of a domain are adjacent, the first gets most."""
    before = np.cumsum(wanted) - wanted
    starts = np.flatnonzero(np.append(True, codes[1:] != codes[:-1])) if len(codes) else codes
    sizes = np.diff(np.append(starts, len(codes)))
    before = before - np.repeat(before[starts], sizes)
    shared: Ints = np.clip(quotas[codes] - before, 0, wanted)
    return shared
