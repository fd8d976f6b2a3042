"""Volumes as far as scheduling cares: what is claimed, what there is, who can reach it, how much attaches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from bayplan.model.node_rules import NodeSelectorTerm
from bayplan.model.pod_spec import Selector

ONE_POD = "ReadWriteOncePod"
ClaimKey = tuple[str, str]
"""Namespace and name."""
Handle = tuple[str, str]
"""A driver, and its name for a volume."""


@dataclass(frozen=True, slots=True)
class VolumeClaim:
    """What a pod asks for by name."""

    namespace: str
    name: str
    storage_class: str = ""
    volume: str = ""  # the volume it names, or was given
    bound: bool = False  # given for good
    size: int = 0
    modes: tuple[str, ...] = ()
    block: bool = False
    selector: Selector | None = None
    attributes: str = ""
    selected_node: str = ""  # where a volume is being made for it
    lost: bool = False
    leaving: bool = False
    owner: str = ""  # uid of the pod it was made for

    @property
    def key(self) -> ClaimKey:
        return self.namespace, self.name


@dataclass(frozen=True, slots=True)
class Volume:
    """A volume that exists. `affinity` None: every node reaches it."""

    name: str
    size: int = 0
    storage_class: str = ""
    modes: tuple[str, ...] = ()
    block: bool = False
    claim: ClaimKey | None = None
    available: bool = True
    leaving: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[NodeSelectorTerm, ...] | None = None
    attributes: str = ""
    driver: str = ""
    handle: str = ""


@dataclass(frozen=True, slots=True)
class StorageClass:
    """How volumes of one sort come to be. `topologies` empty: anywhere."""

    name: str
    provisioner: str = ""
    waits: bool = False  # a volume is chosen or made only once its pod has a node
    topologies: tuple[NodeSelectorTerm, ...] = ()


@dataclass(frozen=True, slots=True)
class StorageCapacity:
    """How large a new volume of a class may be, on the nodes that carry some labels."""

    storage_class: str
    largest: int
    nodes: Selector


@dataclass(frozen=True, slots=True)
class NodeVolumes:
    """How many volumes of each driver a node can have."""

    node: str
    limits: Mapping[str, int]


@dataclass(frozen=True, slots=True, eq=False)
class Storage:
    """Everything known about volumes at one moment. A change makes a new one."""

    claims: Mapping[ClaimKey, VolumeClaim] = field(default_factory=dict)
    volumes: Mapping[str, Volume] = field(default_factory=dict)
    classes: Mapping[str, StorageClass] = field(default_factory=dict)
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)  # by node, by driver
    attached: Mapping[str, frozenset[Handle]] = field(default_factory=dict)  # by node
    measured: frozenset[str] = frozenset()  # drivers that say how much room is left
    rooms: tuple[StorageCapacity, ...] = ()


NO_STORAGE = Storage()
