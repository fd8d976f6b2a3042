"""The devices that claims hold, alone or in shares."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from bayplan.model.devices.claims import DeviceAllocation
from bayplan.model.devices.inventory import Amounts, DeviceKey


@dataclass(frozen=True, slots=True)
class DevicesInUse:
    """Devices that one claim has alone, devices that have shares, and what these take of the capacities."""

    alone: frozenset[DeviceKey] = frozenset()
    shared: frozenset[DeviceKey] = frozenset()
    consumed: Mapping[DeviceKey, Mapping[str, int]] = field(default_factory=dict)

    def holds(self, key: DeviceKey) -> bool:
        """Whether a device is in use at all, so that its counters are drawn on."""
        return key in self.alone or self.has_shares(key)

    def has_shares(self, key: DeviceKey) -> bool:
        return key in self.shared or key in self.consumed


NOTHING_IN_USE = DevicesInUse()


def devices_in_use(allocations: Iterable[DeviceAllocation], *, shares: bool = True) -> DevicesInUse:
    """What the allocations hold; admin access holds nothing. `shares`: whether devices can be shared."""
    alone: set[DeviceKey] = set()
    shared: set[DeviceKey] = set()
    consumed: dict[DeviceKey, dict[str, int]] = {}
    for allocation in allocations:
        for device in allocation.devices:
            if device.admin:
                continue
            if device.share is None or not shares:
                alone.add(device.key)
                continue
            shared.add(device.key)
            if device.consumed:
                add_amounts(consumed.setdefault(device.key, {}), device.consumed)
    return DevicesInUse(frozenset(alone), frozenset(shared), consumed)


def add_amounts(total: dict[str, int], amounts: Amounts, sign: int = 1) -> None:
    """Add amounts to a sum, or subtract them."""
    for name, amount in amounts:
        total[name] = total.get(name, 0) + sign * amount
