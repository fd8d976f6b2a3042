"""Slices of pools with devices, as their drivers publish them, and classes of devices."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from bayplan.model.node_rules import NodeSelectorTerm, Taint

UNIT = 1_000_000_000
"""Amounts of capacities and counters are integers in billionths: their quantities may be fractions."""
NO_SCHEDULE, NO_EXECUTE = "NoSchedule", "NoExecute"

Amounts = tuple[tuple[str, int], ...]
"""Amounts by name."""


class PoolKey(NamedTuple):
    """A pool of devices: its driver and name."""

    driver: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.name}"


class DeviceKey(NamedTuple):
    """A device: its driver, pool and name."""

    driver: str
    pool: str
    name: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.name}"


class AttributeValue(NamedTuple):
    """The value of an attribute with its type: values of two types differ. No type: it is not understood."""

    type: str  # int, bool, string, version, or with an s a list of them; empty if it is none of these
    value: int | bool | str | tuple[int | bool | str, ...] = ""

    def elements(self) -> frozenset[tuple[str, int | bool | str]]:
        """The value or the values of a list, each with its type; none if the type is not understood."""
        if isinstance(self.value, tuple):
            return frozenset((self.type.removesuffix("s"), one) for one in self.value)
        return frozenset(((self.type, self.value),)) if self.type else frozenset()


@dataclass(frozen=True, slots=True)
class NodeReach:
    """The nodes that can use a device: one by name, all, or those that a selector accepts."""

    node: str = ""
    everywhere: bool = False
    terms: tuple[NodeSelectorTerm, ...] | None = None

    @property
    def is_known(self) -> bool:
        """Whether it names nodes in one of the known ways."""
        return bool(self.node) or self.everywhere or self.terms is not None


NO_REACH = NodeReach()


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """Which amounts of a capacity can be requested: a range with steps, or some values."""

    default: int | None = None
    values: tuple[int, ...] = ()
    has_range: bool = False
    minimum: int | None = None
    maximum: int | None = None
    step: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceCapacity:
    """A capacity of a device, and how it can be requested."""

    value: int
    policy: RequestPolicy | None = None


@dataclass(frozen=True, slots=True)
class Device:
    """A device. Attributes and capacities have the names that its slice gives them."""

    name: str
    attributes: tuple[tuple[str, AttributeValue], ...] = ()
    capacity: tuple[tuple[str, DeviceCapacity], ...] = ()
    taints: tuple[Taint, ...] = ()
    consumes: tuple[tuple[str, Amounts], ...] = ()  # by counter set
    reach: NodeReach = NO_REACH  # only where the slice leaves that to its devices
    shareable: bool = False  # several claims may have a share of it
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    binding_failure_conditions: tuple[str, ...] = ()

    def attribute(self, driver: str, name: str) -> AttributeValue | None:
        """The attribute of a qualified name; the domain of the driver may be left out in the slice."""
        bare = name.removeprefix(f"{driver}/")
        found = None
        for known, value in self.attributes:
            if known == name:
                return value
            if known == bare and bare != name:
                found = value
        return found


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that the devices of a pool share."""

    name: str
    counters: Amounts = ()


@dataclass(frozen=True, slots=True)
class DeviceSlice:
    """A part of a pool, as its driver publishes it. `unsupported`: why it cannot be used at all."""

    name: str
    pool: PoolKey
    generation: int = 1
    slice_count: int = 1  # number of slices of the pool in this generation
    reach: NodeReach = NO_REACH
    by_device: bool = False  # each device names its own nodes
    devices: tuple[Device, ...] = ()
    counter_sets: tuple[CounterSet, ...] = ()
    unsupported: str = ""
    unusable: str = ""  # why none of its devices can be allocated, although it counts for its pool
    version: str = field(default="", compare=False)  # of its object, to see whether a copy is outdated

    def key(self, device: Device) -> DeviceKey:
        """The key of one of its devices."""
        return DeviceKey(self.pool.driver, self.pool.name, device.name)


@dataclass(frozen=True, slots=True)
class DeviceConfig:
    """Parameters for the driver, as the API has them, and the requests they are for (none: all)."""

    parameters: str
    requests: tuple[str, ...] = ()
    from_class: bool = False


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices: expressions that must all select a device. None: a selector of an unknown sort."""

    name: str
    selectors: tuple[str | None, ...] = ()
    config: tuple[DeviceConfig, ...] = ()


@dataclass(frozen=True, slots=True)
class SelectorVerdicts:
    """Which devices of a slice an expression selects, in their order: 1 it does, 0 not, 2 an error.

    `flaw`: the expression cannot be compiled, so that it selects nothing and every question is an error.
    """

    matches: bytes = b""
    errors: tuple[tuple[int, str], ...] = ()  # by index of the device
    flaw: str = ""

    def error(self, index: int) -> str:
        """The error of a device."""
        return dict(self.errors)[index]


SelectDevices = Callable[[str, DeviceSlice], SelectorVerdicts]
"""Evaluates an expression on the devices of a slice."""
