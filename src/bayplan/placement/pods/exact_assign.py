"""Mixed parties by a complete search, for when one after the other is not good enough."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bayplan.model.node import HOSTNAME, Topology
from bayplan.model.profile import Profile
from bayplan.placement.cluster.snapshot import CapacitySnapshot, Directory
from bayplan.placement.cluster.topology_tree import Bools, Ints, Tree
from bayplan.placement.domains.scope import scope_of
from bayplan.placement.exact.bounds import grid_of
from bayplan.placement.exact.branch_and_bound import LevelSearch, SearchBudget, SearchResult, best_at
from bayplan.placement.exact.problem import FREE, ExactProblem, fits
from bayplan.placement.exact.solver import solver
from bayplan.placement.numa.snapshot import copies_of, minds
from bayplan.placement.overlay.node_overlay import NodeOverlay
from bayplan.placement.pods.batches import PodBatch

NODES_MAX = 20_000  # beyond that the search takes too long to be worth it
SECONDS_MAX = 1.0
PARTIES_MAX = 8


def seats_by_search(
    floor: NodeOverlay, parties: Sequence[PodBatch], within: Bools | None, profile: Profile
) -> tuple[list[Ints] | None, bool]:
    """A row per pod of each party if all of them have a place; and whether the answer is sure.

    Only room counts: parties that get in each other's way otherwise are not for this. Of zones it knows how
    many pods of one party a node aligns, so that they may still object to several parties on one node.
    """
    if solver() is None or len(parties) > PARTIES_MAX or not all(party.shape.amounts for party in parties):
        return None, False
    allowed = np.array([floor.judge(party.shape).fits for party in parties])
    if within is not None:
        allowed &= within
    used = np.flatnonzero(allowed.any(axis=0))
    if not len(used) or len(used) > NODES_MAX:
        return None, not len(used)
    ask = _ask(floor, parties, allowed[:, used], used, profile)
    if ask is None:
        return None, True
    search = LevelSearch(
        grid_of(ask, ()), FREE, SearchBudget(min(profile.exact_seconds, SECONDS_MAX)), 0.0, 0.0, True
    )
    answer, settled = best_at(search, SearchResult(None))
    if answer.pods is None:
        return None, settled and not any(minds(floor.scene.zones, party.shape) for party in parties)
    return [np.repeat(used, pods) for pods in answer.pods], True


def _ask(
    floor: NodeOverlay, parties: Sequence[PodBatch], allowed: Bools, used: Ints, profile: Profile
) -> ExactProblem | None:
    """The question about the nodes in use; None if a party asks for something that nobody has."""
    ground = floor.scene.ground
    wants = [{name: amount for name, amount in party.shape.amounts if amount > 0} for party in parties]
    names = sorted({name for want in wants for name in want})
    if any(name not in ground.resources for name in names):
        return None
    rooms = np.array([np.maximum(ground.free[ground.resources[name]][used], 0) for name in names], np.int64)
    needs = np.array([[want.get(name, 0) for name in names] for want in wants], np.int64)
    counts = np.array([len(party.keys) for party in parties], np.int64)
    for at, party in enumerate(parties):
        zones = minds(floor.scene.zones, party.shape)
        if zones is not None and floor.scene.zones is not None:
            aligned = copies_of(floor.scene.zones, zones, len(party.keys))[used]
            rooms = np.concatenate((rooms, aligned[None]))
            needs = np.concatenate((needs, (np.arange(len(parties)) == at)[:, None]), axis=1)
    firsts = (np.arange(len(used)),)
    free = (fits(needs[0], rooms, allowed[0]),)
    names_of = tuple(str(number) for number in range(len(parties)))
    nothing: tuple[tuple[()], ...] = ((),) * len(parties)
    scope = scope_of(_flat(floor, used), profile)
    return ExactProblem(scope, names_of, counts, nothing, (), allowed, needs, rooms, 0, free, firsts)


def _flat(floor: NodeOverlay, used: Ints) -> CapacitySnapshot:
    """These nodes side by side."""
    ground = floor.scene.ground
    nodes = ground.land.table.nodes[used]
    rows = np.arange(len(used))
    tree = Tree(Topology("", (HOSTNAME,)), nodes, (np.ones(len(used), dtype=bool),), (rows,), (), ())
    everyone = np.ones(len(used), dtype=bool)
    return CapacitySnapshot(
        tree,
        ground.land.table,
        ground.resources,
        ground.free[:, used],
        everyone,
        Directory(),
        Directory(),
        {},
    )
