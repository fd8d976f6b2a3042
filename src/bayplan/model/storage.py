"""Storage objects for scheduling: claims, volumes, classes, capacity, and volume limits of nodes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.model.pod_spec import Selector

ONE_POD = "ReadWriteOncePod"
ClaimKey = tuple[str, str]
"""Namespace and name."""
Handle = tuple[str, str]
"""A driver, and its handle of a volume."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """A claim that pods refer to by name."""

    namespace: str
    name: str
    storage_class: str = ""
    volume: str = ""  # the volume it requests, or is bound to
    bound: bool = False  # the binding is complete
    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    selector: Selector | None = None
    attributes: str = ""
    selected_node: str = ""  # where a volume is being provisioned for it
    lost: bool = False
    terminating: bool = False
    owner: str = ""  # uid of the pod it was created for

    @property
    def key(self) -> ClaimKey:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Volume:
    """An existing volume. `affinity` None: accessible from every node."""

    name: str
    size: int = 0
    storage_class: str = ""
    modes: tuple[str, ...] = ()
    block: bool = False
    claim: ClaimKey | None = None
    available: bool = True
    terminating: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    attributes: str = ""
    driver: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """How volumes of a class are provisioned. `topologies` empty: anywhere."""

    name: str
    provisioner: str = ""
    wait_for_consumer: bool = (
        False  # wait for first consumer: a volume is bound or provisioned once the pod has a node
    )
    topologies: tuple[NodeSelectorTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """The largest new volume of a class, on nodes with some labels."""

    storage_class: str
    largest: int
    nodes: Selector


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """The volume limit of a node, by driver."""

    node: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """All storage objects at one moment. A change makes a new one."""

    claims: Mapping[ClaimKey, VolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by node, by driver
    attached: Mapping[str, frozenset[Handle]] = field(default_factory=dict)  # by node
    measured: frozenset[str] = frozenset()  # drivers that publish storage capacity
    capacities: tuple[StorageCapacity, ...] = ()


NO_STORAGE = Storage()
