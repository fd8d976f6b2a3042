"""Mixed parties by a complete search, for when one after the other is not good enough."""

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
from bayplan.placement.exact.solver import solver
from bayplan.placement.numa.snapshot import copies_of, minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import PodBatch

NODES_MAX = 20_000  # beyond that the search takes too long to be worth it
SECONDS_MAX = 1.0
BATCHES_MAX = 8


def assign_by_search(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed_nodes: Bools | None, profile: Profile
) -> tuple[list[Ints] | None, bool]:
    """A row per pod of each party if all of them have a place; and whether the answer is sure.

    Only room counts: parties that get in each other's way otherwise are not for this. Of zones it knows how
    many pods of one party a node aligns, so that they may still object to several parties on one node.
    """
    if solver() is None or len(batches) > BATCHES_MAX or not all(batch.shape.amounts for batch in batches):
        return None, False
    allowed = np.array([overlay.judge(batch.shape).fits for batch in batches])
    if allowed_nodes is not None:
        allowed &= allowed_nodes
    used = np.flatnonzero(allowed.any(axis=0))
    if not len(used) or len(used) > NODES_MAX:
        return None, not len(used)
    problem = _problem(overlay, batches, allowed[:, used], used, profile)
    if problem is None:
        return None, True
    search = LevelSearch(
        build_grid(problem, ()), FREE, SearchBudget(min(profile.exact_seconds, SECONDS_MAX)), 0.0, 0.0, True
    )
    answer, settled = best_at(search, SearchResult(None))
    if answer.pods is None:
        return None, settled and not any(minds(overlay.scene.zones, batch.shape) for batch in batches)
    return [np.repeat(used, pods) for pods in answer.pods], True


def _problem(
    overlay: NodeOverlay, batches: Sequence[PodBatch], allowed: Bools, used: Ints, profile: Profile
) -> ExactProblem | None:
    """The question about the nodes in use; None if a party asks for something that nobody has."""
    node_snapshot = overlay.scene.ground
    wants = [{name: amount for name, amount in batch.shape.amounts if amount > 0} for batch in batches]
    names = sorted({name for want in wants for name in want})
    if any(name not in node_snapshot.resources for name in names):
        return None
    rooms = np.array(
        [np.maximum(node_snapshot.free[node_snapshot.resources[name]][used], 0) for name in names], np.int64
    )
    needs = np.array([[want.get(name, 0) for name in names] for want in wants], np.int64)
    counts = np.array([len(batch.keys) for batch in batches], np.int64)
    for at, batch in enumerate(batches):
        zones = minds(overlay.scene.zones, batch.shape)
        if zones is not None and overlay.scene.zones is not None:
            aligned = copies_of(overlay.scene.zones, zones, len(batch.keys))[used]
            rooms = np.concatenate((rooms, aligned[None]))
            needs = np.concatenate((needs, (np.arange(len(batches)) == at)[:, None]), axis=1)
    firsts = (np.arange(len(used)),)
    free = (fits(needs[0], rooms, allowed[0]),)
    names_of = tuple(str(number) for number in range(len(batches)))
    nothing: tuple[tuple[()], ...] = ((),) * len(batches)
    scope = scope_of(_flat(overlay, used), profile)
    return ExactProblem(scope, names_of, counts, nothing, (), allowed, needs, rooms, 0, free, firsts)


def _flat(overlay: NodeOverlay, used: Ints) -> CapacitySnapshot:
    """These nodes side by side."""
    node_snapshot = overlay.scene.ground
    nodes = node_snapshot.land.table.nodes[used]
    rows = np.arange(len(used))
    tree = Tree(Topology("", (HOSTNAME,)), nodes, (np.ones(len(used), dtype=bool),), (rows,), (), ())
    everyone = np.ones(len(used), dtype=bool)
    return CapacitySnapshot(
        tree,
        node_snapshot.land.table,
        node_snapshot.resources,
        node_snapshot.free[:, used],
        everyone,
        Directory(),
        Directory(),
        {},
    )
