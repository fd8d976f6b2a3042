"""What happened out there, in the model's words: the only way into the state."""

from __future__ import annotations

from dataclasses import dataclass

from bayplan.model.gang import Gang, Ref
from bayplan.model.node import Node, Topology
from bayplan.model.pod import Pod, PodKey


@dataclass(frozen=True, slots=True)
class NodeSeen:
    """A node is there, as it is now."""

    node: Node


@dataclass(frozen=True, slots=True)
class NodeLost:
    """A node is no more."""

    name: str


@dataclass(frozen=True, slots=True)
class TopologySeen:
    """A topology is defined, as it is now."""

    topology: Topology


@dataclass(frozen=True, slots=True)
class TopologyLost:
    """A topology is no longer defined."""

    name: str


@dataclass(frozen=True, slots=True)
class PodSeen:
    """A pod is there, as it is now."""

    pod: Pod


@dataclass(frozen=True, slots=True)
class PodLost:
    """A pod is no more."""

    key: PodKey


@dataclass(frozen=True, slots=True)
class GangSeen:
    """A gang is asked for, as it is now; `created` in seconds orders equals."""

    gang: Gang
    created: float = 0.0


@dataclass(frozen=True, slots=True)
class GangLost:
    """A gang is no longer asked for, or over."""

    ref: Ref


@dataclass(frozen=True, slots=True)
class Started:
    """A scheduler began to look: nothing from before is known any more."""


Change = Started | NodeSeen | NodeLost | TopologySeen | TopologyLost | PodSeen | PodLost | GangSeen | GangLost
