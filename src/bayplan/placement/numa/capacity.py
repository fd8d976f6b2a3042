"""How many copies of a pod each node can align: the answer that capacity takes when zones matter."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from bayplan.model.numa import ContainerRequest, ContainerType, FitRule, NumaRequest, ZoneRules
from bayplan.placement.cluster.capacity import COUNT_MAX
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.numa.alignment import FITS, asking, settle
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.numa.resources import is_compared, is_host_wide, is_indifferent, portions
from bayplan.placement.numa.workspace import NumaWorkspace, laid_out

USUAL = ZoneRules()
TURNS_MAX = 4096  # no node runs more pods: further copies are not tried one by one


def aligned_counts(
    columns: NumaColumns,
    wants: NumaRequest,
    rules: ZoneRules = USUAL,
    most: int = COUNT_MAX,
    nodes: Bools | None = None,
) -> Ints:
    """By node, how many copies find their zones one after the other; `most` where zones do not matter.

    It says nothing of what the node as a whole has room for: that is another count, and the lesser holds.
    Nodes outside `nodes` are not looked at, and hold none.
    """
    counts = np.full(columns.rows, most, dtype=np.int64)
    if not is_indifferent(wants, rules):
        for scope, rows in asking(columns, rules):
            rows = rows if nodes is None else rows[nodes[rows]]
            containers = portions(wants, scope, rules)
            desk = laid_out(columns, rows, containers, wants.service, rules.fit)
            counts[rows] = _copies(desk, containers, rules, most)
        counts[~columns.fresh] = 0
    if nodes is not None:
        counts[~nodes] = 0
    return counts


def per_leaf(tree: Tree, counts: Ints) -> Ints:
    """Counts of nodes as counts of leaves: beside what the leaves hold otherwise, the lesser counts.

    A leaf of several nodes aligns what its nodes align together.
    """
    if tree.topology.ends_at_host or not len(counts):
        return counts
    together: Ints = np.minimum(np.add.reduceat(counts, tree.starts[tree.lowest]), COUNT_MAX)
    return together


def with_copies(
    columns: NumaColumns, rows: Ints, copies: Ints, wants: NumaRequest, rules: ZoneRules = USUAL
) -> NumaColumns:
    """The same with so many copies of a pod on some nodes, in the zones that the nodes would give them."""
    if is_indifferent(wants, rules):
        return columns
    asked = np.zeros(columns.rows, dtype=np.int64)
    np.add.at(asked, rows, copies)
    available = columns.available.copy()
    for scope, strict in asking(columns, rules):
        containers = portions(wants, scope, rules)
        some = strict[asked[strict] > 0]
        desk = laid_out(columns, some, containers, wants.service, rules.fit)
        done = 0
        while len(desk.rows):
            settle(desk, containers, rules, again=True)
            done += 1
            for resource, room in desk.rooms.items():
                available[columns.resources[resource]][:, desk.rows] = room
            desk = desk.narrowed(asked[desk.rows] > done)
    return replace(columns, available=available)


def _copies(
    desk: NumaWorkspace, containers: tuple[ContainerRequest, ...], rules: ZoneRules, most: int
) -> Ints:
    """Counted at once if one container decides, and otherwise copy by copy on all nodes together."""
    lasting = [one for one in containers if _lasts(one, rules) and any(amount for _, amount in one.requests)]
    passing = [one for one in containers if not _lasts(one, rules)]
    bound = np.full(len(desk.rows), COUNT_MAX, dtype=np.int64)
    for one in lasting:
        np.minimum(bound, _by_zone(desk, one), out=bound)
    for one in passing:
        bound[_by_zone(desk, one) == 0] = 0
    if not lasting or (len(lasting) == 1 and all(_within(one, lasting[0]) for one in passing)):
        return np.minimum(bound, most)
    return _one_by_one(desk, containers, rules, bound, most)


def _one_by_one(
    desk: NumaWorkspace, containers: tuple[ContainerRequest, ...], rules: ZoneRules, bound: Ints, most: int
) -> Ints:
    """Let copies settle until no node has room for one more; where nothing is ever used up, any number do."""
    counts = np.where(bound == COUNT_MAX, most, 0)
    goal = np.minimum(bound, min(most, TURNS_MAX))
    alive = (bound < COUNT_MAX) & (goal > 0)
    at, desk = np.flatnonzero(alive), desk.narrowed(alive)
    while len(at):
        found = settle(desk, containers, rules, again=True) == FITS
        counts[at] += found
        more = found & (counts[at] < goal[at])
        at, desk = at[more], desk.narrowed(more)
    return counts


def _by_zone(desk: NumaWorkspace, container: ContainerRequest) -> Ints:
    """How many copies of a single container find room, over all zones; COUNT_MAX if it uses nothing up."""
    per_zone = np.full(desk.numbers.shape, COUNT_MAX, dtype=np.int64)
    for resource, amount in container.requests:
        if amount <= 0:
            continue
        room, offered = desk.rooms.get(resource), desk.offers[resource]
        host_wide = desk.rule is FitRule.STRICT and is_host_wide(resource)
        if room is not None:
            compared = is_compared(resource, desk.service, desk.rule)
            copies = np.maximum(room, 0) // amount if compared else np.where(room >= 0, COUNT_MAX, 0)
            if host_wide:
                copies[:, ~(room >= 0).any(axis=0)] = COUNT_MAX
            np.minimum(per_zone, copies, out=per_zone)
        elif not host_wide:
            per_zone[:] = 0
        if offered is not None and desk.rule is FitRule.STRICT:
            per_zone[:, ~offered] = 0
    together: Ints = np.minimum(per_zone.sum(axis=0), COUNT_MAX)
    return together


def _lasts(container: ContainerRequest, rules: ZoneRules) -> bool:
    return container.role is ContainerType.APP or (
        container.role is ContainerType.SIDECAR and rules.sidecars_stay
    )


def _within(small: ContainerRequest, large: ContainerRequest) -> bool:
    """Whether any zone with room for the large one has room for the small one, too."""
    have = dict(large.requests)
    return all(amount <= have.get(resource, 0) for resource, amount in small.requests)
