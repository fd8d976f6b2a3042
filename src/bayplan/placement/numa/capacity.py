"""How many copies of a pod each node can align to its NUMA zones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.numa import ContainerRequest, ContainerType, FitRule, NumaRequest, ZoneRules
from bayplan.placement.cluster.capacity import COUNT_MAX
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.numa.alignment import FITS, aligning_rows, assign_zones
from bayplan.placement.numa.columns import NumaColumns
from bayplan.placement.numa.resources import aligned_requests, is_compared, is_host_wide, is_indifferent
from bayplan.placement.numa.workspace import NumaWorkspace, workspace_for

USUAL = ZoneRules()
COPIES_MAX = 4096  # no node runs more pods, so no more copies are tried


def aligned_counts(
    columns: NumaColumns,
    request: NumaRequest,
    rules: ZoneRules = USUAL,
    limit: int = COUNT_MAX,
    nodes: Bools | None = None,
) -> Ints:
    """By node, how many copies fit its zones one after the other; `limit` where zones do not matter.

    The free amounts of the node as a whole are counted elsewhere; the smaller count holds.
    Nodes outside `nodes` are skipped and count as zero.
    """
    counts = np.full(columns.rows, limit, dtype=np.int64)
    if not is_indifferent(request, rules):
        for scope, rows in aligning_rows(columns, rules):
            rows = rows if nodes is None else rows[nodes[rows]]
            containers = aligned_requests(request, scope, rules)
            workspace = workspace_for(columns, rows, containers, request.qos, rules.fit)
            counts[rows] = _copies(workspace, containers, rules, limit)
        counts[~columns.fresh] = 0
    if nodes is not None:
        counts[~nodes] = 0
    return counts


def per_leaf(tree: Tree, counts: Ints) -> Ints:
    """Sum counts per node to counts per leaf; a leaf may have several nodes."""
    if tree.topology.ends_at_host or not len(counts):
        return counts
    totals: Ints = np.minimum(np.add.reduceat(counts, tree.starts[tree.lowest]), COUNT_MAX)
    return totals


def with_copies(
    columns: NumaColumns, rows: Ints, copies: Ints, request: NumaRequest, rules: ZoneRules = USUAL
) -> NumaColumns:
    """The columns with copies of a pod on some nodes, in the zones that the kubelets would choose."""
    if is_indifferent(request, rules):
        return columns
    wanted = np.zeros(columns.rows, dtype=np.int64)
    np.add.at(wanted, rows, copies)
    available = columns.available.copy()
    for scope, strict in aligning_rows(columns, rules):
        containers = aligned_requests(request, scope, rules)
        rows_used = strict[wanted[strict] > 0]
        workspace = workspace_for(columns, rows_used, containers, request.qos, rules.fit)
        done = 0
        while len(workspace.rows):
            assign_zones(workspace, containers, rules, again=True)
            done += 1
            for resource, free in workspace.free.items():
                available[columns.resources[resource]][:, workspace.rows] = free
            workspace = workspace.narrowed(wanted[workspace.rows] > done)
    return replace(columns, available=available)


def _copies(
    workspace: NumaWorkspace, containers: tuple[ContainerRequest, ...], rules: ZoneRules, limit: int
) -> Ints:
    """The number of copies: one division if a single container decides, otherwise copy by copy."""
    permanent = [
        container
        for container in containers
        if _keeps_running(container, rules) and any(amount for _, amount in container.requests)
    ]
    temporary = [container for container in containers if not _keeps_running(container, rules)]
    bound = np.full(len(workspace.rows), COUNT_MAX, dtype=np.int64)
    for container in permanent:
        np.minimum(bound, _copies_by_zone(workspace, container), out=bound)
    for container in temporary:
        bound[_copies_by_zone(workspace, container) == 0] = 0
    if not permanent or (
        len(permanent) == 1 and all(_within(container, permanent[0]) for container in temporary)
    ):
        return np.minimum(bound, limit)
    return _one_by_one(workspace, containers, rules, bound, limit)


def _one_by_one(
    workspace: NumaWorkspace,
    containers: tuple[ContainerRequest, ...],
    rules: ZoneRules,
    bound: Ints,
    limit: int,
) -> Ints:
    """Assign copies until no node fits one more; `limit` where a copy uses nothing."""
    counts = np.where(bound == COUNT_MAX, limit, 0)
    target = np.minimum(bound, min(limit, COPIES_MAX))
    open_rows = (bound < COUNT_MAX) & (target > 0)
    at, workspace = np.flatnonzero(open_rows), workspace.narrowed(open_rows)
    while len(at):
        fits = assign_zones(workspace, containers, rules, again=True) == FITS
        counts[at] += fits
        more = fits & (counts[at] < target[at])
        at, workspace = at[more], workspace.narrowed(more)
    return counts


def _copies_by_zone(workspace: NumaWorkspace, container: ContainerRequest) -> Ints:
    """How many copies of one container fit, over all zones; COUNT_MAX if it uses nothing."""
    per_zone = np.full(workspace.numbers.shape, COUNT_MAX, dtype=np.int64)
    for resource, amount in container.requests:
        if amount <= 0:
            continue
        free, offered = workspace.free.get(resource), workspace.offers[resource]
        host_wide = workspace.rule is FitRule.STRICT and is_host_wide(resource)
        if free is not None:
            compared = is_compared(resource, workspace.service, workspace.rule)
            copies = np.maximum(free, 0) // amount if compared else np.where(free >= 0, COUNT_MAX, 0)
            if host_wide:
                copies[:, ~(free >= 0).any(axis=0)] = COUNT_MAX
            np.minimum(per_zone, copies, out=per_zone)
        elif not host_wide:
            per_zone[:] = 0
        if offered is not None and workspace.rule is FitRule.STRICT:
            per_zone[:, ~offered] = 0
    total: Ints = np.minimum(per_zone.sum(axis=0), COUNT_MAX)
    return total


def _keeps_running(container: ContainerRequest, rules: ZoneRules) -> bool:
    return container.type is ContainerType.APP or (
        container.type is ContainerType.SIDECAR and rules.sidecars_stay
    )


def _within(small: ContainerRequest, large: ContainerRequest) -> bool:
    """Whether a zone that fits the large container always fits the small one."""
    large_requests = dict(large.requests)
    return all(amount <= large_requests.get(resource, 0) for resource, amount in small.requests)


def fit_in_turns(
    columns: NumaColumns, by_row: Sequence[Sequence[tuple[NumaRequest, int]]], rules: ZoneRules
) -> Bools:
    """By row, whether all its pods find zones if they start in this order."""
    fits = np.ones(columns.rows, dtype=bool)
    for turn in range(max(map(len, by_row), default=0)):
        for request, entries in _turn(by_row, turn).items():
            rows, counts = np.array(entries, dtype=np.int64).T
            wanted = np.zeros(columns.rows, dtype=np.int64)
            wanted[rows] = counts
            fits &= aligned_counts(columns, request, rules, int(counts.max()), wanted > 0) >= wanted
            columns = with_copies(columns, rows, counts, request, rules)
    return fits


def with_pods_in_turns(
    columns: NumaColumns, by_row: Sequence[Sequence[tuple[NumaRequest, int]]], rules: ZoneRules
) -> NumaColumns:
    """The zones after the pods of each row have taken theirs in order; equal pods of a turn are one step."""
    for turn in range(max(map(len, by_row), default=0)):
        for request, entries in _turn(by_row, turn).items():
            rows, counts = np.array(entries, dtype=np.int64).T
            columns = with_copies(columns, rows, counts, request, rules)
    return columns


def _turn(
    by_row: Sequence[Sequence[tuple[NumaRequest, int]]], turn: int
) -> dict[NumaRequest, list[tuple[int, int]]]:
    """The pods of each row in one turn, by request: row and count."""
    by_request: dict[NumaRequest, list[tuple[int, int]]] = {}
    for at, pods in enumerate(by_row):
        if turn < len(pods):
            request, count = pods[turn]
            by_request.setdefault(request, []).append((at, count))
    return by_request
