"""NodeResourceTopology objects as the API server sends them, in both versions."""

from __future__ import annotations

from bayplan.dialects.api import Kind
from bayplan.dialects.kube.decode.wire import Metadata, Struct

GROUP = "topology.node.k8s.io"
Quantity = str | int | float | None


class Attribute(Struct, frozen=True):
    """A named attribute of a zone or node."""

    name: str = ""
    value: str = ""


class Cost(Struct, frozen=True):
    """The distance to another zone."""

    name: str = ""
    value: int = 0


class ZoneResourceWire(Struct, frozen=True):
    """Capacity, allocatable and available amount of one resource of a zone."""

    name: str = ""
    capacity: Quantity = None
    allocatable: Quantity = None
    available: Quantity = None


class ZoneWire(Struct, frozen=True):
    """A zone of a node."""

    name: str = ""
    type: str = ""
    parent: str | None = None
    costs: list[Cost] | None = None
    attributes: list[Attribute] | None = None
    resources: list[ZoneResourceWire] | None = None


class NodeTopologyWire(Struct, frozen=True):
    """A NodeResourceTopology; in the older version, the object itself has no attributes."""

    metadata: Metadata = Metadata()
    topology_policies: list[str] | None = None
    attributes: list[Attribute] | None = None
    zones: list[ZoneWire] | None = None


TOPOLOGIES = Kind(
    GROUP,
    "v1alpha2",
    "NodeResourceTopology",
    "noderesourcetopologies",
    False,
    NodeTopologyWire,
    optional=True,
)
OLDER_TOPOLOGIES = Kind(
    GROUP,
    "v1alpha1",
    "NodeResourceTopology",
    "noderesourcetopologies",
    False,
    NodeTopologyWire,
    optional=True,
)
