"""Nodes with labels, taints and capacity, and topologies defined by node labels."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from bayplan.model.node_rules import Taint

HOSTNAME = "kubernetes.io/hostname"
PODS = "pods"
"""The resource that every pod uses one of."""

LEVELS_MAX = 16
ROOM_MAX = 2**50
"""More of any resource than a machine has: 1 PiB, or 10^12 cores. A pod that requests so much never fits.

Free amounts are int64 and each is between -ROOM_MAX and ROOM_MAX, so that a sum over 8,191 machines at the
bound does not wrap; over 100,000 machines it does not as long as they have less than 64 TiB each on average.
"""


@dataclass(frozen=True, slots=True)
class Topology:
    """The levels of a data centre from top to bottom, each a node label key."""

    name: str
    levels: tuple[str, ...]

    def __post_init__(self) -> None:
        assert 1 <= len(self.levels) <= LEVELS_MAX, self
        assert len(set(self.levels)) == len(self.levels), self

    @property
    def ends_at_host(self) -> bool:
        """Whether the lowest level is the single node."""
        return self.levels[-1] == HOSTNAME


@dataclass(frozen=True, slots=True)
class Node:
    """A node. Amounts are integers: milli-CPU, bytes, counts."""

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool = True
    schedulable: bool = True
