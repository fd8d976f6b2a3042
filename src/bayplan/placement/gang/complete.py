"""Completes a gang that runs in part: places the missing pods next to the bound ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Misfit
from bayplan.model.gang import Gang, PodSet
from bayplan.placement.domains.greedy import group_locality, pod_sets_of
from bayplan.placement.domains.scope import Located, PlacementScope
from bayplan.placement.gang.replace import place_missing


def complete(
    scope: PlacementScope, gang: Gang, bound_nodes: Mapping[str, Sequence[str]], missing: Mapping[str, int]
) -> dict[str, Located] | Misfit:
    """Place `missing` pods per pod set; `bound_nodes` has the nodes of the pods that run or ran."""
    placed: dict[str, Located] = {}
    for member in gang.root.members:
        bound = {p.name: _located(scope, bound_nodes.get(p.name, ())) for p in pod_sets_of(member)}
        kept_leaves = [leaf for located in bound.values() for leaf in located.leaves.tolist()]
        for pod_set in pod_sets_of(member):
            locality = pod_set.locality if isinstance(member, PodSet) else group_locality(member, pod_set)
            lost = [1] * missing.get(pod_set.name, 0)
            asked = replace(pod_set, locality=locality)
            added = place_missing(scope, asked, bound[pod_set.name], lost, kept_leaves) if lost else []
            if isinstance(added, Misfit):
                return added
            for located in added:
                scope = scope.after(located, pod_set.requests)
            placed[pod_set.name] = _joined(added)
    return placed


def nodes_in_rank_order(scope: PlacementScope, found: Located) -> list[str]:
    """A node name per pod. Leaves must be hosts."""
    nodes = scope.snapshot.tree.nodes
    return [nodes[leaf].name for leaf in np.repeat(found.leaves, found.pods).tolist()]


def _located(scope: PlacementScope, names: Sequence[str]) -> Located:
    rows = [row for name in names if (row := scope.snapshot.row(name)) is not None]
    leaves, pods = np.unique(np.array(rows, np.int64), return_counts=True)
    return Located(leaves, pods)


def _joined(parts: Sequence[Located]) -> Located:
    none = np.zeros(0, np.int64)
    leaves = np.concatenate([none, *(part.leaves for part in parts)])
    return Located(leaves, np.concatenate([none, *(part.pods for part in parts)]))
