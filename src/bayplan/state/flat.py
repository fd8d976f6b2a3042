"""All nodes by name: the rows that pods are held against, whatever labels the nodes have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from bayplan.model.assignment import Path
from bayplan.model.node import HOSTNAME, LEVELS_MAX, Node, Topology
from bayplan.placement import tree as trees
from bayplan.placement.fit_nodes import (
    Ground,
    Land,
    allocatable_of,
    land_of,
    land_with,
    land_without,
    relaid,
)
from bayplan.placement.fit_tallies import Slots
from bayplan.placement.supply import Supply
from bayplan.placement.tree import Ints
from bayplan.state.cluster import Cluster

FLAT = Topology("", (HOSTNAME,))


class Hostless(dict[str, str]):
    """Labels of a node without a host label: it stands under its own name, but no rule finds that label."""

    __slots__ = ("name",)

    def __init__(self, labels: Mapping[str, str], name: str) -> None:
        super().__init__(labels)
        self.name = name

    def __missing__(self, key: str) -> str:
        if key == HOSTNAME:
            return self.name
        raise KeyError(key)


class Continued(Cluster):
    """A topology that was continued down to hosts: a node without that label is one all the same."""

    def load(self, nodes: Iterable[Node]) -> None:
        super().load(map(_with_a_host, nodes))

    def upsert(self, node: Node) -> None:
        super().upsert(_with_a_host(node))


def cluster_of(topology: Topology) -> Cluster:
    """Pods are bound to hosts, so every topology is continued down to them."""
    if topology.ends_at_host or len(topology.levels) >= LEVELS_MAX:
        return Cluster(Topology(topology.name, topology.levels))
    return Continued(Topology(topology.name, (*topology.levels, HOSTNAME)))


class Flat(Cluster):
    """The cluster without levels. Land and allocatable amounts follow the rows, change by change."""

    def __init__(self, slots: Slots) -> None:
        super().__init__(FLAT)
        self.slots = slots
        self._land: Land | None = None
        self._allocatable: Ints | None = None
        self._view: tuple[Supply, Ground] | None = None

    def view(self) -> tuple[Supply, Ground]:
        """Room and nodes as they are now, row by row the same; the same objects until something changes."""
        self._settle()
        if self._view is None:
            supply = self.snapshot()
            if self._allocatable is None:
                self._allocatable = allocatable_of(self._table, self.resources)
            self._view = supply, Ground(self.land(), supply.resources, supply.free, self._allocatable)
        return self._view

    def land(self) -> Land:
        """The nodes; the same object until one of them changes in more than amounts."""
        self._settle()
        if self._land is None:
            self._land = land_of(self._table, self.slots)
        return self._land

    def load(self, nodes: Iterable[Node]) -> None:
        super().load(map(_with_a_host, nodes))

    def upsert(self, node: Node) -> None:
        self._settle()
        before, land, table = self.nodes.get(node.name), self._land, self._table
        if before == node:
            return
        self._view = None
        node = _with_a_host(node)
        super().upsert(node)
        if before is None or land is None or self._land is not land:
            return  # rows have moved: that is dealt with below
        row = trees.find_row(self._tree, (node.labels[HOSTNAME],), node.name)
        if self._table is not table or before.schedulable != node.schedulable:
            self._land = relaid(land, self._table, row)
        if self._allocatable is not None and before.allocatable != node.allocatable:
            self._allocatable = self._allocatable.copy()
            self._allocatable[:, row] = self._amounts(node)

    def _take(self, row: int, names: Iterable[str]) -> None:
        self._view = None
        super()._take(row, names)

    def _move(self, name: str, old: Path | None, new: Path | None) -> None:
        self._view = None
        row = None if old is None else trees.find_row(self._tree, old, name)
        land = self._land
        super()._move(name, old, new)
        if self._land is not land or land is None:
            self._allocatable = None
            return  # everything was laid out afresh
        if row is not None:
            land = land_without(land, self._table, row)
            if self._allocatable is not None:
                self._allocatable = np.delete(self._allocatable, row, axis=1)
        if new is not None:
            row = trees.find_row(self._tree, new, name)
            land = land_with(land, self._table, row)
            if self._allocatable is not None:
                self._allocatable = np.insert(self._allocatable, row, self._amounts(self.nodes[name]), axis=1)
        self._land = land

    def _rebuild(self) -> None:
        super()._rebuild()
        self._land = self._allocatable = self._view = None

    def _amounts(self, node: Node) -> Ints:
        found = (node.allocatable.get(name, 0) for name in self.resources)
        return np.fromiter(found, np.int64, len(self.resources))


def _with_a_host(node: Node) -> Node:
    return node if HOSTNAME in node.labels else replace(node, labels=Hostless(node.labels, node.name))
