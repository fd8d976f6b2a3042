"""Assigns several batches by an exact search, for when batch by batch does not fit all pods."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot, Directory
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.domains.scope import scope_of
from bayplan.placement.exact.bounds import build_grid
from bayplan.placement.exact.branch_and_bound import LevelSearch, SearchBudget, SearchResult, best_at
from bayplan.placement.exact.problem import FREE, ExactProblem, fits
from bayplan.placement.exact.solver import Program, solve, solver
from bayplan.placement.numa.snapshot import aligned_copies, numa_request_of
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import PodBatch

NODES_MAX = 20_000  # beyond that the search takes too long to be worth it
SECONDS_MAX = 1.0
BATCHES_MAX = 8
ROUNDING = 1e-9
COLUMNS_MAX = 5_000  # nodes times batches; beyond that counting the most pods takes too long


def assign_by_search(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed_nodes: Bools | None, profile: Profile
) -> tuple[list[Ints] | None, bool]:
    """A row for each pod of every batch if all of them fit; and whether the answer is proven.

    Only resources are considered: no batch may have affinity or spread constraints. For NUMA, the search
    knows how many pods of one batch a node aligns, so several batches on one node may still fail to align.
    """
    if not _is_searchable(batches):
        return None, False
    allowed, used = _allowed(overlay, batches, allowed_nodes)
    if not len(used) or len(used) > NODES_MAX:
        return None, not len(used)
    problem = _problem(overlay, batches, allowed[:, used], used, profile)
    if problem is None:
        return None, True
    search = LevelSearch(
        build_grid(problem, ()), FREE, SearchBudget(min(profile.exact_seconds, SECONDS_MAX)), 0.0, 0.0, True
    )
    result, proven = best_at(search, SearchResult(None))
    if result.pods is None:
        return None, proven and not any(
            numa_request_of(overlay.filter_input.zones, batch.shape) or batch.shape.devices
            for batch in batches
        )
    return [np.repeat(used, pods) for pods in result.pods], True


def assign_most_by_search(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed_nodes: Bools | None, profile: Profile
) -> list[Ints] | None:
    """Rows for as many pods as fit, whichever they are; None if the search found nothing in its time.

    The same is considered as by `assign_by_search`.
    """
    if not _is_searchable(batches):
        return None
    allowed, used = _allowed(overlay, batches, allowed_nodes)
    if not len(used) or len(used) * len(batches) > COLUMNS_MAX:
        return None
    problem = _problem(overlay, batches, allowed[:, used], used, profile)
    if problem is None:
        return None
    needs, rooms = problem.needs, problem.rooms
    most = np.array([fits(need, rooms, open_) for need, open_ in zip(needs, problem.allowed, strict=True)])
    most = np.minimum(most, problem.counts[:, None])
    scale = np.maximum(np.gcd.reduce(needs, axis=0), 1)
    program = Program([int(one) for one in most.ravel()])
    columns = np.arange(most.size).reshape(most.shape)
    for batch, count in enumerate(problem.counts.tolist()):
        program.at_most(((column, 1) for column in columns[batch].tolist()), count)
    for resource, divisor in enumerate(scale.tolist()):
        each = (needs[:, resource] // divisor).tolist()
        crowded = needs[:, resource].astype(float) @ most > rooms[resource] * (1 - ROUNDING)
        for node in np.flatnonzero(crowded).tolist():
            amounts = zip(columns[:, node].tolist(), each, strict=True)
            program.at_most(amounts, int(rooms[resource, node]) // divisor)
    solved = solve(program, -np.ones(most.size), None, min(profile.exact_seconds, SECONDS_MAX))
    if solved.solution is None:
        return None
    pods = solved.solution.reshape(most.shape)
    if (needs.T @ pods > rooms).any() or (pods.sum(axis=1) > problem.counts).any():
        return None  # amounts too far apart for the solver's tolerance
    return [np.repeat(used, row) for row in pods]


def _is_searchable(batches: Sequence[PodBatch]) -> bool:
    return (
        solver() is not None
        and len(batches) <= BATCHES_MAX
        and all(any(amount > 0 for _, amount in batch.shape.amounts) for batch in batches)
    )


def _allowed(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed_nodes: Bools | None
) -> tuple[Bools, Ints]:
    """The nodes that each batch may use, and the rows that any of them may use."""
    allowed = np.array([overlay.run_filters(batch.shape).fits for batch in batches])
    if allowed_nodes is not None:
        allowed &= allowed_nodes
    return allowed, np.flatnonzero(allowed.any(axis=0))


def _problem(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed: Bools, used: Ints, profile: Profile
) -> ExactProblem | None:
    """The search problem over the nodes in use; None if a batch requests a resource that no node has."""
    node_snapshot = overlay.filter_input.node_snapshot
    requests = [{name: amount for name, amount in batch.shape.amounts if amount > 0} for batch in batches]
    names = sorted({name for request in requests for name in request})
    if any(name not in node_snapshot.resources for name in names):
        return None
    free_amounts = np.array(
        [np.maximum(node_snapshot.free[node_snapshot.resources[name]][used], 0) for name in names], np.int64
    )
    needs = np.array([[request.get(name, 0) for name in names] for request in requests], np.int64)
    counts = np.array([len(batch.keys) for batch in batches], np.int64)
    for at, batch in enumerate(batches):
        numa_request = numa_request_of(overlay.filter_input.zones, batch.shape)
        if numa_request is not None and overlay.filter_input.zones is not None:
            aligned = aligned_copies(overlay.filter_input.zones, numa_request, len(batch.keys))[used]
            free_amounts = np.concatenate((free_amounts, aligned[None]))
            needs = np.concatenate((needs, (np.arange(len(batches)) == at)[:, None]), axis=1)
        if batch.shape.devices is not None and overlay.devices is not None:
            by_devices = overlay.devices.counts(
                node_snapshot.node_index, batch.shape.devices, len(batch.keys)
            )[used]
            free_amounts = np.concatenate((free_amounts, by_devices[None]))
            needs = np.concatenate((needs, (np.arange(len(batches)) == at)[:, None]), axis=1)
    firsts = (np.arange(len(used)),)
    free = (fits(needs[0], free_amounts, allowed[0]),)
    names_of = tuple(str(number) for number in range(len(batches)))
    no_layers: tuple[tuple[()], ...] = ((),) * len(batches)
    scope = scope_of(_flat(overlay, used), profile)
    return ExactProblem(scope, names_of, counts, no_layers, (), allowed, needs, free_amounts, 0, free, firsts)


def _flat(overlay: NodeOverlay, used: Ints) -> CapacitySnapshot:
    """A flat topology of these nodes."""
    node_snapshot = overlay.filter_input.node_snapshot
    nodes = node_snapshot.node_index.table.nodes[used]
    rows = np.arange(len(used))
    tree = Tree(Topology("", (HOSTNAME,)), nodes, (np.ones(len(used), dtype=bool),), (rows,), (), ())
    all_active = np.ones(len(used), dtype=bool)
    return CapacitySnapshot(
        tree,
        node_snapshot.node_index.table,
        node_snapshot.resources,
        node_snapshot.free[:, used],
        all_active,
        Directory(),
        Directory(),
        {},
    )
