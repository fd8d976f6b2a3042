"""Claims for devices: their requests, constraints and allocations."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from bayplan.model.devices.inventory import Amounts, DeviceConfig, DeviceKey
from bayplan.model.node_rules import NodeSelectorTerm, Toleration

RESULTS_MAX = 32
"""The number of devices that one claim can get."""
EXACT_COUNT, ALL = "ExactCount", "All"


@dataclass(frozen=True, slots=True)
class DeviceAsk:
    """What a request asks for, or one of its alternatives."""

    name: str
    device_class: str
    selectors: tuple[str | None, ...] = ()
    mode: str = EXACT_COUNT
    count: int = 1
    admin: bool | None = None  # devices in use will do as well; None: not stated
    tolerations: tuple[Toleration, ...] = ()
    tolerations_text: str = ""  # as written: they are copied to the allocation
    capacity: Amounts | None = None
    unsupported: str = ""  # what it asks for that is not understood


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """A request of a claim: one ask, or several of which the first that can be satisfied is taken."""

    name: str
    asks: tuple[DeviceAsk, ...]
    first_available: bool = False

    def result_name(self, ask: DeviceAsk) -> str:
        """The name under which the devices of an ask appear in the allocation."""
        return f"{self.name}/{ask.name}" if self.first_available else self.name


@dataclass(frozen=True, slots=True)
class DeviceConstraint:
    """An attribute that all devices of some requests (none: all) share, or in which all differ."""

    requests: tuple[str, ...] = ()
    match: str = ""
    distinct: str = ""

    def covers(self, request: DeviceRequest, ask: DeviceAsk) -> bool:
        """Whether it is about the devices of this ask."""
        if not self.requests or request.name in self.requests:
            return True
        return request.first_available and request.result_name(ask) in self.requests


@dataclass(frozen=True, slots=True)
class AllocatedDevice:
    """A device that a claim has, or its share of one."""

    request: str
    key: DeviceKey
    admin: bool = False
    share: str | None = None  # the id of the share; empty: to be given
    consumed: Amounts = ()
    tolerations: str = ""  # as the request has them
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceAllocation:
    """The devices of a claim, and the nodes that can use them (None: all)."""

    devices: tuple[AllocatedDevice, ...] = ()
    terms: tuple[NodeSelectorTerm, ...] | None = None
    config: tuple[DeviceConfig, ...] = ()


class DeviceClaimKey(NamedTuple):
    """The namespace and name of a claim."""

    namespace: str
    name: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


class ClaimConsumer(NamedTuple):
    """An object that a claim is reserved for."""

    uid: str
    name: str = ""
    resource: str = "pods"
    group: str = ""


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """A claim for devices. All pods that name it share it; one made from a template belongs to one pod."""

    key: DeviceClaimKey
    uid: str = ""
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[DeviceConstraint, ...] = ()
    config: tuple[DeviceConfig, ...] = ()
    allocation: DeviceAllocation | None = None
    reserved_for: tuple[ClaimConsumer, ...] = ()
    owner: str = ""  # uid of its controller
    terminating: bool = False
    finalizers: tuple[str, ...] = ()
    unsupported: str = ""  # what of its spec is not understood
    unready: str = ""  # why pods that use its devices cannot be bound yet
    version: str = field(default="", compare=False)


@dataclass(frozen=True, slots=True)
class DeviceFeatures:
    """Which parts of the API the served version has switched on."""

    admin_access: bool = True
    alternatives: bool = True  # first available
    taints: bool = True
    counters: bool = True
    shares: bool = True  # consumable capacity, distinct attributes
    binding_conditions: bool = False
    fractions: bool = True  # ranges of capacities in thousandths
    lists: bool = False  # attributes with several values: they match if they have one in common


@dataclass(frozen=True, slots=True)
class PodDevices:
    """The devices that a pod needs. It is the same for all pods of a template: own claims have no names.

    A claim that has its devices only decides on the nodes: `reach` has the terms of each.
    """

    claims: tuple[DeviceClaim, ...] = ()  # without devices yet, in the order of the pod
    shared: tuple[DeviceClaimKey, ...] = ()  # those of them that other pods may use as well
    reach: tuple[tuple[NodeSelectorTerm, ...], ...] = ()

    @property
    def has_alternatives(self) -> bool:
        """Whether a request names several asks, of which nodes may satisfy different ones."""
        return any(request.first_available for claim in self.claims for request in claim.requests)
