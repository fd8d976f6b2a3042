"""What the controllers of one process know alike of the cluster, and therefore store once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar
from weakref import ref

T = TypeVar("T")
Amounts = Mapping[str, int]


class UsesNodes(Protocol):
    """A topology with the usage of its nodes."""

    used: dict[str, Amounts]


class ClusterState:
    """The topologies of all controllers of a process: they store equal usage of a node once.

    Values are shared, not containers: each state applies the changes in its own order, and can be rebuilt
    by itself. A value is never changed in place, so what one state has stored stays valid for the others.
    """

    def __init__(self) -> None:
        self._topologies: list[ref[UsesNodes]] = []  # those that still exist
        self._only: dict[Callable[[], Any], Any] = {}

    def only(self, kind: Callable[[], T]) -> T:
        """The one object of a class that all controllers of the process use, such as a cache of values."""
        if kind not in self._only:
            self._only[kind] = kind()
        found: T = self._only[kind]
        return found

    def join(self, topology: UsesNodes) -> None:
        """A topology shares its values from now on, as long as it exists."""
        self._topologies.append(ref(topology, self._topologies.remove))

    def topologies(self) -> list[UsesNodes]:
        """The topologies that share."""
        return [topology for joined in self._topologies if (topology := joined()) is not None]

    def shared(self, node: str, total: Amounts) -> Amounts:
        """An equal sum that a topology has stored for the node, or else this one."""
        for joined in self._topologies:
            topology = joined()
            known = topology.used.get(node) if topology is not None else None
            if known == total and known is not None:
                return known
        return total
