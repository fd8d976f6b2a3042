"""Nodes that hold fewer pods of a pod set than amounts alone would say: a limit, as one more resource."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bayplan.model.gang import Gang, Group, PodSet
from bayplan.model.zone import ZoneRules
from bayplan.placement.capacity import COUNT_MAX
from bayplan.placement.supply import Supply
from bayplan.placement.tree import Ints
from bayplan.placement.zone_counts import aligned_counts, with_copies
from bayplan.placement.zone_resources import is_indifferent
from bayplan.placement.zones import ZoneColumns

ALIGNED = "room in zones"


def fence_name(what: str, pod_set: str) -> str:
    """What the limit of a pod set is called among resources."""
    return f"{what} ({pod_set})"


def fenced(supply: Supply, tree: Group, caps: Mapping[str, Ints], what: str) -> tuple[Supply, Group]:
    """Each row of the supply holds no more pods of a pod set than its cap says."""
    if not caps:
        return supply, tree
    names = {name: fence_name(what, name) for name in caps}
    resources, first = dict(supply.resources), len(supply.free)
    resources |= {fence: first + at for at, fence in enumerate(names.values())}
    free = np.concatenate((supply.free, np.array(list(caps.values()), np.int64)))
    largest = {**supply.largest, **dict.fromkeys(names.values(), COUNT_MAX)}
    claimed = supply.claimed
    if claimed is not None:
        claimed = np.concatenate((claimed, np.zeros((len(caps), claimed.shape[1]), np.int64)))
    found = replace(
        supply, resources=resources, free=free, largest=largest, claimed=claimed, held=None, memory={}
    )
    return found, _asking(tree, names)


def _asking(tree: Group, fences: Mapping[str, str]) -> Group:
    """The same tree, each fenced pod set asking for one more resource."""

    def asking(member: Group | PodSet) -> Group | PodSet:
        if isinstance(member, Group):
            return _asking(member, fences)
        if member.name not in fences:
            return member
        return replace(member, requests={**member.requests, fences[member.name]: 1})

    return replace(tree, members=tuple(asking(member) for member in tree.members))


def aligned_supply(supply: Supply, gang: Gang, columns: ZoneColumns, rules: ZoneRules) -> tuple[Supply, Gang]:
    """The supply and the gang such that only pods that nodes can align are counted; rows as in the columns.

    Each pod set is counted by itself.
    """
    caps = {}
    for pod_set in gang.root.pod_sets():
        wants = pod_set.zones
        if wants is not None and not is_indifferent(wants, rules):
            counts = aligned_counts(columns, wants, rules, pod_set.count)
            if (counts < pod_set.count).any():
                caps[pod_set.name] = counts
    here, root = fenced(supply, gang.root, caps, ALIGNED)
    return here, replace(gang, root=root)


def aligned_use(
    columns: ZoneColumns, pod_set: PodSet, rows: Ints, pods: Ints, rules: ZoneRules
) -> ZoneColumns:
    """The zones with pods of a pod set on some rows, in the zones that the nodes would give them."""
    return columns if pod_set.zones is None else with_copies(columns, rows, pods, pod_set.zones, rules)
