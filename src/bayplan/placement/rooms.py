"""What is free under each topology while a decision is made: taken and given back as gangs are tried."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Assignment
from bayplan.model.node import HOSTNAME
from bayplan.model.quota import Flavor
from bayplan.placement.capacity import with_slot
from bayplan.placement.nodes import labelled
from bayplan.placement.supply import Supply
from bayplan.placement.tree import Bools, Ints, find


class Rooms:
    """Supplies by topology. Flavors see the nodes that carry their labels; a host is free for all or none."""

    def __init__(self, supplies: Mapping[str, Supply], flavors: Mapping[str, Flavor]) -> None:
        self.flavors = flavors
        self._now = dict(supplies)
        self._owned: set[str] = set()
        self._active: dict[str, Bools] = {}
        self._seen: dict[str, Supply] = {}
        self._empty: dict[str, Supply] = {}
        self._spots: dict[tuple[str, int], tuple[Assignment, Ints, Ints]] = {}
        self._rows: dict[str, dict[str, int]] = {}

    def knows(self, flavor: str) -> bool:
        """Whether gangs can be placed on the flavor's nodes."""
        found = self.flavors.get(flavor)
        return found is not None and found.topology in self._now

    def levels(self, flavor: str) -> tuple[str, ...]:
        return self._now[self.flavors[flavor].topology].tree.levels

    def supply(self, flavor: str, *, empty: bool = False) -> Supply:
        """The flavor's nodes as they are now, or as they would be without any placed gang."""
        seen = self._empty if empty else self._seen
        if flavor not in seen:
            what = self.flavors[flavor]
            whole = self._now[what.topology]
            if flavor not in self._active:
                mine = labelled(whole.table, what.labels) if what.labels else True
                self._active[flavor] = whole.active & mine
            supply = replace(whole, active=self._active[flavor], memory={})
            seen[flavor] = supply.emptied() if empty else supply
        return seen[flavor]

    def take(self, flavor: str, place: Assignment, requests: Mapping[str, int], sign: int = 1) -> None:
        """Pods stand where the assignment says (sign -1: they leave). Nodes that are gone do not matter."""
        own = self.flavors[flavor].topology if flavor in self.flavors else ""
        on_host = place.levels[-1] == HOSTNAME
        for topology, supply in self._now.items():
            if not on_host and (topology != (own or topology) or supply.tree.levels != place.levels):
                continue
            leaves, pods = self._located(topology, supply, place)
            if len(leaves):
                self._apply(topology, leaves, pods, requests, sign, on_host)

    def fits(self, flavor: str, place: Assignment, requests: Mapping[str, int]) -> bool:
        """Whether an assignment found earlier still holds."""
        topology = self.flavors[flavor].topology
        supply = self._now[topology]
        leaves, pods = self._located(topology, supply, place)
        for name, amount in with_slot(requests).items():
            row = supply.resources.get(name)
            if row is None or not amount:
                if amount:
                    return False
                continue
            if supply.claimed is None:
                left = supply.free[row, leaves]
            else:
                inside = np.where(supply.active, supply.free[row], 0)
                sums = np.add.reduceat(inside, supply.tree.starts[supply.tree.lowest])
                left = (sums - supply.claimed[row])[leaves]
            if (left < pods * amount).any():
                return False
        return True

    def _located(self, topology: str, supply: Supply, place: Assignment) -> tuple[Ints, Ints]:
        """The leaves of an assignment that are there (rows, for hosts below leaves), and the pods on each."""
        key = (topology, id(place))
        if key not in self._spots:
            spots: dict[int, int] = {}
            below = place.levels[-1] == HOSTNAME and not supply.tree.topology.ends_at_host
            for share in place.shares:
                row = self._row(topology, supply, share.values[-1]) if below else None
                leaf = row if below else _leaf(supply, share.values)
                if leaf is not None:
                    spots[leaf] = spots.get(leaf, 0) + share.count
            found = np.array(list(spots), np.int64), np.array(list(spots.values()), np.int64)
            self._spots[key] = (place, *found)  # the assignment is kept, so that its id stays its own
        return self._spots[key][1:]

    def _row(self, topology: str, supply: Supply, host: str) -> int | None:
        """The row of a host in a topology that ends above hosts."""
        if topology not in self._rows:
            self._rows[topology] = {
                node.labels.get(HOSTNAME, node.name): row for row, node in enumerate(supply.tree.nodes)
            }
        return self._rows[topology].get(host)

    def _apply(
        self,
        topology: str,
        leaves: Ints,
        pods: Ints,
        requests: Mapping[str, int],
        sign: int,
        on_host: bool,
    ) -> None:
        supply = self._now[topology]
        if topology not in self._owned:
            self._owned.add(topology)
            supply = self._now[topology] = _owned(supply)
        for name, amount in with_slot(requests).items():
            row = supply.resources.get(name)
            if row is None or not amount:
                continue
            if supply.claimed is not None and not on_host:
                supply.claimed[row, leaves] += sign * pods * amount
                continue
            supply.free[row, leaves] -= sign * pods * amount
            if supply.held is not None:
                supply.held[row, leaves] += sign * pods * amount
        for flavor in [name for name in self._seen if self.flavors[name].topology == topology]:
            del self._seen[flavor]


def _owned(supply: Supply) -> Supply:
    """A copy to write on."""
    if supply.claimed is not None:
        return replace(supply, free=supply.free.copy(), claimed=supply.claimed.copy(), memory={})
    held = np.zeros_like(supply.free) if supply.held is None else supply.held.copy()
    return replace(supply, free=supply.free.copy(), held=held, memory={})


def _leaf(supply: Supply, values: tuple[str, ...]) -> int | None:
    tree = supply.tree
    if tree.topology.ends_at_host:
        path = supply.hosts.get(values[-1])
        if path is None:
            return None
        low, high = find(tree, path)
        return low if low < high else None
    low, high = find(tree, values)
    if low >= high:
        return None
    return int(np.searchsorted(tree.starts[tree.lowest], low, side="right")) - 1
